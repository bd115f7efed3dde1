/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/manager.c - look, decide, do.
 *
 * A look costs some hundred small reads on a large machine, and a busy pool changes thousands of times
 * a second. So a cycle serves all events since the last one, and rests ten times as long as it computed
 * (on a busy host it may take far longer): the loop costs at most a tenth of a CPU, and a quiet daemon
 * none.
 *
 * Guarantees: requests go before stock; a satisfied daemon has no timer; what a stock lacks is told
 * when that changes and not again.
 */
#include "daemon/manager.h"

#include <string.h>

#include "base/io.h"
#include "daemon/clean.h"
#include "daemon/filling.h"
#include "daemon/headroom.h"
#include "daemon/leases.h"
#include "daemon/lending.h"
#include "daemon/log.h"
#include "daemon/pools.h"
#include "daemon/refusal.h"

#define ORDERS_MAX 256
#define FILLINGS_MAX 128 /* besides two a thread: each has a descriptor and a mapping */
#define REST_FACTOR 10
/* While something is short: others may free pages, which nobody tells. */
#define POLL_FIRST_NS 500000000ULL
#define POLL_LAST_NS 30000000000ULL

struct manager {
	struct daemon *daemon;
	sd_event_source *cycle; /* a timer: at once, after a rest, or to look again */
	bool is_kicked;
	uint64_t rest_until_ns;
	uint64_t poll_ns; /* the current interval */
	/* All buckets in one array, grown as needed. */
	struct bucket_view *bucket;
	unsigned int buckets_max;
	/* By stock: what was told. */
	unsigned int n_told;
	enum shortage *told;
	bool host_is_unreadable; /* was told */
};

static int cycle_due(sd_event_source *source, uint64_t usec, void *arg);

int manager_new(struct daemon *daemon, struct manager **ret)
{
	struct manager *manager = calloc(1, sizeof(*manager));
	int r;

	if (!manager)
		return -ENOMEM;
	manager->daemon = daemon;
	r = sd_event_add_time(daemon->event, &manager->cycle, CLOCK_MONOTONIC, 0, 1, cycle_due,
			      manager);
	/* After all that is already there to be handled. */
	if (r >= 0)
		r = sd_event_source_set_priority(manager->cycle, SD_EVENT_PRIORITY_IDLE);
	if (r < 0) {
		manager_free(manager);
		return r;
	}
	manager->is_kicked = true;
	*ret = manager;
	return 0;
}

struct manager *manager_free(struct manager *manager)
{
	if (manager) {
		sd_event_source_disable_unref(manager->cycle);
		free(manager->bucket);
		free(manager->told);
		free(manager);
	}
	return NULL;
}

static void wake_at(struct manager *manager, uint64_t at_ns)
{
	sd_event_source_set_time(manager->cycle, at_ns / 1000);
	sd_event_source_set_enabled(manager->cycle, SD_EVENT_ONESHOT);
}

void manager_kick(struct daemon *daemon)
{
	struct manager *manager = daemon->manager;

	if (!manager || manager->is_kicked)
		return;
	manager->is_kicked = true;
	wake_at(manager, manager->rest_until_ns);
}

void manager_reconfigured(struct daemon *daemon)
{
	daemon->manager->n_told = 0;
	daemon->manager->poll_ns = 0;
	filling_forgive(daemon->fillings);
	manager_kick(daemon);
}

unsigned int manager_fillings_max(const struct daemon *daemon)
{
	return FILLINGS_MAX + 2 * daemon->n_threads;
}

/* Look. */

static void make_net(struct daemon *daemon)
{
	*daemon->net = *daemon->seen;
	filling_deduct(daemon->fillings, daemon->net);
}

int manager_look(struct daemon *daemon)
{
	int r = host_look(daemon->host, daemon->seen);

	if (r >= 0)
		make_net(daemon);
	return r;
}

