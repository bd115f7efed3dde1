// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fill/thread.c - a team's thread as the kernel sees it.
 *
 * Guarantees: see thread.h; no signal is sent to a thread that is not being interrupted.
 */
#include "fill/thread.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

#include "fill/fill.h"

/* Virtual; what is touched of it is some pages. Callbacks and chores run on it too. */
#define STACK_BYTES (256U << 10)
#define AGAIN_NS 1000000L

/* Older headers have no name for it. */
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

int fill_thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg)
{
	pthread_attr_t attr;
	sigset_t blocked, old;
	int r = pthread_attr_init(&attr);

	if (r)
		return -r;
	r = pthread_attr_setstacksize(&attr, STACK_BYTES);
	sigfillset(&blocked);
	sigdelset(&blocked, FILL_SIGNAL);
	pthread_sigmask(SIG_SETMASK, &blocked, &old);
	if (!r)
		r = pthread_create(ret, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -r;
}

void fill_thread_set_cpus(const struct id_set *cpus)
{
	/* It fails where all of these CPUs went offline; then the thread may run anywhere. */
	(void)syscall(SYS_sched_setaffinity, 0, sizeof(cpus->word), cpus->word);
}

void fill_thread_set_class(pid_t tid, enum sched_class sched_class)
{
	const struct sched_param none = {0};

	/* Without the privilege to leave the idle class it stays slow, but right. */
	(void)sched_setscheduler(tid, sched_class == SCHED_CLASS_IDLE ? SCHED_IDLE : SCHED_OTHER,
				 &none);
}

static void do_nothing(int signal_number)
{
	(void)signal_number;
}

void fill_interrupt_prepare(void)
{
	struct sigaction action = {.sa_handler = do_nothing};

	sigemptyset(&action.sa_mask);
	sigaction(FILL_SIGNAL, &action, NULL);
}

void fill_interrupt_start(struct fill_interrupt *interrupt, pid_t tid)
{
	const struct itimerspec now_and_again = {
		.it_value = {.tv_nsec = 1},
		.it_interval = {.tv_nsec = AGAIN_NS},
	};
	struct sigevent event = {
		.sigev_notify = SIGEV_THREAD_ID,
		.sigev_signo = FILL_SIGNAL,
		.sigev_notify_thread_id = tid,
	};

	if (interrupt->is_on)
		return;
	if (timer_create(CLOCK_MONOTONIC, &event, &interrupt->timer) < 0) {
		/* One signal has to do: at worst the system call ends by itself. */
		(void)syscall(SYS_tgkill, getpid(), tid, FILL_SIGNAL);
		return;
	}
	timer_settime(interrupt->timer, 0, &now_and_again, NULL);
	interrupt->is_on = true;
}

void fill_interrupt_stop(struct fill_interrupt *interrupt)
{
	if (interrupt->is_on)
		timer_delete(interrupt->timer);
	interrupt->is_on = false;
}
