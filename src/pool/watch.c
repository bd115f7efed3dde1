/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pool/watch.c - who closed a lent file.
 *
 * Guarantees: one watch for all leases, and no wake-up but for a close by somebody who could write:
 * the pool's own probes open read-only. One read a call, so that a consumer that opens and closes in a
 * loop cannot keep the owner's thread here. A watch that overflowed counts as a close of everything.
 */
#include "pool/segment.h"

#include <sys/inotify.h>

int watch_start(struct pool *pool)
{
	char path[32];

	pool->inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (pool->inotify_fd < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", pool->state_fd[SEGMENT_LENT]);
	if (inotify_add_watch(pool->inotify_fd, path, IN_CLOSE_WRITE | IN_ONLYDIR) < 0)
		return -errno;
	return 0;
}

int pool_watch_fd(const struct pool *pool)
{
	return pool->inotify_fd;
}

static void note_all_closed(struct pool *pool)
{
	for (size_t i = 0; i < pool->n_ages; i++)
		if (pool->age[i].entry)
			index_note_closed(pool, pool->age[i].entry);
}

static void note_closed(struct pool *pool, const char *file)
{
	struct entry *entry;
	const char *name;
	uint64_t id;
	int node;

	/* The name may have changed since: the id does not. */
	if (parse_file_name(file, &node, &id, &name) < 0)
		return;
	entry = index_find(pool, id);
	if (entry)
		index_note_closed(pool, entry);
}

int pool_read_closed(struct pool *pool)
{
	char buf[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	const struct inotify_event *event;
	ssize_t n = read(pool->inotify_fd, buf, sizeof(buf));

	if (n < 0)
		return errno == EAGAIN ? 0 : errno == EINTR ? 1 : -errno;
	for (const char *at = buf; at < buf + n; at += sizeof(*event) + event->len) {
		event = (const struct inotify_event *)(const void *)at;
		if (event->mask & IN_Q_OVERFLOW)
			note_all_closed(pool);
		else if (event->mask & IN_IGNORED)
			return -ESTALE;
		else if (event->len)
			note_closed(pool, event->name);
	}
	return 1;
}
