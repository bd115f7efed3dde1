/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * policy/stock.c - what to fill and what to release so that the stocks stand as configured.
 *
 * Stocks of one page size and segment size share the segments that are there. A stock of one node
 * claims those of its node first; stocks of any node share the rest, wherever they stand. What nobody
 * claims is released. What is missing is filled as far as there is room, in the order of the
 * configuration, any-node stocks where there are fewest.
 *
 * Guarantees: what is released is never ordered to be filled in the same breath, and orders that are
 * carried out are not given again: repeated, this comes to rest.
 */
#include "policy/policy.h"

#include "policy/room.h"

struct order_list {
	struct order *order;
	unsigned int n, max;
};

static void put_order(struct order_list *list, enum order_kind kind, struct page_class page_class,
		      uint64_t segment_bytes, uint64_t count)
{
	if (!count || list->n == list->max)
		return;
	list->order[list->n++] = (struct order){
		.kind = kind,
		.page_class = page_class,
		.segment_bytes = segment_bytes,
		.count = count > UINT32_MAX ? UINT32_MAX : (unsigned int)count,
	};
}

/* One page size and segment size: what is there, and what is wanted, by node. */
struct tally {
	struct page_size page;
	uint64_t segment_bytes;
	uint64_t n_ready[NODES_MAX];
	uint64_t n_there[NODES_MAX]; /* ready or on the way */
	uint64_t n_claimed[NODES_MAX]; /* by stocks of that node */
	uint64_t n_any; /* wanted by stocks of any node */
};

static bool is_in(const struct stock *stock, const struct tally *tally)
{
	return page_size_equal(stock->page_class.page, tally->page) &&
	       stock->segment_bytes == tally->segment_bytes;
}

static void tally_init(struct tally *tally, struct page_size page, uint64_t segment_bytes,
		       const struct pool_view *pool, const struct goals *goals)
{
	*tally = (struct tally){.page = page, .segment_bytes = segment_bytes};
	for (unsigned int i = 0; i < pool->n_buckets; i++) {
		const struct bucket_view *bucket = &pool->bucket[i];
		int node = bucket->page_class.node;

		if (node < 0 || node >= NODES_MAX || bucket->segment_bytes != segment_bytes ||
		    !page_size_equal(bucket->page_class.page, page))
			continue;
		tally->n_ready[node] += bucket->n_ready;
		tally->n_there[node] += (uint64_t)bucket->n_ready + bucket->n_filling;
	}
	for (unsigned int i = 0; i < goals->n_stocks; i++) {
		const struct stock *stock = &goals->stock[i];

		if (!is_in(stock, tally))
			continue;
		if (stock->page_class.node == NODE_ANY)
			tally->n_any += stock->keep;
		else if (stock->page_class.node >= 0 && stock->page_class.node < NODES_MAX)
			tally->n_claimed[stock->page_class.node] += stock->keep;
	}
}

/* Of the segments on a node, those that stocks of that node do not claim. */
static uint64_t unclaimed(const struct tally *tally, unsigned int node)
{
	if (tally->n_there[node] <= tally->n_claimed[node])
		return 0;
	return tally->n_there[node] - tally->n_claimed[node];
}

/* Release */

/* The first bucket of its size with something to release speaks for all of them. */
static bool speaks(const struct pool_view *pool, unsigned int i)
{
	if (!pool->bucket[i].n_ready)
		return false;
	for (unsigned int j = 0; j < i; j++) {
		if (pool->bucket[j].n_ready &&
		    pool->bucket[j].segment_bytes == pool->bucket[i].segment_bytes &&
		    page_size_equal(pool->bucket[j].page_class.page,
				    pool->bucket[i].page_class.page))
			return false;
	}
	return true;
}

/* What is beyond `keep` goes, first where most stand unclaimed; only ready segments can go. */
static void order_release(const struct tally *tally, struct order_list *list)
{
	uint64_t n_release[NODES_MAX] = {}, n_total = 0, n_beyond;

	for (unsigned int n = 0; n < NODES_MAX; n++)
		n_total += unclaimed(tally, n);
	n_beyond = n_total > tally->n_any ? n_total - tally->n_any : 0;
	while (n_beyond) {
		int most = -1;

		for (unsigned int n = 0; n < NODES_MAX; n++) {
			if (n_release[n] < tally->n_ready[n] &&
			    n_release[n] < unclaimed(tally, n) &&
			    (most < 0 ||
			     unclaimed(tally, n) - n_release[n] >
				     unclaimed(tally, (unsigned int)most) - n_release[most]))
				most = (int)n;
		}
		if (most < 0)
			break;
		n_release[most]++;
		n_beyond--;
	}
	for (unsigned int n = 0; n < NODES_MAX; n++)
		put_order(list, ORDER_RELEASE, (struct page_class){tally->page, (int)n},
			  tally->segment_bytes, n_release[n]);
}

/* Fill */

static uint64_t segments_in(int64_t bytes, uint64_t segment_bytes)
{
	return bytes > 0 ? (uint64_t)bytes / segment_bytes : 0;
}

/* How many segments must be added for no node to have fewer than level, as far as there is room. */
static uint64_t to_reach(const uint64_t n_there[], const uint64_t n_room[], uint64_t level,
			 uint64_t n_add[])
{
	uint64_t n_total = 0;

	for (unsigned int n = 0; n < NODES_MAX; n++) {
		n_add[n] = level > n_there[n] ? level - n_there[n] : 0;
		if (n_add[n] > n_room[n])
			n_add[n] = n_room[n];
		n_total += n_add[n];
	}
	return n_total;
}

