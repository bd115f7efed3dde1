/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/pool_test.h - what every test of the pool does: open one, fill, lend, look who closed.
 *
 * Segments are filled with one plain MADV_POPULATE_WRITE, so that these tests stand without src/fill.
 */
#ifndef PREZERO_TESTS_POOL_TEST_H
#define PREZERO_TESTS_POOL_TEST_H

#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "host_state.h"
#include "pool/pool.h"

#define MIB (1ULL << 20)
#define MOUNT_LIMIT (256 * MIB)
#define CONSUMER 4242 /* an unprivileged user */

static inline struct pool *open_pool(int dir_fd, struct page_size page,
				     struct pool_recovery *recovery)
{
	struct pool_recovery ignored;
	struct pool *pool = NULL;

	assert_int_equal(pool_open(dir_fd, page, &pool, recovery ? recovery : &ignored), 0);
	return pool;
}

static inline int populate_file(int fd, uint64_t bytes)
{
	void *address =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	int r;

	if (address == MAP_FAILED)
		return -errno;
	r = madvise(address, bytes, MADV_POPULATE_WRITE) < 0 ? -errno : 0;
	munmap(address, bytes);
	return r;
}

static inline struct segment *make_ready(struct pool *pool, uint64_t bytes)
{
	struct segment *segment = NULL;
	int fd = -1;

	assert_int_equal(pool_create(pool, 0, bytes, &segment, &fd), 0);
	assert_int_equal(segment->state, SEGMENT_FILLING);
	assert_int_equal(populate_file(fd, bytes), 0);
	close(fd);
	assert_int_equal(pool_set_ready(pool, segment), 0);
	assert_int_equal(segment->state, SEGMENT_READY);
	return segment;
}

static inline int lend(struct pool *pool, struct segment *segment, uid_t uid, const char *name)
{
	const struct lessee lessee = {.uid = uid, .gid = uid, .name = name};
	int fd = -1;

	assert_int_equal(pool_lend(pool, segment, &lessee, &fd), 0);
	assert_int_equal(segment->state, SEGMENT_LENT);
	assert_true(fd >= 0);
	return fd;
}

static inline bool try_end(struct pool *pool, struct segment *segment)
{
	int r = pool_try_end_lease(pool, segment, NULL);

	if (r == -EOPNOTSUPP)
		r = pool_end_lease(pool, segment, NULL);
	assert_true(r == 0 || r == 1 || r == -EBUSY);
	return r == 0;
}

/* What the daemon does when the watch says so: ends what nobody holds. Returns how many ended. */
static inline unsigned int end_closed(struct pool *pool)
{
	struct pollfd poll_fd = {.fd = pool_watch_fd(pool), .events = POLLIN};
	struct segment *segment;
	unsigned int n = 0;

	while (poll(&poll_fd, 1, 0) == 1)
		assert_int_equal(pool_read_closed(pool), 1);
	usleep(10000);
	while ((segment = pool_next_closed(pool))) {
		assert_int_equal(segment->state, SEGMENT_LENT);
		if (!segment->name || segment->is_given)
			n += try_end(pool, segment);
	}
	return n;
}

/* Ends everything, whoever has it. */
static inline struct pool *drain_pool(struct pool *pool)
{
	struct segment *segment;

	while ((segment = pool_next(pool, NULL))) {
		if (segment->state == SEGMENT_LENT)
			assert_int_equal(pool_end_lease(pool, segment, NULL), 0);
		else
			assert_int_equal(pool_drop(pool, segment, NULL), 0);
	}
	return pool_close(pool);
}

static inline struct pool_usage usage_of(struct pool *pool)
{
	struct pool_usage usage;

	pool_usage(pool, 0, &usage);
	return usage;
}

#endif
