/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bench/qemu.c - QEMU from its start to the reply to QMP `quit`. */
#include "bench/qemu.h"

#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>

#include "bench/process.h"
#include "bench/work.h"

/* Without KVM the processors are TCG's, or nobody's (qtest): they do not run here anyway. */
const struct qemu qemu_microvm = {"qemu-system-x86_64-microvm", "microvm,accel=kvm:qtest"};
const struct qemu qemu_pc = {"qemu-system-x86_64", "q35,accel=kvm:tcg"};

bool qemu_is_installed(const struct qemu *qemu)
{
	return program_in_path(qemu->program);
}

const struct qemu *qemu_quickest(void)
{
	return qemu_is_installed(&qemu_microvm) ? &qemu_microvm :
	       qemu_is_installed(&qemu_pc)	? &qemu_pc :
						  NULL;
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

/* The whole conversation: greeting, capabilities, quit. By its last reply QEMU has its memory. */
static int greet_and_quit(int fd)
{
	static const char commands[] =
		"{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"quit\"}\n";
	char buf[4096];
	int r = read_line(fd, buf, sizeof(buf));

	if (r < 0)
		return r;
	if (!strstr(buf, "\"QMP\""))
		return -EPROTO;
	if (send(fd, commands, strlen(commands), MSG_NOSIGNAL) != (ssize_t)strlen(commands))
		return -EPROTO;
	for (unsigned int n_replies = 0; n_replies < 2; n_replies += !!strstr(buf, "\"return\"")) {
		r = read_line(fd, buf, sizeof(buf));
		if (r <= 0)
			break; /* an end or a reset: QEMU does not wait for its reply to be read */
	}
	return 0;
}

static void join(char *buf, size_t buf_bytes, const char *const argv[])
{
	size_t length = 0;

	buf[0] = '\0';
	for (size_t i = 0; argv[i] && length < buf_bytes; i++)
		length += (size_t)snprintf(buf + length, buf_bytes - length, "%s%s", i ? " " : "",
					   argv[i]);
}

int qemu_start_and_quit(struct trial *trial, const struct qemu *qemu, const char *memory_backend,
			uint64_t bytes, double *ret_s)
{
	char machine[64], memory[32];
	const char *const argv[] = {qemu->program, "-nodefaults",  "-no-user-config",
				    "-display",	   "none",	   "-machine",
				    machine,	   "-m",	   memory,
				    "-object",	   memory_backend, "-S",
				    "-qmp",	   "stdio",	   NULL};
	char messages[REASON_MAX - 64];
	struct process process;
	double started_s;
	int status, r;

	snprintf(machine, sizeof(machine), "%s,memory-backend=mem", qemu->machine);
	snprintf(memory, sizeof(memory), "%" PRIu64 "M", bytes >> 20);
	join(trial->what, sizeof(trial->what), argv);

	started_s = now_s();
	r = process_start(argv, &process);
	if (r < 0)
		return trial_fail(trial, r, "cannot start %s: %s", qemu->program, strerror(-r));
	r = greet_and_quit(process.talk_fd);
	*ret_s = now_s() - started_s;
	status = process_wait(&process);

	process_messages(&process, messages, sizeof(messages));
	process_done(&process);
	if (r < 0 || status != 0)
		return trial_fail(trial, -EIO, "%s ended with status %d: %s", qemu->program, status,
				  messages);
	return 0;
}
