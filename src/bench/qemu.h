/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench/qemu.h - QEMU from its start to the reply to QMP `quit`.
 *
 * The guest's processors never run (-S): what is timed is what a VM waits for before it can boot.
 */
#ifndef PREZERO_BENCH_QEMU_H
#define PREZERO_BENCH_QEMU_H

#include "bench/harness.h"

struct qemu {
	const char *program, *machine;
};
/* The build for quick starts, with little but the microvm machine; the whole one, as a PC. */
extern const struct qemu qemu_microvm, qemu_pc;

bool qemu_is_installed(const struct qemu *qemu); /* in $PATH */
/* The one that starts quickest of those that are installed; NULL: none is. */
const struct qemu *qemu_quickest(void);

/* memory_backend: the -object, whose id is "mem". The whole command line goes to trial->what. */
MUST_CHECK int qemu_start_and_quit(struct trial *trial, const struct qemu *qemu,
				   const char *memory_backend, uint64_t bytes, double *ret_s);

#endif
