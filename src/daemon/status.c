/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/status.c - Status and List: what the daemon and the host look like now.
 *
 * Guarantees: a listing holds a batch at a time, however many segments there are, and may be resumed
 * whatever changed meanwhile: nothing is listed twice.
 */
#include "daemon/status.h"

#include <string.h>
#include <time.h>

#include "base/io.h"
#include "daemon/clean.h"
#include "daemon/manager.h"
#include "daemon/pools.h"
#include "daemon/server.h"

#define BATCH_SEGMENTS 64 /* in one reply */

/* Status. */

struct status {
	struct daemon *daemon;
	struct wire_status_reply *reply;
	struct wire_class *classes;
	struct wire_stock *stocks;
	struct wire_fill *fills, *zeroing;
	struct wire_pinned pinned[PAGE_POOLS_MAX];
	char (*stock_page)[PAGE_TEXT_MAX];
};

static void status_done(struct status *status)
{
	free(status->classes);
	free(status->stocks);
	free(status->fills);
	free(status->zeroing);
	free(status->stock_page);
}

static void describe_class(const struct page_pool *pages, int node, struct wire_class *class)
{
	const struct host_view *seen = pages->daemon->seen;
	const struct goals *goals = &pages->daemon->config->goals;
	struct page_class page_class = {pages->page, node};
	struct pool_usage usage;
	enum shortage why;

	pool_usage(pages->pool, node, &usage);
	*class = (struct wire_class){
		.page = pages->name,
		.node = node,
		.page_bytes = pages->page.bytes,
		.total_bytes = seen->node[node].total_bytes,
		.free_bytes = seen->node[node].free_bytes,
		.headroom_bytes =
			policy_headroom_bytes(pages->daemon->net, goals, page_class, &why),
		.filling_bytes = usage.filling_bytes,
		.ready_bytes = usage.ready_bytes,
		.lent_bytes = usage.lent_bytes,
		.segments_filling = usage.n_filling,
		.segments_ready = usage.n_ready,
		.segments_lent = usage.n_lent,
	};
	if (pages->page.kind == PAGE_HUGETLB) {
		const struct hugetlb_view *hugetlb = host_view_hugetlb(seen, pages->page.bytes);
		const struct hugetlb_node_view *here = hugetlb ? &hugetlb->node[node] : NULL;

		class->total_bytes = here ? here->total_pages * pages->page.bytes : 0;
		class->free_bytes = here ? here->free_pages * pages->page.bytes : 0;
		if (here && here->has_zeroable)
			class->zeroable_pages = WIRE_INT(here->zeroable_pages);
	}
}

static int describe_classes(struct status *status)
{
	struct daemon *daemon = status->daemon;
	size_t n = 0;

	status->classes =
		calloc(daemon->n_pools * daemon->seen->nodes_end + 1, sizeof(*status->classes));
	if (!status->classes)
		return -ENOMEM;
	for (unsigned int i = 0; i < daemon->n_pools; i++) {
		for (unsigned int node = 0; node < daemon->seen->nodes_end; node++) {
			if (host_view_has_node(daemon->seen, node))
				describe_class(&daemon->pool[i], node, &status->classes[n++]);
		}
	}
	status->reply->classes = status->classes;
	status->reply->n_classes = n;
	return 0;
}

static void count_stock(struct daemon *daemon, const struct stock *stock, struct wire_stock *out)
{
	struct pool_view pools;

	if (manager_pool_view(daemon, &pools) < 0)
		return;
	for (unsigned int i = 0; i < pools.n_buckets; i++) {
		const struct bucket_view *bucket = &pools.bucket[i];

		if (!page_size_equal(bucket->page_class.page, stock->page_class.page) ||
		    bucket->segment_bytes != stock->segment_bytes ||
		    (stock->page_class.node != NODE_ANY &&
		     stock->page_class.node != bucket->page_class.node))
			continue;
		out->ready += bucket->n_ready;
		out->filling += bucket->n_filling;
	}
}

