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
 * The path of a lease may be opened by its user, and such a holder has no lock, and may leave without an
 * event. So a lease ends only when the kernel says that nobody has the file open at all. Where it cannot
 * say, a thread looks through /proc, for leases that were given and for those of users with a limit.
 *
 * Guarantees: a lease ends when nobody holds it, once; only its user or root can give it; the event loop
 * never waits for a lessee, where the kernel says who has a file open.
 */
#include "daemon/leases.h"

#include <poll.h>
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
#define CHECKS_MAX 6 /* 10 ms, 40 ms, ... 40 s */
#define READS_MAX 256 /* of the watch in a row: as much as the kernel remembers */
#define REST_FACTOR 10
#define GROWTH_AGE_NS 1000000000ULL

TAILQ_HEAD(check_list, check);
TAILQ_HEAD(inquiry_list, inquiry);
TAILQ_HEAD(give_list, give);

/* A lease that may have ended. */
struct check {
	TAILQ_ENTRY(check) link;
	struct page_pool *pages;
	uint64_t id; /* the segment may be gone by then; until then its check is this one */
	unsigned int n_checks;
	bool is_lasting; /* who holds it may leave without a word: look until it ends */
	uint64_t due_ns;
};

/* A lease whose holders a thread is looking for. */
struct inquiry {
	TAILQ_ENTRY(inquiry) link;
	struct page_pool *pages;
	uint64_t id;
	struct scan *scan;
};

/* A Give that is not yet answered. */
struct give {
	TAILQ_ENTRY(give) link;
	struct daemon *daemon;
	struct connection *connection;
	struct page_pool *pages;
	uint64_t id;
	bool is_patient; /* answered when the lease ends or the timer does, not before */
	sd_event_source *timer;
};

struct leases {
	struct daemon *daemon;
	struct check_list checks;
	struct inquiry_list inquiries;
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
	TAILQ_INIT(&leases->inquiries);
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
	free(give);
}

static void inquiry_free(struct inquiry *inquiry)
{
	TAILQ_REMOVE(&inquiry->pages->daemon->leases->inquiries, inquiry, link);
	scan_abandon(inquiry->scan);
	free(inquiry);
}

struct leases *leases_free(struct leases *leases)
{
	struct inquiry *inquiry;
	struct check *check;
	struct give *give;

	if (!leases)
		return NULL;
	while ((check = TAILQ_FIRST(&leases->checks))) {
		TAILQ_REMOVE(&leases->checks, check, link);
		free(check);
	}
	while ((inquiry = TAILQ_FIRST(&leases->inquiries)))
		inquiry_free(inquiry);
	while ((give = TAILQ_FIRST(&leases->gives)))
		give_free(give);
	sd_event_source_disable_unref(leases->timer);
	limits_done(&leases->limits);
	free(leases);
	return NULL;
}

/* Ends. */

static void reply_given(struct give *give, bool completed, const struct holder *holders,
			int n_holders)
{
	struct wire_holder list[SCAN_HOLDERS_MAX];
	struct wire_reply reply = {
		.give = {.completed = completed,
			 .holders = list,
			 .n_holders = scan_wire_holders(holders, n_holders, list)}};

	connection_reply(give->connection, &reply, -1);
	give_free(give);
}

/* sure: nobody has it, as /proc says. Otherwise as pool_try_end_lease(). */
static int end_lease(struct page_pool *pages, struct segment *segment, bool is_sure)
{
	struct leases *leases = pages->daemon->leases;
	uint64_t id = segment->id, bytes = segment->bytes;
	uid_t uid = segment->uid;
	struct give *give, *next;
	int fd = -1, *last_fd = pools_free_slowly(bytes) ? &fd : NULL, r;

	r = is_sure ? pool_end_lease(pages->pool, segment, last_fd) :
		      pool_try_end_lease(pages->pool, segment, last_fd);
	if (r != 0)
		return r;
	pools_free_pages(pages->daemon, fd);
	limits_subtract(&leases->limits, uid, bytes);
	pages->daemon->counters.gives++;
	for (give = TAILQ_FIRST(&leases->gives); give; give = next) {
		next = TAILQ_NEXT(give, link);
		if (give->pages == pages && give->id == id)
			reply_given(give, true, NULL, 0);
	}
	manager_kick(pages->daemon);
	return 0;
}

