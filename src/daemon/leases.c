/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/leases.c - lent segments: who may end them, and when they end.
 *
 * The watch tells that a file was closed, just before the kernel drops the lock that came with it. So
 * what closed is looked at 10 ms later, all together, and the watch rests meanwhile: a consumer that
 * opens and closes in a loop costs a hundred looks a second at most. A lease still held then may have
 * been closed by one of several holders, or its last one was stopped between the two steps: it is
 * looked at a few times more, ever later.
 *
 * Guarantees: a lease ends when nobody holds it, once; only its user or root can give it.
 */
#include "daemon/leases.h"

#include <inttypes.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>

#include "base/io.h"
#include "daemon/filling.h"
#include "daemon/limits.h"
#include "daemon/log.h"
#include "daemon/manager.h"
#include "daemon/pools.h"
#include "daemon/scan.h"
#include "daemon/server.h"

#define CHECK_AFTER_NS 10000000ULL
#define CHECKS_MAX 7 /* 10 ms, 40 ms, ... 40 s */
#define GROWTH_AGE_NS 1000000000ULL

TAILQ_HEAD(check_list, check);
TAILQ_HEAD(give_list, give);

/* A lease that may have ended. */
struct check {
	TAILQ_ENTRY(check) link;
	struct page_pool *pages;
	uint64_t id; /* the segment may be gone by then */
	unsigned int n_checks;
	uint64_t due_ns;
};

/* A Give that waits for the holders to close, or for a scan to name them. */
struct give {
	TAILQ_ENTRY(give) link;
	struct daemon *daemon;
	struct connection *connection;
	struct page_pool *pages;
	uint64_t id;
	sd_event_source *timer;
	struct scan *scan;
};

struct leases {
	struct daemon *daemon;
	struct check_list checks;
	struct give_list gives;
	sd_event_source *timer;
	struct limits limits;
};

static int checks_due(sd_event_source *source, uint64_t usec, void *arg);

int leases_new(struct daemon *daemon, struct leases **ret)
{
	struct leases *leases = calloc(1, sizeof(*leases));
	int r;

	if (!leases)
		return -ENOMEM;
	leases->daemon = daemon;
	TAILQ_INIT(&leases->checks);
	TAILQ_INIT(&leases->gives);
	r = sd_event_add_time(daemon->event, &leases->timer, CLOCK_MONOTONIC, UINT64_MAX, 1000,
			      checks_due, leases);
	if (r >= 0)
		r = sd_event_source_set_enabled(leases->timer, SD_EVENT_OFF);
	if (r < 0) {
		leases_free(leases);
		return r;
	}
	*ret = leases;
	return 0;
}

static void give_free(struct give *give)
{
	TAILQ_REMOVE(&give->daemon->leases->gives, give, link);
	sd_event_source_disable_unref(give->timer);
	scan_abandon(give->scan);
	free(give);
}

struct leases *leases_free(struct leases *leases)
{
	struct check *check;
	struct give *give;

	if (!leases)
		return NULL;
	while ((check = TAILQ_FIRST(&leases->checks))) {
		TAILQ_REMOVE(&leases->checks, check, link);
		free(check);
	}
	while ((give = TAILQ_FIRST(&leases->gives)))
		give_free(give);
	sd_event_source_disable_unref(leases->timer);
	limits_done(&leases->limits);
	free(leases);
	return NULL;
}

/* Ends. */

static void reply_given(struct give *give, bool completed, const struct holder *holders,
			unsigned int n_holders)
{
	struct wire_holder list[SCAN_HOLDERS_MAX];
	struct wire_reply reply = {
		.give = {.completed = completed, .holders = list, .n_holders = n_holders}};

	for (unsigned int i = 0; i < n_holders; i++)
		list[i] = scan_wire_holder(&holders[i]);
	connection_reply(give->connection, &reply, -1);
	give_free(give);
}

