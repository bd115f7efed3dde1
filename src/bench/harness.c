/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bench/harness.c - interleaved trials and their samples. */
#include "bench/harness.h"

#include <stdarg.h>
#include <string.h>

const char *const bench_case_name[CASES] = {
	[CASE_HANDOVER] = "handover", [CASE_QEMU] = "qemu",	[CASE_MLOCK] = "mlock",
	[CASE_FILL] = "fill",	      [CASE_LEASES] = "leases", [CASE_SIZE] = "size",
};

void series_add(struct series *series, double value)
{
	if (series->n < SAMPLES_MAX)
		series->value[series->n++] = value;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct summary series_summary(const struct series *series)
{
	struct summary summary = {.n = series->n};
	double sorted[SAMPLES_MAX];
	unsigned int middle = series->n / 2;

	if (series->n == 0)
		return summary;
	memcpy(sorted, series->value, series->n * sizeof(sorted[0]));
	qsort(sorted, series->n, sizeof(sorted[0]), compare_doubles);
	summary.min = sorted[0];
	summary.max = sorted[series->n - 1];
	summary.median = series->n % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
	return summary;
}

int trial_fail(struct trial *trial, int error, const char *format, ...)
{
	va_list args;

	if (trial->reason[0])
		return error;
	va_start(args, format);
	vsnprintf(trial->reason, sizeof(trial->reason), format, args);
	va_end(args);
	return error;
}

bool trial_is_measured(const struct trial *trial)
{
	return trial->series.n > 0 && !trial->reason[0];
}

static void trial_once(struct bench *bench, struct trial *trial, bool is_warm_up)
{
	double seconds = 0;
	int r = trial->prepare ? trial->prepare(bench, trial) : 0;

	if (r == 0)
		r = trial->run(bench, trial, &seconds);
	if (r < 0) {
		trial_fail(trial, r, "%s", strerror(-r));
		if (trial->also)
			trial_fail(trial->also, r, "%s", trial->reason);
		return;
	}
	if (is_warm_up)
		return;
	series_add(&trial->series, seconds);
	if (trial->also)
		series_add(&trial->also->series, trial->also->on_the_way_s);
}

void trials_interleave(struct bench *bench, const char *case_name, struct trial *trials,
		       unsigned int n_trials, unsigned int rounds)
{
	for (unsigned int round = 0; round <= rounds; round++) {
		bench_progress(bench, "%s: round %u of %u%s", case_name, round, rounds,
			       round == 0 ? " (warm-up)" : "");
		for (unsigned int i = 0; i < n_trials; i++) {
			struct trial *trial = &trials[round % 2 ? n_trials - 1 - i : i];
			bool is_due = trial->every < 2 || round % trial->every == 1 || round == 0;

			if (is_due && !trial->reason[0])
				trial_once(bench, trial, round == 0);
		}
	}
	bench_progress(bench, "%s", "");
}

void bench_progress(const struct bench *bench, const char *format, ...)
{
	va_list args;

	if (!bench->is_terminal)
		return;
	fputs("\r\033[K", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fflush(stderr);
}

unsigned int bench_rounds(const struct bench *bench, unsigned int needed)
{
	return bench->options->pairs ? bench->options->pairs : needed;
}

bool bench_host_has(const struct bench *bench, uint64_t page_bytes)
{
	return host_view_hugetlb(bench->view, page_bytes) != NULL;
}

const char *bench_why_no_pool(const struct bench *bench)
{
	if (!bench->service)
		return bench->why_no_service;
	return bench->bytes == 0 ? bench->why_no_pages : NULL;
}
