/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/filling.h - segments being filled: for stock, or for a request that waits.
 *
 * A filling joins a segment of the pool and a job of the team. Fillings of one class that overlap in
 * time make up a round: what progress, ETA and the closing log line are about.
 */
#ifndef PREZERO_DAEMON_FILLING_H
#define PREZERO_DAEMON_FILLING_H

#include <sys/queue.h>

#include "daemon/daemon.h"

struct filling_set;
struct class_round;
struct take;

struct filling {
	TAILQ_ENTRY(filling) link;
	struct page_pool *pages;
	struct segment *segment; /* its owner_data points back here */
	struct fill_job *job;
	struct class_round *round;
	struct take *take; /* who waits for it; NULL: nobody */
	bool is_for_stock; /* began as stock: goes back to it when the request is gone */
	_Atomic bool is_lent; /* already, while it is being filled; team threads ask */
	uint64_t total_bytes; /* what the job fills */
};

MUST_CHECK int filling_set_new(struct daemon *daemon, struct filling_set **ret);
/* Forgets all without a word: the team has been stopped. Returns NULL. */
struct filling_set *filling_set_free(struct filling_set *set);

/* A new segment; take NULL: for stock. *ret may be NULL. */
MUST_CHECK int filling_start(struct page_pool *pages, int node, uint64_t segment_bytes,
			     struct take *take, struct filling **ret);
/* Has a segment that is being filled for stock go to a request: ahead of everything from now on. */
void filling_adopt(struct filling *filling, struct take *take);
/* The request is gone: back to stock, or cancelled where none wanted it. */
void filling_abandon(struct filling *filling);
void filling_cancel(struct filling *filling);

/* The filling for stock of these bytes that is furthest on; NULL. */
struct filling *filling_find(struct filling_set *set, const struct page_pool *pages, int node,
			     uint64_t segment_bytes);
/* Whether anything is being filled in that page size, on that node or any; raises it above the rest. */
bool filling_raise(struct filling_set *set, const struct page_pool *pages, int node);
/* All in a pool that is going away; each still ends by itself. */
void filling_cancel_all(struct filling_set *set, const struct page_pool *pages);
unsigned int filling_count(const struct filling_set *set);

/* Not before this (monotonic): fills of that class failed; 0: at once. */
uint64_t filling_retry_ns(struct filling_set *set, struct page_class page_class);
/* Why fills of that class fail at present, although the pages seemed to be there: SHORT_NONE. */
enum shortage filling_shortage(struct filling_set *set, struct page_class page_class);
/* A segment of that class could not even be made. */
void filling_failed(struct filling_set *set, struct page_class page_class, int error);
/* A reload: failures are forgotten. */
void filling_forgive(struct filling_set *set);

/* Takes off a view what the fillings have yet to take from the host. */
void filling_deduct(struct filling_set *set, struct host_view *view);

struct filling_progress {
	struct page_class page_class;
	uint64_t done_bytes, total_bytes; /* total: with what is planned */
	uint64_t elapsed_ns;
};
/* The rounds under way; *cursor starts at 0; false at the end. */
bool filling_next_progress(struct filling_set *set, unsigned int *cursor,
			   struct filling_progress *ret);
/* After the manager has ordered all it wants: rounds with nothing left to do end, each with a line. */
void filling_settle(struct filling_set *set);
/* What the manager means to fill later in a class, beyond what is under way: none, then some. */
void filling_plan_none(struct filling_set *set);
void filling_plan(struct filling_set *set, struct page_class page_class, uint64_t planned_bytes);

#endif
