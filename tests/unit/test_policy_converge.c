/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_policy_converge.c - policy against a model of a host, over random lives of it.
 *
 * The model has nodes, huge pages, other memory, other users who come and go, consumers who take and
 * give back, and an administrator who changes the configuration. Orders are carried out as the daemon
 * does: some now, some later. After every order what belongs to others must stand, and pages must add
 * up; once nobody disturbs it any more, orders must come to an end with every stock met or truly short.
 */
#include "unit.h"

#include "policy_host.h"

#define NODES 8
#define BUCKETS 64
#define STOCKS 6

enum { KIND_2M, KIND_1G, KIND_MEMORY, KINDS };

static const uint64_t grain_bytes[KINDS] = {2 * MIB, GIB, 4096};

/* What there is of a kind on a node, in bytes: total = free + others + pool. */
struct store {
	uint64_t total_bytes, free_bytes, others_bytes;
};

struct model {
	unsigned int n_nodes;
	struct store store[KINDS][NODES];
	uint64_t reserved_bytes[2];
	uint64_t cgroup_bytes; /* headroom for memory */
	unsigned int n_buckets;
	struct bucket_view bucket[BUCKETS];
	struct stock stock[STOCKS];
	struct leave_free leave[2];
	struct goals goals;
	uint64_t seed;
};

static struct host_view view;

/* xorshift64*: the same life for the same seed everywhere. */
static uint64_t rnd(struct model *model, uint64_t below)
{
	model->seed ^= model->seed >> 12;
	model->seed ^= model->seed << 25;
	model->seed ^= model->seed >> 27;
	return below ? (model->seed * 0x2545f4914f6cdd1dULL >> 16) % below : 0;
}

static unsigned int kind_of(struct page_size page)
{
	if (page.kind != PAGE_HUGETLB)
		return KIND_MEMORY;
	return page.bytes == GIB ? KIND_1G : KIND_2M;
}

static void show(const struct model *model, struct host_view *host)
{
	host_make(host, model->n_nodes, 0);
	host->total_bytes = host->available_bytes = 0;
	host->cgroup_headroom_bytes = model->cgroup_bytes;
	for (unsigned int n = 0; n < model->n_nodes; n++) {
		struct node_view *node = &host->node[n];

		for (unsigned int k = 0; k < KINDS; k++)
			node->total_bytes += model->store[k][n].total_bytes;
		node->available_bytes = model->store[KIND_MEMORY][n].free_bytes;
		host->total_bytes += node->total_bytes;
		host->available_bytes += node->available_bytes;
		for (unsigned int i = 0; i < 2; i++)
			host_add_pages(host, i, n, model->store[i][n].total_bytes / grain_bytes[i],
				       model->store[i][n].free_bytes / grain_bytes[i]);
	}
	for (unsigned int i = 0; i < 2; i++)
		host->hugetlb[i].reserved_pages = model->reserved_bytes[i] / grain_bytes[i];
}

static struct bucket_view *find_bucket(struct model *model, struct page_class page_class,
				       uint64_t segment_bytes)
{
	for (unsigned int i = 0; i < model->n_buckets; i++) {
		if (page_class_equal(model->bucket[i].page_class, page_class) &&
		    model->bucket[i].segment_bytes == segment_bytes)
			return &model->bucket[i];
	}
	assert_in_range(model->n_buckets, 0, BUCKETS - 1);
	model->bucket[model->n_buckets] = (struct bucket_view){
		.page_class = page_class,
		.segment_bytes = segment_bytes,
	};
	return &model->bucket[model->n_buckets++];
}

static void take(struct model *model, struct page_class page_class, uint64_t bytes)
{
	struct store *store = &model->store[kind_of(page_class.page)][page_class.node];

	assert_true(store->free_bytes >= bytes);
	store->free_bytes -= bytes;
	if (kind_of(page_class.page) == KIND_MEMORY && model->cgroup_bytes != UNLIMITED) {
		assert_true(model->cgroup_bytes >= bytes);
		model->cgroup_bytes -= bytes;
	}
}

static void give(struct model *model, struct page_class page_class, uint64_t bytes)
{
	model->store[kind_of(page_class.page)][page_class.node].free_bytes += bytes;
	if (kind_of(page_class.page) == KIND_MEMORY && model->cgroup_bytes != UNLIMITED)
		model->cgroup_bytes += bytes;
}

