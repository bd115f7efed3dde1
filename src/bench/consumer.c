/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bench/consumer.c - what a consumer of memory does, cold and from the pool. */
#include "bench/consumer.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/qemu.h"
#include "bench/service.h"
#include "bench/work.h"
#include "prezero.h"

int prepare_cold(struct bench *bench, struct trial *trial)
{
	if (!bench->service)
		return 0;
	return service_keep_nothing(bench->service, trial->reason, sizeof(trial->reason));
}

int prepare_pool(struct bench *bench, struct trial *trial)
{
	const struct work *work = trial->arg;

	if (!bench->service)
		return trial_fail(trial, -ENODATA, "%s", bench->why_no_service);
	return service_keep(bench->service, work->page_text, work->bytes, 1, trial->reason,
			    sizeof(trial->reason));
}

/* Of what is ready only: no trial from the pool measures a fill. */
static struct prezero_request request_of(const struct bench *bench, const struct work *work)
{
	struct prezero_request request = PREZERO_REQUEST_INIT;

	request.bytes = work->bytes;
	request.page = work->page_text;
	request.node = bench->node;
	request.wait_ms = 0;
	return request;
}

static int take_ready(struct bench *bench, struct trial *trial, struct prezero_lease **ret)
{
	struct prezero *connection = service_connection(bench->service);
	struct prezero_request request = request_of(bench, trial->arg);
	int r = prezero_take(connection, &request, sizeof(request), ret);

	return r < 0 ? trial_fail(trial, r, "%s", prezero_error(connection)) : 0;
}

int run_touch_cold(struct bench *bench, struct trial *trial, double *ret_s)
{
	const struct work *work = trial->arg;
	double started_s = now_s();
	void *address;
	int r = map_anonymous(work->page, work->bytes, &address);

	(void)bench;
	if (r < 0)
		return trial_fail(trial, r, "cannot map %" PRIu64 " MiB of %s pages: %s",
				  work->bytes >> 20, work->page_text, strerror(-r));
	touch(address, work->bytes, work->page.bytes);
	*ret_s = now_s() - started_s;
	munmap(address, work->bytes);
	return 0;
}

int run_take_and_map(struct bench *bench, struct trial *trial, double *ret_s)
{
	const struct work *work = trial->arg;
	struct prezero *connection = service_connection(bench->service);
	struct prezero_request request = request_of(bench, work);
	double started_s = now_s();
	struct prezero_map *map;
	int r = prezero_map(connection, &request, sizeof(request), &map);

	if (r < 0)
		return trial_fail(trial, r, "%s", prezero_error(connection));
	*ret_s = now_s() - started_s;
	touch(prezero_map_address(map), work->bytes, work->page.bytes);
	trial->also->on_the_way_s = now_s() - started_s;
	prezero_unmap(map);
	return 0;
}

static int lock(struct trial *trial, void *address)
{
	const struct work *work = trial->arg;

	if (mlock(address, work->bytes) == 0)
		return 0;
	return trial_fail(trial, -errno, "mlock of %" PRIu64 " MiB: %s (ulimit -l, or run as root)",
			  work->bytes >> 20, strerror(errno));
}

/* A trial of huge pages that got small ones would measure something else. */
static int check_huge(struct trial *trial, const void *address)
{
	const struct work *work = trial->arg;
	uint64_t huge_bytes;
	int r;

	if (work->page.kind != PAGE_THP)
		return 0;
	r = smaps_huge_bytes(address, work->bytes, &huge_bytes);
	if (r == 0 && huge_bytes < work->bytes)
		return trial_fail(trial, -ENOTSUP,
				  "only %" PRIu64 " of %" PRIu64
				  " MiB came in transparent huge pages",
				  huge_bytes >> 20, work->bytes >> 20);
	return r;
}

int run_mlock_cold(struct bench *bench, struct trial *trial, double *ret_s)
{
	const struct work *work = trial->arg;
	double started_s = now_s();
	void *address;
	int r = map_anonymous(work->page, work->bytes, &address);

	(void)bench;
	if (r < 0)
		return r;
	r = lock(trial, address);
	*ret_s = now_s() - started_s;
	if (r == 0)
		r = check_huge(trial, address);
	munmap(address, work->bytes);
	return r;
}

int run_mlock_pool(struct bench *bench, struct trial *trial, double *ret_s)
{
	const struct work *work = trial->arg;
	double started_s = now_s();
	struct prezero_lease *lease;
	void *address;
	int r = take_ready(bench, trial, &lease);

	if (r < 0)
		return r;
	r = map_file(work->page, prezero_lease_fd(lease), work->bytes, &address);
	if (r == 0) {
		r = lock(trial, address);
		*ret_s = now_s() - started_s;
		if (r == 0)
			r = check_huge(trial, address);
		munmap(address, work->bytes);
	}
	prezero_lease_free(lease);
	return r;
}

int run_qemu_floor(struct bench *bench, struct trial *trial, double *ret_s)
{
	const struct work *work = trial->arg;
	char backend[256];

	(void)bench;
	snprintf(backend, sizeof(backend), "memory-backend-ram,id=mem,size=%" PRIu64 "M",
		 work->bytes >> 20);
	return qemu_start_and_quit(trial, work->qemu, backend, work->bytes, ret_s);
}

int run_qemu_prealloc(struct bench *bench, struct trial *trial, double *ret_s)
{
	const struct work *work = trial->arg;
	char backend[256];

	(void)bench;
	snprintf(backend, sizeof(backend),
		 "memory-backend-memfd,id=mem,size=%" PRIu64
		 "M,hugetlb=on,hugetlbsize=2M,share=on,prealloc=on,prealloc-threads=%u",
		 work->bytes >> 20, work->prealloc_threads);
	return qemu_start_and_quit(trial, work->qemu, backend, work->bytes, ret_s);
}

int run_qemu_pool(struct bench *bench, struct trial *trial, double *ret_s)
{
	const struct work *work = trial->arg;
	double started_s = now_s(), taken_s;
	struct prezero_lease *lease;
	char backend[512];
	int r = take_ready(bench, trial, &lease);

	if (r < 0)
		return r;
	taken_s = now_s() - started_s;

	/* The daemon rests while QEMU starts, and does not replace the segment when it ends. */
	r = service_keep_leases(bench->service, trial->reason, sizeof(trial->reason));
	if (r == 0) {
		snprintf(backend, sizeof(backend),
			 "memory-backend-file,id=mem,size=%" PRIu64 "M,mem-path=%s,share=on%s",
			 work->bytes >> 20, prezero_lease_path(lease),
			 work->is_populated ? ",prealloc=on" : "");
		r = qemu_start_and_quit(trial, work->qemu, backend, work->bytes, ret_s);
		*ret_s += taken_s;
	}
	prezero_lease_free(lease);
	return r;
}