static int describe_stocks(struct status *status)
{
	const struct goals *goals = &status->daemon->config->goals;
	AUTO_FREE enum shortage *short_of = NULL;
	int r;

	status->stocks = calloc(goals->n_stocks + 1, sizeof(*status->stocks));
	status->stock_page = calloc(goals->n_stocks + 1, sizeof(*status->stock_page));
	if (!status->stocks || !status->stock_page)
		return -ENOMEM;
	r = manager_shortages(status->daemon, &short_of);
	if (r < 0)
		return r;
	for (unsigned int i = 0; i < goals->n_stocks; i++) {
		const struct stock *stock = &goals->stock[i];
		struct wire_stock *out = &status->stocks[i];

		*out = (struct wire_stock){
			.name = stock->name,
			.page = page_size_format(stock->page_class.page, status->stock_page[i]),
			.node = stock->page_class.node,
			.segment_bytes = stock->segment_bytes,
			.keep = stock->keep,
			.short_of = short_of[i] == SHORT_NONE ? NULL : shortage_name(short_of[i]),
		};
		count_stock(status->daemon, stock, out);
	}
	status->reply->stocks = status->stocks;
	status->reply->n_stocks = goals->n_stocks;
	return 0;
}

static void describe_progress(const struct page_pool *pages,
			      const struct filling_progress *progress, struct wire_fill *fill)
{
	double seconds = (double)progress->elapsed_ns / 1e9;

	*fill = (struct wire_fill){
		.page = pages->name,
		.node = progress->page_class.node,
		.done_bytes = progress->done_bytes,
		.total_bytes = progress->total_bytes,
		.bytes_per_second = seconds > 0 ? (double)progress->done_bytes / seconds : 0,
	};
	if (fill->bytes_per_second > 0)
		fill->eta_ms = WIRE_INT((double)(progress->total_bytes - progress->done_bytes) *
					1000 / fill->bytes_per_second);
}

static int describe_fills(struct status *status)
{
	struct daemon *daemon = status->daemon;
	size_t n = 0, max = daemon->n_pools * daemon->seen->nodes_end;
	struct filling_progress progress;
	struct page_pool *pages;
	unsigned int cursor = 0;

	status->fills = calloc(max + 1, sizeof(*status->fills));
	status->zeroing = calloc(max + 1, sizeof(*status->zeroing));
	if (!status->fills || !status->zeroing)
		return -ENOMEM;
	while (n < max && filling_next_progress(daemon->fillings, &cursor, &progress)) {
		pages = daemon_pool(daemon, progress.page_class.page);
		if (pages)
			describe_progress(pages, &progress, &status->fills[n++]);
	}
	status->reply->fills = status->fills;
	status->reply->n_fills = n;
	n = cursor = 0;
	while (n < max && clean_next_progress(daemon->clean, &cursor, &progress)) {
		pages = daemon_pool(daemon, progress.page_class.page);
		if (pages)
			describe_progress(pages, &progress, &status->zeroing[n++]);
	}
	status->reply->zeroing = status->zeroing;
	status->reply->n_zeroing = n;
	return 0;
}

static void describe_pinned(struct status *status)
{
	struct daemon *daemon = status->daemon;
	size_t n = 0;

	for (unsigned int i = 0; i < daemon->n_pools; i++) {
		uint64_t bytes;

		if (pool_pinned_bytes(daemon->pool[i].pool, &bytes) == 0 && bytes)
			status->pinned[n++] = (struct wire_pinned){daemon->pool[i].name, bytes};
	}
	status->reply->pinned = status->pinned;
	status->reply->n_pinned = n;
}

void status_reply(struct daemon *daemon, struct connection *connection)
{
	struct wire_reply reply = {0};
	struct status status = {.daemon = daemon, .reply = &reply.status};
	int r = manager_look(daemon);

	if (r >= 0) {
		reply.status = (struct wire_status_reply){
			.version = PREZERO_VERSION,
			.pid = getpid(),
			.uptime_ms = (monotonic_ns() - daemon->started_ns) / 1000000,
			.threads = daemon->n_threads,
			.floor_bytes = policy_floor_bytes(daemon->seen, &daemon->config->goals),
			.available_bytes = daemon->seen->available_bytes,
			.total_bytes = daemon->seen->total_bytes,
			.takes = daemon->counters.takes,
			.gives = daemon->counters.gives,
			.refusals = daemon->counters.refusals,
			.filled_bytes = daemon->counters.filled_bytes,
		};
		r = describe_classes(&status);
	}
	if (r >= 0)
		r = describe_stocks(&status);
	if (r >= 0)
		r = describe_fills(&status);
	if (r >= 0)
		describe_pinned(&status);
	if (r < 0)
		reply = (struct wire_reply){
			.error = WIRE_REFUSED,
			.refused = {.reason = "io",
				    .message = strerror(-r),
				    .page = "",
				    .node = NODE_ANY},
		};
	connection_reply(connection, &reply, -1);
	status_done(&status);
}

