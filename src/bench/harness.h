/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench/harness.h - interleaved trials and their samples.
 *
 * A trial is one way to do a piece of work. Trials that are compared run in turns, so that
 * whatever else the machine does meets them alike: each round runs every trial once, in
 * alternating order, and the first round warms up and is not counted. A trial that fails says why
 * once, and is left out from then on: a figure made from it is null with that reason.
 */
#ifndef PREZERO_BENCH_HARNESS_H
#define PREZERO_BENCH_HARNESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "model/class.h"
#include "model/view.h"

#define REASON_MAX 320
#define SAMPLES_MAX 256

struct host;
struct report;
struct service;
struct bench;

struct series {
	unsigned int n;
	double value[SAMPLES_MAX];
};
/* Samples beyond SAMPLES_MAX are not kept. */
void series_add(struct series *series, double value);
struct summary {
	unsigned int n;
	double min, median, max;
};
struct summary series_summary(const struct series *series); /* all 0 without samples */

struct trial {
	const char *name; /* in the JSON */
	char what[512]; /* what one sample does, or its command line */
	/* Untimed, before each run: brings the host into the state that run() starts from. */
	int (*prepare)(struct bench *bench, struct trial *trial);
	/* Measures one sample in seconds; cleans up after itself, untimed. */
	int (*run)(struct bench *bench, struct trial *trial, double *ret_s);
	void *arg;
	/* Another trial that run() measures on the way, in also->on_the_way_s; not run by itself. */
	struct trial *also;
	double on_the_way_s;
	unsigned int every; /* takes part in every n-th round; 0 and 1: in all */
	struct series series;
	char reason[REASON_MAX]; /* why it was not measured; "" when it was */
};

/* Notes why a trial cannot be measured, unless it has a reason; returns error. */
int trial_fail(struct trial *trial, int error, const char *format, ...) PRINTF(3, 4);
bool trial_is_measured(const struct trial *trial);
/* One warm-up round, then `rounds` counted ones. */
void trials_interleave(struct bench *bench, const char *case_name, struct trial *trials,
		       unsigned int n_trials, unsigned int rounds);

/* A progress line for whoever waits at a terminal; nothing elsewhere. */
void bench_progress(const struct bench *bench, const char *format, ...) PRINTF(2, 3);

enum bench_case {
	CASE_HANDOVER,
	CASE_QEMU,
	CASE_MLOCK,
	CASE_FILL,
	CASE_LEASES,
	CASE_SIZE,
	CASES,
};
extern const char *const bench_case_name[CASES];

struct bench_options {
	uint64_t bytes; /* 0: as much as the claim needs and the machine has */
	unsigned int pairs; /* 0: as many as each claim needs */
	int node; /* NODE_ANY: the first that has memory and CPUs */
	bool json;
	bool may_reserve; /* grow the kernel's pool of huge pages for the run */
	const char *plot_dir; /* NULL: no plots */
	bool sweep; /* nothing but the threads sweep */
	bool wants[CASES];
};

/* What every case works with. */
struct bench {
	const struct bench_options *options;
	struct host *host;
	struct host_view *view; /* as it was before anything was borrowed */
	struct report *report;
	int node;
	unsigned int n_threads; /* all CPUs of the node that this process may use */
	uint64_t bytes; /* of free 2M pages on the node that the cases share; 0: see why_no_pages */
	char why_no_pages[REASON_MAX];
	struct service *service; /* NULL: see why_no_service */
	char why_no_service[REASON_MAX];
	bool is_terminal; /* progress lines are welcome on stderr */
};

/* How many pairs: what was asked for, else what the case needs. */
unsigned int bench_rounds(const struct bench *bench, unsigned int needed);
bool bench_host_has(const struct bench *bench, uint64_t page_bytes);
/* As many bytes of ordinary memory, or less where the machine has less to spare. */
uint64_t bench_ordinary_bytes(const struct bench *bench, uint64_t wanted_bytes);
/* Free 1G pages for a case, in bytes, growing the kernel's pool where allowed; 0 and why. */
uint64_t bench_reserve_1g(struct bench *bench, char *why, size_t why_bytes);
/* What keeps a case from taking segments of 2M pages, or NULL. */
const char *bench_why_no_pool(const struct bench *bench);

void case_handover(struct bench *bench);
void case_qemu(struct bench *bench);
void case_mlock(struct bench *bench);
void case_fill(struct bench *bench);
void case_leases(struct bench *bench);
void case_size(struct bench *bench);

#endif
