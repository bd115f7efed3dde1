/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/status.h - Status and List: what the daemon and the host look like now.
 */
#ifndef PREZERO_DAEMON_STATUS_H
#define PREZERO_DAEMON_STATUS_H

#include "daemon/daemon.h"
#include "wire/messages.h"

struct connection;

void status_reply(struct daemon *daemon, struct connection *connection);
/* Streams; state NULL: all. */
void status_list(struct daemon *daemon, struct connection *connection, const struct wire_list *call,
		 bool more);

#endif
