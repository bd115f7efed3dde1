/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench/sweep.h - how long it takes to reserve and zero memory, by threads and by size.
 *
 * Grows the kernel's pool and takes it back for every measurement; between two of them, and at the end
 * also by a signal, the pool is as it was. Needs root.
 */
#ifndef PREZERO_BENCH_SWEEP_H
#define PREZERO_BENCH_SWEEP_H

#include "bench/harness.h"

/* Prints the table or, with --json, one object; returns the exit status. */
MUST_CHECK int sweep_run(const struct bench_options *options);

#endif