int manager_look_at(struct daemon *daemon, struct page_size page, int node)
{
	for (unsigned int i = 0; i < daemon->seen->nodes_end; i++) {
		int r;

		if (!daemon->seen->node[i].online || (node != NODE_ANY && node != (int)i))
			continue;
		r = host_look_headroom(daemon->host, (struct page_class){page, i}, daemon->seen);
		/* No such class here: policy says so better. */
		if (r < 0 && r != -ENODEV && r != -ENOENT)
			return r;
	}
	make_net(daemon);
	return 0;
}

static int reserve_buckets(struct manager *manager, unsigned int count)
{
	struct bucket_view *larger;

	if (count <= manager->buckets_max)
		return 0;
	larger = reallocarray(manager->bucket, count * 2, sizeof(*larger));
	if (!larger)
		return -ENOMEM;
	manager->bucket = larger;
	manager->buckets_max = count * 2;
	return 0;
}

int manager_pool_view(struct daemon *daemon, struct pool_view *ret)
{
	struct manager *manager = daemon->manager;
	unsigned int n = 0;

	for (unsigned int i = 0; i < daemon->n_pools; i++) {
		struct pool_view one;
		int r;

		pool_view(daemon->pool[i].pool, &one);
		r = reserve_buckets(manager, n + one.n_buckets);
		if (r < 0)
			return r;
		if (one.n_buckets)
			memcpy(&manager->bucket[n], one.bucket,
			       one.n_buckets * sizeof(*one.bucket));
		n += one.n_buckets;
	}
	*ret = (struct pool_view){.n_buckets = n, .bucket = manager->bucket};
	return 0;
}

/* Decide. */

static void count_stock(const struct pool_view *pools, const struct stock *stock,
			unsigned int *ret_ready, unsigned int *ret_filling)
{
	*ret_ready = 0;
	*ret_filling = 0;
	for (unsigned int i = 0; i < pools->n_buckets; i++) {
		const struct bucket_view *bucket = &pools->bucket[i];

		if (!page_size_equal(bucket->page_class.page, stock->page_class.page) ||
		    bucket->segment_bytes != stock->segment_bytes ||
		    (stock->page_class.node != NODE_ANY &&
		     stock->page_class.node != bucket->page_class.node))
			continue;
		*ret_ready += bucket->n_ready;
		*ret_filling += bucket->n_filling;
	}
}

/* What looks as if it could be filled and yet fails is short as well. */
static enum shortage failing(struct daemon *daemon, const struct pool_view *pools,
			     const struct stock *stock)
{
	unsigned int n_ready, n_filling;

	count_stock(pools, stock, &n_ready, &n_filling);
	if (n_ready + n_filling >= stock->keep)
		return SHORT_NONE;
	for (unsigned int node = 0; node < daemon->net->nodes_end; node++) {
		struct page_class page_class = {stock->page_class.page, node};
		enum shortage why = filling_shortage(daemon->fillings, page_class);

		if (why != SHORT_NONE &&
		    (stock->page_class.node == NODE_ANY || stock->page_class.node == (int)node))
			return why;
	}
	return SHORT_NONE;
}

static int decide(struct daemon *daemon, struct order orders[ORDERS_MAX],
		  unsigned int *ret_n_orders, enum shortage **ret_short_of)
{
	const struct goals *goals = &daemon->config->goals;
	AUTO_FREE enum shortage *short_of = calloc(goals->n_stocks + 1, sizeof(*short_of));
	struct pool_view pools;
	int r;

	if (!short_of)
		return -ENOMEM;
	r = manager_pool_view(daemon, &pools);
	if (r < 0)
		return r;
	*ret_n_orders = policy_stock(daemon->net, &pools, goals, orders, ORDERS_MAX, short_of);
	for (unsigned int i = 0; i < goals->n_stocks; i++) {
		if (short_of[i] == SHORT_NONE)
			short_of[i] = failing(daemon, &pools, &goals->stock[i]);
	}
	*ret_short_of = TAKE_PTR(short_of);
	return 0;
}

