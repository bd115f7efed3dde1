/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_base_parse.c - every form that parses, and every near miss.
 */
#include "unit.h"

#include <string.h>

#include "base/parse.h"

#define KEPT 0xdeadbeefU

struct number_case {
	const char *text;
	int result;
	uint64_t value;
};

static void check_numbers(int (*parse)(const char *, uint64_t *), const struct number_case *cases,
			  size_t n_cases)
{
	for (size_t i = 0; i < n_cases; i++) {
		const struct number_case *c = &cases[i];
		uint64_t value = KEPT;
		int r = parse(c->text, &value);

		if (r != c->result || value != (c->result ? KEPT : c->value))
			fail_msg("\"%s\": result %d, value %llu", c->text, r,
				 (unsigned long long)value);
	}
}

static void u64(void **state)
{
	static const struct number_case cases[] = {
		{"0", 0, 0},
		{"7", 0, 7},
		{"007", 0, 7},
		{"18446744073709551615", 0, UINT64_MAX},
		{"18446744073709551616", -ERANGE},
		{"99999999999999999999999999", -ERANGE},
		{"99999999999999999999999999x", -EINVAL},
		{"", -EINVAL},
		{" 7", -EINVAL},
		{"7 ", -EINVAL},
		{"7\n", -EINVAL},
		{"+7", -EINVAL},
		{"-7", -EINVAL},
		{"0x7", -EINVAL},
		{"7.0", -EINVAL},
		{"1e3", -EINVAL},
		{"\xd9\xa3", -EINVAL},
	};

	(void)state;
	check_numbers(parse_u64, cases, ARRAY_LEN(cases));
}

static void bytes(void **state)
{
	static const struct number_case cases[] = {
		{"0", 0, 0},
		{"512", 0, 512},
		{"512B", 0, 512},
		{"4K", 0, 4096},
		{"4k", 0, 4096},
		{"2M", 0, 2ULL << 20},
		{"2m", 0, 2ULL << 20},
		{"2MB", 0, 2ULL << 20},
		{"2MiB", 0, 2ULL << 20},
		{"8G", 0, 8ULL << 30},
		{"16T", 0, 16ULL << 40},
		{"3P", 0, 3ULL << 50},
		{"1.5G", 0, 3ULL << 29},
		{"0.25K", 0, 256},
		{"1.0", 0, 1},
		{"1.50000000000000000000000000000000000000000000000000000000000G", 0, 3ULL << 29},
		{"0.0009765625K", 0, 1},
		{"0.00000000000000088817841970012523233890533447265625P", 0, 1},
		{"16383P", 0, 16383ULL << 50},
		{"16383.9990234375P", 0, (16383ULL << 50) + (1023ULL << 40)},
		{"16384P", -ERANGE},
		{"18446744073709551615", 0, UINT64_MAX},
		{"18446744073709551615B", 0, UINT64_MAX},
		{"18446744073709551616", -ERANGE},
		{"18446744073709551616K", -ERANGE},
		{"18446744073709551616q", -EINVAL},
		{"18014398509481984K", -ERANGE},
		{"0.5", -EINVAL},
		{"0.3K", -EINVAL},
		{"1.1G", -EINVAL},
		{"0.0001K", -EINVAL},
		{"", -EINVAL},
		{"M", -EINVAL},
		{".5G", -EINVAL},
		{"1.G", -EINVAL},
		{"1..5G", -EINVAL},
		{"1,5G", -EINVAL},
		{"2 M", -EINVAL},
		{" 2M", -EINVAL},
		{"2M ", -EINVAL},
		{"-2M", -EINVAL},
		{"+2M", -EINVAL},
		{"2E", -EINVAL},
		{"2iB", -EINVAL},
		{"2Mi", -EINVAL},
		{"2Mib", -EINVAL},
		{"2MM", -EINVAL},
		{"2BM", -EINVAL},
		{"0x2M", -EINVAL},
		{"infG", -EINVAL},
	};

	(void)state;
	check_numbers(parse_bytes, cases, ARRAY_LEN(cases));
}

static void durations(void **state)
{
	static const struct number_case cases[] = {
		{"90", 0, 90000},
		{"90s", 0, 90000},
		{"5m", 0, 300000},
		{"1h", 0, 3600000},
		{"250ms", 0, 250},
		{"0", 0, 0},
		{"18446744073709551615ms", 0, UINT64_MAX},
		{"18446744073709551615s", -ERANGE},
		{"18446744073709551616ms", -ERANGE},
		{"18446744073709551616d", -EINVAL},
		{"", -EINVAL},
		{"s", -EINVAL},
		{"1.5s", -EINVAL},
		{"5 s", -EINVAL},
		{"5S", -EINVAL},
		{"5sm", -EINVAL},
		{"-5s", -EINVAL},
	};

	(void)state;
	check_numbers(parse_duration_ms, cases, ARRAY_LEN(cases));
}

static void bools(void **state)
{
	static const char *const yes[] = {"yes", "true", "on", "1"};
	static const char *const no[] = {"no", "false", "off", "0"};
	static const char *const neither[] = {"", "Yes", "y", "01", "2", "yes ", "onn"};
	bool value;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
		value = false;
		assert_int_equal(parse_bool(yes[i], &value), 0);
		assert_true(value);
	}
	for (size_t i = 0; i < ARRAY_LEN(no); i++) {
		value = true;
		assert_int_equal(parse_bool(no[i], &value), 0);
		assert_false(value);
	}
	for (size_t i = 0; i < ARRAY_LEN(neither); i++) {
		value = true;
		assert_int_equal(parse_bool(neither[i], &value), -EINVAL);
		assert_true(value);
	}
}

