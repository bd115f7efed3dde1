/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pool/pool.h - segments and leases of one page size, in one directory.
 *
 * A segment is a file and its state is the directory it stands in: filling/, ready/ (both 0700) or
 * lent/ (0711). A change of state is a rename; what is on disk is the truth and this is an index
 * over it. A segment is lent once, and never goes back from lent/ to ready/: its pages return to the
 * kernel, which zeroes them before anyone else sees them.
 *
 * File names are never reused: NODE-ID or NODE-ID=NAME for a named lease ("0-5f0c...e1=vm7"), ID being
 * 64 random bits in hexadecimal. A file NODE-ID.given beside a named lease says that it was given while
 * in use; a lent file itself is not touched but to remove it, for its lessee may hold its inode's lock.
 *
 * Single-threaded: the owner's thread only. Nothing here logs, mounts, or waits.
 */
#ifndef PREZERO_POOL_POOL_H
#define PREZERO_POOL_POOL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "model/class.h"
#include "model/view.h"

struct pool;

enum segment_state { SEGMENT_FILLING, SEGMENT_READY, SEGMENT_LENT };

#define LEASE_NAME_MAX 64 /* letters, digits, '.', '_', '-'; not starting with '.' */
#define SEGMENT_ID_TEXT_MAX 20

struct segment {
	uint64_t id;
	uint64_t bytes;
	uint64_t
		since_s; /* wall clock of the last change of state (the file's ctime after recovery) */
	int node;
	enum segment_state state;
	/* lent */
	uid_t uid;
	bool is_claimed; /* filling for a waiting request: no stock counts on it */
	bool is_partial; /* lent while it is still being filled */
	bool is_given; /* was named and given back while in use: ends with its last holder */
	char *name; /* of a named lease, or NULL */
	void *owner_data; /* the daemon's: a fill job, a waiting request; NULL after recovery */
	void *check; /* the daemon's: that it is to be looked at again; NULL after recovery */
	/* followed by what is the pool's own: see pool/segment.h */
};

/* What recovery found, for one log line. */
struct pool_recovery {
	unsigned int n_ready_adopted, n_ready_refused, n_filling_dropped, n_lent_kept, n_lent_ended;
};

/* Opens or creates the three directories under dir_fd (duplicated) and recovers what stands there:
 * ready/ is adopted (root's own regular files, one link, full, nobody else's lock; anything else is
 * removed), filling/ is removed, lent/ is matched with its holders. */
MUST_CHECK int pool_open(int dir_fd, struct page_size page, struct pool **ret,
			 struct pool_recovery *recovery);
/* Closes descriptors; files stay as they are. Returns NULL. */
struct pool *pool_close(struct pool *pool);
struct page_size pool_page(const struct pool *pool);

/* A new file of that length in filling/. *ret_fd is read-write, the caller closes it. */
MUST_CHECK int pool_create(struct pool *pool, int node, uint64_t bytes, struct segment **ret,
			   int *ret_fd);
/* A waiting request will get it, or after all not. */
void pool_set_claimed(struct pool *pool, struct segment *segment, bool is_claimed);
/* filling/ -> ready/; -ENODATA when the file is not full. Of a segment lent while filling: it is whole
 * now. */
MUST_CHECK int pool_set_ready(struct pool *pool, struct segment *segment);
/* Unlinks a segment that is filling or ready and forgets it. Where ret_fd is not NULL, *ret_fd gets the
 * last descriptor so that the caller can have the pages freed off its thread by closing it, or -1 where
 * there is none to be had. */
MUST_CHECK int pool_drop(struct pool *pool, struct segment *segment, int *ret_fd);

/* A ready segment: of exactly these bytes, the oldest first; NULL if none. Flat. */
struct segment *pool_find_ready(struct pool *pool, int node, uint64_t bytes);
/* Cutting is in two steps so that freeing pages may be slow elsewhere: the segment leaves ready/ for
 * filling/ and is claimed, the caller truncates *ret_fd in a team thread and closes it, then
 * pool_end_cut() notes the new length and puts the segment back to ready/. */
