/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_pool.c - a segment's life on real memory, from filling to its last page coming back,
 * and the index over many.
 */
#include "pool_test.h"

#include <malloc.h>
#include <time.h>

#define BYTES (16 * MIB)

static void need(struct page_size page)
{
	host_required();
	if (page.kind == PAGE_HUGETLB)
		host_need_pages(page.bytes, (unsigned int)(4 * BYTES / page.bytes));
}

/* Fill, lend, dirty, give, and again: what comes is zero every time, and nothing is lost. */
static void life(struct page_size page)
{
	unsigned int n_fds;
	uint64_t free_pages;
	struct pool *pool;
	int dir_fd;

	need(page);
	free_pages = host_count(HUGE_2M, "free_hugepages");
	dir_fd = host_mount(page, MOUNT_LIMIT);
	n_fds = count_fds();
	pool = open_pool(dir_fd, page, NULL);
	for (int round = 0; round < 4; round++) {
		struct segment *segment = make_ready(pool, BYTES);
		uint64_t id = segment->id, pinned;
		int fd;

		assert_ptr_equal(pool_find_ready(pool, 0, BYTES), segment);
		assert_int_equal(usage_of(pool).ready_bytes, BYTES);
		fd = lend(pool, segment, CONSUMER, NULL);
		assert_null(pool_find_ready(pool, 0, BYTES));
		assert_ptr_equal(pool_find_lease(pool, id), segment);
		assert_int_equal(segment->uid, CONSUMER);
		assert_int_equal(usage_of(pool).lent_bytes, BYTES);
		assert_true(oracle_is_zero(fd, BYTES));
		oracle_dirty(fd, BYTES);
		assert_int_equal(end_closed(pool), 0);
		assert_int_equal(pool_lease_is_held(pool, segment), 1);
		assert_int_equal(pool_pinned_bytes(pool, &pinned), 0);
		assert_int_equal(pinned, 0);
		close(fd);
		assert_int_equal(end_closed(pool), 1);
		assert_null(pool_find_lease(pool, id));
		assert_null(pool_find_ready(pool, 0, BYTES));
		assert_null(pool_next(pool, NULL));
		assert_int_equal(host_used_bytes(dir_fd), 0);
		assert_int_equal(host_count(HUGE_2M, "free_hugepages"), free_pages);
	}
	assert_null(pool_close(pool));
	assert_int_equal(count_fds(), n_fds);
	host_unmount(dir_fd);
}

static void test_life_hugetlb(void **state)
{
	(void)state;
	life(host_page(PAGE_HUGETLB));
}

static void test_life_thp(void **state)
{
	(void)state;
	life(host_page(PAGE_THP));
}

static void test_life_base(void **state)
{
	(void)state;
	life(host_page(PAGE_BASE));
}

/* Only a file with every page of it is ready. */
static void test_not_full(void **state)
{
	struct page_size page = host_page(PAGE_HUGETLB);
	struct segment *segment = NULL;
	struct pool *pool;
	int dir_fd, fd;

	(void)state;
	need(page);
	dir_fd = host_mount(page, MOUNT_LIMIT);
	pool = open_pool(dir_fd, page, NULL);
	assert_int_equal(pool_create(pool, 0, BYTES, &segment, &fd), 0);
	assert_int_equal(pool_set_ready(pool, segment), -ENODATA);
	assert_int_equal(populate_file(fd, BYTES - page.bytes), 0);
	assert_int_equal(pool_set_ready(pool, segment), -ENODATA);
	assert_int_equal(populate_file(fd, BYTES), 0);
	assert_int_equal(ftruncate(fd, (off_t)(BYTES + page.bytes)), 0);
	assert_int_equal(pool_set_ready(pool, segment), -ENODATA);
	assert_int_equal(segment->state, SEGMENT_FILLING);
	assert_int_equal(pool_drop(pool, segment, NULL), 0);
	close(fd);
	assert_int_equal(pool_create(pool, 0, 0, &segment, &fd), -EINVAL);
	assert_int_equal(pool_create(pool, 0, BYTES + 1, &segment, &fd), -EINVAL);
	assert_int_equal(pool_create(pool, NODE_ANY, BYTES, &segment, &fd), -EINVAL);
	assert_int_equal(pool_create(pool, NODES_MAX, BYTES, &segment, &fd), -EINVAL);
	assert_int_equal(pool_create(pool, 0, (uint64_t)INT64_MAX + 1, &segment, &fd), -EINVAL);
	assert_null(pool_next(pool, NULL));
	pool_close(pool);
	host_unmount(dir_fd);
}