static void end_lease(struct page_pool *pages, struct segment *segment)
{
	struct leases *leases = pages->daemon->leases;
	uint64_t id = segment->id, bytes = segment->bytes;
	uid_t uid = segment->uid;
	struct give *give, *next;
	int fd = -1, r;

	r = pool_end_lease(pages->pool, segment, pools_free_slowly(bytes) ? &fd : NULL);
	if (r < 0) {
		log_warning("%s: a lease cannot be ended: %s", pages->name, strerror(-r));
		return;
	}
	pools_free_pages(pages->daemon, fd);
	limits_subtract(&leases->limits, uid, bytes);
	pages->daemon->counters.gives++;
	for (give = TAILQ_FIRST(&leases->gives); give; give = next) {
		next = TAILQ_NEXT(give, link);
		if (give->pages == pages && give->id == id)
			reply_given(give, true, NULL, 0);
	}
	manager_kick(pages->daemon);
}

static bool ends_with_holders(const struct segment *segment)
{
	return !segment->name || segment->is_given;
}

/* True: there is nothing more to look at. */
static bool try_end(struct page_pool *pages, struct segment *segment)
{
	if (!segment || !ends_with_holders(segment))
		return true;
	if (pool_lease_is_held(pages->pool, segment))
		return false;
	/* Lent while being filled, and given up already: filling_done() comes back here. */
	if (segment->owner_data)
		filling_cancel(segment->owner_data);
	else
		end_lease(pages, segment);
	return true;
}

static void arm(struct leases *leases)
{
	const struct check *check;
	uint64_t due_ns = UINT64_MAX;

	TAILQ_FOREACH (check, &leases->checks, link) {
		if (check->due_ns < due_ns)
			due_ns = check->due_ns;
	}
	for (unsigned int i = 0; i < leases->daemon->n_pools; i++) {
		/* A watch that rests means that what it told is to be collected. */
		if (leases->daemon->pool[i].watch_due_ns && leases->daemon->pool[i].watch_due_ns < due_ns)
			due_ns = leases->daemon->pool[i].watch_due_ns;
	}
	if (due_ns == UINT64_MAX) {
		sd_event_source_set_enabled(leases->timer, SD_EVENT_OFF);
		return;
	}
	sd_event_source_set_time(leases->timer, due_ns / 1000 + 1);
	sd_event_source_set_enabled(leases->timer, SD_EVENT_ONESHOT);
}

static void add_check(struct page_pool *pages, struct segment *segment)
{
	struct leases *leases = pages->daemon->leases;
	struct check *check;

	TAILQ_FOREACH (check, &leases->checks, link) {
		if (check->pages == pages && check->id == segment->id)
			return;
	}
	check = calloc(1, sizeof(*check));
	if (!check)
		return; /* the next close, or a restart, looks again */
	*check = (struct check){
		.pages = pages,
		.id = segment->id,
		.n_checks = 1,
		.due_ns = monotonic_ns() + 4 * CHECK_AFTER_NS,
	};
	TAILQ_INSERT_TAIL(&leases->checks, check, link);
}

void leases_check(struct page_pool *pages, struct segment *segment)
{
	if (try_end(pages, segment))
		return;
	add_check(pages, segment);
	arm(pages->daemon->leases);
}

static void run_checks(struct leases *leases, uint64_t now_ns)
{
	struct check *check, *next;

	for (check = TAILQ_FIRST(&leases->checks); check; check = next) {
		next = TAILQ_NEXT(check, link);
		if (check->due_ns > now_ns)
			continue;
		if (try_end(check->pages, pool_find_lease(check->pages->pool, check->id)) ||
		    ++check->n_checks == CHECKS_MAX) {
			TAILQ_REMOVE(&leases->checks, check, link);
			free(check);
			continue;
		}
		check->due_ns = now_ns + (CHECK_AFTER_NS << (2 * check->n_checks));
	}
}

static int checks_due(sd_event_source *source, uint64_t usec, void *arg)
{
	struct leases *leases = arg;
	uint64_t now_ns = monotonic_ns();

	(void)source;
	(void)usec;
	run_checks(leases, now_ns);
	for (unsigned int i = 0; i < leases->daemon->n_pools; i++) {
		struct page_pool *pages = &leases->daemon->pool[i];
		struct segment *segment;

		if (!pages->watch_due_ns || pages->watch_due_ns > now_ns)
			continue;
		pages->watch_due_ns = 0;
		while ((segment = pool_next_closed(pages->pool))) {
			if (!try_end(pages, segment))
				add_check(pages, segment);
		}
		sd_event_source_set_enabled(pages->watch, SD_EVENT_ON);
	}
	arm(leases);
	return 0;
}