int manager_shortages(struct daemon *daemon, enum shortage **ret)
{
	struct order orders[ORDERS_MAX];
	unsigned int n_orders;

	return decide(daemon, orders, &n_orders, ret);
}

/* Do. */

unsigned int manager_release(struct daemon *daemon, const struct order *order)
{
	struct page_pool *pages = daemon_pool(daemon, order->page_class.page);
	unsigned int n_released = 0;

	while (pages && n_released < order->count) {
		struct segment *segment =
			pool_find_ready(pages->pool, order->page_class.node, order->segment_bytes);

		if (!segment)
			break;
		pools_drop(pages, segment);
		n_released++;
	}
	return n_released;
}

/* Returns how many segments of the order remain to be filled later; *retry_ns: not before then. */
static unsigned int fill_order(struct daemon *daemon, const struct order *order, uint64_t *retry_ns)
{
	struct page_pool *pages = daemon_pool(daemon, order->page_class.page);
	uint64_t not_before_ns = filling_retry_ns(daemon->fillings, order->page_class);
	unsigned int n_filled = 0;
	int r = 0;

	if (!pages || lending_wants(daemon->lending, order->page_class))
		return 0;
	if (not_before_ns > monotonic_ns()) {
		if (not_before_ns < *retry_ns)
			*retry_ns = not_before_ns;
		return 0;
	}
	while (n_filled < order->count &&
	       filling_count(daemon->fillings) < manager_fillings_max(daemon)) {
		r = filling_start(pages, order->page_class.node, order->segment_bytes, NULL, NULL);
		if (r < 0)
			break;
		n_filled++;
	}
	if (r < 0)
		filling_failed(daemon->fillings, order->page_class, r);
	return r < 0 ? 0 : order->count - n_filled;
}

static void carry_out(struct daemon *daemon, const struct order *orders, unsigned int n_orders,
		      uint64_t *retry_ns)
{
	filling_plan_none(daemon->fillings);
	for (unsigned int i = 0; i < n_orders; i++) {
		if (orders[i].kind == ORDER_RELEASE) {
			if (manager_release(daemon, &orders[i]))
				manager_kick(daemon);
			continue;
		}
		filling_plan(daemon->fillings, orders[i].page_class,
			     fill_order(daemon, &orders[i], retry_ns) * orders[i].segment_bytes);
	}
	filling_settle(daemon->fillings);
}

/* Tell. */

static void tell_short(struct daemon *daemon, const struct stock *stock, enum shortage why)
{
	char class_text[CLASS_TEXT_MAX], segment[BYTES_TEXT_MAX], have[BYTES_TEXT_MAX];
	char need[BYTES_TEXT_MAX], fix[REFUSAL_TEXT_MAX];
	struct refusal refusal = {
		.reason = shortage_name(why),
		.page = stock->page_class.page,
		.node = stock->page_class.node,
		.asked_bytes = stock->segment_bytes,
	};
	unsigned int n_ready, n_filling;
	struct pool_view pools;
	enum shortage ignored;

	if (manager_pool_view(daemon, &pools) < 0)
		return;
	count_stock(&pools, stock, &n_ready, &n_filling);
	if (n_ready + n_filling < stock->keep)
		refusal.need_bytes = (stock->keep - n_ready - n_filling) * stock->segment_bytes;
	for (unsigned int node = 0; node < daemon->net->nodes_end; node++) {
		struct page_class page_class = {stock->page_class.page, node};

		if (daemon->net->node[node].online &&
		    (stock->page_class.node == NODE_ANY || stock->page_class.node == (int)node))
			refusal.have_bytes += policy_headroom_bytes(
				daemon->net, &daemon->config->goals, page_class, &ignored);
	}
	refusal_fix(daemon, &refusal, fix);
	log_warning(
		"stock %s (%u x %s of %s) is short: %u ready, %u being filled; have %s, need %s more: %s%s%s",
		stock->name, stock->keep, format_bytes(stock->segment_bytes, segment),
		page_class_format(stock->page_class, class_text), n_ready, n_filling,
		format_bytes(refusal.have_bytes, have), format_bytes(refusal.need_bytes, need),
		refusal_words(refusal.reason), *fix ? "; fix: " : "", fix);
}