static void test_cut(void **state)
{
	struct page_size page = host_page(PAGE_HUGETLB);
	struct segment *segment;
	struct pool *pool;
	int dir_fd, fd = -1;

	(void)state;
	need(page);
	dir_fd = host_mount(page, MOUNT_LIMIT);
	pool = open_pool(dir_fd, page, NULL);
	segment = make_ready(pool, BYTES);
	assert_int_equal(pool_begin_cut(pool, segment, &fd), 0);
	assert_int_equal(segment->state, SEGMENT_FILLING);
	assert_null(pool_find_ready(pool, 0, BYTES));
	/* Not yet that long, and never longer or not a multiple. */
	assert_int_equal(pool_end_cut(pool, segment, 2 * page.bytes), -ENODATA);
	assert_int_equal(ftruncate(fd, (off_t)(2 * page.bytes)), 0);
	close(fd);
	assert_int_equal(pool_end_cut(pool, segment, 0), -EINVAL);
	assert_int_equal(pool_end_cut(pool, segment, page.bytes + 1), -EINVAL);
	assert_int_equal(pool_end_cut(pool, segment, BYTES + page.bytes), -EINVAL);
	assert_int_equal(pool_end_cut(pool, segment, 2 * page.bytes), 0);
	assert_ptr_equal(pool_find_ready(pool, 0, 2 * page.bytes), segment);
	assert_int_equal(usage_of(pool).ready_bytes, 2 * page.bytes);
	assert_int_equal(usage_of(pool).filling_bytes, 0);
	assert_int_equal(host_used_bytes(dir_fd), 2 * page.bytes);
	fd = lend(pool, segment, CONSUMER, NULL);
	assert_true(oracle_is_zero(fd, 2 * page.bytes));
	close(fd);
	assert_int_equal(end_closed(pool), 1);
	pool_close(pool);
	host_unmount(dir_fd);
}

/* Lent half full: what is missing is the consumer's before anyone else's, so that it never gets SIGBUS,
 * not even when nr_hugepages is lowered. */
static void test_partial(void **state)
{
	struct page_size page = host_page(PAGE_HUGETLB);
	const struct lessee lessee = {.uid = CONSUMER, .gid = CONSUMER};
	struct segment *segment = NULL, *other = NULL;
	struct pool *pool;
	int dir_fd, fd, other_fd, lent_fd = -1;

	(void)state;
	need(page);
	dir_fd = host_mount(page, 1ULL << 40);
	pool = open_pool(dir_fd, page, NULL);
	assert_int_equal(pool_create(pool, 0, BYTES, &segment, &fd), 0);
	assert_int_equal(populate_file(fd, BYTES / 2), 0);
	assert_int_equal(pool_lend(pool, segment, &lessee, &lent_fd), 0);
	assert_true(segment->is_partial);
	assert_int_equal(host_reserved_pages(page.bytes), BYTES / 2 / page.bytes);
	host_set_pages(page.bytes, 0);
	assert_int_equal(host_count(page.bytes, "nr_hugepages"), BYTES / page.bytes);
	oracle_dirty(lent_fd, BYTES - page.bytes);
	/* The fill goes on meanwhile, and changes nothing that the consumer wrote. */
	assert_int_equal(populate_file(fd, BYTES), 0);
	assert_int_equal(pool_set_ready(pool, segment), 0);
	assert_false(segment->is_partial);
	assert_int_equal(segment->state, SEGMENT_LENT);
	assert_true(oracle_is_dirty(lent_fd, BYTES - page.bytes));
	assert_int_equal(host_reserved_pages(page.bytes), 0);
	close(fd);
	assert_int_equal(end_closed(pool), 0); /* the filler closed, the consumer has it */

	/* No page left for another: refused, and nothing is lent or reserved. */
	assert_int_equal(pool_create(pool, 0, page.bytes, &other, &other_fd), 0);
	fd = -1;
	assert_int_equal(pool_lend(pool, other, &lessee, &fd), -ENOMEM);
	assert_int_equal(fd, -1);
	assert_int_equal(other->state, SEGMENT_FILLING);
	assert_int_equal(host_reserved_pages(page.bytes), 0);
	close(other_fd);
	close(lent_fd);
	assert_int_equal(end_closed(pool), 1);
	assert_null(drain_pool(pool));
	host_unmount(dir_fd);
}

