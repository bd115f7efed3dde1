/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_policy_place.c - where a request is met: best first, and never worse than without
 * a pool.
 */
#include "unit.h"

#include "policy_host.h"

static struct host_view host;
static struct leave_free leave[2];
static struct goals goals;
static struct bucket_view buckets[64];
static struct pool_view pool;
static struct decision got;

static int setup(void **state)
{
	(void)state;
	goals = (struct goals){.leave_free = leave};
	pool = (struct pool_view){.bucket = buckets};
	host_make(&host, 2, 64 * GIB);
	return 0;
}

static struct bucket_view *add(struct page_size page, int node, uint64_t segment_bytes,
			       unsigned int n_ready)
{
	struct bucket_view *bucket = &buckets[pool.n_buckets++];

	*bucket = (struct bucket_view){
		.page_class = {page, node},
		.segment_bytes = segment_bytes,
		.n_ready = n_ready,
	};
	return bucket;
}

static void place(struct page_size page, int node, uint64_t bytes)
{
	struct request request = {page, node, bytes};

	memset(&got, 0x5a, sizeof(got));
	policy_place(&host, &pool, &goals, &request, &got);
	assert_true(got.need_bytes == bytes);
	if (got.placement != PLACE_RELEASE_AND_FILL)
		assert_int_equal(got.n_orders, 0);
	if (got.placement < PLACE_WAIT) {
		assert_true(host_view_has_node(&host, got.page_class.node));
		assert_int_equal(got.why, SHORT_NONE);
	} else {
		assert_int_not_equal(got.why, SHORT_NONE);
	}
}

static void check(enum placement placement, int node, uint64_t segment_bytes)
{
	if (got.placement != placement || got.page_class.node != node ||
	    got.segment_bytes != segment_bytes)
		fail_msg("placement %d on node %d with %llu bytes: not %d, %d, %llu", got.placement,
			 got.page_class.node, (unsigned long long)got.segment_bytes, placement,
			 node, (unsigned long long)segment_bytes);
}

static void check_refused(enum shortage why, uint64_t have_bytes)
{
	if (got.placement != PLACE_REFUSE || got.why != why || got.have_bytes != have_bytes)
		fail_msg("placement %d: %s, have %llu: not %s, %llu", got.placement,
			 shortage_name(got.why), (unsigned long long)got.have_bytes,
			 shortage_name(why), (unsigned long long)have_bytes);
}

static void exact_is_best(void **state)
{
	(void)state;
	host_add_pages(&host, 0, 0, 9000, 9000);
	add(page_2m, 0, 4 * GIB, 5);
	add(page_2m, 0, GIB, 1);
	add(page_2m, 1, GIB, 2);
	add(page_thp, 1, GIB, 9);
	add(page_1g, 1, GIB, 9);
	place(page_2m, 0, GIB);
	check(PLACE_EXACT, 0, GIB);
	/* Any node: where most stand ready. */
	place(page_2m, NODE_ANY, GIB);
	check(PLACE_EXACT, 1, GIB);
	buckets[1].n_ready = 2;
	place(page_2m, NODE_ANY, GIB);
	check(PLACE_EXACT, 0, GIB);
	place(page_thp, 1, GIB);
	check(PLACE_EXACT, 1, GIB);
}

static void what_is_not_ready_does_not_count(void **state)
{
	struct bucket_view *bucket = add(page_2m, 0, GIB, 0);

	(void)state;
	bucket->n_filling = 3;
	bucket->n_lent = 4;
	host_add_pages(&host, 0, 0, 9000, 512);
	place(page_2m, 0, GIB);
	check(PLACE_FILL, 0, GIB);
}