static void tell(struct manager *manager, const enum shortage *short_of)
{
	const struct goals *goals = &manager->daemon->config->goals;

	if (manager->n_told != goals->n_stocks) {
		enum shortage *told = calloc(goals->n_stocks + 1, sizeof(*told));

		if (!told)
			return;
		free(manager->told);
		manager->told = told;
		manager->n_told = goals->n_stocks;
	}
	for (unsigned int i = 0; i < goals->n_stocks; i++) {
		if (short_of[i] == manager->told[i])
			continue;
		if (short_of[i] == SHORT_NONE)
			log_info("stock %s: what it lacked is there", goals->stock[i].name);
		else
			tell_short(manager->daemon, &goals->stock[i], short_of[i]);
		manager->told[i] = short_of[i];
	}
}

static bool is_any_short(const struct daemon *daemon, const enum shortage *short_of)
{
	for (unsigned int i = 0; i < daemon->config->goals.n_stocks; i++) {
		if (short_of[i] != SHORT_NONE)
			return true;
	}
	return false;
}

/* The cycle. */

static int run_cycle(struct manager *manager, uint64_t *retry_ns)
{
	struct daemon *daemon = manager->daemon;
	AUTO_FREE enum shortage *short_of = NULL;
	struct order orders[ORDERS_MAX];
	unsigned int n_orders;
	bool is_lost;
	int r;

	is_lost = pools_check_mounts(daemon);
	r = manager_look(daemon);
	if (r < 0)
		return r;
	clean_look(daemon->clean);
	lending_retry(daemon);
	make_net(daemon); /* what requests began to fill is spoken for */
	r = decide(daemon, orders, &n_orders, &short_of);
	if (r < 0)
		return r;
	carry_out(daemon, orders, n_orders, retry_ns);
	tell(manager, short_of);
	if (is_lost || is_any_short(daemon, short_of) || lending_is_waiting(daemon->lending)) {
		manager->poll_ns = manager->poll_ns ? manager->poll_ns * 2 : POLL_FIRST_NS;
		if (manager->poll_ns > POLL_LAST_NS)
			manager->poll_ns = POLL_LAST_NS;
		if (monotonic_ns() + manager->poll_ns < *retry_ns)
			*retry_ns = monotonic_ns() + manager->poll_ns;
	} else {
		manager->poll_ns = 0;
	}
	return 0;
}

static int cycle_due(sd_event_source *source, uint64_t usec, void *arg)
{
	struct manager *manager = arg;
	uint64_t began_cpu_ns = thread_cpu_ns(), retry_ns = UINT64_MAX;
	bool was_kicked = manager->is_kicked;
	int r;

	(void)source;
	(void)usec;
	/* Something happened, other than time passing: what is short may soon be there. */
	if (was_kicked)
		manager->poll_ns = 0;
	manager->is_kicked = false;
	r = run_cycle(manager, &retry_ns);
	if (r < 0 && !manager->host_is_unreadable)
		log_error("the host cannot be looked at: %s%s%s", strerror(-r),
			  host_missing(manager->daemon->host) ? ": " : "",
			  host_missing(manager->daemon->host) ?
				  host_missing(manager->daemon->host) :
				  "");
	manager->host_is_unreadable = r < 0;
	if (r < 0)
		retry_ns = monotonic_ns() + POLL_LAST_NS;
	manager->rest_until_ns = monotonic_ns() + (thread_cpu_ns() - began_cpu_ns) * REST_FACTOR;
	if (manager->is_kicked)
		wake_at(manager, manager->rest_until_ns);
	else if (retry_ns != UINT64_MAX)
		wake_at(manager,
			retry_ns > manager->rest_until_ns ? retry_ns : manager->rest_until_ns);
	else
		sd_event_source_set_enabled(manager->cycle, SD_EVENT_OFF);
	return 0;
}
