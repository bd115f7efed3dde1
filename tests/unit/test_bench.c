/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_bench.c - a benchmark that is worth believing: turns, medians, and honest gaps.
 */
#include "unit.h"

#include <string.h>
#include <sys/mman.h>

#include "bench/harness.h"
#include "bench/report.h"
#include "bench/work.h"

static void summary_of_samples(void **state)
{
	struct series series = {0};
	struct summary s;

	(void)state;
	assert_int_equal(series_summary(&series).n, 0);
	series_add(&series, 3);
	series_add(&series, 1);
	series_add(&series, 2);
	s = series_summary(&series);
	assert_true(s.n == 3 && s.min == 1 && s.median == 2 && s.max == 3);
	series_add(&series, 10);
	s = series_summary(&series);
	assert_true(s.n == 4 && s.median == 2.5 && s.max == 10);
	assert_true(series.value[0] == 3); /* sorting is not in place */
	for (int i = 0; i < 2 * SAMPLES_MAX; i++)
		series_add(&series, 1);
	assert_int_equal(series.n, SAMPLES_MAX);
}

/* Which trials ran, in order, a letter each. */
static char ran[64];

static int run_letter(struct bench *bench, struct trial *trial, double *ret_s)
{
	(void)bench;
	strncat(ran, trial->name, 1);
	*ret_s = 2;
	return 0;
}

static int run_failing(struct bench *bench, struct trial *trial, double *ret_s)
{
	run_letter(bench, trial, ret_s);
	return strlen(ran) > 3 ? trial_fail(trial, -ENOMEM, "pages went away") : 0;
}

static void trials_take_turns(void **state)
{
	struct bench bench = {0};
	struct trial trials[] = {
		{.name = "a", .run = run_letter},
		{.name = "b", .run = run_letter},
		{.name = "c", .run = run_letter, .every = 2},
	};

	(void)state;
	ran[0] = '\0';
	trials_interleave(&bench, "test", trials, 3, 4);
	/* a warm-up of all, then the order turns every round and c is in every second */
	assert_string_equal(ran, "abc"
				 "cba"
				 "ab"
				 "cba"
				 "ab");
	assert_int_equal(trials[0].series.n, 4);
	assert_int_equal(trials[2].series.n, 2);
	assert_true(trial_is_measured(&trials[2]));
}

static void failed_trial_is_left_out(void **state)
{
	struct bench bench = {0};
	struct trial trials[] = {
		{.name = "a", .run = run_letter},
		{.name = "f", .run = run_failing},
	};

	(void)state;
	ran[0] = '\0';
	trials_interleave(&bench, "test", trials, 2, 3);
	assert_string_equal(ran, "af"
				 "fa"
				 "af"
				 "a");
	assert_true(trials[1].series.n == 1);
	assert_false(trial_is_measured(&trials[1]));
	assert_string_equal(trials[1].reason, "pages went away");
	assert_int_equal(trials[0].series.n, 3);
}

static void no_figure_without_measurement(void **state)
{
	struct trial good = {.name = "good"}, failed = {.name = "failed"},
		     never = {.name = "never"};
	struct report report;

	(void)state;
	assert_int_equal(report_init(&report), 0);
	series_add(&good.series, 4);
	series_add(&failed.series, 2);
	trial_fail(&failed, -EIO, "it broke in round %d", 7);
	trial_fail(&failed, -EIO, "and again");

	report_ratio(&report, "fine", &good, &good);
	report_ratio(&report, "broken", &good, &failed);
	report_ratio(&report, "absent", &never, &good);
	report_figure(&report, "infinite", 1 / 0.0);
	assert_true(json_real_value(json_object_get(report.figures, "fine")) == 1);
	assert_true(json_is_null(json_object_get(report.figures, "broken")));
	assert_true(json_is_null(json_object_get(report.figures, "absent")));
	assert_true(json_is_null(json_object_get(report.figures, "infinite")));
	assert_null(json_object_get(report.reasons, "fine"));
	assert_string_equal(json_string_value(json_object_get(report.reasons, "broken")),
			    "it broke in round 7");
	assert_string_equal(json_string_value(json_object_get(report.reasons, "absent")),
			    "no round measured it");
	report_done(&report);
}

static void populate_reaches_every_byte(void **state)
{
	const uint64_t bytes = 8 << 20;
	struct page_size base = {PAGE_BASE, 4096};
	struct span spans[2];
	unsigned char resident[(8 << 20) / 4096];
	void *address;
	double seconds = -1;

	(void)state;
	assert_int_equal(map_anonymous(base, bytes, &address), 0);
	spans[0] = (struct span){address, bytes / 2 - 4096};
	spans[1] = (struct span){(char *)address + spans[0].bytes, bytes - spans[0].bytes};
	assert_int_equal(populate(spans, 2, 1 << 20, &seconds), 0);
	assert_true(seconds > 0);
	assert_int_equal(mincore(address, bytes, resident), 0);
	for (size_t i = 0; i < ARRAY_LEN(resident); i++)
		assert_true(resident[i] & 1);

	/* a hole is an error of the whole */
	munmap((char *)address + 4096, 4096);
	assert_int_equal(populate(spans, 2, 1 << 20, &seconds), -ENOMEM);
	munmap(address, bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(summary_of_samples),
		cmocka_unit_test(trials_take_turns),
		cmocka_unit_test(failed_trial_is_left_out),
		cmocka_unit_test(no_figure_without_measurement),
		cmocka_unit_test(populate_reaches_every_byte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
