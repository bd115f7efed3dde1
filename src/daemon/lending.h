/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/lending.h - takes: a ready segment at once, else cut, filled, or waited for.
 */
#ifndef PREZERO_DAEMON_LENDING_H
#define PREZERO_DAEMON_LENDING_H

#include "daemon/daemon.h"
#include "wire/messages.h"

struct connection;
struct lending;
struct take;

MUST_CHECK int lending_new(struct daemon *daemon, struct lending **ret);
/* Requests that wait are forgotten; their connections are the server's to close. Returns NULL. */
struct lending *lending_free(struct lending *lending);

/* Answers the connection, now or later. */
void lending_take(struct daemon *daemon, struct connection *connection,
		  const struct wire_take *call);
/* What a request waited for was filled, or (segment NULL) failed. */
void lending_filled(struct take *take, struct page_pool *pages, struct segment *segment,
		    int result);
/* Tries every request that waits, in the order they came. */
void lending_retry(struct daemon *daemon);
/* Whether a request waits for something to come free. */
bool lending_is_waiting(const struct lending *lending);
/* Whether a request waits for pages of that class: the stock must not take them. */
bool lending_wants(const struct lending *lending, struct page_class page_class);

#endif
