/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench/qemu.h - QEMU from its start to QMP `quit` and its exit.
 *
 * The guest's processors never run (-S): what is timed is what a VM waits for before it can boot.
 */
#ifndef PREZERO_BENCH_QEMU_H
#define PREZERO_BENCH_QEMU_H

#include "bench/harness.h"

/* In $PATH. */
bool qemu_is_installed(void);

/* memory_backend: the -object, whose id is "mem". The whole command line goes to trial->what. */
MUST_CHECK int qemu_start_and_quit(struct trial *trial, const char *memory_backend, uint64_t bytes,
				   double *ret_s);

#endif