/* Pages add up on every node. */
static void check_conserved(const struct model *model)
{
	uint64_t pool_bytes[KINDS][NODES] = {};

	for (unsigned int i = 0; i < model->n_buckets; i++) {
		const struct bucket_view *bucket = &model->bucket[i];

		pool_bytes[kind_of(bucket->page_class.page)][bucket->page_class.node] +=
			bucket->segment_bytes *
			(bucket->n_ready + bucket->n_filling + bucket->n_lent);
	}
	for (unsigned int k = 0; k < KINDS; k++) {
		for (unsigned int n = 0; n < model->n_nodes; n++) {
			const struct store *store = &model->store[k][n];

			assert_true(store->total_bytes ==
				    store->free_bytes + store->others_bytes + pool_bytes[k][n]);
		}
	}
}

/* Whether one more segment could be taken without touching what is others'. Written down anew, from
 * the words of the manual, not from policy. */
static bool is_room_for(const struct model *model, struct page_class page_class,
			uint64_t segment_bytes)
{
	unsigned int kind = kind_of(page_class.page);
	const struct store *store = &model->store[kind][page_class.node];
	uint64_t total_bytes = 0, node_total_bytes = 0, sum_bytes = 0, floor_bytes, share;

	if (kind != KIND_MEMORY) {
		uint64_t leave_bytes = model->leave[kind].bytes_per_node;

		for (unsigned int n = 0; n < model->n_nodes; n++) {
			uint64_t free_bytes = model->store[kind][n].free_bytes;

			sum_bytes += free_bytes > leave_bytes ? free_bytes - leave_bytes : 0;
		}
		return store->free_bytes >= leave_bytes + segment_bytes &&
		       sum_bytes >= model->reserved_bytes[kind] + segment_bytes;
	}
	for (unsigned int n = 0; n < model->n_nodes; n++) {
		sum_bytes += model->store[KIND_MEMORY][n].free_bytes;
		for (unsigned int k = 0; k < KINDS; k++) {
			total_bytes += model->store[k][n].total_bytes;
			if ((int)n == page_class.node)
				node_total_bytes += model->store[k][n].total_bytes;
		}
	}
	floor_bytes = model->goals.floor_bytes;
	if (!floor_bytes)
		floor_bytes = total_bytes / 20 > 2 * GIB ? total_bytes / 20 : 2 * GIB;
	share = share_bytes(floor_bytes, node_total_bytes, total_bytes);
	return sum_bytes >= floor_bytes + segment_bytes &&
	       store->free_bytes >= share + segment_bytes && model->cgroup_bytes >= segment_bytes;
}

static void carry_out(struct model *model, const struct order *order, bool all)
{
	struct bucket_view *bucket = find_bucket(model, order->page_class, order->segment_bytes);
	unsigned int count = all ? order->count : (unsigned int)rnd(model, order->count + 1ULL);

	assert_true(order->count > 0);
	if (order->kind == ORDER_RELEASE) {
		assert_true(bucket->n_ready >= order->count);
		bucket->n_ready -= count;
		give(model, order->page_class, count * order->segment_bytes);
		return;
	}
	while (count--) {
		assert_true(is_room_for(model, order->page_class, order->segment_bytes));
		take(model, order->page_class, order->segment_bytes);
		bucket->n_filling++;
	}
}

static unsigned int cycle(struct model *model, bool is_quiet, enum shortage *short_of)
{
	struct pool_view pool = {model->n_buckets, model->bucket};
	struct order orders[16];
	unsigned int orders_max = is_quiet ? ARRAY_LEN(orders) :
					     1 + (unsigned int)rnd(model, ARRAY_LEN(orders));
	unsigned int n;

	/* Fills end before the look. */
	for (unsigned int i = 0; i < model->n_buckets; i++) {
		struct bucket_view *bucket = &model->bucket[i];
		unsigned int n_done = is_quiet ? bucket->n_filling :
						 (unsigned int)rnd(model, bucket->n_filling + 1ULL);

		bucket->n_filling -= n_done;
		bucket->n_ready += n_done;
	}
	show(model, &view);
	n = policy_stock(&view, &pool, &model->goals, orders, orders_max, short_of);
	assert_in_range(n, 0, orders_max);
	for (unsigned int i = 0; i < n; i++)
		carry_out(model, &orders[i], is_quiet);
	check_conserved(model);
	return n;
}

/* Others */

static const struct page_size pages[] = {
	{PAGE_HUGETLB, 2 * MIB}, {PAGE_HUGETLB, GIB}, {PAGE_THP, 2 * MIB}, {PAGE_BASE, 4096}};

