/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/log.h - one line a message, on standard error.
 *
 * Each line carries its priority in front ("<4>"), which the journal reads; on a terminal the name of
 * the program stands there. One write(2) a line, so that lines never mix.
 */
#ifndef PREZERO_DAEMON_LOG_H
#define PREZERO_DAEMON_LOG_H

#include "base/cleanup.h"

enum log_level { LOG_ERROR = 3, LOG_WARNING = 4, LOG_NOTICE = 5, LOG_INFO = 6 }; /* as in syslog */

void log_message(enum log_level level, const char *format, ...) PRINTF(2, 3);

#define log_error(...) log_message(LOG_ERROR, __VA_ARGS__)
#define log_warning(...) log_message(LOG_WARNING, __VA_ARGS__)
#define log_notice(...) log_message(LOG_NOTICE, __VA_ARGS__)
#define log_info(...) log_message(LOG_INFO, __VA_ARGS__)

#endif
