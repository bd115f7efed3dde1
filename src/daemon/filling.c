/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/filling.c - segments being filled: for stock, or for a request that waits.
 *
 * Guarantees: a segment in filling/ has a filling here (or a cut in lending) that ends in exactly one
 * of ready/, lent/ or nothing; a failing class is not tried again at once, and is told once.
 */
#include "daemon/filling.h"

#include <pthread.h>
#include <string.h>

#include "base/io.h"
#include "daemon/headroom.h"
#include "daemon/leases.h"
#include "daemon/lending.h"
#include "daemon/log.h"
#include "daemon/manager.h"
#include "daemon/pools.h"

#define RETRY_FIRST_NS 1000000000ULL
#define RETRY_LAST_NS 60000000000ULL
/* Rounds that end sooner after the last line are summed up in the next one: a busy pool refills
 * hundreds of times a second. */
#define LINE_INTERVAL_NS 10000000000ULL

TAILQ_HEAD(filling_list, filling);

/* A class that was ever filled. */
struct class_round {
	struct class_round *next;
	struct daemon *daemon;
	struct page_class page_class;

	/* The round that runs: while anything is under way or planned. */
	bool is_running;
	unsigned int n_fillings;
	uint64_t began_ns;
	uint64_t ended_bytes; /* filled by those that have ended */
	uint64_t planned_bytes;

	/* Not yet told in a closing line. */
	unsigned int n_segments;
	uint64_t bytes, busy_ns;
	uint64_t line_ns; /* of the last one */
	pthread_mutex_t lock;
	struct id_set threads; /* that did a unit; under lock */

	int error; /* of the last failure; 0 since a success */
	uint64_t retry_ns, back_off_ns;
};

struct filling_set {
	struct daemon *daemon;
	unsigned int count;
	struct filling_list list;
	struct class_round *rounds;
	sd_event_source *lines; /* when a closing line that was put off is due */
};

static int lines_due(sd_event_source *source, uint64_t usec, void *arg);

int filling_set_new(struct daemon *daemon, struct filling_set **ret)
{
	struct filling_set *set = calloc(1, sizeof(*set));
	int r;

	if (!set)
		return -ENOMEM;
	set->daemon = daemon;
	TAILQ_INIT(&set->list);
	r = sd_event_add_time(daemon->event, &set->lines, CLOCK_MONOTONIC, UINT64_MAX, 0, lines_due,
			      set);
	if (r >= 0)
		r = sd_event_source_set_enabled(set->lines, SD_EVENT_OFF);
	if (r < 0) {
		filling_set_free(set);
		return r;
	}
	*ret = set;
	return 0;
}

struct filling_set *filling_set_free(struct filling_set *set)
{
	struct class_round *round;
	struct filling *filling;

	if (!set)
		return NULL;
	while ((filling = TAILQ_FIRST(&set->list))) {
		TAILQ_REMOVE(&set->list, filling, link);
		free(filling);
	}
	while ((round = set->rounds)) {
		set->rounds = round->next;
		pthread_mutex_destroy(&round->lock);
		free(round);
	}
	sd_event_source_disable_unref(set->lines);
	free(set);
	return NULL;
}

static struct class_round *find_round(struct filling_set *set, struct page_class page_class)
{
	struct class_round *round = set->rounds;

	while (round && !page_class_equal(round->page_class, page_class))
		round = round->next;
	return round;
}

static struct class_round *get_round(struct filling_set *set, struct page_class page_class)
{
	struct class_round *round = find_round(set, page_class);

	if (!round)
		round = calloc(1, sizeof(*round));
	if (round && !round->daemon) {
		round->daemon = set->daemon;
		round->page_class = page_class;
		pthread_mutex_init(&round->lock, NULL);
		round->next = set->rounds;
		set->rounds = round;
	}
	return round;
}

/* In team threads. */

static unsigned int thread_number(void)
{
	static unsigned int n_threads;
	static __thread unsigned int number;

	if (!number)
		number = __atomic_add_fetch(&n_threads, 1, __ATOMIC_RELAXED);
	return number % ID_SET_MAX;
}

static int may_take(void *arg, uint64_t unit_bytes)
{
	const struct filling *filling = arg;

	/* What is lent already has its pages reserved: nobody else could have them. */
	return headroom_may_take(filling->round->daemon->headroom, filling->round->page_class,
				 unit_bytes, filling->is_lent);
}

static void took(void *arg, uint64_t unit_bytes)
{
	const struct filling *filling = arg;
	struct class_round *round = filling->round;

	headroom_took(round->daemon->headroom, round->page_class, unit_bytes);
	pthread_mutex_lock(&round->lock);
	id_set_add(&round->threads, thread_number());
	pthread_mutex_unlock(&round->lock);
}

