/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/lending.c - takes: a ready segment at once, else cut, filled, or waited for.
 *
 * The ready path costs a handful of system calls and no look at the host: which segments are ready is
 * known. Everything else looks first. A request that cannot be met now stays in a queue, and each
 * cycle of the manager tries all of it in the order they came; a small request may so pass a large
 * one, but the stock never passes a request.
 *
 * Guarantees: every request is answered exactly once, or its peer is gone; what was being filled or
 * cut for a request that went away goes to the stock or back to the kernel.
 */
#include "daemon/lending.h"

#include <ctype.h>
#include <string.h>
#include <sys/queue.h>

#include "base/io.h"
#include "daemon/filling.h"
#include "daemon/leases.h"
#include "daemon/log.h"
#include "daemon/manager.h"
#include "daemon/pools.h"
#include "daemon/refusal.h"
#include "daemon/server.h"

#define FAILURES_MAX 3
#define DEFERRALS_MAX 20

TAILQ_HEAD(take_list, take);

/* A request that could not be answered at once. */
struct take {
	TAILQ_ENTRY(take) link;
	struct daemon *daemon;
	struct connection *connection; /* NULL: the peer is gone, a chore still runs */
	struct request request;
	char *name; /* or NULL */
	uid_t uid;
	gid_t gid;
	bool is_partial; /* what is being filled is welcome */
	bool is_bounded; /* wait_ms was given, */
	uint64_t wait_ms; /* so long */
	sd_event_source *timer;
	struct filling *filling; /* under way for it */
	struct cut *cut; /* likewise */
	unsigned int n_failed; /* fills that found fewer pages than were seen */
	unsigned int n_deferred; /* for leases that were ending: somebody may never stop closing */
};

/* A ready segment that is being cut to size in a thread. */
struct cut {
	struct page_pool *pages;
	struct segment *segment;
	uint64_t bytes; /* the length it will have */
	int fd;
	struct take *take; /* NULL: the request is gone */
};

struct lending {
	struct take_list waiting;
};

enum outcome { ANSWERED, WAITING };

int lending_new(struct daemon *daemon, struct lending **ret)
{
	struct lending *lending = calloc(1, sizeof(*lending));

	(void)daemon;
	if (!lending)
		return -ENOMEM;
	TAILQ_INIT(&lending->waiting);
	*ret = lending;
	return 0;
}

static void take_free(struct take *take)
{
	TAILQ_REMOVE(&take->daemon->lending->waiting, take, link);
	sd_event_source_disable_unref(take->timer);
	if (take->cut)
		take->cut->take = NULL;
	free(take->name);
	free(take);
}

struct lending *lending_free(struct lending *lending)
{
	struct take *take;

	if (!lending)
		return NULL;
	while ((take = TAILQ_FIRST(&lending->waiting)))
		take_free(take);
	free(lending);
	return NULL;
}

/* Answers. */

static void refuse(struct take *take, const char *reason, uint64_t have_bytes, uint64_t need_bytes,
		   const char *detail)
{
	struct refusal refusal = {
		.reason = reason,
		.page = take->request.page,
		.node = take->request.node,
		.asked_bytes = take->request.segment_bytes,
		.have_bytes = have_bytes,
		.need_bytes = need_bytes,
		.detail = detail,
	};

	refusal_send(take->daemon, take->connection, &refusal);
}

static void refuse_error(struct take *take, const char *what, int error)
{
	char detail[160];

	snprintf(detail, sizeof(detail), "%s: %s", what, strerror(-error));
	refuse(take, "io", 0, take->request.segment_bytes, detail);
}

static void reply_name_taken(struct connection *connection, const char *name)
{
	struct wire_reply reply = {.error = WIRE_NAME_TAKEN, .name_taken = {.name = name}};

	connection_reply(connection, &reply, -1);
}

