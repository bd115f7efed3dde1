/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bench/case_qemu.c - QEMU's start: nothing touched, preallocated by itself, and on a segment. */
#include "bench/qemu.h"
#include "bench/consumer.h"
#include "bench/report.h"

static const char *const figure[] = {"start_over_floor", "start_populated_over_floor",
				     "prealloc_over_ours", "prealloc_one_thread_over_ours"};

/* "qemu" and "start_over_floor" are the figure qemu_start_over_floor. */
static const char *name_of(const char *prefix, unsigned int i, char buf[64])
{
	snprintf(buf, 64, "%s_%s", prefix, figure[i]);
	return buf;
}

static void measure(struct bench *bench, const struct qemu *qemu, const char *prefix,
		    unsigned int n_rounds)
{
	const struct work work = {.page_text = "2M",
				  .page = {PAGE_HUGETLB, 2ULL << 20},
				  .bytes = bench->bytes,
				  .qemu = qemu};
	struct work ours = work, populated = work, one = work, all = work;
	/* The claim on the floor is narrow and needs many pairs, the others are wide. */
	struct trial trials[] = {
		{.name = "no memory touched",
		 .prepare = prepare_cold,
		 .run = run_qemu_floor,
		 .arg = &ours},
		{.name = "from the pool",
		 .prepare = prepare_pool,
		 .run = run_qemu_pool,
		 .arg = &ours},
		{.name = "from the pool, populated",
		 .prepare = prepare_pool,
		 .run = run_qemu_pool,
		 .arg = &populated,
		 .every = 3},
		{.name = "prealloc, all threads",
		 .prepare = prepare_cold,
		 .run = run_qemu_prealloc,
		 .arg = &all,
		 .every = 3},
		{.name = "prealloc, one thread",
		 .prepare = prepare_cold,
		 .run = run_qemu_prealloc,
		 .arg = &one,
		 .every = 5},
	};
	const struct trial *const over[] = {&trials[1], &trials[2], &trials[3], &trials[4]};
	const struct trial *const under[] = {&trials[0], &trials[0], &trials[1], &trials[1]};
	char name[64];

	populated.is_populated = true;
	one.prealloc_threads = 1;
	all.prealloc_threads = bench->n_threads;
	trials_interleave(bench, prefix, trials, ARRAY_LEN(trials), n_rounds);
	for (unsigned int i = 0; i < ARRAY_LEN(figure); i++)
		report_ratio(bench->report, name_of(prefix, i, name), over[i], under[i]);
	report_trials(bench->report, prefix, trials, ARRAY_LEN(trials));
}

static void start(struct bench *bench, const struct qemu *qemu, const char *prefix,
		  unsigned int n_rounds)
{
	const char *why = bench->bytes == 0		    ? bench->why_no_pages :
			  !qemu || !qemu_is_installed(qemu) ? "no qemu-system-x86_64" :
							      NULL;
	char name[64];

	if (!why)
		measure(bench, qemu, prefix, bench_rounds(bench, n_rounds));
	for (unsigned int i = 0; why && i < ARRAY_LEN(figure); i++)
		report_no_figure(bench->report, name_of(prefix, i, name), why);
}

/*
 * The less a start consists of besides its memory, the narrower the claim on the floor: so the
 * quickest QEMU that is installed has the figures, and the whole one, as a PC, some of its own.
 */
void case_qemu(struct bench *bench)
{
	start(bench, qemu_quickest(), "qemu", 40);
	start(bench, &qemu_pc, "qemu_pc", 15);
}