static bool ends_with_holders(const struct segment *segment)
{
	return !segment->name || segment->is_given;
}

/* Holders without the lock: of a path that was handed round under a name; and of what a user with a limit
 * opened a second time, lest it be free of the limit by closing the first. */
static bool may_have_other_holders(const struct page_pool *pages, const struct segment *segment)
{
	return segment->is_given ||
	       config_limit_bytes(pages->daemon->config, segment->uid) != UNLIMITED;
}

static void add_check(struct page_pool *pages, struct segment *segment, bool is_lasting);
static void inquire(struct page_pool *pages, uint64_t id);

/* Lent while being filled: the daemon has it open itself. */
static int try_end_filling(struct page_pool *pages, struct segment *segment)
{
	int r = pool_lease_is_held(pages->pool, segment);

	/* Given up already: filling_done() comes back here. */
	if (r == 0)
		filling_cancel(segment->owner_data);
	return r;
}

/* True: there is nothing more to look at. Otherwise it is among the checks if nobody will tell. */
static bool try_end(struct page_pool *pages, struct segment *segment)
{
	int r;

	if (!segment || !ends_with_holders(segment))
		return true;
	r = segment->owner_data ? try_end_filling(pages, segment) :
				  end_lease(pages, segment, false);
	if (r == -EOPNOTSUPP && !may_have_other_holders(pages, segment))
		r = end_lease(pages, segment, true);
	else if (r == -EOPNOTSUPP)
		inquire(pages, segment->id);
	if (r < 0)
		add_check(pages, segment, true);
	return r == 0;
}

static void arm(struct leases *leases)
{
	const struct check *check;
	uint64_t due_ns = UINT64_MAX;

	TAILQ_FOREACH(check, &leases->checks, link) {
		if (check->due_ns < due_ns)
			due_ns = check->due_ns;
	}
	for (unsigned int i = 0; i < leases->daemon->n_pools; i++) {
		/* A watch that rests means that what it told is to be collected. */
		if (leases->daemon->pool[i].watch_due_ns &&
		    leases->daemon->pool[i].watch_due_ns < due_ns)
			due_ns = leases->daemon->pool[i].watch_due_ns;
	}
	if (due_ns == UINT64_MAX) {
		sd_event_source_set_enabled(leases->timer, SD_EVENT_OFF);
		return;
	}
	sd_event_source_set_time(leases->timer, due_ns / 1000 + 1);
	sd_event_source_set_enabled(leases->timer, SD_EVENT_ONESHOT);
}

static void add_check(struct page_pool *pages, struct segment *segment, bool is_lasting)
{
	struct leases *leases = pages->daemon->leases;
	struct check *check = segment->check;

	if (check) {
		check->is_lasting |= is_lasting;
		return;
	}
	check = calloc(1, sizeof(*check));
	if (!check)
		return; /* the next close, or a restart, looks again */
	*check = (struct check){
		.pages = pages,
		.id = segment->id,
		.n_checks = 1,
		.is_lasting = is_lasting,
		.due_ns = monotonic_ns() + 4 * CHECK_AFTER_NS,
	};
	TAILQ_INSERT_TAIL(&leases->checks, check, link);
	segment->check = check;
}

void leases_check(struct page_pool *pages, struct segment *segment)
{
	if (try_end(pages, segment))
		return;
	add_check(pages, segment, false);
	arm(pages->daemon->leases);
}

