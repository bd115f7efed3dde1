/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cli/bar.h - a progress bar: one line on the terminal, drawn over itself and erased in the end.
 *
 * Drawn only where standard error is a terminal that can erase, and never by a job in the background.
 */
#ifndef PREZERO_CLI_BAR_H
#define PREZERO_CLI_BAR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct bar {
	uint64_t done_bytes, total_bytes;
	const char *place; /* "2M@0" */
	uint64_t bytes_per_second;
	uint64_t left_ms;
	bool knows_left_ms;
};

bool bar_is_wanted(void);
void bar_print(FILE *f, const struct bar *bar);
/* Draws a line that was printed, cut to the terminal's width; false where it cannot be written. */
bool bar_draw(const char *line);
/* Erases it, if one was drawn. Safe in a signal handler. */
void bar_erase(void);

#endif