static void cut_the_smallest_larger(void **state)
{
	(void)state;
	host_add_pages(&host, 0, 0, 9000, 9000);
	add(page_2m, 0, 8 * GIB, 1);
	add(page_2m, 0, 2 * GIB, 1);
	add(page_2m, 1, 2 * GIB, 3);
	add(page_2m, 0, GIB / 2, 7);
	place(page_2m, 0, GIB);
	check(PLACE_CUT, 0, 2 * GIB);
	place(page_2m, NODE_ANY, GIB);
	check(PLACE_CUT, 1, 2 * GIB);
	place(page_2m, 0, 4 * GIB);
	check(PLACE_CUT, 0, 8 * GIB);
	/* Larger than any: from free pages. */
	place(page_2m, 0, 16 * GIB);
	check(PLACE_FILL, 0, 16 * GIB);
}

static void only_huge_pages_are_cut(void **state)
{
	(void)state;
	add(page_thp, 0, 4 * GIB, 1);
	add(page_base, 0, 4 * GIB, 1);
	place(page_thp, 0, GIB);
	check(PLACE_FILL, 0, GIB);
	place(page_base, 0, GIB);
	check(PLACE_FILL, 0, GIB);
}

static void fill_where_most_is_free(void **state)
{
	(void)state;
	host_add_pages(&host, 0, 0, 1000, 600);
	host_add_pages(&host, 0, 1, 1000, 700);
	place(page_2m, NODE_ANY, GIB);
	check(PLACE_FILL, 1, GIB);
	place(page_2m, 0, GIB);
	check(PLACE_FILL, 0, GIB);
	host_set_available(&host, 0, 33 * GIB);
	place(page_thp, NODE_ANY, GIB);
	check(PLACE_FILL, 0, GIB);
	/* To the last page. */
	place(page_2m, 0, 1200 * MIB);
	check(PLACE_FILL, 0, 1200 * MIB);
	place(page_2m, 0, 1202 * MIB);
	check_refused(SHORT_PAGES, 1200 * MIB);
}

/* One segment stands on one node: two halves are not a whole. */
static void one_node_short(void **state)
{
	(void)state;
	host_add_pages(&host, 0, 0, 1000, 600);
	host_add_pages(&host, 0, 1, 1000, 600);
	place(page_2m, NODE_ANY, 2000 * MIB);
	check_refused(SHORT_PAGES, 1200 * MIB);
}

/* Stock of other sizes holds the pages: without the pool they would be free, so they are given back. */
static void release_what_is_in_the_way(void **state)
{
	(void)state;
	host_add_pages(&host, 0, 0, 4096, 100);
	add(page_2m, 0, GIB / 2, 6);
	add(page_2m, 0, 64 * MIB, 16);
	add(page_2m, 1, GIB / 2, 6);
	add(page_1g, 0, GIB, 6);
	place(page_2m, 0, GIB);
	check(PLACE_RELEASE_AND_FILL, 0, GIB);
	/* 824 MiB are short. */
	assert_int_equal(got.n_orders, 1);
	assert_int_equal(got.orders[0].kind, ORDER_RELEASE);
	assert_true(got.orders[0].segment_bytes == GIB / 2);
	assert_int_equal(got.orders[0].count, 2);
	assert_true(page_class_equal(got.orders[0].page_class, (struct page_class){page_2m, 0}));

	/* A little short: the smallest that does. */
	place(page_2m, 0, 202 * MIB + 512 * MIB);
	check(PLACE_RELEASE_AND_FILL, 0, 714 * MIB);
	assert_int_equal(got.n_orders, 2);
	assert_true(got.orders[0].segment_bytes == GIB / 2 && got.orders[0].count == 1);
	assert_true(got.orders[1].segment_bytes == 64 * MIB && got.orders[1].count == 1);

	/* All of it. */
	place(page_2m, 0, 200 * MIB + 4 * GIB);
	check(PLACE_RELEASE_AND_FILL, 0, 200 * MIB + 4 * GIB);
	assert_int_equal(got.n_orders, 2);
	assert_true(got.orders[0].count == 6 && got.orders[1].count == 16);
	/* And nothing beyond. */
	place(page_2m, 0, 202 * MIB + 4 * GIB);
	check_refused(SHORT_PAGES, 200 * MIB);
}

