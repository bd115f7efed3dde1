/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/config_lines.c - the form of a configuration file: sections, keys and where they stand.
 *
 * Guarantees: every line is understood whole or is a fault; nothing is cut, joined or passed over.
 */
#include "daemon/config_lines.h"

#include <ini.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#define HEADING_MAX 48 /* inih cuts longer ones */

struct reader {
	struct config_lines *lines;
	FILE *file;
	char *line; /* getline()'s */
	size_t room_bytes;
};

int config_fault(struct config_lines *lines, const char *format, ...)
{
	AUTO_FREE char *reason = NULL;
	va_list args;
	int length;

	if (lines->error)
		return -EINVAL;
	va_start(args, format);
	length = vasprintf(&reason, format, args);
	va_end(args);
	if (length < 0)
		reason = NULL;
	if (asprintf(&lines->error, "%s:%u: %s", lines->file_name, lines->line,
		     reason ? reason : "out of memory") < 0)
		lines->error = NULL;
	return -EINVAL;
}

/* "[stock vm] ; comment": inih tells of a section only by its first key, so headings are read here. */
static int read_heading(struct config_lines *lines, char *text)
{
	char *end = strchr(text, ']'), *after, *start = text + 1;

	if (!end)
		return config_fault(lines, "a section's heading must end with ']'");
	after = end + 1 + strspn(end + 1, BLANKS);
	if (*after && *after != ';' && *after != '#')
		return config_fault(lines, "unexpected text after the heading: '%s'", after);
	if (end - start > HEADING_MAX)
		return config_fault(lines, "a heading may be %d bytes long", HEADING_MAX);
	*end = '\0';
	return lines->section(lines->arg, start);
}

/* Hands one line to inih, as fgets() would; NULL at the end and at a fault. */
static char *read_line(char *buf, int buf_bytes, void *arg)
{
	struct reader *reader = arg;
	struct config_lines *lines = reader->lines;
	ssize_t length;
	char *text;

	if (lines->error)
		return NULL;
	length = getline(&reader->line, &reader->room_bytes, reader->file);
	if (length < 0)
		return NULL;
	lines->line++;
	if (memchr(reader->line, '\0', length)) {
		config_fault(lines, "a NUL byte: this is no text");
		return NULL;
	}
	/* inih joins a line that begins with a blank to the one before: nothing here needs that. */
	text = reader->line + strspn(reader->line, BLANKS);
	text[strcspn(text, "\r\n")] = '\0';
	if (strlen(text) + 3 > (size_t)buf_bytes) {
		config_fault(lines, "the line is longer than %d bytes", buf_bytes - 3);
		return NULL;
	}
	sprintf(buf, "%s\n", text);
	if (*text == '[' && read_heading(lines, text) < 0)
		return NULL;
	return buf;
}

static int handle_key(void *arg, const char *section, const char *name, const char *value)
{
	struct reader *reader = arg;

	(void)section;
	return reader->lines->key(reader->lines->arg, name, value) == 0;
}

/* inih wants one pointer for its reader and one for its handler: they are the same. */
int config_read_lines(struct config_lines *lines, FILE *file)
{
	struct reader reader = {.lines = lines, .file = file};
	int bad_line;

	lines->line = 0;
	bad_line = ini_parse_stream(read_line, &reader, handle_key, &reader);
	free(reader.line);
	if (bad_line && !lines->error) {
		if (bad_line > 0)
			lines->line = bad_line;
		config_fault(lines, "neither 'key = value' nor '[section]'");
	}
	if (ferror(file))
		config_fault(lines, "reading fails");
	return lines->error ? -EINVAL : 0;
}
