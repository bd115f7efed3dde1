/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/kill_at.c - see kill_at.h.
 */
#include "kill_at.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define SYSCALL_STOP (SIGTRAP | 0x80) /* with PTRACE_O_TRACESYSGOOD */

static enum kill_result verdict(int status, bool is_killed)
{
	if (is_killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return KILL_DONE;
	/* Killed, but it had ended just before. */
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return KILL_ENDED;
	return KILL_FAILED;
}

static int signal_to_pass(int status)
{
	int signal = WSTOPSIG(status);

	if (status >> 16 || signal == SYSCALL_STOP || signal == SIGSTOP || signal == SIGTRAP)
		return 0;
	return signal;
}

static enum kill_result step(pid_t child, unsigned int n)
{
	bool is_killed = false;
	unsigned int n_stops = 0;
	int status;

	for (;;) {
		pid_t pid = waitpid(-1, &status, __WALL);

		if (pid < 0 && errno == EINTR)
			continue;
		if (pid < 0)
			return KILL_FAILED;
		if (pid == child && !WIFSTOPPED(status))
			return verdict(status, is_killed);
		if (!WIFSTOPPED(status))
			continue; /* a thread of it has ended */
		if (WSTOPSIG(status) == SYSCALL_STOP && ++n_stops == n) {
			kill(child, SIGKILL);
			is_killed = true;
		}
		/* Fails when it has been killed: then its end comes next. */
		ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(long)signal_to_pass(status));
	}
}

enum kill_result run_killed_at(int (*body)(void *arg), void *arg, unsigned int n)
{
	pid_t child = fork();
	int status;

	if (child < 0)
		return KILL_FAILED;
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(2);
		raise(SIGSTOP);
		_exit(body(arg) == 0 ? 0 : 1);
	}
	if (waitpid(child, &status, __WALL) != child || !WIFSTOPPED(status)) {
		kill(child, SIGKILL);
		return KILL_FAILED;
	}
	ptrace(PTRACE_SETOPTIONS, child, NULL,
	       (void *)(long)(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL));
	ptrace(PTRACE_SYSCALL, child, NULL, NULL);
	return step(child, n);
}
