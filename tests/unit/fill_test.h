/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/fill_test.h - what every test of the team does: start one, submit jobs, watch their units.
 */
#ifndef PREZERO_TESTS_FILL_TEST_H
#define PREZERO_TESTS_FILL_TEST_H

#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "fill/fill.h"
#include "fill/range.h"
#include "host_state.h"

#define MIB (1ULL << 20)
#define UNIT (16 * MIB)
#define MOUNT_LIMIT (512 * MIB)
#define MS_NS 1000000ULL

static struct fill_team *team;
static unsigned int n_pending;

/* One job as a test sees it. */
struct job {
	struct fill_job *job;
	int fd;
	unsigned int n_done;
	int result;
	struct fill_progress progress;
	/* from may_take, in team threads */
	atomic_uint n_asked, n_at_once, n_at_once_max;
	atomic_bool is_held; /* units do not begin */
	atomic_int refuse_with; /* at the second unit */
	unsigned int pause_us;
	void (*at_unit)(struct job *job, unsigned int index);
	_Atomic uint64_t first_ns, last_ns;
	atomic_int policy; /* of the thread that began last */
	atomic_uint tid; /* of the first one */
};

static inline void start_team(unsigned int n_threads, uint64_t rate)
{
	struct fill_config config = {.n_threads = n_threads, .rate_bytes_per_s = rate};

	assert_int_equal(fill_team_start(&config, &team), 0);
}

static inline void stop_team(void)
{
	team = fill_team_stop(team);
	assert_null(team);
	assert_int_equal(n_pending, 0);
}

static inline void reap_until(unsigned int n_left)
{
	while (n_pending > n_left) {
		struct pollfd poll_fd = {.fd = fill_team_fd(team), .events = POLLIN};

		assert_int_equal(poll(&poll_fd, 1, 60000), 1);
		fill_team_reap(team);
	}
}

static inline void wait_for(atomic_uint *counter, unsigned int at_least)
{
	while (atomic_load(counter) < at_least)
		usleep(200);
}

static inline int may_take(void *arg, uint64_t unit_bytes)
{
	struct job *job = arg;
	unsigned int index = atomic_fetch_add(&job->n_asked, 1);
	unsigned int now = atomic_fetch_add(&job->n_at_once, 1) + 1;
	unsigned int max = atomic_load(&job->n_at_once_max);

	(void)unit_bytes;
	if (!index) {
		atomic_store(&job->tid, (unsigned int)gettid());
		atomic_store(&job->first_ns, monotonic_ns());
	}
	atomic_store(&job->last_ns, monotonic_ns());
	while (max < now && !atomic_compare_exchange_weak(&job->n_at_once_max, &max, now))
		;
	atomic_store(&job->policy, sched_getscheduler(0));
	if (job->at_unit)
		job->at_unit(job, index);
	if (job->pause_us)
		usleep(job->pause_us);
	while (atomic_load(&job->is_held))
		usleep(200);
	atomic_fetch_sub(&job->n_at_once, 1);
	return index == 1 ? atomic_load(&job->refuse_with) : 0;
}

static inline void done(void *arg, struct fill_job *fill_job, int result)
{
	struct job *job = arg;

	assert_ptr_equal(fill_job, job->job);
	fill_job_progress(fill_job, &job->progress);
	job->result = result;
	job->n_done++;
	n_pending--;
}

static inline int new_file(int dir_fd, uint64_t bytes)
{
	int fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	return fd;
}

static inline struct fill_request request_of(struct job *job, int fd, struct page_size page,
					     uint64_t bytes)
{
	struct fill_request request = {
		.fd = fd,
		.length_bytes = bytes,
		.page_class = {.page = page, .node = 0},
		.priority = FILL_DEMAND,
		.bind = true,
		.may_take = may_take,
		.done = done,
		.arg = job,
	};

	return request;
}

static inline void submit_request(struct job *job, const struct fill_request *request)
{
	job->fd = request->fd;
	n_pending++;
	assert_int_equal(fill_team_submit(team, request, &job->job), 0);
}

static inline void submit(struct job *job, int fd, struct page_size page, uint64_t bytes)
{
	struct fill_request request = request_of(job, fd, page, bytes);

	submit_request(job, &request);
}

static inline void submit_stock(struct job *job, int fd, struct page_size page, uint64_t bytes)
{
	struct fill_request request = request_of(job, fd, page, bytes);

	request.priority = FILL_STOCK;
	submit_request(job, &request);
}

static inline unsigned int count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[1024];
	unsigned int n = 0;

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "prezero-unit-") != NULL;
	fclose(maps);
	return n;
}

static inline void need(struct page_size page, uint64_t bytes)
{
	host_required();
	if (page.kind == PAGE_HUGETLB)
		host_need_pages(page.bytes, (unsigned int)(bytes / page.bytes));
}

#endif