static void id_sets(void **state)
{
	static const struct {
		const char *text;
		int result;
		const char *back;
		unsigned int count;
	} cases[] = {
		{"", 0, "", 0},
		{"0", 0, "0", 1},
		{"0-3,8,10-11", 0, "0-3,8,10-11", 7},
		{"0,1,2,3", 0, "0-3", 4},
		{"3,1,2,0-1", 0, "0-3", 4},
		{"63-64,127-128", 0, "63-64,127-128", 4},
		{"5-5", 0, "5", 1},
		{"8191", 0, "8191", 1},
		{"0-8191", 0, "0-8191", 8192},
		{"8192", -ERANGE},
		{"0-8192", -ERANGE},
		{"0-99999999999999999999", -ERANGE},
		{"3-1", -EINVAL},
		{",", -EINVAL},
		{"1,", -EINVAL},
		{",1", -EINVAL},
		{"1,,2", -EINVAL},
		{"1-", -EINVAL},
		{"-1", -EINVAL},
		{"1-2-3", -EINVAL},
		{"1 ,2", -EINVAL},
		{"all", -EINVAL},
		{"0-7:2", -EINVAL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct id_set set = {};
		char back[64];
		int r;

		id_set_add(&set, KEPT % ID_SET_MAX);
		r = parse_id_set(cases[i].text, &set);
		if (r != cases[i].result)
			fail_msg("\"%s\": result %d", cases[i].text, r);
		if (r < 0) {
			assert_true(id_set_has(&set, KEPT % ID_SET_MAX));
			assert_int_equal(id_set_count(&set), 1);
			continue;
		}
		assert_int_equal(format_id_set(&set, back, sizeof(back)), strlen(cases[i].back));
		assert_string_equal(back, cases[i].back);
		assert_int_equal(id_set_count(&set), cases[i].count);
		assert_int_equal(id_set_is_empty(&set), cases[i].count == 0);
	}
}

static void id_set_walk(void **state)
{
	struct id_set set = {}, other = {};

	(void)state;
	id_set_add(&set, 0);
	id_set_add(&set, 63);
	id_set_add(&set, 64);
	id_set_add(&set, 8191);
	id_set_add(&set, ID_SET_MAX); /* nothing happens */
	assert_int_equal(id_set_count(&set), 4);
	assert_false(id_set_has(&set, ID_SET_MAX));
	assert_false(id_set_has(&set, UINT32_MAX));
	assert_int_equal(id_set_next(&set, 0), 0);
	assert_int_equal(id_set_next(&set, 1), 63);
	assert_int_equal(id_set_next(&set, 64), 64);
	assert_int_equal(id_set_next(&set, 65), 8191);
	assert_int_equal(id_set_next(&set, 8192), -1);

	id_set_add(&other, 64);
	id_set_add(&other, 65);
	id_set_and(&set, &other);
	assert_int_equal(id_set_next(&set, 0), 64);
	assert_int_equal(id_set_count(&set), 1);
}

static void id_set_room(void **state)
{
	struct id_set set;
	char text[8];

	(void)state;
	assert_int_equal(parse_id_set("0-3,8,10", &set), 0);
	assert_int_equal(format_id_set(&set, text, sizeof(text)), -ENOSPC);
	assert_int_equal(format_id_set(&set, text, 0), -ENOSPC);
	assert_int_equal(parse_id_set("0-3,8,9", &set), 0);
	assert_int_equal(format_id_set(&set, text, sizeof(text)), 7);
	assert_string_equal(text, "0-3,8-9");
}

static void formatted(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *exact, *rounded;
	} cases[] = {
		{0, "0", "0"},
		{1, "1", "1"},
		{999, "999", "999"},
		{1000, "1000", "0.977K"},
		{1023, "1023", "0.999K"},
		{1024, "1K", "1.00K"},
		{4096, "4K", "4.00K"},
		{1536ULL << 20, "1536M", "1.50G"},
		{8ULL << 30, "8G", "8.00G"},
		{(8ULL << 30) + 1, "8589934593", "8.00G"},
		{10229ULL, "10229", "9.99K"},
		{10240ULL - 3, "10237", "10.0K"},
		{7999ULL << 20, "7999M", "7.81G"},
		{100ULL << 40, "100T", "100T"},
		{1000ULL << 20, "1000M", "0.977G"},
		{(1000ULL << 20) - 1, "1048575999", "0.977G"},
		{16383ULL << 50, "16383P", "16.0E"},
		{UINT64_MAX, "18446744073709551615", "16.0E"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char buf[BYTES_TEXT_MAX];
		uint64_t back = 0;

		assert_ptr_equal(format_bytes(cases[i].bytes, buf), buf);
		assert_string_equal(buf, cases[i].exact);
		assert_int_equal(parse_bytes(buf, &back), 0);
		assert_true(back == cases[i].bytes);
		assert_string_equal(format_bytes_short(cases[i].bytes, buf), cases[i].rounded);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(u64),	       cmocka_unit_test(bytes),
		cmocka_unit_test(durations),   cmocka_unit_test(bools),
		cmocka_unit_test(id_sets),     cmocka_unit_test(id_set_walk),
		cmocka_unit_test(id_set_room), cmocka_unit_test(formatted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
