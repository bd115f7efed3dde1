/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/methods.h - what a call means.
 */
#ifndef PREZERO_DAEMON_METHODS_H
#define PREZERO_DAEMON_METHODS_H

#include "daemon/server.h"

/* Answers the connection, now or later. */
void methods_call(struct daemon *daemon, struct connection *connection,
		  const struct wire_call *call);

#endif
