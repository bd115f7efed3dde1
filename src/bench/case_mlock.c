/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench/case_mlock.c - memory that stays put: anonymous memory locked, and a segment locked.
 *
 * Locking is what programs do that hand their memory to a device; all of it is zeroed on the way.
 * Cold: mmap and mlock. Pool: take, mmap and mlock.
 */
#include "bench/consumer.h"
#include "bench/report.h"

static void measure(struct bench *bench, struct work *work, unsigned int rounds)
{
	char cold_name[48], pool_name[48], figure[48];
	struct trial trials[] = {
		{.name = cold_name, .prepare = prepare_cold, .run = run_mlock_cold, .arg = work},
		{.name = pool_name, .prepare = prepare_pool, .run = run_mlock_pool, .arg = work},
	};
	double gib = (double)work->bytes / (double)(1ULL << 30);

	snprintf(cold_name, sizeof(cold_name), "mlock %s, cold", work->page_text);
	snprintf(pool_name, sizeof(pool_name), "mlock %s, from the pool", work->page_text);
	snprintf(figure, sizeof(figure), "mlock_%s_cold_over_pool", work->page_text);
	snprintf(trials[0].what, sizeof(trials[0].what),
		 "mmap and mlock %.4g GiB of anonymous %s pages", gib, work->page_text);
	snprintf(trials[1].what, sizeof(trials[1].what),
		 "prezero_map() and mlock %.4g GiB of %s pages", gib, work->page_text);

	trials_interleave(bench, "mlock", trials, ARRAY_LEN(trials), rounds);
	report_ratio(bench->report, figure, &trials[0], &trials[1]);
	report_trials(bench->report, "mlock", trials, ARRAY_LEN(trials));
}

void case_mlock(struct bench *bench)
{
	struct work thp = {.page_text = "thp", .page = {PAGE_THP, bench->view->thp_bytes}};
	struct work base = {.page_text = "base", .page = {PAGE_BASE, bench->view->base_page_bytes}};

	thp.bytes = base.bytes = bench_ordinary_bytes(bench, 2ULL << 30);
	if (bench->view->thp_bytes > 0)
		measure(bench, &thp, bench_rounds(bench, 7));
	else
		report_no_figure(bench->report, "mlock_thp_cold_over_pool",
				 "no transparent huge pages here");
	measure(bench, &base, bench_rounds(bench, 5));
}