/* List. */

struct listing {
	struct daemon *daemon;
	bool is_filtered;
	enum segment_state state;
	unsigned int pool; /* where the next batch begins: this pool, */
	uint64_t after; /* behind this segment; 0: at its first */
	bool more;
	struct wire_segment segments[BATCH_SEGMENTS];
	char id[BATCH_SEGMENTS][SEGMENT_ID_TEXT_MAX];
	char *path[BATCH_SEGMENTS];
};

static const char *const state_names[] = {
	[SEGMENT_FILLING] = "filling",
	[SEGMENT_READY] = "ready",
	[SEGMENT_LENT] = "lent",
};

static void describe_segment(struct listing *listing, unsigned int i, const struct page_pool *pages,
			     const struct segment *segment)
{
	int64_t age_ms = ((int64_t)time(NULL) - (int64_t)segment->since_s) * 1000;
	uint64_t allocated_bytes;
	dev_t dev;
	ino_t ino;

	listing->path[i] = pools_segment_path(pages, segment);
	snprintf(listing->id[i], SEGMENT_ID_TEXT_MAX, "%016lx", (unsigned long)segment->id);
	listing->segments[i] = (struct wire_segment){
		.id = listing->id[i],
		.path = listing->path[i],
		.page = pages->name,
		.node = segment->node,
		.bytes = segment->bytes,
		.state = state_names[segment->state],
		.age_ms = age_ms > 0 ? age_ms : 0,
	};
	if (segment->state == SEGMENT_READY)
		return;
	if (pool_segment_stat(pages->pool, segment, &dev, &ino, &allocated_bytes) == 0)
		listing->segments[i].allocated_bytes = WIRE_INT(allocated_bytes);
	if (segment->state == SEGMENT_LENT) {
		listing->segments[i].uid = WIRE_INT(segment->uid);
		listing->segments[i].name = segment->name;
	}
}

static struct segment *next_segment(struct listing *listing, const struct page_pool *pages)
{
	struct segment *segment = listing->after ? pool_after(pages->pool, listing->after) :
						   pool_next(pages->pool, NULL);

	while (segment && listing->is_filtered && segment->state != listing->state)
		segment = pool_next(pages->pool, segment);
	return segment;
}

static int next_batch(void *arg, struct wire_reply *reply)
{
	struct listing *listing = arg;
	unsigned int n = 0;

	for (unsigned int i = 0; i < BATCH_SEGMENTS; i++) {
		free(listing->path[i]);
		listing->path[i] = NULL;
	}
	while (listing->pool < listing->daemon->n_pools) {
		const struct page_pool *pages = &listing->daemon->pool[listing->pool];
		const struct segment *segment = next_segment(listing, pages);

		if (segment && n == BATCH_SEGMENTS)
			break;
		if (segment) {
			describe_segment(listing, n++, pages, segment);
			listing->after = segment_sequence(segment);
			continue;
		}
		listing->pool++;
		listing->after = 0;
	}
	reply->list = (struct wire_list_reply){.segments = listing->segments, .n_segments = n};
	reply->continues = listing->more && listing->pool < listing->daemon->n_pools;
	return 0;
}

static void listing_free(void *arg)
{
	struct listing *listing = arg;

	for (unsigned int i = 0; i < BATCH_SEGMENTS; i++)
		free(listing->path[i]);
	free(listing);
}

void status_list(struct daemon *daemon, struct connection *connection, const struct wire_list *call,
		 bool more)
{
	struct wire_reply reply = {.error = WIRE_INVALID_PARAMETER};
	struct listing *listing;

	if (!more) {
		reply.error = WIRE_EXPECTED_MORE;
		connection_reply(connection, &reply, -1);
		return;
	}
	reply.invalid_parameter.parameter = "state";
	listing = calloc(1, sizeof(*listing));
	if (listing) {
		listing->daemon = daemon;
		listing->more = more;
	}
	if (listing && call->state) {
		unsigned int i = 0;

		while (i < ARRAY_LEN(state_names) && strcmp(state_names[i], call->state))
			i++;
		if (i == ARRAY_LEN(state_names)) {
			free(listing);
			listing = NULL;
		} else {
			listing->is_filtered = true;
			listing->state = i;
		}
	}
	if (!listing) {
		connection_reply(connection, &reply, -1);
		return;
	}
	connection_stream(connection, next_batch, listing_free, listing);
}
