/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_policy_reserve.c - how many pages on which node, by how many threads.
 */
#include "unit.h"

#include <time.h>

#include "policy/reserve.h"
#include "policy_host.h"

static struct host_view host;
static struct reserve_goal goal;
static struct reserve_plan plan;

static int setup(void **state)
{
	(void)state;
	host_make(&host, 2, 64 * GIB);
	goal = (struct reserve_goal){.page_bytes = 2 * MIB, .kernel_zeroes = true};
	return 0;
}

static void decide(uint64_t bytes)
{
	enum shortage why;
	int node;

	goal.bytes = bytes;
	assert_int_equal(policy_reserve(&host, &goal, &plan, &why, &node), 0);
	assert_int_equal(why, SHORT_NONE);
}

static void refuse(uint64_t bytes, enum shortage want_why, int want_node)
{
	enum shortage why;
	int node;

	goal.bytes = bytes;
	assert_int_equal(policy_reserve(&host, &goal, &plan, &why, &node), -EINVAL);
	assert_int_equal(why, want_why);
	assert_int_equal(node, want_node);
}

static const struct reserve_node *on(int node)
{
	for (unsigned int i = 0; i < plan.n_nodes; i++) {
		if (plan.node[i].node == node)
			return &plan.node[i];
	}
	fail_msg("node %d is not in the plan", node);
	return NULL;
}

static void check(int node, uint64_t from, uint64_t wanted, uint64_t to)
{
	const struct reserve_node *got = on(node);

	if (got->from_pages != from || got->wanted_pages != wanted || got->to_pages != to)
		fail_msg("node %d: %llu, %llu, %llu", node, (unsigned long long)got->from_pages,
			 (unsigned long long)got->wanted_pages, (unsigned long long)got->to_pages);
}

static void spread_is_even(void **state)
{
	(void)state;
	host_add_pages(&host, 0, 0, 100, 60);
	decide(202 * MIB + 200 * MIB); /* 201 pages: 101 more */
	check(0, 100, 151, 151);
	check(1, 0, 50, 50);
	assert_int_equal(plan.why, SHORT_NONE);
	/* Surplus pages are not the pool's. */
	host.hugetlb[0].node[0].surplus_pages = 40;
	decide(400 * MIB);
	check(0, 60, 130, 130);
	check(1, 0, 70, 70);
}

/* One node short though the sum is enough: the others take more. */
static void spread_goes_where_room_is(void **state)
{
	(void)state;
	goal.floor_bytes = 4 * GIB;
	host_set_available(&host, 1, 2 * GIB + 10 * MIB);
	decide(200 * MIB);
	check(0, 0, 95, 95);
	check(1, 0, 5, 5);
	assert_int_equal(plan.why, SHORT_NONE);
}

static void floor_holds(void **state)
{
	(void)state;
	goal.floor_bytes = 4 * GIB;
	host_set_available(&host, 0, 2 * GIB + 100 * MIB);
	host_set_available(&host, 1, 2 * GIB + 10 * MIB);
	decide(200 * MIB);
	assert_int_equal(plan.why, SHORT_FLOOR);
	check(0, 0, 73, 50);
	check(1, 0, 27, 5);
	/* Of the host too, whatever the nodes say. */
	host.available_bytes = 4 * GIB + 20 * MIB;
	decide(200 * MIB);
	assert_int_equal(on(0)->to_pages + on(1)->to_pages, 10);
}

static void shrinks_only_when_asked(void **state)
{
	(void)state;
	host_add_pages(&host, 0, 0, 100, 100);
	host_add_pages(&host, 0, 1, 100, 100);
	decide(100 * MIB);
	check(0, 100, 100, 100);
	check(1, 100, 100, 100);
	assert_int_equal(plan.reason, RESERVE_NO_GROWTH);
	goal.shrink = true;
	decide(100 * MIB);
	check(0, 100, 25, 25);
	check(1, 100, 25, 25);
	decide(0);
	check(0, 100, 0, 0);
}

static void shares_add_up_to_the_page(void **state)
{
	(void)state;
	goal.n_shares = 2;
	goal.share[0] = (struct reserve_share){0, 0, 2500};
	goal.share[1] = (struct reserve_share){1, 0, 7500};
	decide(8 * GIB);
	check(0, 0, 1024, 1024);
	check(1, 0, 3072, 3072);
	decide(14 * MIB); /* 7 pages: 1.75 and 5.25 */
	check(0, 0, 2, 2);
	check(1, 0, 5, 5);
	goal.share[0].percent = 3333;
	goal.share[1].percent = 6667;
	for (uint64_t pages = 0; pages < 500; pages++) {
		decide(pages * 2 * MIB);
		assert_int_equal(on(0)->to_pages + on(1)->to_pages, pages);
	}
	goal.share[0] = (struct reserve_share){1, 4 * GIB, 0};
	goal.n_shares = 1;
	decide(4 * GIB);
	check(1, 0, 2048, 2048);
	assert_int_equal(plan.n_nodes, 1);
}