static void run_checks(struct leases *leases, uint64_t now_ns)
{
	struct check *check, *next;

	for (check = TAILQ_FIRST(&leases->checks); check; check = next) {
		struct segment *segment;
		bool is_over;

		next = TAILQ_NEXT(check, link);
		if (check->due_ns > now_ns)
			continue;
		if (check->n_checks < CHECKS_MAX)
			check->n_checks++;
		check->due_ns = now_ns + (CHECK_AFTER_NS << (2 * check->n_checks));
		segment = pool_find_lease(check->pages->pool, check->id);
		is_over = try_end(check->pages, segment);
		if (!is_over && (check->n_checks < CHECKS_MAX || check->is_lasting))
			continue;
		segment = pool_find_lease(check->pages->pool, check->id);
		if (segment)
			segment->check = NULL;
		TAILQ_REMOVE(&leases->checks, check, link);
		free(check);
	}
}

/* What the watch told of. After a long look a long rest: after an overflow it is at every lease, and who
 * closes in a loop can have one any time. */
static void look_at_closed(struct page_pool *pages)
{
	uint64_t began_cpu_ns = thread_cpu_ns();
	struct segment *segment;

	while ((segment = pool_next_closed(pages->pool))) {
		if (!try_end(pages, segment))
			add_check(pages, segment, false);
	}
	pages->watch_rest_ns = (thread_cpu_ns() - began_cpu_ns) * REST_FACTOR;
	if (pages->watch_rest_ns < CHECK_AFTER_NS)
		pages->watch_rest_ns = CHECK_AFTER_NS;
	sd_event_source_set_enabled(pages->watch, SD_EVENT_ON);
	manager_kick(pages->daemon); /* some may wait for what did not end, too */
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

		if (!pages->watch_due_ns || pages->watch_due_ns > now_ns)
			continue;
		pages->watch_due_ns = 0;
		look_at_closed(pages);
	}
	arm(leases);
	return 0;
}

bool leases_are_ending(const struct leases *leases)
{
	for (unsigned int i = 0; i < leases->daemon->n_pools; i++) {
		const struct page_pool *pages = &leases->daemon->pool[i];
		struct pollfd closed = {.fd = pool_watch_fd(pages->pool), .events = POLLIN};

		if (pages->watch_due_ns || poll(&closed, 1, 0) > 0)
			return true;
	}
	return !TAILQ_EMPTY(&leases->inquiries);
}

static int something_closed(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct page_pool *pages = arg;
	int r = 1;

	(void)fd;
	(void)events;
	for (unsigned int i = 0; i < READS_MAX && r > 0; i++)
		r = pool_read_closed(pages->pool);
	if (r < 0)
		log_warning("%s: the watch for leases that end fails: %s", pages->name,
			    strerror(-r));
	sd_event_source_set_enabled(source, SD_EVENT_OFF);
	pages->watch_due_ns = monotonic_ns() + pages->watch_rest_ns;
	arm(pages->daemon->leases);
	return 0;
}

int leases_attach(struct page_pool *pages)
{
	struct limits *limits = &pages->daemon->leases->limits;
	struct segment *segment;

	for (struct segment *s = pool_next(pages->pool, NULL); s; s = pool_next(pages->pool, s)) {
		if (s->state == SEGMENT_LENT)
			limits_add(limits, s->uid, s->bytes);
	}
	/* Of these, recovery says, the holders may be gone, or go without a word. */
	while ((segment = pool_next_closed(pages->pool)))
		add_check(pages, segment, true);
	arm(pages->daemon->leases);
	pages->watch_rest_ns = CHECK_AFTER_NS;
	return sd_event_add_io(pages->daemon->event, &pages->watch, pool_watch_fd(pages->pool),
			       EPOLLIN, something_closed, pages);
}

