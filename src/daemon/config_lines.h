/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/config_lines.h - the form of a configuration file: sections, keys and where they stand.
 *
 * inih splits the lines; what it would pass over in silence (long lines, cut names, empty sections) is
 * a fault here.
 */
#ifndef PREZERO_DAEMON_CONFIG_LINES_H
#define PREZERO_DAEMON_CONFIG_LINES_H

#include <stdio.h>

#include "base/cleanup.h"

#define BLANKS " \t\r\n\f\v"

struct config_lines {
	const char *file_name; /* for errors */
	unsigned int line; /* the one that is being read */
	char *error; /* the first fault as "FILE:LINE: reason", to be freed; NULL */

	/* Return 0 or, having told config_fault(), a negative errno. */
	int (*section)(void *arg, const char *heading); /* "daemon", "stock vm" */
	int (*key)(void *arg, const char *name, const char *value);
	void *arg;
};

/* Notes a fault at the current line, unless there is one; returns -EINVAL. */
int config_fault(struct config_lines *lines, const char *format, ...) PRINTF(2, 3);

/* Reads to the end or to the first fault: -EINVAL with lines->error. */
MUST_CHECK int config_read_lines(struct config_lines *lines, FILE *file);

#endif
