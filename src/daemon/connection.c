/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/connection.c - one peer: bytes in, a call, its replies, bytes out.
 *
 * Guarantees: at most one call under way and one message on its way out; the next call is read only
 * when the last reply is gone, so a peer that does not read is not read from either; what a peer sends
 * is bounded by the longest call; nothing is allocated for a peer that is idle; one step a turn, so
 * that no peer keeps the others waiting.
 */
#include "daemon/connection.h"

#include <string.h>
#include <sys/epoll.h>

#include "base/io.h"
#include "daemon/log.h"
#include "daemon/methods.h"

uid_t connection_uid(const struct connection *c)
{
	return c->peer.uid;
}

gid_t connection_gid(const struct connection *c)
{
	return c->peer.gid;
}

struct daemon *connection_daemon(const struct connection *c)
{
	return c->daemon;
}

/* Out. */

static void drop_output(struct connection *c)
{
	free(c->out);
	c->out = NULL;
	c->out_fd = close_fd(c->out_fd);
}

static void end_stream(struct connection *c)
{
	if (c->stream_done)
		c->stream_done(c->stream_arg);
	c->next = NULL;
	c->stream_done = NULL;
}

/* Sends what the peer has room for. */
static void flush(struct connection *c)
{
	while (c->out && !c->is_broken) {
		ssize_t n = send_with_fd(c->fd, c->out + c->out_sent, c->out_bytes - c->out_sent,
					 c->out_fd);

		if (n == -EAGAIN)
			return;
		if (n < 0) {
			c->is_broken = true;
			return;
		}
		c->out_fd = close_fd(c->out_fd);
		c->out_sent += n;
		if (c->out_sent == c->out_bytes)
			drop_output(c);
	}
}

static void put_message(struct connection *c, const struct wire_reply *reply, int fd)
{
	AUTO_FD owned_fd = fd;
	int r;

	if (c->is_oneway)
		return;
	r = wire_encode_reply(reply, &c->out, &c->out_bytes);
	if (r < 0) {
		log_warning("a reply to %s cannot be encoded: %s", wire_method_name(reply->method),
			    strerror(-r));
		c->out = NULL;
		c->is_broken = true;
		return;
	}
	c->out_sent = 0;
	c->out_fd = TAKE_FD(owned_fd);
	flush(c);
}

/* Waits for what can come next. A hang-up is always told. */
static void set_events(struct connection *c)
{
	uint32_t events = 0;

	if (c->is_active)
		return;
	if (c->is_broken) {
		/* Freed from the event loop, never under the feet of a caller. */
		sd_event_source_set_enabled(c->source, SD_EVENT_ON);
		events = EPOLLIN | EPOLLOUT;
	} else if (c->out || c->next)
		events = EPOLLOUT;
	else if (!c->is_called)
		events = c->is_behind ? EPOLLOUT : EPOLLIN;
	if (events != c->events && sd_event_source_set_io_events(c->source, events) >= 0)
		c->events = events;
}

void connection_reply(struct connection *c, struct wire_reply *reply, int fd)
{
	reply->method = c->method;
	c->abandon = NULL;
	c->is_called = false;
	put_message(c, reply, fd);
	set_events(c);
}

void connection_wait(struct connection *c, void (*abandon)(void *arg), void *arg)
{
	c->abandon = abandon;
	c->abandon_arg = arg;
	set_events(c);
}

void connection_stream(struct connection *c, int (*next)(void *arg, struct wire_reply *reply),
		       void (*done)(void *arg), void *arg)
{
	c->next = next;
	c->stream_done = done;
	c->stream_arg = arg;
	set_events(c);
}

/* In. */

static void stream_more(struct connection *c)
{
	struct wire_reply reply = {.method = c->method};
	int r = c->next(c->stream_arg, &reply);

	if (r < 0) {
		c->is_broken = true;
		return;
	}
	put_message(c, &reply, -1);
	if (!reply.continues) {
		end_stream(c);
		c->is_called = false;
	}
}