static void test_partial_is_for_hugetlb(void **state)
{
	struct page_size page = host_page(PAGE_THP);
	const struct lessee lessee = {.uid = CONSUMER, .gid = CONSUMER};
	struct segment *segment = NULL;
	struct pool *pool;
	int dir_fd, fd, lent_fd = -1;

	(void)state;
	need(page);
	dir_fd = host_mount(page, MOUNT_LIMIT);
	pool = open_pool(dir_fd, page, NULL);
	assert_int_equal(pool_create(pool, 0, BYTES, &segment, &fd), 0);
	assert_int_equal(pool_lend(pool, segment, &lessee, &lent_fd), -EOPNOTSUPP);
	assert_int_equal(segment->state, SEGMENT_FILLING);
	close(fd);
	drain_pool(pool);
	host_unmount(dir_fd);
}

/* The descriptor that a drop returns keeps the pages until it is closed, in a thread of the caller. */
static void test_free_elsewhere(void **state)
{
	struct page_size page = host_page(PAGE_BASE);
	struct segment *segment;
	struct pool *pool;
	uint64_t pinned;
	int dir_fd, fd = -1, lent_fd;

	(void)state;
	need(page);
	dir_fd = host_mount(page, MOUNT_LIMIT);
	pool = open_pool(dir_fd, page, NULL);
	segment = make_ready(pool, BYTES);
	assert_int_equal(pool_drop(pool, segment, &fd), 0);
	assert_true(fd >= 0);
	assert_null(pool_next(pool, NULL));
	assert_int_equal(pool_pinned_bytes(pool, &pinned), 0);
	assert_int_equal(pinned, BYTES);
	close(fd);
	assert_int_equal(host_used_bytes(dir_fd), 0);

	/* Ended while somebody has it: pinned until that one closes. */
	segment = make_ready(pool, BYTES);
	lent_fd = lend(pool, segment, CONSUMER, NULL);
	assert_int_equal(pool_drop(pool, segment, NULL), -EINVAL);
	fd = -1;
	assert_int_equal(pool_end_lease(pool, segment, &fd), 0);
	close(fd);
	oracle_dirty(lent_fd, BYTES);
	assert_int_equal(pool_pinned_bytes(pool, &pinned), 0);
	assert_int_equal(pinned, BYTES);
	close(lent_fd);
	assert_int_equal(pool_pinned_bytes(pool, &pinned), 0);
	assert_int_equal(pinned, 0);
	assert_int_equal(end_closed(pool), 0);
	pool_close(pool);
	host_unmount(dir_fd);
}

