/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bench/case_qemu.c - QEMU's start: nothing touched, preallocated by itself, and on a segment. */
#include "bench/consumer.h"
#include "bench/qemu.h"
#include "bench/report.h"

void case_qemu(struct bench *bench)
{
	static const char *const names[] = {
		"qemu_start_over_floor", "qemu_start_populated_over_floor",
		"qemu_prealloc_over_ours", "qemu_prealloc_one_thread_over_ours"};
	const struct work work = {
		.page_text = "2M", .page = {PAGE_HUGETLB, 2ULL << 20}, .bytes = bench->bytes};
	struct work ours = work, populated = work, one = work, all = work;
	/* The claim on the floor is narrow and needs many pairs, the others are wide. */
	struct trial trials[] = {
		{.name = "QEMU, no memory touched",
		 .prepare = prepare_cold,
		 .run = run_qemu_floor,
		 .arg = &ours},
		{.name = "QEMU, from the pool",
		 .prepare = prepare_pool,
		 .run = run_qemu_pool,
		 .arg = &ours},
		{.name = "QEMU, from the pool, populated",
		 .prepare = prepare_pool,
		 .run = run_qemu_pool,
		 .arg = &populated,
		 .every = 3},
		{.name = "QEMU, prealloc, all threads",
		 .prepare = prepare_cold,
		 .run = run_qemu_prealloc,
		 .arg = &all,
		 .every = 3},
		{.name = "QEMU, prealloc, one thread",
		 .prepare = prepare_cold,
		 .run = run_qemu_prealloc,
		 .arg = &one,
		 .every = 5},
	};
	const char *why = bench->bytes == 0    ? bench->why_no_pages :
			  !qemu_is_installed() ? "no qemu-system-x86_64" :
						 NULL;

	populated.is_populated = true;
	one.prealloc_threads = 1;
	all.prealloc_threads = bench->n_threads;
	if (why) {
		for (size_t i = 0; i < ARRAY_LEN(names); i++)
			report_no_figure(bench->report, names[i], why);
		return;
	}
	trials_interleave(bench, "qemu", trials, ARRAY_LEN(trials), bench_rounds(bench, 40));
	report_ratio(bench->report, names[0], &trials[1], &trials[0]);
	report_ratio(bench->report, names[1], &trials[2], &trials[0]);
	report_ratio(bench->report, names[2], &trials[3], &trials[1]);
	report_ratio(bench->report, names[3], &trials[4], &trials[1]);
	report_trials(bench->report, "qemu", trials, ARRAY_LEN(trials));
}
