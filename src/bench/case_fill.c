/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench/case_fill.c - how fast segments are filled: the fill team against a bare loop.
 *
 * The bare loop is MADV_POPULATE_WRITE over equal shares, one for each thread, with no
 * bookkeeping, no cancelling, no check of placement: as fast as the kernel goes with those
 * threads. Base pages fill in parallel only in different files, so there each thread of the bare
 * loop has a file of its own, and the team gets the same files.
 */
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/consumer.h"
#include "bench/report.h"
#include "bench/work.h"
#include "fill/fill.h"

#define FILES_MAX 64U

struct fill_work {
	const char *page_text;
	struct page_size page;
	uint64_t file_bytes;
	unsigned int n_files;
	unsigned int n_threads;
};

static int open_files(const struct fill_work *work, struct trial *trial, int fds[])
{
	for (unsigned int i = 0; i < work->n_files; i++) {
		int r = open_memory_file(work->page, work->file_bytes, &fds[i]);

		if (r == 0)
			continue;
		while (i-- > 0)
			close_fd(fds[i]);
		return trial_fail(trial, r, "cannot make a file of %s pages: %s%s", work->page_text,
				  strerror(-r), r == -EPERM ? " (needs root)" : "");
	}
	return 0;
}

static void close_files(const struct fill_work *work, int fds[])
{
	for (unsigned int i = 0; i < work->n_files; i++)
		close_fd(fds[i]);
}

struct outcome {
	unsigned int n_ended;
	int result;
};

static void note_end(void *arg, struct fill_job *job, int result)
{
	struct outcome *outcome = arg;

	(void)job;
	outcome->n_ended++;
	if (outcome->result == 0)
		outcome->result = result;
}

static int fill_files(const struct bench *bench, const struct fill_work *work,
		      struct fill_team *team, const int fds[])
{
	struct outcome outcome = {0};
	struct pollfd ended = {.fd = fill_team_fd(team), .events = POLLIN};
	struct fill_job *job;
	unsigned int n_submitted = 0;
	int r = 0;

	while (n_submitted < work->n_files && r == 0) {
		struct fill_request request = {
			.fd = fds[n_submitted],
			.length_bytes = work->file_bytes,
			.page_class = {work->page, bench->node},
			.node_cpus = bench->view->node[bench->node].cpus,
			.priority = FILL_DEMAND, /* as the bare loop: at normal priority */
			.bind = bench->view->nodes_end > 1,
			.done = note_end,
			.arg = &outcome,
		};

		r = fill_team_submit(team, &request, &job);
		n_submitted += r == 0;
	}
	while (outcome.n_ended < n_submitted) {
		if (poll(&ended, 1, -1) < 0 && errno != EINTR)
			return -errno;
		fill_team_reap(team);
	}
	return r < 0 ? r : outcome.result;
}

static int run_team(struct bench *bench, struct trial *trial, double *ret_s)
{
	const struct fill_work *work = trial->arg;
	struct fill_config config = {.n_threads = work->n_threads};
	struct fill_team *team;
	int fds[FILES_MAX];
	double started_s;
	int r = open_files(work, trial, fds);

	if (r < 0)
		return r;
	r = fill_team_start(&config, &team);
	if (r == 0) {
		started_s = now_s();
		r = fill_files(bench, work, team, fds);
		*ret_s = now_s() - started_s;
		fill_team_stop(team);
	}
	close_files(work, fds);
	return r < 0 ? trial_fail(trial, r, "filling %s pages: %s", work->page_text, strerror(-r)) :
		       0;
}

/* One share of all the files together for each thread, none of them in two files. */
static unsigned int make_spans(const struct fill_work *work, void *const addresses[],
			       struct span spans[])
{
	unsigned int shares = work->n_threads / work->n_files;
	uint64_t share_bytes = work->file_bytes / shares / work->page.bytes * work->page.bytes;

	for (unsigned int i = 0; i < work->n_files * shares; i++) {
		unsigned int share = i % shares;

		spans[i].address = (char *)addresses[i / shares] + share * share_bytes;
		spans[i].bytes = share + 1 < shares ? share_bytes :
						      work->file_bytes - share * share_bytes;
	}
	return work->n_files * shares;
}

static int populate_files(const struct fill_work *work, const int fds[], double *ret_s)
{
	AUTO_FREE struct span *spans = calloc(work->n_threads, sizeof(*spans));
	void *addresses[FILES_MAX];
	double mapped_s = now_s();
	unsigned int n_mapped = 0;
	int r = spans ? 0 : -ENOMEM;

	while (n_mapped < work->n_files && r == 0) {
		r = map_file(work->page, fds[n_mapped], work->file_bytes, &addresses[n_mapped]);
		n_mapped += r == 0;
	}
	mapped_s = now_s() - mapped_s;
	if (r == 0)
		r = populate(spans, make_spans(work, addresses, spans),
			     page_size_unit_bytes(work->page), ret_s);
	*ret_s += mapped_s;
	while (n_mapped-- > 0)
		munmap(addresses[n_mapped], work->file_bytes);
	return r;
}

static int run_bare(struct bench *bench, struct trial *trial, double *ret_s)
{
	const struct fill_work *work = trial->arg;
	int fds[FILES_MAX];
	int r = open_files(work, trial, fds);

	(void)bench;
	if (r < 0)
		return r;
	r = populate_files(work, fds, ret_s);
	close_files(work, fds);
	return r < 0 ? trial_fail(trial, r, "populating %s pages: %s", work->page_text,
				  strerror(-r)) :
		       0;
}