static void test_names(void **state)
{
	static const char too_long[] = "12345678901234567890123456789012345678901234567890"
				       "123456789012345";
	static const char *const bad[] = {"", ".x", "a/b", "a b", "a=b", "\xc3\xa4", too_long};
	struct page_size page = host_page(PAGE_BASE);
	struct segment *segment, *second;
	char longest[LEASE_NAME_MAX + 1], path[256], short_path[8];
	struct lessee lessee = {.uid = CONSUMER, .gid = CONSUMER};
	struct pool *pool;
	int dir_fd, fd, refused_fd = -1;

	(void)state;
	need(page);
	dir_fd = host_mount(page, MOUNT_LIMIT);
	pool = open_pool(dir_fd, page, NULL);
	segment = make_ready(pool, MIB);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		lessee.name = bad[i];
		assert_int_equal(pool_lend(pool, segment, &lessee, &refused_fd), -EINVAL);
	}
	memset(longest, 'x', LEASE_NAME_MAX);
	longest[LEASE_NAME_MAX] = '\0';
	fd = lend(pool, segment, CONSUMER, longest);
	assert_ptr_equal(pool_find_lease_by_name(pool, longest), segment);
	assert_true(pool_segment_path(pool, segment, path, sizeof(path)) > LEASE_NAME_MAX);
	assert_int_equal(faccessat(dir_fd, path, F_OK, 0), 0);
	assert_int_equal(pool_segment_path(pool, segment, short_path, sizeof(short_path)), -ENOSPC);

	second = make_ready(pool, MIB);
	lessee.name = longest;
	assert_int_equal(pool_lend(pool, second, &lessee, &refused_fd), -EEXIST);
	assert_int_equal(second->state, SEGMENT_READY);
	assert_int_equal(refused_fd, -1);

	/* Its last holder closing does not end it; a give does, once nobody holds it. */
	assert_int_equal(pool_give_lease(pool, second), -EINVAL);
	close(fd);
	assert_int_equal(end_closed(pool), 0);
	assert_int_equal(pool_give_lease(pool, segment), 0);
	assert_true(segment->is_given);
	for (int i = 0; i < 2; i++) /* twice is once */
		assert_int_equal(pool_mark_given(pool, segment), 0);
	assert_ptr_equal(pool_find_lease_by_name(pool, longest), segment);
	assert_true(try_end(pool, segment));
	assert_null(pool_find_lease_by_name(pool, longest));
	/* and the name is free again */
	close(lend(pool, second, CONSUMER, longest));
	drain_pool(pool);
	host_unmount(dir_fd);
}

static const struct bucket_view *bucket_of(struct pool *pool, uint64_t bytes)
{
	struct pool_view view;

	pool_view(pool, &view);
	for (unsigned int i = 0; i < view.n_buckets; i++)
		if (view.bucket[i].segment_bytes == bytes)
			return &view.bucket[i];
	return NULL;
}

