/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/leases.h - lent segments: who may end them, and when they end.
 *
 * An unnamed lease ends with its last holder, a named one by Give. The pool's watch says when to look;
 * whether anybody is left, the lock says.
 */
#ifndef PREZERO_DAEMON_LEASES_H
#define PREZERO_DAEMON_LEASES_H

#include "daemon/daemon.h"
#include "wire/messages.h"

struct connection;
struct leases;

MUST_CHECK int leases_new(struct daemon *daemon, struct leases **ret);
struct leases *leases_free(struct leases *leases); /* returns NULL */

/* Counts what recovery found in a pool, and watches it from now on. */
MUST_CHECK int leases_attach(struct page_pool *pages);
/* The pool is going away, its leases with it. */
void leases_detach(struct page_pool *pages);

/* A segment was lent. */
void leases_began(struct page_pool *pages, struct segment *segment);
/* Its last holder may be gone. */
void leases_check(struct page_pool *pages, struct segment *segment);

/* Whether leases whose holders have gone are still to be looked at: their pages come back soon, and then
 * the manager is kicked. */
bool leases_are_ending(const struct leases *leases);

/* By id, name or path; NULL: none. */
struct segment *leases_find(struct daemon *daemon, const char *text, struct page_pool **ret_pages);
struct segment *leases_find_by_name(struct daemon *daemon, const char *name,
				    struct page_pool **ret_pages);
/* What a user holds, with what the leases have grown by. */
uint64_t leases_held_bytes(struct leases *leases, uid_t uid);

/* Answers the connection, now or later. */
void leases_give(struct daemon *daemon, struct connection *connection,
		 const struct wire_give *call);

#endif