/* Rounds. */

static void tell_round(struct class_round *round)
{
	uint64_t page_bytes = round->page_class.page.bytes;
	char class_text[CLASS_TEXT_MAX], bytes[BYTES_TEXT_MAX];
	double seconds = (double)round->busy_ns / 1e9;

	pthread_mutex_lock(&round->lock);
	log_info("filled %s: %u segments, %lu pages, %s in %.3f s, %.2f GB/s, %u threads",
		 page_class_format(round->page_class, class_text), round->n_segments,
		 (unsigned long)(round->bytes / page_bytes),
		 format_bytes_short(round->bytes, bytes), seconds,
		 seconds > 0 ? (double)round->bytes / 1e9 / seconds : 0.0,
		 id_set_count(&round->threads));
	memset(&round->threads, 0, sizeof(round->threads));
	pthread_mutex_unlock(&round->lock);
	round->line_ns = monotonic_ns();
	round->n_segments = 0;
	round->bytes = 0;
	round->busy_ns = 0;
}

static void round_begin(struct class_round *round)
{
	round->n_fillings++;
	if (round->is_running)
		return;
	round->is_running = true;
	round->began_ns = monotonic_ns();
	round->ended_bytes = 0;
}

static void round_end(struct class_round *round, uint64_t done_bytes, bool is_whole)
{
	round->n_fillings--;
	round->ended_bytes += done_bytes;
	round->bytes += done_bytes;
	round->n_segments += is_whole;
	round->daemon->counters.filled_bytes += done_bytes;
}

static int lines_due(sd_event_source *source, uint64_t usec, void *arg)
{
	struct filling_set *set = arg;

	(void)source;
	(void)usec;
	filling_settle(set);
	return 0;
}

void filling_settle(struct filling_set *set)
{
	uint64_t now_ns = monotonic_ns(), due_ns = UINT64_MAX;

	for (struct class_round *round = set->rounds; round; round = round->next) {
		if (round->is_running && !round->n_fillings && !round->planned_bytes) {
			round->is_running = false;
			round->busy_ns += now_ns - round->began_ns;
		}
		if (round->is_running || !round->bytes)
			continue;
		if (!round->line_ns || now_ns - round->line_ns >= LINE_INTERVAL_NS)
			tell_round(round);
		else if (round->line_ns + LINE_INTERVAL_NS < due_ns)
			due_ns = round->line_ns + LINE_INTERVAL_NS;
	}
	if (due_ns == UINT64_MAX) {
		sd_event_source_set_enabled(set->lines, SD_EVENT_OFF);
		return;
	}
	sd_event_source_set_time(set->lines, due_ns / 1000 + 1);
	sd_event_source_set_enabled(set->lines, SD_EVENT_ONESHOT);
}

static void note_result(struct class_round *round, int result, int wrong_node, const char *path)
{
	char class_text[CLASS_TEXT_MAX];

	if (result == -ECANCELED)
		return;
	if (result == 0) {
		round->error = 0;
		round->back_off_ns = 0;
		round->retry_ns = 0;
		return;
	}
	/* The same failure of many segments at once is one failure. */
	if (round->error == result && monotonic_ns() < round->retry_ns)
		return;
	round->back_off_ns = round->back_off_ns ? round->back_off_ns * 2 : RETRY_FIRST_NS;
	if (round->back_off_ns > RETRY_LAST_NS)
		round->back_off_ns = RETRY_LAST_NS;
	round->retry_ns = monotonic_ns() + round->back_off_ns;
	if (round->error == result)
		return;
	round->error = result;
	page_class_format(round->page_class, class_text);
	if (result == -EXDEV)
		log_warning("filling %s fails: wanted pages of node %d, one came from node %d (%s)",
			    class_text, round->page_class.node, wrong_node, path);
	else if (result == -ENOTSUP)
		log_warning(
			"filling %s fails: the pages that came are not huge: memory is fragmented, or /sys/kernel/mm/transparent_hugepage/shmem_enabled is deny",
			class_text);
	else if (result == -ENOMEM)
		log_info("filling %s stopped: what was free when it began has gone", class_text);
	else
		log_warning("filling %s fails: %s (%s)", class_text, strerror(-result), path);
}

/* One filling. */