static bool is_over_limit(struct take *take)
{
	struct daemon *daemon = take->daemon;
	const struct take *other;
	uint64_t limit = config_limit_bytes(daemon->config, take->uid), held;

	if (limit == UNLIMITED)
		return false;
	held = leases_held_bytes(daemon->leases, take->uid);
	/* What the user waits for counts too: many requests at once are not to pass one by one. */
	TAILQ_FOREACH(other, &daemon->lending->waiting, link) {
		if (other != take && other->uid == take->uid)
			held += other->request.segment_bytes;
	}
	if (held <= limit && take->request.segment_bytes <= limit - held)
		return false;
	refuse(take, shortage_name(SHORT_LIMIT), held < limit ? limit - held : 0,
	       take->request.segment_bytes, NULL);
	return true;
}

static void reply_lent(struct take *take, struct page_pool *pages, struct segment *segment, int fd)
{
	struct wire_reply reply = {0};
	AUTO_FREE char *path = NULL;
	char id[SEGMENT_ID_TEXT_MAX];

	leases_began(pages, segment);
	take->daemon->counters.takes++;
	path = pools_segment_path(pages, segment);
	snprintf(id, sizeof(id), "%016lx", (unsigned long)segment->id);
	reply.take = (struct wire_take_reply){
		.id = id,
		.path = path,
		.page = pages->name,
		.page_bytes = pages->page.bytes,
		.node = segment->node,
		.bytes = segment->bytes,
		.filling = segment->is_partial,
		.fd = 0,
	};
	connection_reply(take->connection, &reply, fd);
	manager_kick(take->daemon);
}

/* Lends what is ready and answers, whatever comes of it. */
static void lend(struct take *take, struct page_pool *pages, struct segment *segment)
{
	struct lessee lessee = {.uid = take->uid, .gid = take->gid, .name = take->name};
	struct page_pool *taken_in;
	int fd, r;

	/* Both again: other requests may have been met while this one waited. */
	if (is_over_limit(take))
		return;
	if (take->name && leases_find_by_name(take->daemon, take->name, &taken_in))
		r = -EEXIST;
	else
		r = pool_lend(pages->pool, segment, &lessee, &fd);
	if (r == -EEXIST)
		reply_name_taken(take->connection, take->name ? take->name : "");
	else if (r < 0)
		refuse_error(take, "lending", r);
	else
		reply_lent(take, pages, segment, fd);
}

/* Lends what is being filled for the request. Where that cannot be (pages that are still missing could
 * not be promised) the request waits for the whole. */
static enum outcome lend_partial(struct take *take)
{
	struct lessee lessee = {.uid = take->uid, .gid = take->gid, .name = take->name};
	struct filling *filling = take->filling;
	struct page_pool *taken_in;
	bool is_taken = take->name && leases_find_by_name(take->daemon, take->name, &taken_in);
	int fd;

	/* Both again, as in lend(). */
	if (is_taken || is_over_limit(take)) {
		if (is_taken)
			reply_name_taken(take->connection, take->name);
		take->filling = NULL;
		filling_abandon(filling);
		return ANSWERED;
	}
	/* First: from the reservation on, the headroom does not show these pages. */
	filling->is_lent = true;
	if (pool_lend(filling->pages->pool, filling->segment, &lessee, &fd) < 0) {
		filling->is_lent = false;
		return WAITING;
	}
	take->filling = NULL;
	filling->take = NULL;
	reply_lent(take, filling->pages, filling->segment, fd);
	return ANSWERED;
}

/* Cutting. */

static int cut_run(void *arg)
{
	const struct cut *cut = arg;

	return ftruncate(cut->fd, cut->bytes) < 0 ? -errno : 0;
}

static void cut_done(void *arg, int result)
{
	struct cut *cut = arg;
	struct page_pool *pages = cut->pages;
	struct daemon *daemon = pages->daemon;
	struct take *take = cut->take;

	close_fd(cut->fd);
	pages->n_busy--;
	if (result == 0)
		result = pool_end_cut(pages->pool, cut->segment, cut->bytes);
	if (result < 0) {
		log_warning("%s: a segment cannot be cut: %s", pages->name, strerror(-result));
		pools_drop(pages, cut->segment);
	}
	if (take) {
		take->cut = NULL;
		if (result == 0)
			lend(take, pages, cut->segment);
		else
			refuse_error(take, "cutting a segment", result);
		take_free(take);
	}
	free(cut);
	manager_kick(daemon);
}

