/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/server.h - the socket and the connections on it.
 *
 * A connection has at most one call under way and at most one message on its way out, so what a peer
 * can make the daemon hold is bounded, however it behaves. An idle connection holds no buffer.
 */
#ifndef PREZERO_DAEMON_SERVER_H
#define PREZERO_DAEMON_SERVER_H

#include "daemon/daemon.h"
#include "wire/wire.h"

struct server;
struct connection;

/* Listens on RUNTIME/socket, or on what the service manager passed. */
MUST_CHECK int server_new(struct daemon *daemon, struct server **ret);
/* Hangs up on everybody. Returns NULL. */
struct server *server_free(struct server *server);
/* The configuration changed: group, number of clients. */
void server_configure(struct server *server);

uid_t connection_uid(const struct connection *connection);
gid_t connection_gid(const struct connection *connection);
struct daemon *connection_daemon(const struct connection *connection);

/* Answers the call under way; reply->method is filled in here. fd (-1: none) goes along and is closed. */
void connection_reply(struct connection *connection, struct wire_reply *reply, int fd);
/* The call waits. abandon(arg) is called when the peer goes away before the reply. */
void connection_wait(struct connection *connection, void (*abandon)(void *arg), void *arg);
/* Many replies: next() makes one more whenever the peer has taken the last; it sets reply->continues,
 * and the stream ends with the first reply that does not. done(arg) comes at the end in any case. */
void connection_stream(struct connection *connection,
		       int (*next)(void *arg, struct wire_reply *reply), void (*done)(void *arg),
		       void *arg);

#endif
