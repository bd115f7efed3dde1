/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pool/index.c - the index over the files: look-ups, counts and age.
 *
 * Guarantees: every look-up is flat in the number of segments; only what adds an entry, a bucket or a
 * name can fail, and then changes nothing.
 */
#include "pool/segment.h"

#include <string.h>

#define AGES_MIN 64U
#define BUCKETS_MIN 16U

int index_init(struct pool *pool)
{
	int r;

	TAILQ_INIT(&pool->filling);
	TAILQ_INIT(&pool->closed);
	r = hash_table_init(&pool->ids);
	if (r < 0)
		return r;
	r = hash_table_init(&pool->names);
	if (r < 0)
		return r;
	return hash_table_init(&pool->buckets);
}

void index_done(struct pool *pool)
{
	for (size_t i = 0; i < pool->n_ages; i++) {
		struct entry *entry = pool->age[i].entry;

		if (!entry)
			continue;
		index_drop_name(pool, entry);
		free(entry);
	}
	for (unsigned int i = 0; i < pool->n_buckets; i++)
		free(pool->bucket[i]);
	free(pool->age);
	free(pool->bucket);
	free(pool->view);
	hash_table_done(&pool->ids);
	hash_table_done(&pool->names);
	hash_table_done(&pool->buckets);
}

static uint64_t bucket_key(int node, uint64_t bytes)
{
	return hash_u64(hash_u64(bytes) + (uint64_t)node);
}

struct bucket *index_find_bucket(const struct pool *pool, int node, uint64_t bytes)
{
	struct hash_link *link = hash_find(&pool->buckets, bucket_key(node, bytes));

	for (; link; link = hash_find_next(link)) {
		struct bucket *bucket = HASH_ENTRY(link, struct bucket, by_key);

		if (bucket->node == node && bucket->bytes == bytes)
			return bucket;
	}
	return NULL;
}

static int make_room_for_bucket(struct pool *pool)
{
	unsigned int max = pool->buckets_max ? pool->buckets_max * 2 : BUCKETS_MIN;
	struct bucket **bucket;
	struct bucket_view *view;

	if (pool->n_buckets < pool->buckets_max)
		return 0;
	bucket = realloc(pool->bucket, max * sizeof(*bucket));
	if (!bucket)
		return -ENOMEM;
	pool->bucket = bucket;
	view = realloc(pool->view, max * sizeof(*view));
	if (!view)
		return -ENOMEM;
	pool->view = view;
	pool->buckets_max = max;
	return 0;
}

static struct bucket *get_bucket(struct pool *pool, int node, uint64_t bytes)
{
	struct bucket *bucket = index_find_bucket(pool, node, bytes);

	if (bucket)
		return bucket;
	if (make_room_for_bucket(pool) < 0)
		return NULL;
	bucket = calloc(1, sizeof(*bucket));
	if (!bucket)
		return NULL;
	bucket->node = node;
	bucket->bytes = bytes;
	TAILQ_INIT(&bucket->ready);
	bucket->index = pool->n_buckets++;
	pool->bucket[bucket->index] = bucket;
	pool->view[bucket->index] = (struct bucket_view){
		.page_class = {.page = pool->page, .node = node},
		.segment_bytes = bytes,
	};
	hash_insert(&pool->buckets, &bucket->by_key, bucket_key(node, bytes));
	return bucket;
}

static void put_bucket(struct pool *pool, struct bucket *bucket)
{
	unsigned int last = pool->n_buckets - 1;

	if (bucket->n_entries)
		return;
	hash_remove(&pool->buckets, &bucket->by_key);
	pool->bucket[bucket->index] = pool->bucket[last];
	pool->view[bucket->index] = pool->view[last];
	pool->bucket[bucket->index]->index = bucket->index;
	pool->n_buckets = last;
	free(bucket);
}

