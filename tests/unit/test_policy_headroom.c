/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_policy_headroom.c - what the pool may take, and what stops it.
 */
#include "unit.h"

#include "policy_host.h"

static struct host_view host;
static struct leave_free leave[2];
static struct goals goals;

static int setup(void **state)
{
	(void)state;
	goals = (struct goals){.leave_free = leave};
	host_make(&host, 2, 64 * GIB);
	return 0;
}

static void check(struct page_size page, int node, uint64_t bytes, enum shortage why)
{
	enum shortage got_why = SHORT_LIMIT;
	uint64_t got =
		policy_headroom_bytes(&host, &goals, (struct page_class){page, node}, &got_why);
	char text[CLASS_TEXT_MAX];

	if (got != bytes || got_why != why)
		fail_msg("%s: %llu bytes (%s), not %llu (%s)",
			 page_class_format((struct page_class){page, node}, text),
			 (unsigned long long)got, shortage_name(got_why), (unsigned long long)bytes,
			 shortage_name(why));
}

static void floors(void **state)
{
	(void)state;
	assert_true(policy_floor_bytes(&host, &goals) == 128 * GIB / 20);
	host.total_bytes = 16 * GIB;
	assert_true(policy_floor_bytes(&host, &goals) == 2 * GIB);
	goals.floor_bytes = 5 * MIB;
	assert_true(policy_floor_bytes(&host, &goals) == 5 * MIB);
}

static void thread_counts(void **state)
{
	static const struct {
		unsigned int n_cpus, configured, threads;
	} cases[] = {{0, 0, 1}, {1, 0, 1}, {7, 0, 1}, {8, 0, 2}, {144, 0, 36}, {2, 9, 9}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		host.cpus = (struct id_set){};
		for (unsigned int cpu = 0; cpu < cases[i].n_cpus; cpu++)
			id_set_add(&host.cpus, cpu * 3);
		assert_int_equal(policy_threads(&host, cases[i].configured), cases[i].threads);
	}
}

static void hugetlb_free_pages(void **state)
{
	(void)state;
	check(page_2m, 0, 0, SHORT_PAGES);
	host_add_pages(&host, 0, 0, 100, 60);
	host_add_pages(&host, 0, 1, 100, 30);
	check(page_2m, 0, 120 * MIB, SHORT_PAGES);
	check(page_2m, 1, 60 * MIB, SHORT_PAGES);
	check(page_1g, 0, 0, SHORT_PAGES);
	/* The counters are read one after the other: the host may already say less than its nodes. */
	host.hugetlb[0].free_pages = 20;
	check(page_2m, 0, 40 * MIB, SHORT_PAGES);
}

static void hugetlb_reserved_pages(void **state)
{
	(void)state;
	host_add_pages(&host, 0, 0, 100, 60);
	host_add_pages(&host, 0, 1, 100, 30);
	host.hugetlb[0].reserved_pages = 50;
	check(page_2m, 0, 80 * MIB, SHORT_PAGES); /* 90 - 50 on the host */
	check(page_2m, 1, 60 * MIB, SHORT_PAGES);
	host.hugetlb[0].reserved_pages = 90;
	check(page_2m, 0, 0, SHORT_PAGES);
	host.hugetlb[0].reserved_pages = 1000;
	check(page_2m, 0, 0, SHORT_PAGES);
}

static void hugetlb_leave_free(void **state)
{
	(void)state;
	host_add_pages(&host, 0, 0, 100, 60);
	host_add_pages(&host, 0, 1, 100, 30);
	goals.n_leave_free = 1;
	leave[0] = (struct leave_free){page_2m, 20 * MIB};
	check(page_2m, 0, 100 * MIB, SHORT_LEAVE_FREE);
	check(page_2m, 1, 40 * MIB, SHORT_LEAVE_FREE);
	/* A node with less than its share keeps what it has, and owes nothing to the others. */
	leave[0].bytes_per_node = 80 * MIB;
	check(page_2m, 0, 40 * MIB, SHORT_LEAVE_FREE);
	check(page_2m, 1, 0, SHORT_LEAVE_FREE);
	/* Reserved pages are others' on top of it. */
	host.hugetlb[0].reserved_pages = 5;
	check(page_2m, 0, 30 * MIB, SHORT_LEAVE_FREE);
	/* What is not a multiple of the page leaves a page more, not less. */
	host.hugetlb[0].reserved_pages = 0;
	leave[0].bytes_per_node = 80 * MIB + 1;
	check(page_2m, 0, 38 * MIB, SHORT_LEAVE_FREE);
	/* Of one size only. */
	host_add_pages(&host, 1, 0, 4, 4);
	check(page_1g, 0, 4 * GIB, SHORT_PAGES);
}