void leases_detach(struct page_pool *pages)
{
	struct leases *leases = pages->daemon->leases;
	struct inquiry *inquiry, *next_inquiry;
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
	for (inquiry = TAILQ_FIRST(&leases->inquiries); inquiry; inquiry = next_inquiry) {
		next_inquiry = TAILQ_NEXT(inquiry, link);
		if (inquiry->pages == pages)
			inquiry_free(inquiry);
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

static void holders_found(void *arg, const struct holder *holders, int n_holders)
{
	struct inquiry *inquiry = arg;
	struct page_pool *pages = inquiry->pages;
	struct leases *leases = pages->daemon->leases;
	struct segment *segment = pool_find_lease(pages->pool, inquiry->id);
	struct give *give, *next;
	int r = -EBUSY;

	inquiry->scan = NULL;
	inquiry_free(inquiry);
	if (!segment)
		return; /* it ended meanwhile, and its Gives were answered */
	/* One that is being filled is the daemon's too. */
	if (!segment->owner_data)
		r = end_lease(pages, segment, false);
	/* Holders that could not be found out are not none. */
	if (r == -EOPNOTSUPP && n_holders == 0)
		r = end_lease(pages, segment, true);
	if (r == 0)
		return;
	for (give = TAILQ_FIRST(&leases->gives); give; give = next) {
		next = TAILQ_NEXT(give, link);
		if (give->pages == pages && give->id == segment->id && !give->is_patient)
			reply_given(give, false, holders, n_holders);
	}
}

static void inquire(struct page_pool *pages, uint64_t id)
{
	struct leases *leases = pages->daemon->leases;
	struct segment *segment = pool_find_lease(pages->pool, id);
	struct inquiry *inquiry;
	uint64_t allocated;
	dev_t dev;
	ino_t ino;

	TAILQ_FOREACH(inquiry, &leases->inquiries, link) {
		if (inquiry->pages == pages && inquiry->id == id)
			return;
	}
	inquiry = calloc(1, sizeof(*inquiry));
	if (!inquiry)
		return; /* the next close, or Give, asks again */
	*inquiry = (struct inquiry){.pages = pages, .id = id};
	TAILQ_INSERT_TAIL(&leases->inquiries, inquiry, link);
	if (!segment || pool_segment_stat(pages->pool, segment, &dev, &ino, &allocated) < 0 ||
	    scan_start(pages->daemon, dev, ino, holders_found, inquiry, &inquiry->scan) < 0)
		holders_found(inquiry, NULL, -ENOMEM);
}

static int give_timed_out(sd_event_source *source, uint64_t usec, void *arg)
{
	struct give *give = arg;

	(void)source;
	(void)usec;
	give->is_patient = false;
	inquire(give->pages, give->id);
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

/* A lease that was given and goes on. */
static void go_on(struct page_pool *pages, struct segment *segment, const struct give *give)
{
	int r = pool_mark_given(pages->pool, segment);

	if (r < 0)
		log_warning(
			"%s: that the lease %s was given cannot be noted, and after a restart it is to be given again: %s",
			pages->name, segment->name, strerror(-r));
	if (!give->is_patient)
		inquire(pages, segment->id);
}

void leases_give(struct daemon *daemon, struct connection *connection, const struct wire_give *call)
{
	struct page_pool *pages;
	struct segment *segment = leases_find(daemon, call->lease, &pages);
	uid_t uid = connection_uid(connection);
	struct give *give;

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

	if (segment->name && pool_give_lease(pages->pool, segment) < 0)
		log_warning("%s: a lease cannot be given", pages->name);
	if (call->wait_ms.is_set && call->wait_ms.value > 0)
		give->is_patient = sd_event_add_time_relative(daemon->event, &give->timer,
							      CLOCK_MONOTONIC,
							      (uint64_t)call->wait_ms.value * 1000,
							      1000, give_timed_out, give) >= 0;
	/* Answered when it ends. Where somebody holds it: at once with who does, or when time is up. */
	if (!try_end(pages, segment))
		go_on(pages, segment, give);
	arm(daemon->leases);
}
