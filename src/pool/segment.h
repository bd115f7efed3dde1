/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pool/segment.h - the index over the files: what the pool knows of its segments, in memory.
 *
 * Shared by the files of this directory only. Whoever changes a segment's state, length or name does so
 * through the functions here, so that buckets, usage and look-ups always agree.
 */
#ifndef PREZERO_POOL_SEGMENT_H
#define PREZERO_POOL_SEGMENT_H

#include <sys/queue.h>

#include "pool/hash.h"
#include "pool/pool.h"

#define SEGMENT_STATES 3

TAILQ_HEAD(entry_list, entry);

/* All segments of one length on one node. */
struct bucket {
	struct hash_link by_key;
	int node;
	uint64_t bytes;
	unsigned int index; /* in pool->bucket and pool->view */
	unsigned int n_entries;
	struct entry_list ready; /* the oldest first */
};

struct entry {
	struct segment segment;
	uint64_t sequence;
	struct hash_link by_id;
	struct bucket *bucket;
	/* filling: in pool->filling; ready: in bucket->ready; lent: in pool->closed, if is_closed */
	TAILQ_ENTRY(entry) link;
	bool is_closed;
	bool has_mark; /* on disk: it was given */
};

struct lease_name {
	struct hash_link by_name;
	struct entry *entry;
	char text[];
};

/* Segments by age. The entry is NULL where the segment is gone: holes are closed when they are half. */
struct age {
	uint64_t sequence;
	struct entry *entry;
};

struct pool {
	struct page_size page;
	int dir_fd;
	int state_fd[SEGMENT_STATES]; /* the directories, by state */
	int inotify_fd;
	bool is_mount; /* the directory is the root of a mount of its own */
	struct hash_table ids, names, buckets;
	uint64_t next_sequence;
	size_t n_ages, n_holes, ages_max;
	struct age *age;
	unsigned int n_buckets, buckets_max;
	struct bucket **bucket;
	struct bucket_view *view; /* beside bucket */
	struct pool_usage usage[NODES_MAX];
	struct entry_list filling;
	struct entry_list closed; /* leases to look at */
};

static inline struct entry *entry_of(const struct segment *segment)
{
	return HASH_ENTRY(segment, struct entry, segment);
}

/* File names. */
#define FILE_NAME_MAX (4 + SEGMENT_ID_TEXT_MAX + LEASE_NAME_MAX)
#define GIVEN_MARK ".given" /* NODE-ID.given, an empty file: the lease NODE-ID=NAME was given */
bool lease_name_is_valid(const char *name);
void format_file_name(const struct segment *segment, char buf[FILE_NAME_MAX]);
void format_given_mark(const struct segment *segment, char buf[FILE_NAME_MAX]);
/* Writes id, node and, where there is one, *ret_name (inside text); -EINVAL. */
MUST_CHECK int parse_file_name(const char *text, int *ret_node, uint64_t *ret_id,
			       const char **ret_name);

MUST_CHECK int index_init(struct pool *pool);
void index_done(struct pool *pool); /* frees all entries too */

/* A new entry, in its state; NULL when out of memory. */
struct entry *index_add(struct pool *pool, const struct segment *segment);
void index_remove(struct pool *pool, struct entry *entry);
/* Renumbers by since_s; after recovery. */
void index_sort_by_age(struct pool *pool);
void index_set_state(struct pool *pool, struct entry *entry, enum segment_state state);
MUST_CHECK int index_set_bytes(struct pool *pool, struct entry *entry, uint64_t bytes);
void index_set_claimed(struct pool *pool, struct entry *entry, bool is_claimed);
struct entry *index_find(const struct pool *pool, uint64_t id);
struct bucket *index_find_bucket(const struct pool *pool, int node, uint64_t bytes);

/* A name is made before the file is touched, then cannot fail to be given. */
struct lease_name *lease_name_new(const char *text);
void index_set_name(struct pool *pool, struct entry *entry, struct lease_name *name);
void index_drop_name(struct pool *pool, struct entry *entry);
struct entry *index_find_name(const struct pool *pool, const char *text);

void index_note_closed(struct pool *pool, struct entry *entry);

/* The disk, as the index does not see it (pool.c). */
MUST_CHECK int segment_open(const struct pool *pool, const struct segment *segment, int flags);
/* 1: somebody's, 0: nobody's, or a negative errno. */
MUST_CHECK int fd_is_locked(int fd);
/* 1: nobody else has the file open, nor can open it until fd is closed; 0: somebody has; -EOPNOTSUPP: the
 * kernel cannot say. */
MUST_CHECK int fd_is_alone(int fd);

MUST_CHECK int watch_start(struct pool *pool);
MUST_CHECK int recover(struct pool *pool, struct pool_recovery *ret);

#endif
