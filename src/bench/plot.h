/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench/plot.h - plots of time against size, by gnuplot.
 *
 * Writes touch.svg, touch.png, qemu.svg and qemu.png into a directory.
 */
#ifndef PREZERO_BENCH_PLOT_H
#define PREZERO_BENCH_PLOT_H

#include <jansson.h>
#include <stddef.h>

#include "base/cleanup.h"

/* curve: the points of the case `size`. Errors are explained in why. */
MUST_CHECK int plot_curve(const json_t *curve, const char *directory, char *why, size_t why_bytes);
/* points: of the threads sweep. Writes threads.svg and threads.png. */
MUST_CHECK int plot_threads(const json_t *points, const char *directory, char *why,
			    size_t why_bytes);

#endif
