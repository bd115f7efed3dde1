/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_model.c - the text of page classes, and looking things up in a view.
 */
#include "unit.h"

#include <string.h>

#include "model/class.h"
#include "model/goal.h"
#include "model/view.h"

static void pages_read_back(void **state)
{
	static const struct {
		const char *text;
		struct page_size page;
		const char *back;
	} cases[] = {
		{"2M", {PAGE_HUGETLB, 2 << 20}, "2M"},
		{"2MiB", {PAGE_HUGETLB, 2 << 20}, "2M"},
		{"2048K", {PAGE_HUGETLB, 2 << 20}, "2M"},
		{"1G", {PAGE_HUGETLB, 1 << 30}, "1G"},
		{"64K", {PAGE_HUGETLB, 64 << 10}, "64K"},
		{"16G", {PAGE_HUGETLB, 16ULL << 30}, "16G"},
		{"512M", {PAGE_HUGETLB, 512 << 20}, "512M"},
		{"thp", {PAGE_THP, 2 << 20}, "thp"},
		{"base", {PAGE_BASE, 4096}, "base"},
	};
	static const char *const wrong[] = {"",	    "THP", "Base", "3M",  "0",	 "0M",
					    "1.5G", "2M ", "huge", "-2M", "2MM", "default"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct page_size page = {};
		char buf[PAGE_TEXT_MAX];

		assert_int_equal(page_size_parse(cases[i].text, 2 << 20, 4096, &page), 0);
		assert_true(page_size_equal(page, cases[i].page));
		assert_string_equal(page_size_format(page, buf), cases[i].back);
	}
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct page_size page = {PAGE_BASE, 1};

		assert_int_equal(page_size_parse(wrong[i], 2 << 20, 4096, &page), -EINVAL);
		assert_int_equal(page.bytes, 1);
	}
}

static void classes_have_text(void **state)
{
	static const struct page_class g1 = {{PAGE_HUGETLB, 1ULL << 30}, 1};
	static const struct page_class any = {{PAGE_THP, 2ULL << 20}, NODE_ANY};
	static const struct page_class longest = {{PAGE_HUGETLB, UINT64_MAX}, NODES_MAX - 1};
	char buf[CLASS_TEXT_MAX];

	(void)state;
	assert_string_equal(page_class_format(g1, buf), "1G@1");
	assert_string_equal(page_class_format(any, buf), "thp@any");
	assert_string_equal(page_class_format(longest, buf), "18446744073709551615@63");
	assert_true(page_class_equal(g1, g1));
	assert_false(page_class_equal(g1, any));
}

static void units_hold_a_page(void **state)
{
	(void)state;
	assert_int_equal(page_size_unit_bytes((struct page_size){PAGE_BASE, 4096}), 16 << 20);
	assert_int_equal(page_size_unit_bytes((struct page_size){PAGE_HUGETLB, 2 << 20}), 16 << 20);
	assert_int_equal(page_size_unit_bytes((struct page_size){PAGE_HUGETLB, 512 << 20}),
			 512 << 20);
	assert_int_equal(page_size_unit_bytes((struct page_size){PAGE_HUGETLB, 1 << 30}), 1 << 30);
}

static void view_lookup(void **state)
{
	static struct host_view view;

	(void)state;
	view.n_hugetlb = 2;
	view.hugetlb[0].page_bytes = 2 << 20;
	view.hugetlb[1].page_bytes = 1 << 30;
	view.nodes_end = 3;
	view.node[0].online = true;
	view.node[2].online = true;
	view.node[5].online = true; /* beyond the end: not there */

	assert_ptr_equal(host_view_hugetlb(&view, 1 << 30), &view.hugetlb[1]);
	assert_null(host_view_hugetlb(&view, 64 << 10));
	assert_true(host_view_has_node(&view, 0));
	assert_false(host_view_has_node(&view, 1));
	assert_true(host_view_has_node(&view, 2));
	assert_false(host_view_has_node(&view, 5));
	assert_false(host_view_has_node(&view, NODE_ANY));
	assert_false(host_view_has_node(&view, 1000));
}

static void shortages_have_different_names(void **state)
{
	(void)state;
	for (int a = SHORT_NONE; a <= SHORT_LIMIT; a++) {
		for (int b = a + 1; b <= SHORT_LIMIT; b++)
			assert_string_not_equal(shortage_name((enum shortage)a),
						shortage_name((enum shortage)b));
	}
	assert_string_equal(shortage_name(SHORT_LEAVE_FREE), "leave_free");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_read_back),
		cmocka_unit_test(classes_have_text),
		cmocka_unit_test(units_hold_a_page),
		cmocka_unit_test(view_lookup),
		cmocka_unit_test(shortages_have_different_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
