/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bench/work.c - the pieces of work that are timed, and the memory they are done on. */
#include "bench/work.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>

#include "base/io.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

double now_s(void)
{
	return (double)monotonic_ns() / 1e9;
}

static int map_hugetlb(uint64_t page_bytes, uint64_t bytes, void **ret)
{
	int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB |
		    __builtin_ctzll(page_bytes) << MAP_HUGE_SHIFT;
	void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);

	if (address == MAP_FAILED)
		return -errno;
	*ret = address;
	return 0;
}

/* Addresses that begin at a multiple of align_bytes, to map something over. */
static int reserve_aligned(uint64_t bytes, uint64_t align_bytes, char **ret)
{
	char *around = mmap(NULL, bytes + align_bytes, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t before_bytes;

	if (around == MAP_FAILED)
		return -errno;
	before_bytes = (align_bytes - (uintptr_t)around % align_bytes) % align_bytes;
	if (before_bytes > 0)
		munmap(around, before_bytes);
	munmap(around + before_bytes + bytes, align_bytes - before_bytes);
	*ret = around + before_bytes;
	return 0;
}

static int map_over(struct page_size page, int flags, int fd, uint64_t bytes, void **ret)
{
	char *address = NULL;
	int r = reserve_aligned(bytes, page.bytes, &address);

	if (r < 0)
		return r;
	if (mmap(address, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) == MAP_FAILED ||
	    (page.kind == PAGE_THP && madvise(address, bytes, MADV_HUGEPAGE) < 0)) {
		r = -errno;
		munmap(address, bytes);
		return r;
	}
	/* A kernel without transparent huge pages refuses it, and needs no telling. */
	if (page.kind == PAGE_BASE)
		(void)madvise(address, bytes, MADV_NOHUGEPAGE);
	*ret = address;
	return 0;
}

int map_anonymous(struct page_size page, uint64_t bytes, void **ret)
{
	if (page.kind == PAGE_HUGETLB)
		return map_hugetlb(page.bytes, bytes, ret);
	return map_over(page, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, bytes, ret);
}

int map_file(struct page_size page, int fd, uint64_t bytes, void **ret)
{
	return map_over(page, MAP_SHARED | MAP_NORESERVE, fd, bytes, ret);
}

/* A tmpfs that is mounted nowhere: it goes with its last file, so nothing can be left behind. */
static int open_in_tmpfs(const char *huge)
{
	AUTO_FD context_fd = fsopen("tmpfs", FSOPEN_CLOEXEC);
	AUTO_FD mount_fd = -1;
	int fd;

	if (context_fd < 0 || fsconfig(context_fd, FSCONFIG_SET_STRING, "huge", huge, 0) < 0 ||
	    fsconfig(context_fd, FSCONFIG_SET_STRING, "size", "100%", 0) < 0 ||
	    fsconfig(context_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	mount_fd = fsmount(context_fd, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (mount_fd < 0)
		return -errno;
	fd = openat(mount_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

int open_memory_file(struct page_size page, uint64_t bytes, int *ret_fd)
{
	AUTO_FD fd = -1;

	if (page.kind == PAGE_HUGETLB) {
		fd = memfd_create("prezero-bench", MFD_CLOEXEC | MFD_HUGETLB |
							   (unsigned int)__builtin_ctzll(page.bytes)
								   << MAP_HUGE_SHIFT);
		if (fd < 0)
			return -errno;
	} else {
		fd = open_in_tmpfs(page.kind == PAGE_THP ? "always" : "never");
		if (fd < 0)
			return fd;
	}
	if (ftruncate(fd, (off_t)bytes) < 0)
		return -errno;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

void touch(void *address, uint64_t bytes, uint64_t page_bytes)
{
	volatile char *memory = address;

	for (uint64_t offset = 0; offset < bytes; offset += page_bytes)
		memory[offset] = 1;
}

struct populate_team {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned int n_waiting;
	bool may_go, is_called_off;
};

struct populate_thread {
	pthread_t thread;
	struct populate_team *team;
	struct span span;
	uint64_t unit_bytes;
	int result;
};

static bool wait_for_start(struct populate_team *team)
{
	bool goes;

	pthread_mutex_lock(&team->lock);
	team->n_waiting++;
	pthread_cond_broadcast(&team->changed);
	while (!team->may_go)
		pthread_cond_wait(&team->changed, &team->lock);
	goes = !team->is_called_off;
	pthread_mutex_unlock(&team->lock);
	return goes;
}

static void *populate_main(void *arg)
{
	struct populate_thread *self = arg;
	char *address = self->span.address;
	uint64_t left_bytes = self->span.bytes;

	if (!wait_for_start(self->team))
		return NULL;
	while (left_bytes > 0 && self->result == 0) {
		uint64_t unit_bytes = left_bytes < self->unit_bytes ? left_bytes : self->unit_bytes;

		if (madvise(address, unit_bytes, MADV_POPULATE_WRITE) < 0)
			self->result = -errno;
		address += unit_bytes;
		left_bytes -= unit_bytes;
	}
	return NULL;
}

/* Lets the threads go once all of them wait; returns when that was. */
static double start_threads(struct populate_team *team, unsigned int n_threads, bool is_called_off)
{
	double started_s;

	pthread_mutex_lock(&team->lock);
	while (team->n_waiting < n_threads)
		pthread_cond_wait(&team->changed, &team->lock);
	team->is_called_off = is_called_off;
	team->may_go = true;
	started_s = now_s();
	pthread_cond_broadcast(&team->changed);
	pthread_mutex_unlock(&team->lock);
	return started_s;
}

int populate(const struct span *spans, unsigned int n_spans, uint64_t unit_bytes, double *ret_s)
{
	struct populate_team team = {.lock = PTHREAD_MUTEX_INITIALIZER,
				     .changed = PTHREAD_COND_INITIALIZER};
	AUTO_FREE struct populate_thread *threads = calloc(n_spans, sizeof(*threads));
	unsigned int n_started = 0;
	double started_s;
	int r = 0;

	if (!threads)
		return -ENOMEM;
	while (n_started < n_spans && r == 0) {
		struct populate_thread *thread = &threads[n_started];

		*thread = (struct populate_thread){
			.team = &team, .span = spans[n_started], .unit_bytes = unit_bytes};
		r = -pthread_create(&thread->thread, NULL, populate_main, thread);
		if (r == 0)
			n_started++;
	}
	started_s = start_threads(&team, n_started, r < 0);
	for (unsigned int i = 0; i < n_started; i++) {
		pthread_join(threads[i].thread, NULL);
		if (r == 0)
			r = threads[i].result;
	}
	if (r == 0)
		*ret_s = now_s() - started_s;
	return r;
}

int smaps_huge_bytes(const void *address, uint64_t bytes, uint64_t *ret)
{
	AUTO_FILE file = fopen("/proc/self/smaps", "re");
	uint64_t first = (uintptr_t)address, huge_bytes = 0, start, end, value_kib;
	bool is_inside = false;
	char line[512];

	if (!file)
		return -errno;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &start, &end) == 2)
			is_inside = start < first + bytes && end > first;
		else if (is_inside && (sscanf(line, "AnonHugePages: %" SCNu64, &value_kib) == 1 ||
				       sscanf(line, "ShmemPmdMapped: %" SCNu64, &value_kib) == 1))
			huge_bytes += value_kib << 10;
	}
	*ret = huge_bytes;
	return 0;
}
