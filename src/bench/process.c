/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bench/process.c - child processes that do not outlive the benchmark. */
#include "bench/process.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* In the child of a vfork: system calls only. */
static _Noreturn void become(const char *const argv[], int talk_fd, int messages_fd, pid_t parent)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent &&
	    dup2(talk_fd, STDIN_FILENO) >= 0 && dup2(talk_fd, STDOUT_FILENO) >= 0 &&
	    dup2(messages_fd, STDERR_FILENO) >= 0)
		execvp(argv[0], (char *const *)argv);
	_exit(127);
}

int process_start(const char *const argv[], struct process *ret)
{
	int ends[2];
	AUTO_FD messages_fd = memfd_create("messages", MFD_CLOEXEC);
	pid_t parent = getpid(), pid;

	if (messages_fd < 0)
		return -errno;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	/* The parent may have much memory mapped: fork would copy page tables, and be timed. */
	pid = vfork();
	if (pid == 0)
		become(argv, ends[1], messages_fd, parent);
	close_fd(ends[1]);
	if (pid < 0) {
		close_fd(ends[0]);
		return -errno;
	}
	*ret = (struct process){
		.pid = pid, .talk_fd = ends[0], .messages_fd = TAKE_FD(messages_fd)};
	return 0;
}

int process_wait(struct process *process)
{
	int status;

	while (waitpid(process->pid, &status, 0) < 0)
		if (errno != EINTR)
			return 127;
	process->pid = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool process_has_ended(const struct process *process)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
	       info.si_pid != 0;
}

void process_messages(const struct process *process, char *buf, size_t buf_bytes)
{
	char text[4096];
	ssize_t n;
	off_t end = lseek(process->messages_fd, 0, SEEK_END);
	off_t from = end > (off_t)sizeof(text) - 1 ? end - ((off_t)sizeof(text) - 1) : 0;
	char *line;

	n = pread(process->messages_fd, text, sizeof(text) - 1, from);
	text[n > 0 ? n : 0] = '\0';
	while (n > 0 && text[n - 1] == '\n')
		text[--n] = '\0';
	line = strrchr(text, '\n');
	snprintf(buf, buf_bytes, "%s",
		 text[0] == '\0' ? "it said nothing" :
		 line		 ? line + 1 :
				   text);
}

void process_done(struct process *process)
{
	if (process->pid > 0) {
		kill(process->pid, SIGKILL);
		process_wait(process);
	}
	process->talk_fd = close_fd(process->talk_fd);
	process->messages_fd = close_fd(process->messages_fd);
}

bool program_in_path(const char *name)
{
	const char *at = getenv("PATH");
	char candidate[4096];

	while (at && *at) {
		size_t length = strcspn(at, ":");

		snprintf(candidate, sizeof(candidate), "%.*s/%s", (int)length, at, name);
		if (access(candidate, X_OK) == 0)
			return true;
		at += length + (at[length] == ':');
	}
	return false;
}