static void configure(struct model *model)
{
	model->goals = (struct goals){
		.n_stocks = (unsigned int)rnd(model, STOCKS + 1),
		.stock = model->stock,
		.n_leave_free = 2,
		.leave_free = model->leave,
		.floor_bytes = rnd(model, 2) ? 0 : rnd(model, 8) * GIB,
	};
	for (unsigned int i = 0; i < 2; i++)
		model->leave[i] = (struct leave_free){pages[i], rnd(model, 4) * grain_bytes[i] * 3};
	for (unsigned int i = 0; i < model->goals.n_stocks; i++)
		model->stock[i] = (struct stock){
			.page_class = {pages[rnd(model, ARRAY_LEN(pages))],
				       (int)rnd(model, model->n_nodes + 1ULL) - 1},
			.segment_bytes = (1 + rnd(model, 2)) * GIB,
			.keep = (unsigned int)rnd(model, 12),
		};
}

static void begin(struct model *model, uint64_t seed)
{
	*model = (struct model){.seed = seed * 0x9e3779b97f4a7c15ULL + 1};
	model->n_nodes = 1 + (unsigned int)rnd(model, NODES);
	for (unsigned int n = 0; n < model->n_nodes; n++) {
		for (unsigned int k = 0; k < KINDS; k++) {
			struct store *store = &model->store[k][n];

			store->total_bytes = store->free_bytes = rnd(model, 24) * GIB;
		}
	}
	model->cgroup_bytes = rnd(model, 2) ? UNLIMITED : rnd(model, 40) * GIB;
	configure(model);
}

static void others_take(struct model *model)
{
	unsigned int kind = (unsigned int)rnd(model, KINDS);
	struct store *store = &model->store[kind][rnd(model, model->n_nodes)];
	uint64_t bytes = rnd(model, store->free_bytes / grain_bytes[kind] + 1) * grain_bytes[kind];

	store->free_bytes -= bytes;
	store->others_bytes += bytes;
}

static void others_give(struct model *model)
{
	unsigned int kind = (unsigned int)rnd(model, KINDS);
	struct store *store = &model->store[kind][rnd(model, model->n_nodes)];
	uint64_t bytes = rnd(model, store->others_bytes / grain_bytes[kind] + 1) *
			 grain_bytes[kind];

	store->free_bytes += bytes;
	store->others_bytes -= bytes;
}

static void lend_or_end(struct model *model)
{
	struct bucket_view *bucket;

	if (!model->n_buckets)
		return;
	bucket = &model->bucket[rnd(model, model->n_buckets)];
	if (bucket->n_ready && rnd(model, 2)) {
		bucket->n_ready--;
		bucket->n_lent++;
	} else if (bucket->n_lent) {
		bucket->n_lent--;
		give(model, bucket->page_class, bucket->segment_bytes);
	}
}

/* A consumer asks; what policy says can be done, and what it refuses could not be had without a pool
 * either: see the manual's "never worse". */
static void ask(struct model *model)
{
	struct request request = {
		.page = pages[rnd(model, ARRAY_LEN(pages))],
		.node = (int)rnd(model, model->n_nodes + 1ULL) - 1,
		.segment_bytes = (1 + rnd(model, 4)) * GIB,
	};
	struct pool_view pool = {model->n_buckets, model->bucket};
	struct decision decision;
	struct bucket_view *bucket;

	show(model, &view);
	policy_place(&view, &pool, &model->goals, &request, &decision);
	switch (decision.placement) {
	case PLACE_EXACT:
	case PLACE_CUT:
		bucket = find_bucket(model, decision.page_class, decision.segment_bytes);
		assert_true(bucket->n_ready > 0);
		bucket->n_ready--;
		give(model, decision.page_class, decision.segment_bytes - request.segment_bytes);
		bucket = find_bucket(model, decision.page_class, request.segment_bytes);
		bucket->n_lent++;
		break;
	case PLACE_RELEASE_AND_FILL:
		for (unsigned int i = 0; i < decision.n_orders; i++) {
			assert_int_equal(decision.orders[i].kind, ORDER_RELEASE);
			carry_out(model, &decision.orders[i], true);
		}
		__attribute__((fallthrough));
	case PLACE_FILL:
		assert_true(is_room_for(model, decision.page_class, request.segment_bytes));
		take(model, decision.page_class, request.segment_bytes);
		find_bucket(model, decision.page_class, request.segment_bytes)->n_lent++;
		break;
	case PLACE_WAIT:
	case PLACE_REFUSE:
		/* With the ready stock given back there must be none. */
		for (unsigned int n = 0; n < model->n_nodes; n++) {
			struct page_class page_class = {request.page, (int)n};
			struct model without = *model;

			if (request.node != NODE_ANY && request.node != (int)n)
				continue;
			for (unsigned int i = 0; i < without.n_buckets; i++) {
				bucket = &without.bucket[i];
				if (bucket->page_class.node == (int)n)
					give(&without, bucket->page_class,
					     bucket->n_ready * bucket->segment_bytes);
			}
			if (view.node[n].total_bytes >= request.segment_bytes)
				assert_false(
					is_room_for(&without, page_class, request.segment_bytes));
		}
		break;
	}
	check_conserved(model);
}

