/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * policy/reserve.c - from how many pages to how many on each node, by how many threads.
 *
 * Guarantees: pages are conserved to the last one: what the nodes get is what was asked for, or the
 * plan says that it is short; the floor holds on the host and on each node.
 */
#include "policy/reserve.h"

#include <string.h>

#include "policy/policy.h"

#define GIGANTIC_BYTES (1ULL << 30)
#define THREADS_MIN 2
/* Below it a team takes longer to come and go than it saves. */
#define PARALLEL_BYTES_MIN (256ULL << 20)
#define UNITS_A_THREAD 8 /* so that threads end at about the same time */
#define UNIT_BYTES_USUAL (256ULL << 20)
#define UNITS_MAX 2048 /* each is a descriptor */

const char *reserve_method_name(enum reserve_method method)
{
	return method == RESERVE_PARALLEL ? "parallel" : method == RESERVE_PLAIN ? "plain" : "auto";
}

const char *reserve_reason_name(enum reserve_reason reason)
{
	switch (reason) {
	case RESERVE_ASKED:
		return "asked for";
	case RESERVE_GIGANTIC:
		return "pages of this size cannot be allocated as surplus";
	case RESERVE_OPTIMIZED:
		return "this kernel saves on metadata, which makes surplus pages slow";
	case RESERVE_NOT_ZEROED:
		return "this kernel zeroes nothing when it allocates";
	case RESERVE_FEW_THREADS:
		return "one thread alone gains nothing";
	case RESERVE_FEW_PAGES:
		return "too few pages for threads to gain anything";
	case RESERVE_NO_GROWTH:
		return "nothing to allocate";
	case RESERVE_ZEROED:
		return "this kernel zeroes what it allocates";
	}
	return "";
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t less_u64(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t grown_pages(const struct reserve_node *node)
{
	return less_u64(node->to_pages, node->from_pages);
}

/* Deals an amount out evenly, to nobody more than the cap; returns what nobody could take. */
static uint64_t deal_evenly(uint64_t amount, const uint64_t *cap, uint64_t *dealt, unsigned int n)
{
	memset(dealt, 0, n * sizeof(*dealt));
	while (amount) {
		uint64_t n_open = 0, each;

		for (unsigned int i = 0; i < n; i++)
			n_open += dealt[i] < cap[i];
		if (!n_open)
			break;
		each = amount / n_open ? amount / n_open : 1;
		for (unsigned int i = 0; i < n && amount; i++) {
			uint64_t more = min_u64(min_u64(each, cap[i] - dealt[i]), amount);

			dealt[i] += more;
			amount -= more;
		}
	}
	return amount;
}

/* How many pages a node can spare: what is available above its share of the floor. */
static uint64_t room_pages(const struct host_view *host, int node, uint64_t floor_bytes,
			   uint64_t page_bytes)
{
	const struct node_view *view = &host->node[node];
	uint64_t floor_share = share_bytes(floor_bytes, view->total_bytes, host->total_bytes);

	return less_u64(view->available_bytes, floor_share) / page_bytes;
}

static void add_node(const struct hugetlb_view *size, int node, struct reserve_plan *plan)
{
	const struct hugetlb_node_view *view = &size->node[node];
	uint64_t pages = less_u64(view->total_pages, view->surplus_pages);

	plan->node[plan->n_nodes++] = (struct reserve_node){
		.node = node, .from_pages = pages, .wanted_pages = pages, .to_pages = pages};
}

/* No shares: the growth, or what is given back, is dealt out over all nodes. */
static void want_spread(const struct host_view *host, const struct hugetlb_view *size,
			const struct reserve_goal *goal, uint64_t floor_bytes,
			struct reserve_plan *plan)
{
	uint64_t cap[NODES_MAX], dealt[NODES_MAX], from_pages = 0;
	uint64_t target_pages = goal->bytes / goal->page_bytes, left;
	bool grows;

	for (unsigned int node = 0; node < host->nodes_end; node++) {
		if (host_view_has_node(host, (int)node))
			add_node(size, (int)node, plan);
	}
	for (unsigned int i = 0; i < plan->n_nodes; i++)
		from_pages += plan->node[i].from_pages;
	grows = target_pages > from_pages;
	for (unsigned int i = 0; i < plan->n_nodes; i++)
		cap[i] = grows ? room_pages(host, plan->node[i].node, floor_bytes,
					    goal->page_bytes) :
				 min_u64(plan->node[i].from_pages,
					 size->node[plan->node[i].node].free_pages);
	left = deal_evenly(grows ? target_pages - from_pages : from_pages - target_pages, cap,
			   dealt, plan->n_nodes);
	for (unsigned int i = 0; i < plan->n_nodes; i++) {
		/* What no node has room for is missed everywhere alike. */
		uint64_t missed = left / plan->n_nodes + (i < left % plan->n_nodes);
		struct reserve_node *node = &plan->node[i];

		if (grows)
			node->wanted_pages += dealt[i] + missed;
		else
			node->wanted_pages -= min_u64(node->wanted_pages, dealt[i] + missed);
	}
}

/* A node with memory that the process's cpuset does not name. */
static bool is_kept_away(const struct host_view *host, int node)
{
	return node >= 0 && node < NODES_MAX && host->node[node].total_bytes &&
	       !host->node[node].online;
}

static uint64_t kept_away_bytes(const struct host_view *host)
{
	uint64_t bytes = 0;

	for (int node = 0; node < NODES_MAX; node++)
		bytes += is_kept_away(host, node) ? host->node[node].total_bytes : 0;
	return bytes;
}

/* Shares of a percentage are whole pages that add up: the largest remainders get the pages over. */
static int want_shares(const struct host_view *host, const struct hugetlb_view *size,
		       const struct reserve_goal *goal, struct reserve_plan *plan,
		       enum shortage *ret_why, int *ret_node)
{
	uint64_t target_pages = goal->bytes / goal->page_bytes, left = target_pages;
	uint64_t rest[NODES_MAX];

	for (unsigned int i = 0; i < goal->n_shares; i++) {
		const struct reserve_share *share = &goal->share[i];
		__uint128_t parts = (__uint128_t)target_pages * share->percent;
		uint64_t pages = share->bytes ? share->bytes / goal->page_bytes :
						(uint64_t)(parts / PERCENT_ALL);

		*ret_node = share->node;
		*ret_why = is_kept_away(host, share->node)	  ? SHORT_CGROUP :
			   !host_view_has_node(host, share->node) ? SHORT_NO_NODE :
			   share->bytes % goal->page_bytes	  ? SHORT_NOT_MULTIPLE :
			   pages > host->node[share->node].total_bytes / goal->page_bytes ?
							     SHORT_MACHINE :
							     SHORT_NONE;
		if (*ret_why != SHORT_NONE)
			return -EINVAL;
		add_node(size, share->node, plan);
		plan->node[i].wanted_pages = pages;
		rest[i] = share->bytes ? 0 : (uint64_t)(parts % PERCENT_ALL);
		left -= min_u64(left, pages);
	}
	for (; left; left--) {
		unsigned int best = 0;

		for (unsigned int i = 1; i < goal->n_shares; i++) {
			if (rest[i] > rest[best])
				best = i;
		}
		if (!rest[best])
			break; /* shares in bytes: they are what they are */
		rest[best] = 0;
		plan->node[best].wanted_pages++;
	}
	return 0;
}

/* From what is wanted to what there is room for. */
static void limit_to_room(const struct host_view *host, const struct reserve_goal *goal,
			  uint64_t floor_bytes, struct reserve_plan *plan)
{
	uint64_t host_pages = less_u64(host->available_bytes, floor_bytes) / goal->page_bytes;

	for (unsigned int i = 0; i < plan->n_nodes; i++) {
		struct reserve_node *node = &plan->node[i];
		uint64_t grow_pages = less_u64(node->wanted_pages, node->from_pages), room;

		if (!grow_pages) {
			if (!goal->shrink)
				node->wanted_pages = node->from_pages;
			node->to_pages = node->wanted_pages;
			continue;
		}
		room = room_pages(host, node->node, floor_bytes, goal->page_bytes);
		room = min_u64(room, host_pages);
		if (room < grow_pages)
			plan->why = SHORT_FLOOR;
		node->to_pages = node->from_pages + min_u64(grow_pages, room);
		host_pages -= grown_pages(node);
	}
}

/* Threads by work, at least one for each node that grows where there are as many; the largest
 * remainders get those over. */
static void spread_threads(struct reserve_plan *plan, uint64_t total_pages)
{
	unsigned int n_left = plan->n_threads, n_growing = 0;
	uint64_t due[NODES_MAX];

	for (unsigned int i = 0; i < plan->n_nodes; i++)
		n_growing += grown_pages(&plan->node[i]) > 0;
	for (unsigned int i = 0; i < plan->n_nodes; i++) {
		__uint128_t parts = (__uint128_t)grown_pages(&plan->node[i]) * plan->n_threads;
		unsigned int n = (unsigned int)(parts / total_pages);

		due[i] = (uint64_t)(parts % total_pages);
		if (!n && parts && plan->n_threads >= n_growing) {
			n = 1;
			due[i] = 0;
		}
		plan->node[i].n_threads = n;
	}
	for (unsigned int i = 0; i < plan->n_nodes; i++)
		n_left -= plan->node[i].n_threads < n_left ? plan->node[i].n_threads : n_left;
	while (n_left) {
		unsigned int best = 0;

		for (unsigned int i = 1; i < plan->n_nodes; i++) {
			if (due[i] > due[best])
				best = i;
		}
		if (!due[best])
			break;
		due[best] = 0;
		plan->node[best].n_threads++;
		n_left--;
	}
}

static void sort_by_work(struct reserve_plan *plan)
{
	for (unsigned int i = 1; i < plan->n_nodes; i++) {
		struct reserve_node node = plan->node[i];
		unsigned int to = i;

		for (; to && grown_pages(&plan->node[to - 1]) < grown_pages(&node); to--)
			plan->node[to] = plan->node[to - 1];
		plan->node[to] = node;
	}
}

static uint64_t choose_unit_bytes(uint64_t page_bytes, uint64_t total_bytes, unsigned int n_threads)
{
	uint64_t bytes = total_bytes / n_threads / UNITS_A_THREAD;

	bytes = min_u64(bytes, UNIT_BYTES_USUAL);
	if (bytes < total_bytes / UNITS_MAX)
		bytes = total_bytes / UNITS_MAX;
	bytes = bytes / page_bytes * page_bytes;
	return bytes > page_size_unit_bytes((struct page_size){PAGE_HUGETLB, page_bytes}) ?
		       bytes :
		       page_size_unit_bytes((struct page_size){PAGE_HUGETLB, page_bytes});
}

static void choose_method(const struct host_view *host, const struct reserve_goal *goal,
			  struct reserve_plan *plan)
{
	uint64_t total_pages = 0;
	unsigned int n_growing = 0, n_cpus;
	struct id_set cpus = goal->cpus;

	if (id_set_is_empty(&cpus))
		cpus = host->cpus;
	n_cpus = id_set_count(&cpus);
	for (unsigned int i = 0; i < plan->n_nodes; i++) {
		total_pages += grown_pages(&plan->node[i]);
		n_growing += grown_pages(&plan->node[i]) > 0;
	}
	plan->n_threads = policy_threads(host, goal->n_threads);
	if (!goal->n_threads && plan->n_threads < THREADS_MIN)
		plan->n_threads = THREADS_MIN;
	if (!goal->n_threads && plan->n_threads < n_growing)
		plan->n_threads = n_growing;
	if (plan->n_threads > n_cpus && n_cpus)
		plan->n_threads = n_cpus;

	plan->method = RESERVE_PLAIN;
	if (!total_pages)
		plan->reason = RESERVE_NO_GROWTH;
	else if (goal->page_bytes >= GIGANTIC_BYTES)
		plan->reason = RESERVE_GIGANTIC;
	else if (goal->kernel_optimizes)
		plan->reason = RESERVE_OPTIMIZED;
	else if (goal->method != RESERVE_AUTO)
		plan->reason = RESERVE_ASKED;
	else if (!goal->kernel_zeroes)
		plan->reason = RESERVE_NOT_ZEROED;
	else if (plan->n_threads < THREADS_MIN)
		plan->reason = RESERVE_FEW_THREADS;
	else if (total_pages * goal->page_bytes < PARALLEL_BYTES_MIN)
		plan->reason = RESERVE_FEW_PAGES;
	else
		plan->reason = RESERVE_ZEROED;
	if (plan->reason == RESERVE_ZEROED ||
	    (plan->reason == RESERVE_ASKED && goal->method == RESERVE_PARALLEL))
		plan->method = RESERVE_PARALLEL;
	if (plan->method == RESERVE_PLAIN)
		plan->n_threads = 1;
	plan->unit_bytes = choose_unit_bytes(goal->page_bytes, total_pages * goal->page_bytes,
					     plan->n_threads);
	if (plan->method == RESERVE_PARALLEL)
		spread_threads(plan, total_pages);
}

int policy_reserve(const struct host_view *host, const struct reserve_goal *goal,
		   struct reserve_plan *ret, enum shortage *ret_why, int *ret_node)
{
	const struct hugetlb_view *size = host_view_hugetlb(host, goal->page_bytes);
	const struct goals floor_goal = {.floor_bytes = goal->floor_bytes};
	uint64_t floor_bytes = policy_floor_bytes(host, &floor_goal);
	int r = 0;

	*ret_node = NODE_ANY;
	*ret_why = !size			   ? SHORT_NO_CLASS :
		   goal->bytes % goal->page_bytes  ? SHORT_NOT_MULTIPLE :
		   goal->bytes > host->total_bytes ? SHORT_MACHINE :
		   goal->bytes > less_u64(host->total_bytes, kept_away_bytes(host)) ? SHORT_CGROUP :
										      SHORT_NONE;
	if (*ret_why != SHORT_NONE)
		return -EINVAL;
	memset(ret, 0, sizeof(*ret));
	if (goal->n_shares)
		r = want_shares(host, size, goal, ret, ret_why, ret_node);
	else
		want_spread(host, size, goal, floor_bytes, ret);
	if (r < 0)
		return r;
	limit_to_room(host, goal, floor_bytes, ret);
	sort_by_work(ret);
	choose_method(host, goal, ret);
	return 0;
}