/* Counts an entry into (sign 1) or out of (-1) its bucket, its node and its list. */
static void count(struct pool *pool, struct entry *entry, int sign)
{
	struct bucket *bucket = entry->bucket;
	struct bucket_view *view = &pool->view[bucket->index];
	struct pool_usage *usage = &pool->usage[bucket->node];
	unsigned int one = (unsigned int)sign;
	uint64_t bytes = sign > 0 ? bucket->bytes : -bucket->bytes;
	struct entry_list *list = NULL;

	bucket->n_entries += one;
	switch (entry->segment.state) {
	case SEGMENT_FILLING:
		if (!entry->segment.is_claimed)
			view->n_filling += one;
		usage->n_filling += one;
		usage->filling_bytes += bytes;
		list = &pool->filling;
		break;
	case SEGMENT_READY:
		view->n_ready += one;
		usage->n_ready += one;
		usage->ready_bytes += bytes;
		list = &bucket->ready;
		break;
	case SEGMENT_LENT:
		view->n_lent += one;
		usage->n_lent += one;
		usage->lent_bytes += bytes;
		if (sign < 0 && entry->is_closed)
			list = &pool->closed;
		entry->is_closed = false;
		break;
	}
	if (list && sign > 0)
		TAILQ_INSERT_TAIL(list, entry, link);
	else if (list)
		TAILQ_REMOVE(list, entry, link);
}

static void close_holes(struct pool *pool)
{
	size_t n = 0;

	for (size_t i = 0; i < pool->n_ages; i++)
		if (pool->age[i].entry)
			pool->age[n++] = pool->age[i];
	pool->n_ages = n;
	pool->n_holes = 0;
}

static int make_room_for_age(struct pool *pool)
{
	size_t max = pool->ages_max ? pool->ages_max * 2 : AGES_MIN;
	struct age *age;

	if (pool->n_ages < pool->ages_max)
		return 0;
	age = realloc(pool->age, max * sizeof(*age));
	if (!age)
		return -ENOMEM;
	pool->age = age;
	pool->ages_max = max;
	return 0;
}

