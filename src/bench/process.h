/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench/process.h - child processes that do not outlive the benchmark.
 *
 * A child is killed when the process that started it dies, however it dies.
 */
#ifndef PREZERO_BENCH_PROCESS_H
#define PREZERO_BENCH_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/cleanup.h"

struct process {
	pid_t pid;
	int talk_fd; /* a socket that is its standard input and output */
	int messages_fd; /* a file that is its standard error */
};

/* argv[0] without a slash is looked up in $PATH. */
MUST_CHECK int process_start(const char *const argv[], struct process *ret);
/* Returns the exit status, or 128+N for a signal. */
int process_wait(struct process *process);
bool process_has_ended(const struct process *process);
/* The last line of what it said on standard error, for a reason. */
void process_messages(const struct process *process, char *buf, size_t buf_bytes);
void process_done(struct process *process); /* kills it where it still runs, closes */

bool program_in_path(const char *name);

#endif
