/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bench/case_size.c - the same work for growing sizes: the points of the plots. */
#include "bench/consumer.h"
#include "bench/qemu.h"
#include "bench/report.h"

#define SMALLEST_BYTES (256ULL << 20)
#define COLUMNS 5

static const char *const column_name[COLUMNS] = {"touch_cold_s", "touch_pool_s", "qemu_prealloc_s",
						 "qemu_pool_s", "qemu_floor_s"};

static json_t *measure(struct bench *bench, uint64_t bytes)
{
	struct work work = {
		.page_text = "2M",
		.page = {PAGE_HUGETLB, 2ULL << 20},
		.bytes = bytes,
		.qemu = qemu_quickest(),
		.prealloc_threads = bench->n_threads,
	};
	struct trial touched = {0};
	struct trial trials[] = {
		{.prepare = prepare_cold, .run = run_touch_cold, .arg = &work},
		{.prepare = prepare_pool, .run = run_take_and_map, .arg = &work, .also = &touched},
		{.prepare = prepare_cold, .run = run_qemu_prealloc, .arg = &work},
		{.prepare = prepare_pool, .run = run_qemu_pool, .arg = &work},
		{.prepare = prepare_cold, .run = run_qemu_floor, .arg = &work},
	};
	unsigned int n_trials = work.qemu ? ARRAY_LEN(trials) : 2;
	json_t *point = json_pack("{s:I}", "bytes", (json_int_t)bytes);

	trials_interleave(bench, "size", trials, n_trials, bench_rounds(bench, 3));
	for (unsigned int i = 0; point && i < n_trials; i++) {
		const struct trial *trial = &trials[i];

		if (trial_is_measured(trial))
			json_object_set_new(
				point, column_name[i],
				json_real(series_summary(i == 1 ? &touched.series : &trial->series)
						  .median));
		else
			json_object_set_new(point, column_name[i], json_null());
	}
	return point;
}

void case_size(struct bench *bench)
{
	for (uint64_t bytes = SMALLEST_BYTES; bytes <= bench->bytes; bytes *= 2)
		json_array_append_new(bench->report->curve, measure(bench, bytes));
}