/* The first of the ages that is younger than a sequence number. */
static size_t first_after(const struct pool *pool, uint64_t sequence)
{
	size_t low = 0, high = pool->n_ages;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (pool->age[middle].sequence > sequence)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

struct entry *index_add(struct pool *pool, const struct segment *segment)
{
	struct entry *entry;

	if (make_room_for_age(pool) < 0)
		return NULL;
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return NULL;
	entry->segment = *segment;
	entry->bucket = get_bucket(pool, segment->node, segment->bytes);
	if (!entry->bucket) {
		free(entry);
		return NULL;
	}
	entry->sequence = ++pool->next_sequence;
	pool->age[pool->n_ages++] = (struct age){entry->sequence, entry};
	hash_insert(&pool->ids, &entry->by_id, segment->id);
	count(pool, entry, 1);
	return entry;
}

static int compare_age(const void *a, const void *b)
{
	const struct segment *x = &((const struct age *)a)->entry->segment;
	const struct segment *y = &((const struct age *)b)->entry->segment;

	return (x->since_s > y->since_s) - (x->since_s < y->since_s);
}

void index_sort_by_age(struct pool *pool)
{
	close_holes(pool);
	if (pool->n_ages > 0)
		qsort(pool->age, pool->n_ages, sizeof(*pool->age), compare_age);
	for (size_t i = 0; i < pool->n_ages; i++) {
		struct age *age = &pool->age[i];

		age->sequence = age->entry->sequence = ++pool->next_sequence;
		/* Out and in again: the ready lists are in this order too. */
		if (age->entry->segment.state == SEGMENT_READY)
			index_set_state(pool, age->entry, SEGMENT_READY);
	}
}

void index_remove(struct pool *pool, struct entry *entry)
{
	struct bucket *bucket = entry->bucket;

	count(pool, entry, -1);
	put_bucket(pool, bucket);
	index_drop_name(pool, entry);
	hash_remove(&pool->ids, &entry->by_id);
	pool->age[first_after(pool, entry->sequence) - 1].entry = NULL;
	if (++pool->n_holes > pool->n_ages / 2)
		close_holes(pool);
	free(entry);
}

void index_set_state(struct pool *pool, struct entry *entry, enum segment_state state)
{
	count(pool, entry, -1);
	entry->segment.state = state;
	count(pool, entry, 1);
}

void index_set_claimed(struct pool *pool, struct entry *entry, bool is_claimed)
{
	bool is_counted = entry->segment.state == SEGMENT_FILLING;

	if (is_counted)
		count(pool, entry, -1);
	entry->segment.is_claimed = is_claimed;
	if (is_counted)
		count(pool, entry, 1);
}

int index_set_bytes(struct pool *pool, struct entry *entry, uint64_t bytes)
{
	struct bucket *old = entry->bucket;
	struct bucket *bucket = get_bucket(pool, old->node, bytes);

	if (!bucket)
		return -ENOMEM;
	count(pool, entry, -1);
	entry->bucket = bucket;
	entry->segment.bytes = bytes;
	count(pool, entry, 1);
	put_bucket(pool, old);
	return 0;
}

struct entry *index_find(const struct pool *pool, uint64_t id)
{
	struct hash_link *link = hash_find(&pool->ids, id);

	return link ? HASH_ENTRY(link, struct entry, by_id) : NULL;
}

struct lease_name *lease_name_new(const char *text)
{
	size_t text_bytes = strlen(text) + 1;
	struct lease_name *name = malloc(sizeof(*name) + text_bytes);

	if (name)
		memcpy(name->text, text, text_bytes);
	return name;
}

void index_set_name(struct pool *pool, struct entry *entry, struct lease_name *name)
{
	name->entry = entry;
	entry->segment.name = name->text;
	hash_insert(&pool->names, &name->by_name, hash_text(name->text));
}

void index_drop_name(struct pool *pool, struct entry *entry)
{
	struct lease_name *name;

	if (!entry->segment.name)
		return;
	name = HASH_ENTRY(entry->segment.name, struct lease_name, text);
	hash_remove(&pool->names, &name->by_name);
	entry->segment.name = NULL;
	free(name);
}

struct entry *index_find_name(const struct pool *pool, const char *text)
{
	struct hash_link *link = hash_find(&pool->names, hash_text(text));

	for (; link; link = hash_find_next(link)) {
		struct lease_name *name = HASH_ENTRY(link, struct lease_name, by_name);

		if (!strcmp(name->text, text))
			return name->entry;
	}
	return NULL;
}

void index_note_closed(struct pool *pool, struct entry *entry)
{
	if (entry->segment.state != SEGMENT_LENT || entry->is_closed)
		return;
	entry->is_closed = true;
	TAILQ_INSERT_TAIL(&pool->closed, entry, link);
}

struct segment *pool_next_closed(struct pool *pool)
{
	struct entry *entry = TAILQ_FIRST(&pool->closed);

	if (!entry)
		return NULL;
	TAILQ_REMOVE(&pool->closed, entry, link);
	entry->is_closed = false;
	return &entry->segment;
}

struct segment *pool_after(struct pool *pool, uint64_t sequence)
{
	for (size_t i = first_after(pool, sequence); i < pool->n_ages; i++)
		if (pool->age[i].entry)
			return &pool->age[i].entry->segment;
	return NULL;
}

struct segment *pool_next(struct pool *pool, const struct segment *after)
{
	return pool_after(pool, after ? entry_of(after)->sequence : 0);
}

uint64_t segment_sequence(const struct segment *segment)
{
	return entry_of(segment)->sequence;
}

struct segment *pool_find_ready(struct pool *pool, int node, uint64_t bytes)
{
	struct bucket *bucket = index_find_bucket(pool, node, bytes);
	struct entry *entry = bucket ? TAILQ_FIRST(&bucket->ready) : NULL;

	return entry ? &entry->segment : NULL;
}

static struct segment *if_lent(struct entry *entry)
{
	return entry && entry->segment.state == SEGMENT_LENT ? &entry->segment : NULL;
}

struct segment *pool_find_lease(struct pool *pool, uint64_t id)
{
	return if_lent(index_find(pool, id));
}

struct segment *pool_find_lease_by_name(struct pool *pool, const char *name)
{
	return if_lent(index_find_name(pool, name));
}

void pool_set_claimed(struct pool *pool, struct segment *segment, bool is_claimed)
{
	index_set_claimed(pool, entry_of(segment), is_claimed);
}

void pool_view(struct pool *pool, struct pool_view *ret)
{
	*ret = (struct pool_view){.n_buckets = pool->n_buckets, .bucket = pool->view};
}

void pool_usage(const struct pool *pool, int node, struct pool_usage *ret)
{
	*ret = node >= 0 && node < NODES_MAX ? pool->usage[node] : (struct pool_usage){0};
}