static void filling_done(void *arg, struct fill_job *job, int result)
{
	struct filling *filling = arg;
	struct page_pool *pages = filling->pages;
	struct daemon *daemon = pages->daemon;
	struct segment *segment = filling->segment;
	AUTO_FREE char *path = pools_segment_path(pages, segment);
	struct take *take = filling->take;
	struct fill_progress progress;
	bool is_lent = filling->is_lent;

	fill_job_progress(job, &progress);
	TAILQ_REMOVE(&daemon->fillings->list, filling, link);
	daemon->fillings->count--;
	pages->n_busy--;
	note_result(filling->round, result, progress.wrong_node, path ? path : "");
	round_end(filling->round, progress.done_bytes, result == 0);
	segment->owner_data = NULL;
	free(filling);

	if (result == 0)
		result = pool_set_ready(pages->pool, segment);
	if (result < 0 && !is_lent) {
		pools_drop(pages, segment);
		segment = NULL;
	}
	if (is_lent)
		leases_check(pages, segment);
	else if (take)
		lending_filled(take, pages, segment, result);
	manager_kick(daemon);
}

static int submit(struct filling *filling, int fd, enum fill_priority priority)
{
	struct daemon *daemon = filling->pages->daemon;
	struct fill_request request = {
		.fd = fd,
		.length_bytes = filling->total_bytes,
		.page_class = filling->round->page_class,
		.node_cpus = daemon->seen->node[filling->round->page_class.node].cpus,
		.priority = priority,
		.bind = true,
		.may_take = may_take,
		.took = took,
		.done = filling_done,
		.arg = filling,
	};
	unsigned int n_nodes = 0;

	for (unsigned int node = 0; node < daemon->seen->nodes_end; node++)
		n_nodes += daemon->seen->node[node].online;
	request.bind = n_nodes > 1;
	return fill_team_submit(daemon->team, &request, &filling->job);
}

static void deduct(uint64_t *from, uint64_t amount)
{
	if (*from != UNLIMITED)
		*from -= amount < *from ? amount : *from;
}

static void deduct_hugetlb(struct host_view *view, struct page_class page_class, uint64_t bytes)
{
	for (unsigned int i = 0; i < view->n_hugetlb; i++) {
		struct hugetlb_view *hugetlb = &view->hugetlb[i];

		if (hugetlb->page_bytes != page_class.page.bytes)
			continue;
		deduct(&hugetlb->free_pages, bytes / hugetlb->page_bytes);
		deduct(&hugetlb->cgroup_headroom_bytes, bytes);
		deduct(&hugetlb->node[page_class.node].free_pages, bytes / hugetlb->page_bytes);
	}
}

/* Takes off a view what one filling has yet to take from the host. */
static void deduct_one(const struct filling *filling, struct host_view *view)
{
	struct page_class page_class = filling->round->page_class;
	struct fill_progress progress;
	uint64_t bytes;

	fill_job_progress(filling->job, &progress);
	bytes = progress.total_bytes - progress.done_bytes;
	if (page_class.page.kind == PAGE_HUGETLB) {
		/* What is lent already is reserved, and so taken off by the kernel. */
		if (!filling->is_lent)
			deduct_hugetlb(view, page_class, bytes);
		return;
	}
	deduct(&view->available_bytes, bytes);
	deduct(&view->cgroup_headroom_bytes, bytes);
	deduct(&view->node[page_class.node].available_bytes, bytes);
	deduct(&view->node[page_class.node].free_bytes, bytes);
}

void filling_deduct(struct filling_set *set, struct host_view *view)
{
	const struct filling *filling;

	TAILQ_FOREACH(filling, &set->list, link)
		deduct_one(filling, view);
}

int filling_start(struct page_pool *pages, int node, uint64_t segment_bytes, struct take *take,
		  struct filling **ret)
{
	struct daemon *daemon = pages->daemon;
	struct filling *filling;
	AUTO_FD fd = -1;
	int r;

	filling = calloc(1, sizeof(*filling));
	if (!filling)
		return -ENOMEM;
	filling->pages = pages;
	filling->take = take;
	filling->is_for_stock = !take;
	filling->total_bytes = segment_bytes;
	filling->round = get_round(daemon->fillings, (struct page_class){pages->page, node});
	r = filling->round ? pool_create(pages->pool, node, segment_bytes, &filling->segment, &fd) :
			     -ENOMEM;
	if (r < 0) {
		free(filling);
		return r;
	}
	r = submit(filling, fd, take ? FILL_DEMAND : FILL_STOCK);
	if (r < 0) {
		pools_drop(pages, filling->segment);
		free(filling);
		return r;
	}
	filling->segment->owner_data = filling;
	pool_set_claimed(pages->pool, filling->segment, take != NULL);
	TAILQ_INSERT_TAIL(&daemon->fillings->list, filling, link);
	daemon->fillings->count++;
	pages->n_busy++;
	round_begin(filling->round);
	deduct_one(filling, daemon->net);
	if (ret)
		*ret = filling;
	return 0;
}

