/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_policy_stock.c - what is filled and what is released for the configured stocks.
 */
#include "unit.h"

#include "policy_host.h"

static struct host_view host;
static struct leave_free leave[2];
static struct stock stocks[8];
static struct goals goals;
static struct bucket_view buckets[64];
static struct pool_view pool;
static struct order orders[64];
static unsigned int n_orders;
static enum shortage short_of[8];

static int setup(void **state)
{
	(void)state;
	goals = (struct goals){.stock = stocks, .leave_free = leave};
	pool = (struct pool_view){.bucket = buckets};
	host_make(&host, 2, 64 * GIB);
	return 0;
}

static void want(struct page_size page, int node, uint64_t segment_bytes, unsigned int keep)
{
	stocks[goals.n_stocks++] = (struct stock){
		.page_class = {page, node},
		.segment_bytes = segment_bytes,
		.keep = keep,
	};
}

static void have(struct page_size page, int node, uint64_t segment_bytes, unsigned int n_ready,
		 unsigned int n_filling)
{
	buckets[pool.n_buckets++] = (struct bucket_view){
		.page_class = {page, node},
		.segment_bytes = segment_bytes,
		.n_ready = n_ready,
		.n_filling = n_filling,
	};
}

static void decide(void)
{
	memset(short_of, 0x5a, sizeof(short_of));
	n_orders = policy_stock(&host, &pool, &goals, orders, ARRAY_LEN(orders), short_of);
}

/* The next order; checks that it is the one described. */
static void check_order(unsigned int i, enum order_kind kind, struct page_size page, int node,
			uint64_t segment_bytes, unsigned int count)
{
	const struct order *order = &orders[i];
	char text[CLASS_TEXT_MAX];

	if (i >= n_orders)
		fail_msg("only %u orders", n_orders);
	if (order->kind != kind || order->segment_bytes != segment_bytes || order->count != count ||
	    !page_class_equal(order->page_class, (struct page_class){page, node}))
		fail_msg("order %u: kind %d, %s, %llu bytes, %u times", i, order->kind,
			 page_class_format(order->page_class, text),
			 (unsigned long long)order->segment_bytes, order->count);
}

static void fills_what_is_missing(void **state)
{
	(void)state;
	host_add_pages(&host, 0, 0, 10000, 10000);
	want(page_2m, 0, GIB, 4);
	decide();
	check_order(0, ORDER_FILL, page_2m, 0, GIB, 4);
	assert_int_equal(n_orders, 1);
	assert_int_equal(short_of[0], SHORT_NONE);
	/* What is ready or on its way is not ordered again; what is lent is. */
	have(page_2m, 0, GIB, 1, 2);
	buckets[0].n_lent = 7;
	decide();
	check_order(0, ORDER_FILL, page_2m, 0, GIB, 1);
	buckets[0].n_ready = 2;
	decide();
	assert_int_equal(n_orders, 0);
	assert_int_equal(short_of[0], SHORT_NONE);
	/* Neither another node's nor another kind's. */
	buckets[0].page_class.node = 1;
	want(page_2m, 1, GIB, 4);
	decide();
	check_order(0, ORDER_FILL, page_2m, 0, GIB, 4);
}

static void stops_where_room_ends(void **state)
{
	(void)state;
	host_add_pages(&host, 0, 0, 2000, 1100);
	want(page_2m, 0, GIB, 4);
	decide();
	check_order(0, ORDER_FILL, page_2m, 0, GIB, 2);
	assert_int_equal(short_of[0], SHORT_PAGES);
	host.hugetlb[0].reserved_pages = 100;
	decide();
	check_order(0, ORDER_FILL, page_2m, 0, GIB, 1);
	goals.n_leave_free = 1;
	leave[0] = (struct leave_free){page_2m, GIB};
	decide();
	assert_int_equal(n_orders, 0);
	assert_int_equal(short_of[0], SHORT_LEAVE_FREE);
	goals.n_leave_free = 0;
	host.hugetlb[0].cgroup_headroom_bytes = GIB - 1;
	decide();
	assert_int_equal(n_orders, 0);
	assert_int_equal(short_of[0], SHORT_CGROUP);
}

static void earlier_stocks_come_first(void **state)
{
	(void)state;
	host_add_pages(&host, 0, 0, 2000, 1100);
	want(page_2m, 0, 2 * GIB, 1);
	want(page_2m, 0, 64 * MIB, 100);
	want(page_2m, 0, GIB, 1);
	decide();
	check_order(0, ORDER_FILL, page_2m, 0, 2 * GIB, 1);
	check_order(1, ORDER_FILL, page_2m, 0, 64 * MIB, 2); /* 152 MiB are left */
	assert_int_equal(n_orders, 2);
	assert_int_equal(short_of[0], SHORT_NONE);
	assert_int_equal(short_of[1], SHORT_PAGES);
	assert_int_equal(short_of[2], SHORT_PAGES);
}

