/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench/guard.h - whatever the benchmark borrows from the host goes back.
 *
 * The benchmark runs in a child process. What it borrows is noted in a record under /run before it
 * is taken; when the child has ended, however it ended, the parent puts everything back. Should
 * the parent be killed as well, the child and all that it started die with it, and the next run
 * finds the record and puts back first. A setting that somebody else has changed meanwhile stays
 * as it is, and is named.
 */
#ifndef PREZERO_BENCH_GUARD_H
#define PREZERO_BENCH_GUARD_H

#include <stdint.h>

#include "base/cleanup.h"

#define GUARD_DIR "/run/prezero-bench"
#define GUARD_RUNTIME_DIR GUARD_DIR "/run" /* of the private prezerod */
#define GUARD_CONFIG GUARD_DIR "/prezerod.conf"

/* Runs body(arg) in a child and returns its exit status, 128+N for a signal, after putting back.
 * One at a time on a host: -EBUSY. Needs root. prezerod: the program that gives its pages back. */
MUST_CHECK int guard_run(const char *prezerod, int (*body)(void *arg), void *arg);

/* In the body: has at least free_pages of free pages on the node, growing the kernel's pool by
 * what is missing. *ret_grown says by how much it grew; -ENOMEM: the kernel gave less (it keeps
 * the rest until the end). */
MUST_CHECK int guard_reserve(int node, uint64_t page_bytes, uint64_t free_pages,
			     uint64_t *ret_grown);

#endif