static int begin_cut(struct take *take, struct page_pool *pages, struct segment *segment)
{
	struct cut *cut = calloc(1, sizeof(*cut));
	int r;

	if (!cut)
		return -ENOMEM;
	*cut = (struct cut){.pages = pages,
			    .segment = segment,
			    .bytes = take->request.segment_bytes,
			    .take = take};
	r = pool_begin_cut(pages->pool, segment, &cut->fd);
	if (r < 0) {
		free(cut);
		return r;
	}
	r = fill_team_submit_chore(pages->daemon->team, cut_run, cut_done, cut);
	if (r < 0) {
		close_fd(cut->fd);
		pools_drop(pages, segment);
		free(cut);
		return r;
	}
	take->cut = cut;
	pages->n_busy++;
	return 0;
}

/* Placing. */

static unsigned int release_for(struct take *take, const struct decision *decision)
{
	unsigned int n_released = 0;

	for (unsigned int i = 0; i < decision->n_orders; i++)
		n_released += manager_release(take->daemon, &decision->orders[i]);
	return n_released;
}

static enum outcome start_filling(struct take *take, struct page_pool *pages, int node)
{
	struct filling *filling;
	int r;

	r = filling_start(pages, node, take->request.segment_bytes, take, &filling);
	if (r < 0) {
		refuse_error(take, "making a segment", r);
		return ANSWERED;
	}
	take->filling = filling;
	return WAITING;
}

/* Nothing that is free will do; but others may be about to give back, or to finish filling. */
static bool is_worth_waiting(struct take *take, struct page_pool *pages)
{
	struct daemon *daemon = take->daemon;

	if (take->is_bounded)
		return true;
	if (leases_are_ending(daemon->leases) && take->n_deferred++ < DEFERRALS_MAX)
		return true;
	/* "As long as a fill takes": what is being filled may be cut, or given up, for this one. */
	return filling_raise(daemon->fillings, pages, take->request.node);
}

static enum outcome cannot_place(struct take *take, struct page_pool *pages,
				 const struct decision *decision)
{
	/* Pages that are on their way back are in no count: neither lent, nor free yet. */
	if (take->daemon->n_freeing ||
	    (decision->placement != PLACE_REFUSE && is_worth_waiting(take, pages)))
		return WAITING;
	refuse(take, shortage_name(decision->why), decision->have_bytes, decision->need_bytes,
	       NULL);
	return ANSWERED;
}

/* Once the host has been looked at. */
static enum outcome place_after_look(struct take *take, struct page_pool *pages,
				     const struct decision *decision)
{
	struct daemon *daemon = take->daemon;
	int node = decision->page_class.node, r;
	struct segment *segment;
	struct filling *filling;

	switch (decision->placement) {
	case PLACE_EXACT:
	case PLACE_CUT:
		segment = pool_find_ready(pages->pool, node, decision->segment_bytes);
		if (!segment)
			break;
		if (decision->placement == PLACE_EXACT) {
			lend(take, pages, segment);
			return ANSWERED;
		}
		r = begin_cut(take, pages, segment);
		if (r == 0)
			return WAITING;
		refuse_error(take, "cutting a segment", r);
		return ANSWERED;
	case PLACE_REFUSE:
		return cannot_place(take, pages, decision);
	default:
		break;
	}
	/* One that is being filled for stock is further on than a new one would be. */
	filling = filling_find(daemon->fillings, pages, take->request.node,
			       take->request.segment_bytes);
	if (filling) {
		filling_adopt(filling, take);
		take->filling = filling;
		return WAITING;
	}
	if (decision->placement == PLACE_FILL)
		return start_filling(take, pages, node);
	if (decision->placement == PLACE_RELEASE_AND_FILL) {
		if (daemon->n_freeing)
			return WAITING;
		if (release_for(take, decision)) {
			manager_kick(daemon);
			return WAITING;
		}
	}
	return cannot_place(take, pages, decision);
}