static void take_call(struct connection *c, const char *text, size_t text_bytes)
{
	struct wire_reply refusal;
	struct wire_call call;
	int r;

	r = wire_decode_call(text, text_bytes, &call, &refusal);
	if (r == -EINVAL) {
		c->is_oneway = false;
		put_message(c, &refusal, -1);
		wire_reply_done(&refusal);
	} else if (r == -ENOMSG) {
		return;
	} else if (r < 0) {
		c->is_broken = true;
	} else {
		c->is_called = true;
		c->is_oneway = call.oneway;
		c->method = call.method;
		methods_call(c->daemon, c, &call);
		wire_call_done(&call);
	}
}

/* One step: more of what streams, or the next call that is here whole. Who sends many calls at once is
 * served in turns with the others. */
static void advance(struct connection *c)
{
	const char *text;
	size_t text_bytes;

	flush(c);
	if (c->is_broken || c->out)
		return;
	if (c->next)
		stream_more(c);
	else if (!c->is_called && wire_buffer_next(&c->in, &text, &text_bytes))
		take_call(c, text, text_bytes);
	else if (!c->is_called)
		c->is_behind = false;
	if (wire_buffer_is_empty(&c->in)) {
		wire_buffer_done(&c->in);
		c->is_behind = false;
	}
	/* The peer said all it had to say, and was answered. */
	if (c->is_at_end && !c->is_behind && !c->is_called && !c->out)
		c->is_broken = true;
}

static void receive(struct connection *c)
{
	size_t room_bytes;
	char *room;
	ssize_t n;
	int r;

	r = wire_buffer_room(&c->in, &room, &room_bytes);
	if (r < 0) {
		c->is_broken = true;
		return;
	}
	/* Descriptors that come along are dropped by the kernel: nobody asked for any. */
	n = recv(c->fd, room, room_bytes, MSG_DONTWAIT);
	if (n > 0) {
		wire_buffer_add(&c->in, n);
		c->is_behind = true;
		return;
	}
	wire_buffer_add(&c->in, 0);
	if (n == 0)
		c->is_at_end = true;
	else if (errno != EAGAIN && errno != EINTR)
		c->is_broken = true;
}

static int connection_ready(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct connection *c = arg;
	bool is_busy = c->is_called || c->out;

	(void)source;
	(void)fd;
	c->is_active = true;
	if (is_busy && (events & (EPOLLHUP | EPOLLERR)))
		c->is_broken = true; /* nobody is left to answer */
	else if (!is_busy && !c->is_behind && !c->is_broken && (events & (EPOLLIN | EPOLLHUP)))
		receive(c);
	advance(c);
	c->is_active = false;
	if (c->is_broken)
		server_forget(c);
	else
		set_events(c);
	return 0;
}

int connection_new(struct daemon *daemon, int fd, struct connection **ret)
{
	AUTO_FD owned_fd = fd;
	struct connection *c = calloc(1, sizeof(*c));
	socklen_t length = sizeof(c->peer);
	int r;

	if (!c)
		return -ENOMEM;
	c->daemon = daemon;
	c->out_fd = -1;
	c->in.max_bytes = WIRE_CALL_BYTES_MAX;
	c->events = EPOLLIN;
	r = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c->peer, &length) < 0 ? -errno : 0;
	if (r >= 0)
		r = sd_event_add_io(daemon->event, &c->source, fd, c->events, connection_ready, c);
	if (r < 0) {
		free(c);
		return r;
	}
	c->fd = TAKE_FD(owned_fd);
	*ret = c;
	return 0;
}

struct connection *connection_free(struct connection *c)
{
	if (!c)
		return NULL;
	if (c->abandon)
		c->abandon(c->abandon_arg);
	end_stream(c);
	drop_output(c);
	wire_buffer_done(&c->in);
	sd_event_source_disable_unref(c->source);
	close_fd(c->fd);
	free(c);
	return NULL;
}