static int something_closed(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct page_pool *pages = arg;
	int r = pool_read_closed(pages->pool);

	(void)fd;
	(void)events;
	if (r < 0)
		log_warning("%s: the watch for leases that end fails: %s", pages->name, strerror(-r));
	sd_event_source_set_enabled(source, SD_EVENT_OFF);
	pages->watch_due_ns = monotonic_ns() + CHECK_AFTER_NS;
	arm(pages->daemon->leases);
	return 0;
}

int leases_attach(struct page_pool *pages)
{
	struct limits *limits = &pages->daemon->leases->limits;

	for (struct segment *s = pool_next(pages->pool, NULL); s; s = pool_next(pages->pool, s)) {
		if (s->state == SEGMENT_LENT)
			limits_add(limits, s->uid, s->bytes);
	}
	return sd_event_add_io(pages->daemon->event, &pages->watch, pool_watch_fd(pages->pool), EPOLLIN,
			       something_closed, pages);
}

void leases_detach(struct page_pool *pages)
{
	struct leases *leases = pages->daemon->leases;
	struct check *check, *next_check;
	struct give *give, *next_give;

	pages->watch = sd_event_source_disable_unref(pages->watch);
	pages->watch_due_ns = 0;
	for (check = TAILQ_FIRST(&leases->checks); check; check = next_check) {
		next_check = TAILQ_NEXT(check, link);
		if (check->pages == pages) {
			TAILQ_REMOVE(&leases->checks, check, link);
			free(check);
		}
	}
	for (give = TAILQ_FIRST(&leases->gives); give; give = next_give) {
		next_give = TAILQ_NEXT(give, link);
		if (give->pages == pages)
			reply_given(give, true, NULL, 0);
	}
	for (struct segment *s = pool_next(pages->pool, NULL); s; s = pool_next(pages->pool, s)) {
		if (s->state == SEGMENT_LENT)
			limits_subtract(&leases->limits, s->uid, s->bytes);
	}
}

void leases_began(struct page_pool *pages, struct segment *segment)
{
	limits_add(&pages->daemon->leases->limits, segment->uid, segment->bytes);
}

/* What a user's leases take beyond their length: a lessee may grow its file. */
static uint64_t measure_growth(struct daemon *daemon, uid_t uid)
{
	uint64_t grown_bytes = 0, allocated;

	for (unsigned int i = 0; i < daemon->n_pools; i++) {
		struct pool *pool = daemon->pool[i].pool;
		dev_t dev;
		ino_t ino;

		for (struct segment *s = pool_next(pool, NULL); s; s = pool_next(pool, s)) {
			if (s->state == SEGMENT_LENT && s->uid == uid &&
			    pool_segment_stat(pool, s, &dev, &ino, &allocated) >= 0 &&
			    allocated > s->bytes)
				grown_bytes += allocated - s->bytes;
		}
	}
	return grown_bytes;
}

uint64_t leases_held_bytes(struct leases *leases, uid_t uid)
{
	struct account *account = limits_find(&leases->limits, uid);
	uint64_t now_ns = monotonic_ns();

	if (!account)
		return 0;
	if (!account->measured_ns || now_ns - account->measured_ns > GROWTH_AGE_NS) {
		account->grown_bytes = measure_growth(leases->daemon, uid);
		account->measured_ns = now_ns;
	}
	return account->bytes + account->grown_bytes;
}

/* Finding. */

static bool parse_id(const char *text, size_t length, uint64_t *ret)
{
	char digits[17], *end;

	if (length != 16 || strspn(text, "0123456789abcdef") < 16)
		return false;
	memcpy(digits, text, 16);
	digits[16] = '\0';
	*ret = strtoull(digits, &end, 16);
	return !*end;
}

struct segment *leases_find_by_name(struct daemon *daemon, const char *name,
				    struct page_pool **ret_pages)
{
	for (unsigned int i = 0; i < daemon->n_pools; i++) {
		struct segment *segment = pool_find_lease_by_name(daemon->pool[i].pool, name);

		if (segment) {
			*ret_pages = &daemon->pool[i];
			return segment;
		}
	}
	return NULL;
}

static struct segment *find_by_id(struct daemon *daemon, uint64_t id, struct page_pool **ret_pages)
{
	for (unsigned int i = 0; i < daemon->n_pools; i++) {
		struct segment *segment = pool_find_lease(daemon->pool[i].pool, id);

		if (segment) {
			*ret_pages = &daemon->pool[i];
			return segment;
		}
	}
	return NULL;
}