static void reserve(struct model *model)
{
	unsigned int i = (unsigned int)rnd(model, 2);

	model->reserved_bytes[i] = rnd(model, 20) * grain_bytes[i];
}

static void live(struct model *model)
{
	static void (*const events[])(struct model *) = {
		others_take, others_give, lend_or_end, lend_or_end, ask, ask, reserve, configure,
	};
	enum shortage short_of[STOCKS];

	for (unsigned int step = 0; step < 60; step++) {
		events[rnd(model, ARRAY_LEN(events))](model);
		cycle(model, false, short_of);
	}
}

/* Once it is quiet: every stock is met, or there is truly no room for one more of its segments; and
 * nothing stands ready that nobody wants. */
static void check_settled(const struct model *model, const enum shortage *short_of)
{
	for (unsigned int i = 0; i < model->goals.n_stocks; i++) {
		const struct stock *stock = &model->stock[i];

		for (unsigned int n = 0; short_of[i] != SHORT_NONE && n < model->n_nodes; n++) {
			struct page_class page_class = {stock->page_class.page, (int)n};

			if (stock->page_class.node != NODE_ANY && stock->page_class.node != (int)n)
				continue;
			if (short_of[i] != SHORT_MACHINE)
				assert_false(is_room_for(model, page_class, stock->segment_bytes));
		}
	}
	for (unsigned int i = 0; i < model->n_buckets; i++) {
		const struct bucket_view *bucket = &model->bucket[i];
		uint64_t n_wanted = 0;

		for (unsigned int j = 0; j < model->goals.n_stocks; j++) {
			const struct stock *stock = &model->stock[j];

			if (page_size_equal(stock->page_class.page, bucket->page_class.page) &&
			    stock->segment_bytes == bucket->segment_bytes &&
			    (stock->page_class.node == NODE_ANY ||
			     stock->page_class.node == bucket->page_class.node))
				n_wanted += stock->keep;
		}
		assert_true(bucket->n_ready <= n_wanted);
	}
}

/* Where nothing is short, what is ready of each size is exactly what is wanted of it. */
static void check_met(const struct model *model, const enum shortage *short_of)
{
	for (unsigned int i = 0; i < model->goals.n_stocks; i++) {
		uint64_t n_wanted = 0, n_ready = 0;

		for (unsigned int j = 0; j < model->goals.n_stocks; j++) {
			if (!page_size_equal(model->stock[i].page_class.page,
					     model->stock[j].page_class.page) ||
			    model->stock[i].segment_bytes != model->stock[j].segment_bytes)
				continue;
			n_wanted += model->stock[j].keep;
			if (short_of[j] != SHORT_NONE)
				n_wanted = UINT64_MAX / 2;
		}
		for (unsigned int b = 0; b < model->n_buckets; b++) {
			if (page_size_equal(model->bucket[b].page_class.page,
					    model->stock[i].page_class.page) &&
			    model->bucket[b].segment_bytes == model->stock[i].segment_bytes)
				n_ready += model->bucket[b].n_ready;
		}
		if (n_wanted < UINT64_MAX / 4)
			assert_true(n_ready == n_wanted);
	}
}

static void comes_to_rest(void **state)
{
	const char *text = getenv("PREZERO_TEST_LONG");
	uint64_t n_lives = text && *text ? 200000 : 2000;
	uint64_t n_short = 0, n_met = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= n_lives; seed++) {
		static struct model model;
		enum shortage short_of[STOCKS];
		unsigned int n_cycles = 0;

		begin(&model, seed);
		live(&model);
		while (cycle(&model, true, short_of)) {
			if (++n_cycles == 20)
				fail_msg("life %llu: orders without end", (unsigned long long)seed);
		}
		check_settled(&model, short_of);
		check_met(&model, short_of);
		for (unsigned int i = 0; i < model.goals.n_stocks; i++)
			short_of[i] == SHORT_NONE ? n_met++ : n_short++;
		/* And stays there. */
		assert_int_equal(cycle(&model, true, short_of), 0);
		for (unsigned int i = 0; i < model.n_buckets; i++)
			assert_int_equal(model.bucket[i].n_filling, 0);
	}
	/* Lives that are all plenty or all want would show nothing. */
	assert_true(n_met > n_lives / 2 && n_short > n_lives / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(comes_to_rest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
