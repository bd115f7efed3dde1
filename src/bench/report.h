/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench/report.h - what was measured, as a table and as one JSON object.
 *
 * Guarantees that every figure is there: with its value, or null and the reason why it was not
 * measured.
 */
#ifndef PREZERO_BENCH_REPORT_H
#define PREZERO_BENCH_REPORT_H

#include <jansson.h>

#include "bench/harness.h"

struct report {
	json_t *figures, *reasons;
	json_t *trials; /* each with its case, what it did, and its spread */
	json_t *notes; /* what was done to the host */
	json_t *curve; /* of the case `size`: one object a size */
};

MUST_CHECK int report_init(struct report *report);
void report_done(struct report *report);

void report_figure(struct report *report, const char *name, double value);
void report_no_figure(struct report *report, const char *name, const char *reason);
/* median / median of two trials; null with the reason of the one that was not measured. */
void report_ratio(struct report *report, const char *name, const struct trial *over,
		  const struct trial *under);
void report_trials(struct report *report, const char *case_name, const struct trial *trials,
		   unsigned int n_trials);
void report_note(struct report *report, const char *format, ...) PRINTF(2, 3);

/* To stdout. Figures that no case set are null: their case was not asked for. */
void report_print_table(struct report *report, const struct bench *bench);
int report_print_json(struct report *report, const struct bench *bench);

#endif