/* ".../2M/lent/0-5f0c4cba1cd1a3e1=vm7": its id says all, whatever way leads to the run-time directory. */
static struct segment *find_by_path(struct daemon *daemon, const char *path,
				    struct page_pool **ret_pages)
{
	const char *file = strrchr(path, '/') + 1, *dash = strchr(file, '-');
	uint64_t id;

	if (!dash || !parse_id(dash + 1, strcspn(dash + 1, "="), &id))
		return NULL;
	return find_by_id(daemon, id, ret_pages);
}

struct segment *leases_find(struct daemon *daemon, const char *text, struct page_pool **ret_pages)
{
	struct segment *segment = NULL;
	uint64_t id;

	if (strchr(text, '/'))
		return find_by_path(daemon, text, ret_pages);
	if (parse_id(text, strlen(text), &id))
		segment = find_by_id(daemon, id, ret_pages);
	return segment ? segment : leases_find_by_name(daemon, text, ret_pages);
}

/* Giving. */

static void holders_found(void *arg, const struct holder *holders, unsigned int n_holders)
{
	struct give *give = arg;
	struct segment *segment = pool_find_lease(give->pages->pool, give->id);

	give->scan = NULL;
	/* They may have closed while the scan ran: then end_lease() has answered. */
	if (!n_holders && try_end(give->pages, segment))
		return;
	reply_given(give, false, holders, n_holders);
}

static void name_holders(struct give *give)
{
	struct segment *segment = pool_find_lease(give->pages->pool, give->id);
	uint64_t allocated;
	dev_t dev;
	ino_t ino;

	if (!segment ||
	    pool_segment_stat(give->pages->pool, segment, &dev, &ino, &allocated) < 0 ||
	    scan_start(give->daemon, dev, ino, holders_found, give, &give->scan) < 0)
		reply_given(give, false, NULL, 0);
}

static int give_timed_out(sd_event_source *source, uint64_t usec, void *arg)
{
	(void)source;
	(void)usec;
	name_holders(arg);
	return 0;
}

static void abandon_give(void *arg)
{
	give_free(arg);
}

static void reply_lease_error(struct connection *connection, enum wire_error error,
			      const char *lease, uid_t uid)
{
	struct wire_reply reply = {.error = error};

	if (error == WIRE_NOT_YOURS)
		reply.not_yours = (struct wire_not_yours){.lease = lease, .uid = uid};
	else
		reply.no_such_lease = (struct wire_no_such_lease){.lease = lease};
	connection_reply(connection, &reply, -1);
}

void leases_give(struct daemon *daemon, struct connection *connection, const struct wire_give *call)
{
	struct page_pool *pages;
	struct segment *segment = leases_find(daemon, call->lease, &pages);
	uid_t uid = connection_uid(connection);
	struct give *give;
	int r = 0;

	if (!segment) {
		reply_lease_error(connection, WIRE_NO_SUCH_LEASE, call->lease, 0);
		return;
	}
	if (uid != 0 && uid != segment->uid) {
		reply_lease_error(connection, WIRE_NOT_YOURS, call->lease, segment->uid);
		return;
	}
	give = calloc(1, sizeof(*give));
	if (!give) {
		reply_lease_error(connection, WIRE_NO_SUCH_LEASE, call->lease, 0);
		return;
	}
	*give = (struct give){
		.daemon = daemon, .connection = connection, .pages = pages, .id = segment->id};
	TAILQ_INSERT_TAIL(&daemon->leases->gives, give, link);
	connection_wait(connection, abandon_give, give);

	if (segment->name && !segment->is_given) {
		r = pool_unname_lease(pages->pool, segment);
		if (r < 0)
			log_warning("%s: a lease cannot be given: %s", pages->name, strerror(-r));
	}
	if (r >= 0 && try_end(pages, segment))
		return; /* answered by end_lease(), or soon: a fill is being stopped */
	if (r >= 0 && call->wait_ms.is_set && call->wait_ms.value > 0)
		r = sd_event_add_time_relative(daemon->event, &give->timer, CLOCK_MONOTONIC,
					       (uint64_t)call->wait_ms.value * 1000, 1000,
					       give_timed_out, give);
	if (!give->timer)
		name_holders(give);
}
