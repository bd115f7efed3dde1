/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_policy_clean.c - how many dirty pages are zeroed in place.
 */
#include "policy/policy.h"
#include "unit.h"

#define MIB (1ULL << 20)
#define GIB (1ULL << 30)

/* A hundred free pages of 2M, so many of them dirty. */
static uint64_t pages(uint64_t dirty_pages, uint64_t clean_bytes)
{
	return policy_clean_pages(2 * MIB, 100, dirty_pages, clean_bytes);
}

static void max_is_all(void **state)
{
	(void)state;
	assert_int_equal(pages(0, UNLIMITED), 0);
	assert_int_equal(pages(60, UNLIMITED), 60);
	assert_int_equal(policy_clean_pages(GIB, 0, 3, UNLIMITED), 3);
}

static void a_size_is_kept_and_no_more(void **state)
{
	(void)state;
	assert_int_equal(pages(60, 0), 0);
	assert_int_equal(pages(60, 80 * MIB), 0); /* 40 are clean */
	assert_int_equal(pages(60, 82 * MIB), 1);
	assert_int_equal(pages(100, 10 * MIB), 5);
	assert_int_equal(pages(60, GIB), 60); /* more than there is */
	assert_int_equal(policy_clean_pages(GIB, 8, 8, 4 * GIB), 4);
}

/* The two numbers are read one after the other. */
static void more_dirty_than_free_is_no_trouble(void **state)
{
	(void)state;
	assert_int_equal(policy_clean_pages(2 * MIB, 5, 9, 20 * MIB), 9);
	assert_int_equal(policy_clean_pages(2 * MIB, 5, 9, 2 * MIB), 1);
	assert_int_equal(policy_clean_pages(2 * MIB, UINT64_MAX, 1, UNLIMITED - 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(max_is_all),
		cmocka_unit_test(a_size_is_kept_and_no_more),
		cmocka_unit_test(more_dirty_than_free_is_no_trouble),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
