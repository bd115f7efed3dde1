/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/refusal.h - why something cannot be had, and what would help, in words.
 */
#ifndef PREZERO_DAEMON_REFUSAL_H
#define PREZERO_DAEMON_REFUSAL_H

#include "daemon/daemon.h"
#include "wire/messages.h"

struct connection;

struct refusal {
	const char *reason; /* as on the wire */
	struct page_size page;
	const char *page_text; /* where the page size itself is unknown; else NULL */
	int node;
	uint64_t asked_bytes; /* of the request, or of one segment of a stock */
	uint64_t have_bytes, need_bytes;
	const char *detail; /* replaces the usual sentence; or NULL */
};

#define REFUSAL_TEXT_MAX 512
/* "too few free huge pages", ... */
const char *refusal_words(const char *reason);
/* The command or the setting that would help; "" where none would. */
void refusal_fix(struct daemon *daemon, const struct refusal *refusal, char buf[REFUSAL_TEXT_MAX]);

/* Answers the connection; where others hold what is missing, a thread finds out who first. */
void refusal_send(struct daemon *daemon, struct connection *connection,
		  const struct refusal *refusal);

#endif