/* The floor bounds thp and base together, and each node. */
static void memory_is_shared(void **state)
{
	(void)state;
	goals.floor_bytes = 8 * GIB;
	host_set_available(&host, 0, 10 * GIB);
	want(page_thp, 0, 2 * GIB, 2);
	want(page_base, 0, GIB, 9);
	want(page_base, 1, 4 * GIB, 9);
	decide();
	check_order(0, ORDER_FILL, page_thp, 0, 2 * GIB, 2);
	check_order(1, ORDER_FILL, page_base, 0, GIB, 2);
	check_order(2, ORDER_FILL, page_base, 1, 4 * GIB, 7);
	assert_int_equal(short_of[0], SHORT_NONE);
	assert_int_equal(short_of[1], SHORT_FLOOR);
	assert_int_equal(short_of[2], SHORT_FLOOR);
	host.cgroup_headroom_bytes = 5 * GIB;
	decide();
	check_order(0, ORDER_FILL, page_thp, 0, 2 * GIB, 2);
	check_order(1, ORDER_FILL, page_base, 0, GIB, 1);
	assert_int_equal(n_orders, 2);
	assert_int_equal(short_of[1], SHORT_CGROUP);
}

static void any_node_is_spread(void **state)
{
	unsigned int n = 0;

	(void)state;
	host_make(&host, 8, 2 * TIB);
	for (unsigned int m = 0; m < 8; m++)
		host_add_pages(&host, 1, m, 1000, 100);
	want(page_1g, NODE_ANY, 4 * GIB, 20);
	decide();
	assert_int_equal(n_orders, 8);
	for (unsigned int m = 0; m < 8; m++) {
		check_order(m, ORDER_FILL, page_1g, (int)m, 4 * GIB, m < 4 ? 3 : 2);
		n += orders[m].count;
	}
	assert_int_equal(n, 20);

	/* What is there counts: the emptier nodes catch up. */
	have(page_1g, 0, 4 * GIB, 5, 0);
	have(page_1g, 3, 4 * GIB, 0, 4);
	decide();
	assert_int_equal(n_orders, 6);
	for (unsigned int i = 0; i < 6; i++) {
		assert_true(orders[i].page_class.node != 0 && orders[i].page_class.node != 3);
		assert_in_range(orders[i].count, 1, 2);
	}

	/* A node without room: the others stand in for it. */
	pool.n_buckets = 0;
	host.hugetlb[1].node[0].free_pages = 3;
	host.hugetlb[1].free_pages -= 97;
	stocks[0].keep = 14;
	decide();
	assert_int_equal(n_orders, 7);
	for (unsigned int i = 0; i < 7; i++)
		check_order(i, ORDER_FILL, page_1g, (int)i + 1, 4 * GIB, 2);
	assert_int_equal(short_of[0], SHORT_NONE);

	/* Room for one less than wanted, in all. */
	stocks[0].keep = 25 * 7 + 1;
	decide();
	assert_int_equal(n_orders, 7);
	for (unsigned int i = 0; i < 7; i++)
		check_order(i, ORDER_FILL, page_1g, (int)i + 1, 4 * GIB, 25);
	assert_int_equal(short_of[0], SHORT_PAGES);
}

static void stocks_of_one_size_share(void **state)
{
	(void)state;
	host_add_pages(&host, 0, 0, 10000, 10000);
	host_add_pages(&host, 0, 1, 10000, 10000);
	want(page_2m, NODE_ANY, GIB, 2);
	want(page_2m, 0, GIB, 3);
	want(page_2m, 0, GIB, 1);
	/* Node 0 has five: four are claimed there, one is anybody's. */
	have(page_2m, 0, GIB, 5, 0);
	decide();
	check_order(0, ORDER_FILL, page_2m, 1, GIB, 1);
	assert_int_equal(n_orders, 1);
	buckets[0].n_ready = 2;
	decide();
	check_order(0, ORDER_FILL, page_2m, 0, GIB, 1);
	check_order(1, ORDER_FILL, page_2m, 1, GIB, 1);
	check_order(2, ORDER_FILL, page_2m, 0, GIB, 1);
	check_order(3, ORDER_FILL, page_2m, 0, GIB, 1);
	assert_int_equal(n_orders, 4);
}

