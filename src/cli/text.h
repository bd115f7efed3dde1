/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cli/text.h - text for people: safe on a terminal, aligned, in human units.
 *
 * Nothing here fails; a table that finds no memory prints what it has.
 */
#ifndef PREZERO_CLI_TEXT_H
#define PREZERO_CLI_TEXT_H

#include <stdint.h>
#include <stdio.h>

#include "base/cleanup.h"

/* Names and commands come from other users: whatever could steer a terminal (control characters, also
 * those of Unicode, and bytes that are not UTF-8) is written as \xNN. */
void print_safe(FILE *f, const char *text);
/* The same, with blanks after it up to that many columns. */
void print_cell(FILE *f, const char *text, int width);

#define DURATION_TEXT_MAX 24
/* "7s", "3m05s", "2h10m", "4d03h"; returns buf. */
const char *format_duration(uint64_t ms, char buf[DURATION_TEXT_MAX]);
/* "2M@0", "thp@any"; returns buf. */
#define PLACE_TEXT_MAX 48
const char *format_place(const char *page, int node, char buf[PLACE_TEXT_MAX]);

/* Rows of cells, each column as wide as its widest cell. `align` has a letter a column: 'l' or 'r'. */
struct table {
	const char *align;
	size_t n_cells, cells_max;
	char **cell;
};
void table_add(struct table *table, const char *format, ...) PRINTF(2, 3);
void table_print(const struct table *table, FILE *f);
void table_done(struct table *table);
#define AUTO_TABLE __attribute__((cleanup(table_done))) struct table

#endif