MUST_CHECK int pool_begin_cut(struct pool *pool, struct segment *segment, int *ret_fd);
MUST_CHECK int pool_end_cut(struct pool *pool, struct segment *segment, uint64_t bytes);

struct lessee {
	uid_t uid;
	gid_t gid;
	const char *name; /* NULL: the lease ends with its last holder */
};
/* Lends a ready segment, or one being filled (partial: what is missing is reserved first so that no
 * page can be missing later; -ENOMEM if that cannot be had, -EOPNOTSUPP for thp and base: tmpfs has no
 * reservation that is faster than filling). *ret_fd carries the lease: its shared lock lives as long as
 * any duplicate or mapping of it. -EEXIST: the name is taken. -EINVAL: it is no name. */
MUST_CHECK int pool_lend(struct pool *pool, struct segment *segment, const struct lessee *lessee,
			 int *ret_fd);
struct segment *pool_find_lease(struct pool *pool, uint64_t id);
struct segment *pool_find_lease_by_name(struct pool *pool, const char *name);
/* 1: somebody still holds the lock, 0: nobody, negative: it could not be looked at (no descriptor left),
 * so ask again later. */
MUST_CHECK int pool_lease_is_held(struct pool *pool, struct segment *segment);
/* Unlinks and forgets a lease that nobody has open: 0, and *ret_fd as in pool_drop(). 1: somebody holds the
 * lock, and will be heard of. -EBUSY: somebody has it open without the lock (the path of a lease is its
 * user's to open), and may go without a word. -EOPNOTSUPP: nobody holds the lock, and more the kernel
 * cannot say (hugetlbfs from 7.2 on), but /proc can. Other errors: ask again later. */
MUST_CHECK int pool_try_end_lease(struct pool *pool, struct segment *segment, int *ret_fd);
/* The same whoever has it open, and waits for who holds the inode's lock. */
MUST_CHECK int pool_end_lease(struct pool *pool, struct segment *segment, int *ret_fd);
/* A named lease ends with its last holder from now on; its name is taken until then. */
MUST_CHECK int pool_give_lease(struct pool *pool, struct segment *segment);
/* Somebody has it still: marks on disk that it was given, for a restart to know. */
MUST_CHECK int pool_mark_given(struct pool *pool, struct segment *segment);

/* "ready/<file>", below the pool's directory; returns the length or -ENOSPC. */
int pool_segment_path(const struct pool *pool, const struct segment *segment, char *buf,
		      size_t buf_bytes);
MUST_CHECK int pool_segment_stat(const struct pool *pool, const struct segment *segment, dev_t *dev,
				 ino_t *ino, uint64_t *allocated_bytes);

/* Readable when a lent file was closed for the last time by somebody. pool_read_closed() collects some of
 * the leases concerned in the pool, 0 when there is no more to collect, else 1; check each after 10 ms
 * (the lock goes just after the event): pool_next_closed() yields them, NULL at the end. An overflow of
 * the watch yields all. -ESTALE: the directory is gone. After pool_open() it yields those whose holders
 * may be gone or leave without an event. */
int pool_watch_fd(const struct pool *pool);
MUST_CHECK int pool_read_closed(struct pool *pool);
struct segment *pool_next_closed(struct pool *pool);

/* Every segment by age: start with NULL. pool_after() resumes behind a sequence number, for listings
 * that stream while the pool changes. */
struct segment *pool_next(struct pool *pool, const struct segment *after);
struct segment *pool_after(struct pool *pool, uint64_t sequence);
uint64_t segment_sequence(const struct segment *segment);

/* By bucket, kept up to date, flat to read; valid until the next change. */
void pool_view(struct pool *pool, struct pool_view *ret);
struct pool_usage {
	uint64_t filling_bytes, ready_bytes, lent_bytes; /* linked, by state, of one node */
	unsigned int n_filling, n_ready, n_lent;
};
void pool_usage(const struct pool *pool, int node, struct pool_usage *ret);
/* Pages that are used in the mount but belong to no segment: pinned by somebody after their lease
 * ended, grown by a lessee, or being freed. 0 where the directory is not a mount of its own with a
 * size. */
MUST_CHECK int pool_pinned_bytes(struct pool *pool, uint64_t *ret);

#endif
