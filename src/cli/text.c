// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cli/text.c - text for people: safe on a terminal, aligned, in human units.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "cli/text.h"

/* The bytes of the UTF-8 character at p, which *ret gets; 0 where there is none. */
static size_t utf8_decode(const unsigned char *p, uint32_t *ret)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t length = p[0] < 0x80	? 1 :
			p[0] >> 5 == 6	? 2 :
			p[0] >> 4 == 14 ? 3 :
			p[0] >> 3 == 30 ? 4 :
					  0;
	uint32_t code = length == 1 ? p[0] : p[0] & (0x7f >> length);

	for (size_t i = 1; i < length; i++) {
		if (p[i] >> 6 != 2)
			return 0;
		code = code << 6 | (p[i] & 0x3f);
	}
	if (!length || code < least[length] || code > 0x10ffff ||
	    (code >= 0xd800 && code <= 0xdfff))
		return 0;
	*ret = code;
	return length;
}

static bool steers_terminal(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0) /* control characters */
	       || (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
	       (code >= 0x2060 && code <= 0x206f) ||
	       code == 0xfeff; /* invisible, or reorder text */
}

void print_safe(FILE *f, const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	uint32_t code = 0;

	while (*p) {
		size_t length = utf8_decode(p, &code);

		if (length && !steers_terminal(code)) {
			fwrite(p, 1, length, f);
		} else {
			length += !length;
			for (size_t i = 0; i < length; i++)
				fprintf(f, "\\x%02x", p[i]);
		}
		p += length;
	}
}

void print_cell(FILE *f, const char *text, int width)
{
	print_safe(f, text);
	fprintf(f, "%*s", width > (int)strlen(text) ? width - (int)strlen(text) : 0, "");
}

const char *format_duration(uint64_t ms, char buf[DURATION_TEXT_MAX])
{
	uint64_t s = ms / 1000;

	if (s < 60)
		snprintf(buf, DURATION_TEXT_MAX, "%" PRIu64 "s", s);
	else if (s < 3600)
		snprintf(buf, DURATION_TEXT_MAX, "%" PRIu64 "m%02us", s / 60,
			 (unsigned int)(s % 60));
	else if (s < 86400)
		snprintf(buf, DURATION_TEXT_MAX, "%" PRIu64 "h%02um", s / 3600,
			 (unsigned int)(s / 60 % 60));
	else
		snprintf(buf, DURATION_TEXT_MAX, "%" PRIu64 "d%02uh", s / 86400,
			 (unsigned int)(s / 3600 % 24));
	return buf;
}

const char *format_place(const char *page, int node, char buf[PLACE_TEXT_MAX])
{
	if (node < 0)
		snprintf(buf, PLACE_TEXT_MAX, "%.24s@any", page);
	else
		snprintf(buf, PLACE_TEXT_MAX, "%.24s@%d", page, node);
	return buf;
}

void table_add(struct table *table, const char *format, ...)
{
	char *text;
	va_list args;
	int length;

	if (table->n_cells == table->cells_max) {
		size_t cells_max = table->cells_max ? 2 * table->cells_max : 64;
		char **cell = reallocarray(table->cell, cells_max, sizeof(*cell));

		if (!cell)
			return;
		table->cell = cell;
		table->cells_max = cells_max;
	}
	va_start(args, format);
	length = vasprintf(&text, format, args);
	va_end(args);
	if (length >= 0)
		table->cell[table->n_cells++] = text;
}

void table_print(const struct table *table, FILE *f)
{
	size_t n_columns = strlen(table->align);
	int width[16] = {0};

	for (size_t i = 0; i < table->n_cells; i++) {
		int length = (int)strlen(table->cell[i]);

		if (length > width[i % n_columns])
			width[i % n_columns] = length;
	}
	for (size_t i = 0; i < table->n_cells; i++) {
		size_t column = i % n_columns;
		const char *cell = table->cell[i];

		if (column)
			fputs("  ", f);
		if (table->align[column] == 'r')
			fprintf(f, "%*s", width[column] - (int)strlen(cell), "");
		if (table->align[column] == 'l' && column + 1 < n_columns)
			print_cell(f, cell, width[column]);
		else
			print_safe(f, cell);
		if (column + 1 == n_columns)
			putc('\n', f);
	}
}

void table_done(struct table *table)
{
	for (size_t i = 0; i < table->n_cells; i++)
		free(table->cell[i]);
	free(table->cell);
	*table = (struct table){0};
}