static void refusals(void **state)
{
	(void)state;
	refuse(3 * MIB, SHORT_NOT_MULTIPLE, -1);
	refuse(129 * GIB, SHORT_MACHINE, -1);
	goal.n_shares = 1;
	goal.share[0] = (struct reserve_share){2, 2 * MIB, 0};
	refuse(2 * MIB, SHORT_NO_NODE, 2);
	goal.share[0] = (struct reserve_share){1, 65 * GIB, 0};
	refuse(65 * GIB, SHORT_MACHINE, 1);
	goal.share[0] = (struct reserve_share){1, 3 * MIB, 0};
	refuse(4 * MIB, SHORT_NOT_MULTIPLE, 1);
	goal.page_bytes = 64 * 1024;
	refuse(2 * MIB, SHORT_NO_CLASS, -1);
	/* A cpuset that names one node only. */
	goal.page_bytes = 2 * MIB;
	host.node[0].online = false;
	goal.share[0] = (struct reserve_share){0, 2 * MIB, 0};
	refuse(2 * MIB, SHORT_CGROUP, 0);
	goal.n_shares = 0;
	refuse(66 * GIB, SHORT_CGROUP, -1);
	decide(GIB);
	check(1, 0, 512, 512);
}

static void method(enum reserve_method want, enum reserve_reason reason)
{
	decide(GIB);
	assert_int_equal(plan.method, want);
	assert_int_equal(plan.reason, reason);
}

static void methods(void **state)
{
	(void)state;
	/* Two CPUs: both, though a quarter would be none. */
	method(RESERVE_PARALLEL, RESERVE_ZEROED);
	assert_int_equal(plan.n_threads, 2);
	decide(254 * MIB);
	assert_int_equal(plan.method, RESERVE_PLAIN);
	assert_int_equal(plan.reason, RESERVE_FEW_PAGES);
	for (unsigned int cpu = 2; cpu < 16; cpu++)
		id_set_add(&host.cpus, cpu);
	method(RESERVE_PARALLEL, RESERVE_ZEROED);
	assert_int_equal(plan.n_threads, 4);
	goal.kernel_zeroes = false;
	method(RESERVE_PLAIN, RESERVE_NOT_ZEROED);
	goal.method = RESERVE_PARALLEL;
	method(RESERVE_PARALLEL, RESERVE_ASKED);
	goal.kernel_optimizes = true;
	method(RESERVE_PLAIN, RESERVE_OPTIMIZED);
	goal.kernel_optimizes = false;
	goal.method = RESERVE_PLAIN;
	method(RESERVE_PLAIN, RESERVE_ASKED);
	goal.method = RESERVE_AUTO;
	goal.kernel_zeroes = true;
	goal.n_threads = 1;
	method(RESERVE_PLAIN, RESERVE_FEW_THREADS);
	goal.page_bytes = GIB;
	goal.n_threads = 2;
	method(RESERVE_PLAIN, RESERVE_GIGANTIC);
}

/* Eight nodes of 2 TiB and 64 CPUs. */
static void sixteen_tebibytes(void **state)
{
	struct timespec start, end;
	unsigned int sum = 0;

	(void)state;
	host_make(&host, 8, 2 * TIB);
	host.cpus = (struct id_set){};
	for (unsigned int node = 0; node < 8; node++) {
		host.node[node].cpus = (struct id_set){};
		host_set_available(&host, node, 2 * TIB - 10 * GIB);
		for (unsigned int cpu = node * 64; cpu < node * 64 + 64; cpu++) {
			id_set_add(&host.node[node].cpus, cpu);
			id_set_add(&host.cpus, cpu);
		}
	}
	clock_gettime(CLOCK_MONOTONIC, &start);
	decide(12 * TIB);
	clock_gettime(CLOCK_MONOTONIC, &end);
	assert_true((end.tv_sec - start.tv_sec) * 1000000000L + end.tv_nsec - start.tv_nsec <
		    10000000L);
	assert_int_equal(plan.n_threads, 128);
	assert_true(plan.unit_bytes == 6 * GIB); /* 2048 of them */
	for (int node = 0; node < 8; node++) {
		check(node, 0, 786432, 786432);
		assert_int_equal(on(node)->n_threads, 16);
	}

	/* A quarter of the work, a quarter of the threads; most work first. */
	goal.n_shares = 3;
	goal.share[0] = (struct reserve_share){3, 0, 2500};
	goal.share[1] = (struct reserve_share){5, 0, 7400};
	goal.share[2] = (struct reserve_share){7, 0, 100};
	decide(2 * TIB);
	assert_int_equal(plan.n_nodes, 3);
	assert_int_equal(plan.node[0].node, 5);
	assert_int_equal(plan.node[1].node, 3);
	assert_int_equal(plan.node[2].node, 7);
	for (unsigned int i = 0; i < 3; i++)
		sum += plan.node[i].n_threads;
	assert_int_equal(sum, 128);
	assert_int_equal(plan.node[0].n_threads, 95);
	assert_int_equal(plan.node[1].n_threads, 32);
	assert_int_equal(plan.node[2].n_threads, 1);
	assert_true(plan.unit_bytes == GIB);

	/* Fewer threads than nodes, when that is what was asked for. */
	goal.n_shares = 0;
	goal.n_threads = 5;
	decide(2 * TIB);
	assert_int_equal(plan.n_threads, 5);
}

#define TEST(function) cmocka_unit_test_setup(function, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(spread_is_even),
		TEST(spread_goes_where_room_is),
		TEST(floor_holds),
		TEST(shrinks_only_when_asked),
		TEST(shares_add_up_to_the_page),
		TEST(refusals),
		TEST(methods),
		TEST(sixteen_tebibytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
