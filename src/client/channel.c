// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * client/channel.c - one socket to the daemon: bytes and descriptors.
 *
 * Signals interrupt nothing here; every wait but one that the caller wants without end is bounded.
 */
#include "client/client.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/io.h"

int channel_open(struct channel *channel, const char *socket_path)
{
	struct timeval timeout = {.tv_sec = GRACE_MS / 1000};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	AUTO_FD fd = -1;
	int r;

	if (strlen(socket_path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, socket_path);

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	/* Bounds connect(2), where the daemon does not accept, and send(2), where it does not read. */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) < 0)
		return -errno;
	do {
		r = connect(fd, (const struct sockaddr *)&address, sizeof(address));
	} while (r < 0 && errno == EINTR);
	if (r < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;

	*channel = (struct channel){
		.socket_fd = TAKE_FD(fd),
		.in = {.max_bytes = WIRE_REPLY_BYTES_MAX},
	};
	return 0;
}

bool channel_is_ready(struct channel *channel)
{
	struct pollfd pollfd = {.fd = channel->socket_fd, .events = POLLIN | POLLRDHUP};

	return channel->socket_fd >= 0 && wire_buffer_is_empty(&channel->in) &&
	       poll(&pollfd, 1, 0) == 0;
}

int channel_send(struct channel *channel, const char *message, size_t message_bytes)
{
	while (message_bytes > 0) {
		ssize_t n = send_with_fd(channel->socket_fd, message, message_bytes, -1);

		if (n == -EAGAIN)
			return -ETIMEDOUT;
		if (n == -ECONNRESET)
			return -EPIPE;
		if (n < 0)
			return (int)n;
		message += n;
		message_bytes -= (size_t)n;
	}
	return 0;
}

int channel_open_and_send(struct channel *channel, const char *socket_path, const char *message,
			  size_t message_bytes)
{
	int r = channel_open(channel, socket_path);

	if (r < 0)
		return r;
	r = channel_send(channel, message, message_bytes);
	/* A daemon that does not let this user in says why and hangs up: that is there to be read. */
	if (r == -EPIPE)
		r = 0;
	if (r < 0)
		channel_close(channel);
	return r;
}

/* 0 when there is something to read. */
static int wait_readable(int fd, uint64_t deadline_ns)
{
	struct pollfd pollfd = {.fd = fd, .events = POLLIN};
	uint64_t now_ns, left_ms;
	int n;

	for (;;) {
		int timeout_ms = -1;

		if (deadline_ns != UINT64_MAX) {
			now_ns = monotonic_ns();
			left_ms = now_ns < deadline_ns ? (deadline_ns - now_ns) / 1000000 + 1 : 0;
			timeout_ms = left_ms < INT32_MAX ? (int)left_ms : INT32_MAX;
		}
		n = poll(&pollfd, 1, timeout_ms);
		if (n > 0)
			return 0;
		if (n == 0 && timeout_ms == 0)
			return -ETIMEDOUT;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

static uint64_t deadline(int64_t wait_ms)
{
	if (wait_ms < 0 || wait_ms >= WIRE_WAIT_MS_MAX)
		return UINT64_MAX;
	return monotonic_ns() + (uint64_t)wait_ms * 1000000;
}

int channel_receive(struct channel *channel, int64_t wait_ms, const char **ret, size_t *ret_bytes,
		    int *ret_fd)
{
	uint64_t deadline_ns = deadline(wait_ms);
	AUTO_FD fd = -1;

	while (!wire_buffer_next(&channel->in, ret, ret_bytes)) {
		size_t room_bytes;
		int came_fd, r;
		char *room;
		ssize_t n;

		r = wait_readable(channel->socket_fd, deadline_ns);
		if (r == 0)
			r = wire_buffer_room(&channel->in, &room, &room_bytes);
		if (r < 0)
			return r == -EMSGSIZE ? -EPROTO : r;
		n = recv_with_fd(channel->socket_fd, room, room_bytes, &came_fd);
		if (n == -ECONNRESET)
			return -EPIPE;
		if (n < 0)
			return (int)n;
		if (came_fd >= 0) {
			if (fd >= 0) {
				close_fd(came_fd);
				return -EPROTO;
			}
			fd = came_fd;
		}
		if (n == 0)
			return -EPIPE;
		wire_buffer_add(&channel->in, (size_t)n);
	}
	*ret_fd = TAKE_FD(fd);
	return 0;
}

void channel_close(struct channel *channel)
{
	channel->socket_fd = close_fd(channel->socket_fd);
	wire_buffer_done(&channel->in);
}
