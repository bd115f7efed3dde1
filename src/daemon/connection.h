/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/connection.h - what server.c and connection.c share.
 */
#ifndef PREZERO_DAEMON_CONNECTION_H
#define PREZERO_DAEMON_CONNECTION_H

#include <sys/queue.h>
#include <sys/socket.h>

#include "daemon/server.h"

TAILQ_HEAD(connection_list, connection);

struct connection {
	TAILQ_ENTRY(connection) link; /* server.c's */
	struct daemon *daemon;
	int fd;
	sd_event_source *source;
	uint32_t events; /* that the source waits for */
	struct ucred peer;
	bool is_broken; /* to be closed as soon as nothing here is on the stack */
	bool is_active; /* its event is being handled: what to wait for next is decided at the end */
	bool is_at_end; /* the peer sends no more */
	bool is_behind; /* another call may be here whole, and is begun before more is read */

	struct wire_buffer in;
	/* The call under way. */
	bool is_called;
	bool is_oneway;
	enum wire_method method;
	void (*abandon)(void *arg); /* while it waits; or NULL */
	void *abandon_arg;
	int (*next)(void *arg, struct wire_reply *reply); /* while it streams; or NULL */
	void (*stream_done)(void *arg);
	void *stream_arg;
	/* The message on its way out. */
	char *out;
	size_t out_bytes, out_sent;
	int out_fd; /* goes with the first byte; -1 */
};

/* Takes the descriptor over, also on failure. */
MUST_CHECK int connection_new(struct daemon *daemon, int fd, struct connection **ret);
/* Abandons what is under way. Returns NULL. */
struct connection *connection_free(struct connection *connection);

/* server.c: the connection is of no more use; frees it. */
void server_forget(struct connection *connection);

#endif