static void test_view(void **state)
{
	struct page_size page = host_page(PAGE_BASE);
	struct segment *segment[4], *filling = NULL;
	struct pool_view view;
	struct pool *pool;
	int dir_fd, fd;

	(void)state;
	need(page);
	dir_fd = host_mount(page, MOUNT_LIMIT);
	pool = open_pool(dir_fd, page, NULL);
	for (unsigned int i = 0; i < 4; i++)
		segment[i] = make_ready(pool, i < 2 ? MIB : i * MIB);
	pool_view(pool, &view);
	assert_int_equal(view.n_buckets, 3);
	assert_int_equal(bucket_of(pool, MIB)->n_ready, 2);
	assert_int_equal(bucket_of(pool, MIB)->page_class.node, 0);
	assert_true(page_size_equal(bucket_of(pool, MIB)->page_class.page, page));
	assert_ptr_equal(pool_find_ready(pool, 0, MIB), segment[0]); /* the oldest */
	assert_null(pool_find_ready(pool, 1, MIB));
	fd = lend(pool, segment[0], CONSUMER, NULL);
	assert_ptr_equal(pool_find_ready(pool, 0, MIB), segment[1]);
	assert_int_equal(bucket_of(pool, MIB)->n_ready, 1);
	assert_int_equal(bucket_of(pool, MIB)->n_lent, 1);
	close(fd);

	/* What somebody waits for is no stock. */
	assert_int_equal(pool_create(pool, 0, MIB, &filling, &fd), 0);
	close(fd);
	assert_int_equal(bucket_of(pool, MIB)->n_filling, 1);
	pool_set_claimed(pool, filling, true);
	assert_int_equal(bucket_of(pool, MIB)->n_filling, 0);
	assert_int_equal(usage_of(pool).n_filling, 1);
	pool_set_claimed(pool, filling, false);
	assert_int_equal(bucket_of(pool, MIB)->n_filling, 1);
	assert_int_equal(pool_drop(pool, filling, NULL), 0);

	/* A bucket goes with its last segment, and the others stay where they can be found. */
	assert_int_equal(pool_drop(pool, segment[2], NULL), 0);
	assert_null(bucket_of(pool, 2 * MIB));
	assert_int_equal(bucket_of(pool, 3 * MIB)->n_ready, 1);
	assert_ptr_equal(pool_find_ready(pool, 0, 3 * MIB), segment[3]);

	/* By age, also behind one that is gone. */
	assert_ptr_equal(pool_next(pool, NULL), segment[0]);
	assert_ptr_equal(pool_next(pool, segment[0]), segment[1]);
	assert_ptr_equal(pool_after(pool, segment_sequence(segment[1])), segment[3]);
	assert_null(pool_next(pool, segment[3]));
	drain_pool(pool);
	host_unmount(dir_fd);
}

/* Random changes, and after each the counts are what a walk over all segments says. */
static void test_index_agrees(void **state)
{
	struct page_size page = host_page(PAGE_BASE);
	unsigned int seed = 1;
	struct pool *pool;
	int dir_fd;

	(void)state;
	need(page);
	dir_fd = host_mount(page, MOUNT_LIMIT);
	pool = open_pool(dir_fd, page, NULL);
	for (unsigned int i = 0; i < 3000; i++) {
		uint64_t bytes = page.bytes * (1 + (unsigned int)rand_r(&seed) % 40);
		struct segment *segment = pool_find_ready(pool, 0, bytes), *other;
		struct pool_usage seen = {0}, usage;
		char name[32];
		uint64_t last = 0;
		unsigned int n_in_buckets = 0;
		struct pool_view view;

		snprintf(name, sizeof(name), "name%u", i);
		switch (rand_r(&seed) % 8) {
		case 0:
		case 1:
		case 2:
			make_ready(pool, bytes);
			break;
		case 3:
		case 4:
			if (segment)
				close(lend(pool, segment, CONSUMER, i % 2 ? name : NULL));
			break;
		case 5:
			if (segment)
				assert_int_equal(pool_drop(pool, segment, NULL), 0);
			break;
		case 6:
			end_closed(pool);
			break;
		default:
			other = pool_after(pool, (unsigned int)rand_r(&seed) % (i + 1));
			if (other && other->name)
				assert_int_equal(pool_give_lease(pool, other), 0);
		}

		for (segment = NULL; (segment = pool_next(pool, segment));) {
			assert_true(segment_sequence(segment) > last);
			last = segment_sequence(segment);
			seen.n_ready += segment->state == SEGMENT_READY;
			seen.n_lent += segment->state == SEGMENT_LENT;
			seen.ready_bytes += segment->state == SEGMENT_READY ? segment->bytes : 0;
			seen.lent_bytes += segment->state == SEGMENT_LENT ? segment->bytes : 0;
			if (segment->state == SEGMENT_LENT)
				assert_ptr_equal(pool_find_lease(pool, segment->id), segment);
			if (segment->name)
				assert_ptr_equal(pool_find_lease_by_name(pool, segment->name),
						 segment);
		}
		usage = usage_of(pool);
		assert_int_equal(seen.filling_bytes, usage.filling_bytes);
		assert_int_equal(seen.ready_bytes, usage.ready_bytes);
		assert_int_equal(seen.lent_bytes, usage.lent_bytes);
		assert_int_equal(seen.n_filling, usage.n_filling);
		assert_int_equal(seen.n_ready, usage.n_ready);
		assert_int_equal(seen.n_lent, usage.n_lent);
		pool_view(pool, &view);
		for (unsigned int b = 0; b < view.n_buckets; b++)
			n_in_buckets += view.bucket[b].n_ready + view.bucket[b].n_lent;
		assert_int_equal(n_in_buckets, seen.n_ready + seen.n_lent);
	}
	drain_pool(pool);
	host_unmount(dir_fd);
}

