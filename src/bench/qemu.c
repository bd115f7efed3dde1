/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bench/qemu.c - QEMU from its start to QMP `quit` and its exit. */
#include "bench/qemu.h"

#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>

#include "bench/process.h"
#include "bench/work.h"

#define QEMU "qemu-system-x86_64"

bool qemu_is_installed(void)
{
	return program_in_path(QEMU);
}

/* Until the end of a line or of the stream. */
static int read_line(int fd, char *buf, size_t buf_bytes)
{
	size_t length = 0;

	while (length + 1 < buf_bytes) {
		ssize_t n = read(fd, buf + length, 1);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0 || (n == 1 && buf[length] == '\n'))
			break;
		if (n == 1)
			length++;
	}
	buf[length] = '\0';
	return (int)length;
}

/* The whole conversation: greeting, capabilities, quit, until QEMU closes its end. */
static int greet_and_quit(int fd)
{
	static const char commands[] =
		"{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"quit\"}\n";
	char buf[4096];
	ssize_t n;
	int r = read_line(fd, buf, sizeof(buf));

	if (r < 0)
		return r;
	if (!strstr(buf, "\"QMP\""))
		return -EPROTO;
	if (send(fd, commands, strlen(commands), MSG_NOSIGNAL) != (ssize_t)strlen(commands))
		return -EPROTO;
	do
		n = read(fd, buf, sizeof(buf));
	while (n > 0 || (n < 0 && errno == EINTR));
	return 0; /* a reset is an end, too: QEMU does not wait for its last reply to be read */
}

static void join(char *buf, size_t buf_bytes, const char *const argv[])
{
	size_t length = 0;

	buf[0] = '\0';
	for (size_t i = 0; argv[i] && length < buf_bytes; i++)
		length += (size_t)snprintf(buf + length, buf_bytes - length, "%s%s", i ? " " : "",
					   argv[i]);
}

int qemu_start_and_quit(struct trial *trial, const char *memory_backend, uint64_t bytes,
			double *ret_s)
{
	char memory[32];
	const char *const argv[] = {QEMU,
				    "-nodefaults",
				    "-no-user-config",
				    "-display",
				    "none",
				    "-machine",
				    "q35,memory-backend=mem",
				    "-accel",
				    "kvm",
				    "-accel",
				    "tcg",
				    "-m",
				    memory,
				    "-object",
				    memory_backend,
				    "-S",
				    "-qmp",
				    "stdio",
				    NULL};
	char messages[REASON_MAX - 64];
	struct process qemu;
	double started_s;
	int status, r;

	snprintf(memory, sizeof(memory), "%" PRIu64 "M", bytes >> 20);
	join(trial->what, sizeof(trial->what), argv);

	started_s = now_s();
	r = process_start(argv, &qemu);
	if (r < 0)
		return trial_fail(trial, r, "cannot start %s: %s", QEMU, strerror(-r));
	r = greet_and_quit(qemu.talk_fd);
	status = process_wait(&qemu);
	*ret_s = now_s() - started_s;

	process_messages(&qemu, messages, sizeof(messages));
	process_done(&qemu);
	if (r < 0 || status != 0)
		return trial_fail(trial, -EIO, "%s ended with status %d: %s", QEMU, status,
				  messages);
	return 0;
}