void filling_adopt(struct filling *filling, struct take *take)
{
	filling->take = take;
	pool_set_claimed(filling->pages->pool, filling->segment, true);
	fill_job_raise(filling->job, FILL_DEMAND);
}

void filling_abandon(struct filling *filling)
{
	filling->take = NULL;
	if (filling->is_for_stock)
		pool_set_claimed(filling->pages->pool, filling->segment, false);
	else
		fill_job_cancel(filling->job);
}

void filling_cancel(struct filling *filling)
{
	fill_job_cancel(filling->job);
}

static bool is_in(const struct filling *filling, const struct page_pool *pages, int node)
{
	return filling->pages == pages && !filling->is_lent &&
	       (node == NODE_ANY || filling->round->page_class.node == node);
}

struct filling *filling_find(struct filling_set *set, const struct page_pool *pages, int node,
			     uint64_t segment_bytes)
{
	struct filling *filling, *best = NULL;
	uint64_t best_bytes = 0;

	TAILQ_FOREACH(filling, &set->list, link) {
		struct fill_progress progress;

		if (!is_in(filling, pages, node) || filling->take || !filling->is_for_stock ||
		    filling->segment->bytes != segment_bytes)
			continue;
		fill_job_progress(filling->job, &progress);
		if (!best || progress.done_bytes > best_bytes) {
			best = filling;
			best_bytes = progress.done_bytes;
		}
	}
	return best;
}

bool filling_raise(struct filling_set *set, const struct page_pool *pages, int node)
{
	struct filling *filling;
	bool found = false;

	TAILQ_FOREACH(filling, &set->list, link) {
		if (!is_in(filling, pages, node))
			continue;
		fill_job_raise(filling->job, FILL_DEMAND);
		found = true;
	}
	return found;
}

void filling_cancel_all(struct filling_set *set, const struct page_pool *pages)
{
	struct filling *filling;

	TAILQ_FOREACH(filling, &set->list, link) {
		if (filling->pages == pages)
			fill_job_cancel(filling->job);
	}
}

unsigned int filling_count(const struct filling_set *set)
{
	return set->count;
}

uint64_t filling_retry_ns(struct filling_set *set, struct page_class page_class)
{
	const struct class_round *round = find_round(set, page_class);

	return round ? round->retry_ns : 0;
}

enum shortage filling_shortage(struct filling_set *set, struct page_class page_class)
{
	const struct class_round *round = find_round(set, page_class);

	if (!round || !round->error)
		return SHORT_NONE;
	return round->error == -ENOTSUP ? SHORT_THP : SHORT_PAGES;
}

void filling_failed(struct filling_set *set, struct page_class page_class, int error)
{
	struct class_round *round = get_round(set, page_class);

	if (round)
		note_result(round, error, -1, "making a segment");
}

void filling_forgive(struct filling_set *set)
{
	for (struct class_round *round = set->rounds; round; round = round->next) {
		round->error = 0;
		round->retry_ns = 0;
		round->back_off_ns = 0;
	}
}

bool filling_next_progress(struct filling_set *set, unsigned int *cursor,
			   struct filling_progress *ret)
{
	struct class_round *round = set->rounds;
	struct filling *filling;

	for (unsigned int i = 0; round && i < *cursor; i++)
		round = round->next;
	for (; round && !round->is_running; round = round->next)
		++*cursor;
	if (!round)
		return false;
	++*cursor;
	*ret = (struct filling_progress){
		.page_class = round->page_class,
		.done_bytes = round->ended_bytes,
		.total_bytes = round->ended_bytes + round->planned_bytes,
		.elapsed_ns = monotonic_ns() - round->began_ns,
	};
	TAILQ_FOREACH(filling, &set->list, link) {
		struct fill_progress progress;

		if (filling->round != round)
			continue;
		fill_job_progress(filling->job, &progress);
		ret->done_bytes += progress.done_bytes;
		ret->total_bytes += progress.total_bytes;
	}
	return true;
}

void filling_plan_none(struct filling_set *set)
{
	for (struct class_round *round = set->rounds; round; round = round->next)
		round->planned_bytes = 0;
}

void filling_plan(struct filling_set *set, struct page_class page_class, uint64_t planned_bytes)
{
	struct class_round *round = planned_bytes ? get_round(set, page_class) : NULL;

	if (round)
		round->planned_bytes += planned_bytes;
}