static void hugetlb_control_group(void **state)
{
	(void)state;
	host_add_pages(&host, 0, 0, 100, 60);
	host.hugetlb[0].cgroup_headroom_bytes = 11 * MIB;
	check(page_2m, 0, 10 * MIB, SHORT_CGROUP);
	/* The memory controller does not count huge pages unless the view says so. */
	host.hugetlb[0].cgroup_headroom_bytes = UNLIMITED;
	host.cgroup_headroom_bytes = 0;
	check(page_2m, 0, 120 * MIB, SHORT_PAGES);
}

static void memory_above_the_floor(void **state)
{
	(void)state;
	goals.floor_bytes = 8 * GIB; /* 4 GiB a node */
	check(page_base, 0, 28 * GIB, SHORT_FLOOR);
	check(page_thp, 1, 28 * GIB, SHORT_FLOOR);
	/* One node short though the sum is enough. */
	host_set_available(&host, 1, 5 * GIB + 4097);
	check(page_base, 1, GIB + 4096, SHORT_FLOOR);
	check(page_thp, 1, GIB, SHORT_FLOOR);
	check(page_base, 0, 28 * GIB, SHORT_FLOOR);
	/* The host short though a node has enough: what is elsewhere is gone. */
	host_set_available(&host, 1, 0);
	host.available_bytes = 10 * GIB;
	check(page_base, 0, 2 * GIB, SHORT_FLOOR);
	host.available_bytes = 7 * GIB;
	check(page_base, 0, 0, SHORT_FLOOR);
	check(page_base, 1, 0, SHORT_FLOOR);
}

/* A node's share of the floor is its share of RAM. */
static void floor_of_unequal_nodes(void **state)
{
	(void)state;
	host.node[0].total_bytes = 96 * GIB;
	host.node[1].total_bytes = 32 * GIB;
	goals.floor_bytes = 16 * GIB;
	check(page_base, 0, (32 - 12) * GIB, SHORT_FLOOR);
	check(page_base, 1, (32 - 4) * GIB, SHORT_FLOOR);
}

static void memory_control_group(void **state)
{
	(void)state;
	host.cgroup_headroom_bytes = GIB + 4097;
	check(page_base, 0, GIB + 4096, SHORT_CGROUP);
	check(page_thp, 0, GIB, SHORT_CGROUP);
	host.cgroup_headroom_bytes = 0;
	check(page_base, 0, 0, SHORT_CGROUP);
}

static void no_such_class(void **state)
{
	(void)state;
	check((struct page_size){PAGE_HUGETLB, 64 * 1024}, 0, 0, SHORT_NO_CLASS);
	check((struct page_size){PAGE_BASE, 65536}, 0, 0, SHORT_NO_CLASS);
	check(page_2m, 2, 0, SHORT_NO_NODE);
	check(page_2m, NODE_ANY, 0, SHORT_NO_NODE);
	check(page_2m, 5000, 0, SHORT_NO_NODE);
	host.thp_shmem_denied = true;
	check(page_thp, 0, 0, SHORT_THP);
	host.thp_bytes = 0;
	check(page_thp, 0, 0, SHORT_NO_CLASS);
	check((struct page_size){PAGE_THP, 0}, 0, 0, SHORT_NO_CLASS);
	host.node[1].online = false;
	check(page_base, 1, 0, SHORT_NO_NODE);
}

/* Counters that nobody's machine has do not wrap round. */
static void absurd_counters(void **state)
{
	enum shortage why;

	(void)state;
	host_add_pages(&host, 0, 0, UINT64_MAX / 2, UINT64_MAX / 2);
	host_add_pages(&host, 0, 1, UINT64_MAX / 2, UINT64_MAX / 2);
	assert_true(policy_headroom_bytes(&host, &goals, (struct page_class){page_2m, 0}, &why) >=
		    1ULL << 55);
	host.hugetlb[0].reserved_pages = UINT64_MAX;
	assert_true(policy_headroom_bytes(&host, &goals, (struct page_class){page_2m, 0}, &why) <=
		    1ULL << 56);
	host.total_bytes = host.available_bytes = UINT64_MAX;
	host.node[0].total_bytes = host.node[0].available_bytes = UINT64_MAX;
	assert_true(policy_headroom_bytes(&host, &goals, (struct page_class){page_base, 0}, &why) <=
		    1ULL << 56);
	goals.floor_bytes = UINT64_MAX;
	check(page_base, 0, 0, SHORT_FLOOR);
}

#define TEST(function) cmocka_unit_test_setup(function, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(floors),
		TEST(thread_counts),
		TEST(hugetlb_free_pages),
		TEST(hugetlb_reserved_pages),
		TEST(hugetlb_leave_free),
		TEST(hugetlb_control_group),
		TEST(memory_above_the_floor),
		TEST(floor_of_unequal_nodes),
		TEST(memory_control_group),
		TEST(no_such_class),
		TEST(absurd_counters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