static void release_on_the_node_that_loses_least(void **state)
{
	(void)state;
	host_add_pages(&host, 0, 0, 4096, 0);
	host_add_pages(&host, 0, 1, 4096, 256);
	add(page_2m, 0, GIB / 2, 6);
	add(page_2m, 1, GIB / 2, 6);
	place(page_2m, NODE_ANY, GIB);
	check(PLACE_RELEASE_AND_FILL, 1, GIB);
	assert_int_equal(got.orders[0].count, 1);
}

/* thp and base pages come from the same memory. */
static void release_across_kinds(void **state)
{
	(void)state;
	host_set_available(&host, 0, 4 * GIB);
	goals.floor_bytes = 8 * GIB;
	host_add_pages(&host, 0, 0, 4096, 0);
	add(page_base, 0, 2 * GIB, 2);
	add(page_2m, 0, 8 * GIB, 1);
	place(page_thp, 0, GIB);
	check(PLACE_RELEASE_AND_FILL, 0, GIB);
	assert_int_equal(got.n_orders, 1);
	assert_true(page_class_equal(got.orders[0].page_class, (struct page_class){page_base, 0}));
	assert_int_equal(got.orders[0].count, 1);
	/* Not at the price of the floor: available is below it. */
	host_set_available(&host, 0, 2 * GIB);
	place(page_thp, 0, 2 * GIB);
	check(PLACE_RELEASE_AND_FILL, 0, 2 * GIB);
	assert_int_equal(got.orders[0].count, 2);
	place(page_thp, 0, 2 * GIB + 2 * MIB);
	check_refused(SHORT_FLOOR, 0);
}

/* More kinds of segments in the way than orders hold: a part now, and the rest next time. */
static void release_in_several_steps(void **state)
{
	uint64_t released_bytes = 0;
	unsigned int n_steps = 0;

	(void)state;
	host_add_pages(&host, 0, 0, 40000, 0);
	for (unsigned int i = 1; i <= 40; i++)
		add(page_2m, 0, i * 2 * MIB, 1);
	for (;; n_steps++) {
		place(page_2m, 0, 820 * 2 * MIB);
		if (got.placement != PLACE_RELEASE_AND_FILL)
			break;
		assert_in_range(got.n_orders, 1, ARRAY_LEN(got.orders));
		for (unsigned int i = 0; i < got.n_orders; i++) {
			struct bucket_view *bucket =
				&buckets[got.orders[i].segment_bytes / (2 * MIB) - 1];

			assert_true(bucket->n_ready >= got.orders[i].count);
			bucket->n_ready -= got.orders[i].count;
			released_bytes += got.orders[i].count * bucket->segment_bytes;
			host.hugetlb[0].free_pages += bucket->segment_bytes / (2 * MIB);
			host.hugetlb[0].node[0].free_pages += bucket->segment_bytes / (2 * MIB);
		}
	}
	check(PLACE_FILL, 0, 820 * 2 * MIB);
	assert_int_equal(n_steps, 3);
	assert_true(released_bytes == 820 * 2 * MIB);
}

static void wait_for_what_the_pool_has_out(void **state)
{
	struct bucket_view *bucket = add(page_2m, 0, GIB, 0);

	(void)state;
	host_add_pages(&host, 0, 0, 1024, 256);
	bucket->n_lent = 1;
	place(page_2m, 0, GIB);
	check(PLACE_WAIT, 0, GIB);
	assert_int_equal(got.why, SHORT_PAGES);
	assert_true(got.have_bytes == GIB / 2);
	bucket->n_lent = 0;
	bucket->n_filling = 1;
	place(page_2m, 0, GIB);
	check(PLACE_WAIT, 0, GIB);
	/* Lent, and still not enough. */
	place(page_2m, 0, 2 * GIB);
	check_refused(SHORT_PAGES, GIB / 2);
	bucket->n_filling = 0;
	place(page_2m, 0, GIB);
	check_refused(SHORT_PAGES, GIB / 2);
}