static void report_rate(struct bench *bench, const struct fill_work *work,
			const struct trial *trial)
{
	char figure[48];

	snprintf(figure, sizeof(figure), "fill_gb_per_s_%s", work->page_text);
	if (trial_is_measured(trial))
		report_figure(bench->report, figure,
			      (double)(work->file_bytes * work->n_files) / 1e9 /
				      series_summary(&trial->series).median);
	else
		report_no_figure(bench->report, figure, trial->reason);
}

/* Returns the ratio of the bare loop to the team, or 0. */
static double measure(struct bench *bench, struct fill_work *work, unsigned int rounds)
{
	struct fill_work one = *work, two = *work;
	char names[4][40], figure[48];
	struct trial trials[] = {
		{.name = names[0], .prepare = prepare_cold, .run = run_team, .arg = work},
		{.name = names[1], .prepare = prepare_cold, .run = run_bare, .arg = work},
		{.name = names[2],
		 .prepare = prepare_cold,
		 .run = run_team,
		 .arg = &one,
		 .every = 2},
		{.name = names[3],
		 .prepare = prepare_cold,
		 .run = run_team,
		 .arg = &two,
		 .every = 2},
	};
	/* Where two is all there are, the first trial has measured it. */
	unsigned int n_trials = work->n_threads == 2 ? 3 : ARRAY_LEN(trials);
	const struct trial *two_threads = &trials[work->n_threads == 2 ? 0 : 3];
	const char *page = work->page_text;

	one.n_threads = 1;
	two.n_threads = 2;
	snprintf(names[0], sizeof(names[0]), "fill %s, %u threads", page, work->n_threads);
	snprintf(names[1], sizeof(names[1]), "bare populate %s, %u threads", page, work->n_threads);
	snprintf(names[2], sizeof(names[2]), "fill %s, 1 thread", page);
	snprintf(names[3], sizeof(names[3]), "fill %s, 2 threads", page);
	for (unsigned int i = 0; i < n_trials; i++)
		snprintf(trials[i].what, sizeof(trials[i].what),
			 "%s of %u file(s), %" PRIu64 " MiB of %s pages each",
			 i == 1 ? "MADV_POPULATE_WRITE by bare threads" : "fill by the team",
			 work->n_files, work->file_bytes >> 20, page);

	trials_interleave(bench, "fill", trials, n_trials, rounds);

	snprintf(figure, sizeof(figure), "fill_over_bare_populate_%s", page);
	report_ratio(bench->report, figure, &trials[1], &trials[0]);
	if (strcmp(page, "2M") == 0)
		report_ratio(bench->report, "fill_two_threads_speedup", &trials[2], two_threads);
	if (strcmp(page, "base") == 0)
		report_ratio(bench->report, "fill_two_threads_speedup_base", &trials[2],
			     two_threads);
	report_rate(bench, work, &trials[0]);
	report_trials(bench->report, "fill", trials, n_trials);
	return trial_is_measured(&trials[0]) && trial_is_measured(&trials[1]) ?
		       series_summary(&trials[1].series).median /
			       series_summary(&trials[0].series).median :
		       0;
}

static double measure_class(struct bench *bench, const char *page_text, struct page_size page,
			    uint64_t bytes, unsigned int rounds)
{
	struct fill_work work = {
		.page_text = page_text,
		.page = page,
		.n_threads = bench->n_threads,
		.n_files = 1,
	};
	uint64_t unit_bytes = page_size_unit_bytes(page);

	/* At least two, so that the step from one to two threads is measured on the same files. */
	if (page.kind == PAGE_BASE)
		work.n_files = bench->n_threads < 2	    ? 2 :
			       bench->n_threads > FILES_MAX ? FILES_MAX :
							      bench->n_threads;
	if (work.n_threads > work.n_files)
		work.n_threads -= work.n_threads % work.n_files;
	work.file_bytes = bytes / work.n_files / unit_bytes * unit_bytes;
	return measure(bench, &work, rounds);
}

void case_fill(struct bench *bench)
{
	struct page_size base = {PAGE_BASE, bench->view->base_page_bytes};
	struct page_size thp = {PAGE_THP, bench->view->thp_bytes};
	uint64_t bytes_1g;
	char why[REASON_MAX];
	double ratios[4] = {0}, least = 0;

	if (bench->bytes > 0)
		ratios[0] = measure_class(bench, "2M", (struct page_size){PAGE_HUGETLB, 2ULL << 20},
					  bench->bytes, bench_rounds(bench, 9));
	else
		report_no_figure(bench->report, "fill_two_threads_speedup", bench->why_no_pages);
	bytes_1g = bench_reserve_1g(bench, why, sizeof(why));
	if (bytes_1g > 0)
		ratios[1] = measure_class(bench, "1G", (struct page_size){PAGE_HUGETLB, 1ULL << 30},
					  bytes_1g, bench_rounds(bench, 9));
	else
		report_no_figure(bench->report, "fill_over_bare_populate_1G", why);
	if (thp.bytes > 0)
		ratios[2] = measure_class(bench, "thp", thp,
					  bench_ordinary_bytes(bench, 2ULL << 30),
					  bench_rounds(bench, 9));
	ratios[3] = measure_class(bench, "base", base, bench_ordinary_bytes(bench, 1ULL << 30),
				  bench_rounds(bench, 7));

	for (size_t i = 0; i < ARRAY_LEN(ratios); i++)
		if (ratios[i] > 0 && (least == 0 || ratios[i] < least))
			least = ratios[i];
	if (least > 0)
		report_figure(bench->report, "fill_over_bare_populate", least);
	else
		report_no_figure(bench->report, "fill_over_bare_populate",
				 "no class could be measured");
}
