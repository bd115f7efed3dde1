/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/log.c - one line a message, on standard error.
 *
 * Guarantees: errno is kept; a text that does not fit is cut, never split over two lines.
 */
#include "daemon/log.h"

#include <stdarg.h>
#include <string.h>

void log_message(enum log_level level, const char *format, ...)
{
	int saved_errno = errno, length;
	char line[2048];
	ssize_t written;
	va_list args;

	if (isatty(STDERR_FILENO))
		length = snprintf(line, sizeof(line), "prezerod: ");
	else
		length = snprintf(line, sizeof(line), "<%d>", level);
	va_start(args, format);
	length += vsnprintf(line + length, sizeof(line) - length, format, args);
	va_end(args);
	if ((size_t)length > sizeof(line) - 2)
		length = sizeof(line) - 2;
	for (int i = 0; i < length; i++) {
		if (line[i] == '\n')
			line[i] = ' ';
	}
	line[length++] = '\n';
	written = write(STDERR_FILENO, line, length);
	(void)written; /* there is nowhere left to complain */
	errno = saved_errno;
}
