/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/kill_at.h - kill -9 at a chosen system call, of a program that knows nothing of it.
 *
 * The body runs in a child that is stepped from system call to system call (PTRACE_SYSCALL, all of its
 * threads counted together), so that a test can try every instant at which the outside world may
 * differ.
 */
#ifndef PREZERO_TESTS_KILL_AT_H
#define PREZERO_TESTS_KILL_AT_H

enum kill_result {
	KILL_DONE, /* killed at that stop */
	KILL_ENDED, /* the body ended before, with 0 */
	KILL_FAILED, /* the body failed by itself, or could not be traced */
};

/* Every system call stops twice, before and after; n counts both, from 1. */
enum kill_result run_killed_at(int (*body)(void *arg), void *arg, unsigned int n);

#endif