/* Spreads n_missing segments so that the nodes come out as even as there is room for. */
static void spread(const uint64_t n_there[], const uint64_t n_room[], uint64_t n_missing,
		   uint64_t n_add[])
{
	uint64_t low = 0, high = n_missing, n_left;

	for (unsigned int n = 0; n < NODES_MAX; n++) {
		if (n_there[n] + n_missing > high)
			high = n_there[n] + n_missing;
	}
	/* The highest level that n_missing segments reach; what is left over goes one to a node. */
	while (low < high) {
		uint64_t level = low + (high - low + 1) / 2;

		if (to_reach(n_there, n_room, level, n_add) <= n_missing)
			low = level;
		else
			high = level - 1;
	}
	n_left = n_missing - to_reach(n_there, n_room, low, n_add);
	for (unsigned int n = 0; n < NODES_MAX && n_left; n++) {
		if (n_there[n] + n_add[n] == low && n_add[n] < n_room[n]) {
			n_add[n]++;
			n_left--;
		}
	}
}

/* Fills n_missing segments on one node, or spread over all; returns how many there is no room for. */
static uint64_t order_fill(const struct tally *tally, const struct host_view *host, int node,
			   uint64_t n_missing, struct room *room, struct order_list *list)
{
	uint64_t n_room[NODES_MAX] = {}, n_there[NODES_MAX], n_add[NODES_MAX];
	uint64_t n_host = segments_in(room_host_bytes(room, tally->page), tally->segment_bytes);
	uint64_t n_fill = n_missing < n_host ? n_missing : n_host;
	uint64_t n_filled = 0;

	for (unsigned int n = 0; n < host->nodes_end; n++) {
		struct page_class page_class = {tally->page, (int)n};

		if (host->node[n].online && (node == NODE_ANY || node == (int)n))
			n_room[n] = segments_in(room_bytes(room, page_class), tally->segment_bytes);
	}
	for (unsigned int n = 0; n < NODES_MAX; n++)
		n_there[n] = unclaimed(tally, n);
	spread(n_there, n_room, n_fill, n_add);
	for (unsigned int n = 0; n < NODES_MAX; n++) {
		struct page_class page_class = {tally->page, (int)n};

		if (!n_add[n])
			continue;
		put_order(list, ORDER_FILL, page_class, tally->segment_bytes, n_add[n]);
		room_take(room, page_class, (int64_t)(n_add[n] * tally->segment_bytes));
		n_filled += n_add[n];
	}
	return n_missing - n_filled;
}

/* What stocks before this one leave of the segments that it may claim, less what it wants: how many
 * are missing for it. */
static uint64_t missing_for(const struct tally *tally, const struct goals *goals, unsigned int i)
{
	const struct stock *stock = &goals->stock[i];
	int node = stock->page_class.node;
	uint64_t n_there = 0, n_before = 0;

	if (node == NODE_ANY) {
		for (unsigned int n = 0; n < NODES_MAX; n++)
			n_there += unclaimed(tally, n);
	} else {
		n_there = tally->n_there[node];
	}
	for (unsigned int j = 0; j < i; j++) {
		if (is_in(&goals->stock[j], tally) && goals->stock[j].page_class.node == node)
			n_before += goals->stock[j].keep;
	}
	n_there = n_there > n_before ? n_there - n_before : 0;
	return stock->keep > n_there ? stock->keep - n_there : 0;
}

/* The node whose room says best why there is none for one more. */
static enum shortage shortage_of(const struct room *room, const struct host_view *host,
				 struct page_class page_class, uint64_t segment_bytes)
{
	int node = page_class.node;

	for (unsigned int n = 0; page_class.node == NODE_ANY && n < host->nodes_end; n++) {
		struct page_class a = {page_class.page, node}, b = {page_class.page, (int)n};

		if (host->node[n].online && (node < 0 || room_bytes(room, b) > room_bytes(room, a)))
			node = (int)n;
	}
	return room_shortage(room, (struct page_class){page_class.page, node},
			     room_amount(segment_bytes));
}

unsigned int policy_stock(const struct host_view *host, const struct pool_view *pool,
			  const struct goals *goals, struct order *orders, unsigned int orders_max,
			  enum shortage *short_of)
{
	struct order_list list = {.order = orders, .max = orders_max};
	struct tally tally;
	struct room room;

	room_init(&room, host, goals);
	for (unsigned int i = 0; i < pool->n_buckets; i++) {
		if (!speaks(pool, i))
			continue;
		tally_init(&tally, pool->bucket[i].page_class.page, pool->bucket[i].segment_bytes,
			   pool, goals);
		order_release(&tally, &list);
	}
	for (unsigned int i = 0; i < goals->n_stocks; i++) {
		const struct stock *stock = &goals->stock[i];
		uint64_t n_missing;

		short_of[i] = page_class_check(host, stock->page_class, stock->segment_bytes);
		if (short_of[i] != SHORT_NONE)
			continue;
		tally_init(&tally, stock->page_class.page, stock->segment_bytes, pool, goals);
		n_missing = missing_for(&tally, goals, i);
		if (n_missing)
			n_missing = order_fill(&tally, host, stock->page_class.node, n_missing,
					       &room, &list);
		if (n_missing)
			short_of[i] =
				shortage_of(&room, host, stock->page_class, stock->segment_bytes);
	}
	return list.n;
}