/* is_looked: the host has just been looked at, in this cycle. */
static enum outcome place(struct take *take, bool is_looked)
{
	struct daemon *daemon = take->daemon;
	struct page_pool *pages = daemon_pool(daemon, take->request.page);
	struct decision decision;
	struct pool_view pools;
	enum outcome outcome;
	int r;

	r = manager_pool_view(daemon, &pools);
	if (r >= 0) {
		policy_place(daemon->net, &pools, &daemon->config->goals, &take->request,
			     &decision);
		is_looked |= decision.placement == PLACE_EXACT;
		if (!is_looked)
			r = manager_look_at(daemon, take->request.page, take->request.node);
	}
	if (r < 0) {
		refuse_error(take, "looking at the host", r);
		return ANSWERED;
	}
	if (!is_looked)
		policy_place(daemon->net, &pools, &daemon->config->goals, &take->request,
			     &decision);
	if (!pages && decision.placement != PLACE_REFUSE) {
		refuse(take, shortage_name(SHORT_NO_CLASS), 0, take->request.segment_bytes, NULL);
		return ANSWERED;
	}
	outcome = place_after_look(take, pages, &decision);
	if (outcome == WAITING && take->filling && take->is_partial)
		return lend_partial(take);
	return outcome;
}

void lending_filled(struct take *take, struct page_pool *pages, struct segment *segment, int result)
{
	take->filling = NULL;
	if (segment) {
		lend(take, pages, segment);
		take_free(take);
		return;
	}
	/* What was free when the fill began has gone to others: place it anew, from what is there now. */
	if (result == -ECANCELED || (result == -ENOMEM && ++take->n_failed < FAILURES_MAX)) {
		manager_kick(take->daemon);
		return;
	}
	if (result == -ENOTSUP)
		refuse(take, shortage_name(SHORT_THP), 0, take->request.segment_bytes, NULL);
	else
		refuse_error(take, "filling", result);
	take_free(take);
}

void lending_retry(struct daemon *daemon)
{
	struct take *take, *next;

	for (take = TAILQ_FIRST(&daemon->lending->waiting); take; take = next) {
		next = TAILQ_NEXT(take, link);
		if (!take->filling && !take->cut && place(take, true) == ANSWERED)
			take_free(take);
	}
}

bool lending_is_waiting(const struct lending *lending)
{
	const struct take *take;

	TAILQ_FOREACH(take, &lending->waiting, link) {
		if (!take->filling && !take->cut)
			return true;
	}
	return false;
}

bool lending_wants(const struct lending *lending, struct page_class page_class)
{
	const struct take *take;

	TAILQ_FOREACH(take, &lending->waiting, link) {
		if (!take->filling && !take->cut &&
		    page_size_equal(take->request.page, page_class.page) &&
		    (take->request.node == NODE_ANY || take->request.node == page_class.node))
			return true;
	}
	return false;
}

/* Waiting. */

static void stop_work(struct take *take)
{
	if (take->filling) {
		filling_abandon(take->filling);
		take->filling = NULL;
	}
}

static void abandon_take(void *arg)
{
	struct take *take = arg;
	struct daemon *daemon = take->daemon;

	stop_work(take);
	take_free(take);
	manager_kick(daemon);
}

static int take_timed_out(sd_event_source *source, uint64_t usec, void *arg)
{
	struct take *take = arg;
	struct daemon *daemon = take->daemon;
	struct decision decision = {0};
	struct pool_view pools;

	(void)source;
	(void)usec;
	stop_work(take);
	if (manager_pool_view(daemon, &pools) >= 0)
		policy_place(daemon->net, &pools, &daemon->config->goals, &take->request,
			     &decision);
	refuse(take, "deadline", decision.have_bytes, take->request.segment_bytes, NULL);
	take_free(take);
	manager_kick(daemon);
	return 0;
}

