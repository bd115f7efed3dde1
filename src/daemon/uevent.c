/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/uevent.c - the kernel says that a module, a node or memory came or went.
 *
 * Guarantees: only the kernel is listened to; messages that were lost count as a change.
 */
#include "daemon/uevent.h"

#include <linux/netlink.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define KERNEL_GROUP 1 /* udev's own messages come to group 2 */

struct watch {
	void (*changed)(void *arg);
	void *arg;
};

/* "add@/module/prezero", then "NAME=VALUE" strings, each ended by NUL. */
static bool is_of_interest(const char *message, size_t message_bytes)
{
	static const char *const subsystems[] = {"module", "node", "memory"};
	static const char name[] = "SUBSYSTEM=";
	const char *end = message + message_bytes;

	for (const char *line = message; line < end;
	     line += strnlen(line, (size_t)(end - line)) + 1) {
		size_t length = strnlen(line, (size_t)(end - line));

		if (length < sizeof(name) || strncmp(line, name, sizeof(name) - 1))
			continue;
		for (size_t i = 0; i < ARRAY_LEN(subsystems); i++) {
			if (length == sizeof(name) - 1 + strlen(subsystems[i]) &&
			    !strncmp(line + sizeof(name) - 1, subsystems[i], strlen(subsystems[i])))
				return true;
		}
	}
	return false;
}

static int received(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	const struct watch *watch = arg;
	bool has_changed = false;

	(void)source;
	(void)events;
	for (;;) {
		struct sockaddr_nl from = {0};
		socklen_t from_bytes = sizeof(from);
		char message[8192];
		ssize_t n = recvfrom(fd, message, sizeof(message), MSG_DONTWAIT,
				     (struct sockaddr *)&from, &from_bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			has_changed |= errno == ENOBUFS;
			if (errno == ENOBUFS)
				continue;
			break;
		}
		if (from.nl_pid == 0)
			has_changed |= is_of_interest(message, (size_t)n);
	}
	if (has_changed)
		watch->changed(watch->arg);
	return 0;
}

static void forget(void *arg)
{
	free(arg);
}

int uevent_watch(sd_event *event, void (*changed)(void *arg), void *arg, sd_event_source **ret)
{
	AUTO_FD fd =
		socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
	const struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = KERNEL_GROUP};
	AUTO_FREE struct watch *watch = NULL;
	sd_event_source *source;
	int r;

	if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	watch = malloc(sizeof(*watch));
	if (!watch)
		return -ENOMEM;
	*watch = (struct watch){changed, arg};
	r = sd_event_add_io(event, &source, fd, EPOLLIN, received, watch);
	if (r < 0)
		return r;
	sd_event_source_set_io_fd_own(source, true);
	TAKE_FD(fd);
	sd_event_source_set_destroy_callback(source, forget);
	TAKE_PTR(watch);
	*ret = source;
	return 0;
}