static void releases_what_nobody_wants(void **state)
{
	(void)state;
	want(page_2m, 0, GIB, 2);
	have(page_2m, 0, GIB, 5, 0);
	have(page_2m, 0, GIB / 2, 3, 0);
	have(page_2m, 1, GIB, 1, 0);
	have(page_thp, 0, GIB, 1, 0);
	decide();
	check_order(0, ORDER_RELEASE, page_2m, 0, GIB, 3);
	check_order(1, ORDER_RELEASE, page_2m, 1, GIB, 1);
	check_order(2, ORDER_RELEASE, page_2m, 0, GIB / 2, 3);
	check_order(3, ORDER_RELEASE, page_thp, 0, GIB, 1);
	assert_int_equal(n_orders, 4);
	/* What is being filled counts, and only what is ready can go. */
	pool.n_buckets = 0;
	have(page_2m, 0, GIB, 1, 4);
	decide();
	check_order(0, ORDER_RELEASE, page_2m, 0, GIB, 1);
	assert_int_equal(n_orders, 1);
	/* Lent ones are nobody's to release. */
	pool.n_buckets = 0;
	have(page_2m, 0, GIB, 2, 0);
	buckets[0].n_lent = 50;
	decide();
	assert_int_equal(n_orders, 0);
}

static void releases_where_most_stand(void **state)
{
	(void)state;
	want(page_2m, NODE_ANY, GIB, 6);
	have(page_2m, 0, GIB, 7, 0);
	have(page_2m, 1, GIB, 4, 0);
	decide();
	check_order(0, ORDER_RELEASE, page_2m, 0, GIB, 4);
	check_order(1, ORDER_RELEASE, page_2m, 1, GIB, 1);
	assert_int_equal(n_orders, 2);
	/* A node's own stock is not touched for it. */
	want(page_2m, 0, GIB, 5);
	decide();
	assert_int_equal(n_orders, 0);
}

static void says_what_cannot_be(void **state)
{
	static const enum shortage expected[] = {
		SHORT_NO_CLASS, SHORT_NO_NODE, SHORT_NOT_MULTIPLE, SHORT_MACHINE,
		SHORT_THP,	SHORT_NO_NODE, SHORT_NOT_MULTIPLE, SHORT_NONE,
	};

	(void)state;
	host.thp_shmem_denied = true;
	want((struct page_size){PAGE_HUGETLB, 32 * MIB}, 0, GIB, 1);
	want(page_2m, 2, GIB, 1);
	want(page_2m, 0, MIB, 1);
	want(page_2m, 0, 64 * GIB + 2 * MIB, 1);
	want(page_thp, 0, GIB, 1);
	want(page_2m, -7, GIB, 1);
	want(page_2m, NODE_ANY, 0, 1);
	want(page_2m, 0, GIB, 0);
	decide();
	assert_int_equal(n_orders, 0);
	for (size_t i = 0; i < ARRAY_LEN(expected); i++)
		assert_int_equal(short_of[i], expected[i]);
}

static void writes_no_more_orders_than_asked(void **state)
{
	struct order few[3];

	(void)state;
	host_make(&host, 8, 2 * TIB);
	for (unsigned int m = 0; m < 8; m++)
		host_add_pages(&host, 1, m, 1000, 100);
	want(page_1g, NODE_ANY, 4 * GIB, 20);
	have(page_2m, 1, GIB, 1, 0);
	memset(few, 0x5a, sizeof(few));
	assert_int_equal(policy_stock(&host, &pool, &goals, few, 2, short_of), 2);
	assert_int_equal(few[0].kind, ORDER_RELEASE);
	assert_int_equal(few[2].count, 0x5a5a5a5a);
	assert_int_equal(policy_stock(&host, &pool, &goals, few, 0, short_of), 0);
}

/* Four thousand million segments are decided on at once. */
static void absurd_keep(void **state)
{
	(void)state;
	host_make(&host, 8, 2 * TIB);
	want(page_base, NODE_ANY, 4096, UINT32_MAX);
	want(page_base, NODE_ANY, 4096, UINT32_MAX);
	have(page_base, 0, 4096, UINT32_MAX, UINT32_MAX);
	decide();
	assert_int_equal(n_orders, 0);
	pool.n_buckets = 0;
	decide();
	assert_int_equal(n_orders, 8);
	assert_int_equal(short_of[0], SHORT_FLOOR);
	for (unsigned int n = 0; n < 8; n++)
		assert_int_equal(orders[n].page_class.node, n);
}

#define TEST(function) cmocka_unit_test_setup(function, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(fills_what_is_missing),
		TEST(stops_where_room_ends),
		TEST(earlier_stocks_come_first),
		TEST(memory_is_shared),
		TEST(any_node_is_spread),
		TEST(stocks_of_one_size_share),
		TEST(releases_what_nobody_wants),
		TEST(releases_where_most_stand),
		TEST(says_what_cannot_be),
		TEST(writes_no_more_orders_than_asked),
		TEST(absurd_keep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