static void refusals_name_the_cause(void **state)
{
	(void)state;
	place((struct page_size){PAGE_HUGETLB, 16 * MIB}, 0, 16 * MIB);
	check_refused(SHORT_NO_CLASS, 0);
	place(page_2m, 2, GIB);
	check_refused(SHORT_NO_NODE, 0);
	place(page_2m, 0, GIB + 4096);
	check_refused(SHORT_NOT_MULTIPLE, 0);
	place(page_2m, 0, 0);
	check_refused(SHORT_NOT_MULTIPLE, 0);
	place(page_2m, 0, 65 * GIB);
	check_refused(SHORT_MACHINE, 0);
	place(page_2m, NODE_ANY, 1ULL << 63);
	check_refused(SHORT_MACHINE, 0);
	place(page_2m, NODE_ANY, UINT64_MAX - UINT64_MAX % (2 * MIB));
	check_refused(SHORT_MACHINE, 0);
	place(page_2m, 0, GIB);
	check_refused(SHORT_PAGES, 0);

	host_add_pages(&host, 0, 0, 512, 512);
	host.hugetlb[0].reserved_pages = 12;
	place(page_2m, 0, GIB);
	check_refused(SHORT_PAGES, 1000 * MIB);
	goals.n_leave_free = 1;
	leave[0] = (struct leave_free){page_2m, 200 * MIB};
	place(page_2m, 0, 900 * MIB);
	check_refused(SHORT_LEAVE_FREE, 800 * MIB);
	place(page_2m, 0, 800 * MIB);
	check(PLACE_FILL, 0, 800 * MIB);
	host.hugetlb[0].cgroup_headroom_bytes = 100 * MIB;
	place(page_2m, 0, 800 * MIB);
	check_refused(SHORT_CGROUP, 100 * MIB);

	place(page_base, 0, 40 * GIB);
	check_refused(SHORT_FLOOR, 32 * GIB - share_bytes(128 * GIB / 20, 1, 2));
	host.cgroup_headroom_bytes = GIB;
	place(page_base, 0, 2 * GIB);
	check_refused(SHORT_CGROUP, GIB);
	host.thp_shmem_denied = true;
	place(page_thp, 0, GIB);
	check_refused(SHORT_THP, 0);
	host.nodes_end = 0;
	place(page_base, NODE_ANY, GIB);
	assert_int_equal(got.placement, PLACE_REFUSE);
}

/* Eight nodes; the one with room is found wherever it is. */
static void eight_nodes(void **state)
{
	(void)state;
	for (unsigned int n = 0; n < 8; n++) {
		host_make(&host, 8, 2 * TIB);
		pool.n_buckets = 0;
		for (unsigned int m = 0; m < 8; m++)
			host_add_pages(&host, 1, m, 1000, m == n ? 700 : 699);
		place(page_1g, NODE_ANY, 700 * GIB);
		check(PLACE_FILL, (int)n, 700 * GIB);
		place(page_1g, (int)(n + 1) % 8, 700 * GIB);
		check_refused(SHORT_PAGES, 699 * GIB);
		add(page_1g, (int)(n + 3) % 8, 701 * GIB, 1);
		place(page_1g, NODE_ANY, 701 * GIB);
		check(PLACE_EXACT, (int)(n + 3) % 8, 701 * GIB);
	}
}

#define TEST(function) cmocka_unit_test_setup(function, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(exact_is_best),
		TEST(what_is_not_ready_does_not_count),
		TEST(cut_the_smallest_larger),
		TEST(only_huge_pages_are_cut),
		TEST(fill_where_most_is_free),
		TEST(one_node_short),
		TEST(release_what_is_in_the_way),
		TEST(release_on_the_node_that_loses_least),
		TEST(release_across_kinds),
		TEST(release_in_several_steps),
		TEST(wait_for_what_the_pool_has_out),
		TEST(refusals_name_the_cause),
		TEST(eight_nodes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
