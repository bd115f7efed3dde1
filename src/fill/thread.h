/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fill/thread.h - a team's thread as the kernel sees it: where it runs, how urgently, and how its system
 * calls are made to return.
 *
 * Where the kernel refuses, the thread is slower or in another place, but right: nothing here fails but
 * the start.
 */
#ifndef PREZERO_FILL_THREAD_H
#define PREZERO_FILL_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#include "base/parse.h"

/* Starts a thread that leaves signals to others, but for FILL_SIGNAL. */
MUST_CHECK int fill_thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg);

/* Both for the calling thread. */
void fill_thread_set_cpus(const struct id_set *cpus);
/* tid 0: the calling thread. */
enum sched_class { SCHED_CLASS_NORMAL, SCHED_CLASS_IDLE };
void fill_thread_set_class(pid_t tid, enum sched_class sched_class);

/* One signal is not enough to make a system call return: it may come just before the call, which then
 * sleeps on. So the thread is sent one every millisecond, by a timer that is there only meanwhile. */
struct fill_interrupt {
	bool is_on;
	timer_t timer;
};
void fill_interrupt_prepare(void); /* installs the handler of FILL_SIGNAL */
void fill_interrupt_start(struct fill_interrupt *interrupt, pid_t tid);
/* A last signal may still come after this. */
void fill_interrupt_stop(struct fill_interrupt *interrupt);

#endif
