/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bench/case_handover.c - memory that a program can touch: mapped cold, or taken from the pool. */
#include "bench/consumer.h"
#include "bench/report.h"

static void measure(struct bench *bench, struct work *work)
{
	char cold_name[32], take_name[32], touch_name[32], figure[48];
	struct trial trials[] = {
		{.name = cold_name, .prepare = prepare_cold, .run = run_touch_cold, .arg = work},
		{.name = take_name, .prepare = prepare_pool, .run = run_take_and_map, .arg = work},
		{.name = touch_name},
	};
	struct trial *cold = &trials[0], *take = &trials[1], *touched = &trials[2];
	double gib = (double)work->bytes / (double)(1ULL << 30);

	snprintf(cold_name, sizeof(cold_name), "map and touch %s, cold", work->page_text);
	snprintf(take_name, sizeof(take_name), "take and map %s", work->page_text);
	snprintf(touch_name, sizeof(touch_name), "take, map and touch %s", work->page_text);
	snprintf(cold->what, sizeof(cold->what), "mmap %.4g GiB of %s pages, write a byte to each",
		 gib, work->page_text);
	snprintf(take->what, sizeof(take->what),
		 "prezero_map() of %.4g GiB of %s pages: taken, mapped, populated", gib,
		 work->page_text);
	snprintf(touched->what, sizeof(touched->what), "the same, then write a byte to each page");
	take->also = touched;

	trials_interleave(bench, "handover", trials, 2, bench_rounds(bench, 15));

	snprintf(figure, sizeof(figure), "handover_ms_per_gib_%s", work->page_text);
	if (trial_is_measured(take))
		report_figure(bench->report, figure,
			      series_summary(&take->series).median * 1e3 / gib);
	else
		report_no_figure(bench->report, figure, take->reason);
	snprintf(figure, sizeof(figure), "touch_cold_over_pool_%s", work->page_text);
	report_ratio(bench->report, figure, cold, touched);
	report_trials(bench->report, "handover", trials, ARRAY_LEN(trials));
}

static void measure_1g(struct bench *bench)
{
	static const char *const names[] = {"handover_ms_per_gib_1G", "touch_cold_over_pool_1G"};
	struct work work = {.page_text = "1G", .page = {PAGE_HUGETLB, 1ULL << 30}};
	char why[REASON_MAX];

	work.bytes = bench_reserve_1g(bench, why, sizeof(why));
	if (work.bytes > 0)
		measure(bench, &work);
	else
		for (size_t i = 0; i < ARRAY_LEN(names); i++)
			report_no_figure(bench->report, names[i], why);
}

void case_handover(struct bench *bench)
{
	struct work work = {
		.page_text = "2M", .page = {PAGE_HUGETLB, 2ULL << 20}, .bytes = bench->bytes};

	if (bench->bytes > 0) {
		measure(bench, &work);
	} else {
		report_no_figure(bench->report, "handover_ms_per_gib_2M", bench->why_no_pages);
		report_no_figure(bench->report, "touch_cold_over_pool_2M", bench->why_no_pages);
	}
	measure_1g(bench);
}