static void wait_in_queue(struct take *take)
{
	struct daemon *daemon = take->daemon;
	int r = 0;

	connection_wait(take->connection, abandon_take, take);
	/* From now on the manager looks every now and then: others may free pages without a word. */
	manager_kick(daemon);
	if (take->is_bounded)
		r = sd_event_add_time_relative(daemon->event, &take->timer, CLOCK_MONOTONIC,
					       take->wait_ms * 1000, 1000, take_timed_out, take);
	if (r < 0) {
		stop_work(take);
		refuse_error(take, "waiting", r);
		take_free(take);
	}
}

/* Requests. */

static bool is_name(const char *name)
{
	if (!*name || *name == '.' || strlen(name) > LEASE_NAME_MAX)
		return false;
	for (; *name; name++) {
		if (!isalnum((unsigned char)*name) && !strchr("._-", *name))
			return false;
	}
	return true;
}

static void reply_invalid(struct connection *connection, const char *parameter)
{
	struct wire_reply reply = {
		.error = WIRE_INVALID_PARAMETER,
		.invalid_parameter = {.parameter = parameter},
	};

	connection_reply(connection, &reply, -1);
}

/* Nothing but what is ready: -EAGAIN where that is nothing. */
static bool is_ready(struct take *take)
{
	struct page_pool *pages = daemon_pool(take->daemon, take->request.page);
	struct decision decision;
	struct pool_view pools;

	if (!pages || manager_pool_view(take->daemon, &pools) < 0)
		return false;
	policy_place(take->daemon->net, &pools, &take->daemon->config->goals, &take->request,
		     &decision);
	if (decision.placement == PLACE_REFUSE)
		return true; /* let the reason be told */
	return decision.placement == PLACE_EXACT || decision.placement == PLACE_CUT;
}

/* ANSWERED: the caller frees it. */
static enum outcome begin_take(struct take *take)
{
	struct page_pool *taken_in;

	if (is_over_limit(take))
		return ANSWERED;
	if (take->name && leases_find_by_name(take->daemon, take->name, &taken_in)) {
		reply_name_taken(take->connection, take->name);
		return ANSWERED;
	}
	if (take->is_bounded && !take->wait_ms && !is_ready(take)) {
		refuse(take, "deadline", 0, take->request.segment_bytes, NULL);
		return ANSWERED;
	}
	return place(take, false);
}

void lending_take(struct daemon *daemon, struct connection *connection,
		  const struct wire_take *call)
{
	struct take *take;

	if (call->bytes <= 0) {
		reply_invalid(connection, "bytes");
		return;
	}
	if (call->name && !is_name(call->name)) {
		reply_invalid(connection, "name");
		return;
	}
	take = calloc(1, sizeof(*take));
	if (!take) {
		struct refusal refusal = {
			.reason = "io", .page_text = "", .detail = strerror(ENOMEM)};

		refusal_send(daemon, connection, &refusal);
		return;
	}
	TAILQ_INSERT_TAIL(&daemon->lending->waiting, take, link);
	take->daemon = daemon;
	take->connection = connection;
	take->uid = connection_uid(connection);
	take->gid = connection_gid(connection);
	take->is_partial = call->partial;
	take->is_bounded = call->wait_ms.is_set;
	take->wait_ms = call->wait_ms.is_set ? call->wait_ms.value : 0;
	take->request.node = call->node.is_set ? call->node.value : NODE_ANY;
	take->request.segment_bytes = call->bytes;
	if (call->name)
		take->name = strdup(call->name);
	if (daemon_parse_page(daemon, call->page, &take->request.page) < 0) {
		struct refusal refusal = {
			.reason = shortage_name(SHORT_NO_CLASS),
			.page_text = call->page ? call->page : "default",
			.node = take->request.node,
			.asked_bytes = call->bytes,
			.need_bytes = call->bytes,
		};

		refusal_send(daemon, connection, &refusal);
	} else if (call->name && !take->name) {
		refuse_error(take, "taking", -ENOMEM);
	} else if (begin_take(take) == WAITING) {
		wait_in_queue(take);
		return;
	}
	take_free(take);
}