/* The best of some tries, per take of a ready segment from the pool and its end. */
static uint64_t time_take_ns(struct pool *pool, uint64_t bytes)
{
	uint64_t best_ns = UINT64_MAX;

	for (unsigned int i = 0; i < 50; i++) {
		uint64_t start_ns, ns;
		struct segment *segment;
		int fd;

		make_ready(pool, bytes);
		start_ns = monotonic_ns();
		segment = pool_find_ready(pool, 0, bytes);
		fd = lend(pool, segment, CONSUMER, NULL);
		ns = monotonic_ns() - start_ns;
		if (ns < best_ns)
			best_ns = ns;
		assert_int_equal(pool_end_lease(pool, segment, NULL), 0);
		close(fd);
	}
	return best_ns;
}

static void test_ten_thousand(void **state)
{
	enum { MANY = 10000 };
	struct page_size page = host_page(PAGE_BASE);
	uint64_t few_ns, many_ns, sequence = 0;
	size_t before_bytes, many_bytes;
	struct pool_recovery recovery;
	struct segment *segment;
	unsigned int n = 0;
	struct pool *pool;
	int dir_fd;

	(void)state;
	need(page);
	dir_fd = host_mount(page, MOUNT_LIMIT);
	pool = open_pool(dir_fd, page, NULL);
	before_bytes = mallinfo2().uordblks;
	few_ns = time_take_ns(pool, page.bytes);
	for (unsigned int i = 0; i < MANY; i++)
		make_ready(pool, page.bytes * (1 + i % 3));
	many_bytes = mallinfo2().uordblks;
	many_ns = time_take_ns(pool, 4 * page.bytes);
	print_message("# %u segments: %zu bytes each, take %llu ns (alone %llu ns)\n", MANY,
		      (many_bytes - before_bytes) / MANY, (unsigned long long)many_ns,
		      (unsigned long long)few_ns);
	/* A sanitizer's allocator says 0 here. */
	assert_in_range((many_bytes - before_bytes) / MANY, 0, 200);
	assert_true(many_ns < 3 * few_ns);

	/* A listing that resumes is linear in all. */
	while ((segment = pool_after(pool, sequence))) {
		sequence = segment_sequence(segment);
		n++;
	}
	assert_int_equal(n, MANY);

	/* All of it is found again. */
	pool_close(pool);
	pool = open_pool(dir_fd, page, &recovery);
	assert_int_equal(recovery.n_ready_adopted, MANY);
	assert_int_equal(recovery.n_ready_refused, 0);
	drain_pool(pool);
	host_unmount(dir_fd);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_life_hugetlb),
		cmocka_unit_test(test_life_thp),
		cmocka_unit_test(test_life_base),
		cmocka_unit_test(test_not_full),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_partial),
		cmocka_unit_test(test_partial_is_for_hugetlb),
		cmocka_unit_test(test_free_elsewhere),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_view),
		cmocka_unit_test(test_index_agrees),
		cmocka_unit_test(test_ten_thousand),
	};

	/* One case: what a broken build must not pass, not even where it cannot run. */
	if (argc > 1 && geteuid() != 0)
		return 77;
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, host_enter, host_leave);
}
