// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * client/connection.c - a channel that threads share and that outlives the daemon.
 *
 * Nothing is ever sent twice that may have been executed: a daemon that goes away during a call is one
 * -EPIPE; one that went away between calls is not noticed.
 */
#include "client/client.h"

#include <string.h>

#define DEFAULT_SOCKET_PATH "/run/prezero/socket"

int prezero_connect(struct prezero **ret, const char *socket_path)
{
	struct prezero *connection;
	int r;

	if (!ret)
		return -EINVAL;
	if (!socket_path)
		socket_path = secure_getenv("PREZERO_SOCKET");
	if (!socket_path || !*socket_path)
		socket_path = DEFAULT_SOCKET_PATH;

	connection = calloc(1, sizeof(*connection));
	if (!connection)
		return -ENOMEM;
	connection->channel.socket_fd = -1;
	connection->owner_pid = getpid();
	connection->socket_path = strdup(socket_path);
	LIST_INIT(&connection->errors);
	pthread_mutex_init(&connection->lock, NULL);
	r = connection->socket_path ? channel_open(&connection->channel, socket_path) : -ENOMEM;
	if (r < 0) {
		prezero_disconnect(connection);
		return r;
	}
	*ret = connection;
	return 0;
}

struct prezero *prezero_disconnect(struct prezero *connection)
{
	if (!connection)
		return NULL;
	forget_errors(connection);
	channel_close(&connection->channel);
	pthread_mutex_destroy(&connection->lock);
	free(connection->socket_path);
	free(connection);
	return NULL;
}

int set_channel_error(struct prezero *connection, int r)
{
	switch (r) {
	case -EPIPE:
		return set_error(connection, r, NULL,
				 "the daemon went away during the call; try again");
	case -ETIMEDOUT:
		return set_error(connection, r, NULL, "the daemon does not answer; see: %s",
				 "systemctl status prezerod");
	case -EPROTO:
		return set_error(connection, r, NULL,
				 "what answers at %s does not speak io.prezero.Pool",
				 connection->socket_path);
	case -ENOENT: /* which from a call means that there is no such lease */
	case -ECONNREFUSED:
		return set_error(connection, -ECONNREFUSED, NULL,
				 "no daemon at %s; start it with: %s", connection->socket_path,
				 "systemctl start prezerod");
	default:
		return set_error(connection, r, NULL, "%s: %s", connection->socket_path,
				 strerrordesc_np(-r));
	}
}

void answer_done(struct answer *answer)
{
	answer->fd = close_fd(answer->fd);
	free(answer->text);
	answer->text = NULL;
	wire_reply_done(&answer->reply);
}

int receive_answer(struct prezero *connection, struct channel *channel, enum wire_method method,
		   int64_t wait_ms, struct answer *ret)
{
	AUTO_FREE char *text = NULL;
	const char *message;
	size_t message_bytes;
	AUTO_FD fd = -1;
	int r;

	r = channel_receive(channel, wait_ms, &message, &message_bytes, &fd);
	if (r == 0) {
		text = strdup(message);
		r = text ? wire_decode_reply(message, message_bytes, method, &ret->reply) : -ENOMEM;
		if (r == -EBADMSG)
			r = -EPROTO;
	}
	if (r < 0)
		return set_channel_error(connection, r);
	ret->fd = TAKE_FD(fd);
	ret->text = TAKE_PTR(text);
	return 0;
}

/* The lock is held. Sends over a channel that is known to be alive; opens one where it is not. */
static int send_call(struct prezero *connection, const char *message, size_t message_bytes)
{
	struct channel *channel = &connection->channel;
	int r = -EPIPE;

	if (connection->owner_pid != getpid())
		channel_close(channel);
	if (channel_is_ready(channel))
		r = channel_send(channel, message, message_bytes);
	if (r != -EPIPE)
		return r;

	channel_close(channel);
	r = channel_open_and_send(channel, connection->socket_path, message, message_bytes);
	if (r == 0)
		connection->owner_pid = getpid();
	return r;
}

int connection_call(struct prezero *connection, const struct wire_call *call, int64_t wait_ms,
		    struct answer *ret)
{
	AUTO_FREE char *message = NULL;
	size_t message_bytes;
	int r;

	r = wire_encode_call(call, &message, &message_bytes);
	if (r < 0)
		return set_error(connection, r, NULL, "%s: an argument is out of bounds",
				 wire_method_name(call->method));
	if (wait_ms >= 0)
		wait_ms = wait_ms < WIRE_WAIT_MS_MAX - GRACE_MS ? wait_ms + GRACE_MS : -1;

	pthread_mutex_lock(&connection->lock);
	r = send_call(connection, message, message_bytes);
	if (r < 0)
		r = set_channel_error(connection, r);
	else
		r = receive_answer(connection, &connection->channel, call->method, wait_ms, ret);
	if (r == 0 && (ret->reply.continues || (ret->fd >= 0 && call->method != WIRE_TAKE))) {
		answer_done(ret);
		r = set_channel_error(connection, -EPROTO);
	}
	/* Whatever may still come belongs to no other call. */
	if (r < 0)
		channel_close(&connection->channel);
	pthread_mutex_unlock(&connection->lock);
	return r;
}

const char *prezero_version(void)
{
	return PREZERO_VERSION;
}
