/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * policy/place.c - where a request is best met.
 *
 * Guarantees: a request that the host could meet without the pool is met: what stands ready in other
 * sizes is given back where nothing else helps. Looks at buckets, never at segments.
 */
#include "policy/policy.h"

#include "policy/room.h"

/* What a search is about. */
struct search {
	const struct host_view *host;
	const struct pool_view *pool;
	const struct request *request;
	int64_t need_bytes;
};

static bool is_eligible(const struct search *search, int node)
{
	return host_view_has_node(search->host, node) &&
	       (search->request->node == NODE_ANY || search->request->node == node);
}

static struct page_class class_on(const struct search *search, int node)
{
	return (struct page_class){search->request->page, node};
}

static bool is_candidate(const struct search *search, const struct bucket_view *bucket)
{
	return bucket->n_ready && is_eligible(search, bucket->page_class.node) &&
	       page_size_equal(bucket->page_class.page, search->request->page);
}

/* A ready segment of this very size, from the node that has most of them: stocks stay even. */
static bool place_exact(const struct search *search, struct decision *ret)
{
	const struct bucket_view *best = NULL;

	for (unsigned int i = 0; i < search->pool->n_buckets; i++) {
		const struct bucket_view *bucket = &search->pool->bucket[i];

		if (!is_candidate(search, bucket) ||
		    bucket->segment_bytes != search->request->segment_bytes)
			continue;
		if (!best || bucket->n_ready > best->n_ready ||
		    (bucket->n_ready == best->n_ready &&
		     bucket->page_class.node < best->page_class.node))
			best = bucket;
	}
	if (!best)
		return false;
	ret->placement = PLACE_EXACT;
	ret->page_class = best->page_class;
	ret->segment_bytes = best->segment_bytes;
	return true;
}

/* The smallest larger one. Huge pages that are cut off go back whole to the kernel's pool; of other
 * pages a fill is as fast as the cut. */
static bool place_cut(const struct search *search, struct decision *ret)
{
	const struct bucket_view *best = NULL;

	if (search->request->page.kind != PAGE_HUGETLB)
		return false;
	for (unsigned int i = 0; i < search->pool->n_buckets; i++) {
		const struct bucket_view *bucket = &search->pool->bucket[i];

		if (!is_candidate(search, bucket) ||
		    bucket->segment_bytes <= search->request->segment_bytes)
			continue;
		if (!best || bucket->segment_bytes < best->segment_bytes ||
		    (bucket->segment_bytes == best->segment_bytes &&
		     bucket->n_ready > best->n_ready))
			best = bucket;
	}
	if (!best)
		return false;
	ret->placement = PLACE_CUT;
	ret->page_class = best->page_class;
	ret->segment_bytes = best->segment_bytes;
	return true;
}

/* The eligible node with most room, or -1 where there is none. */
static int roomiest_node(const struct search *search, const struct room *room)
{
	int best = -1;

	for (int n = 0; n < (int)search->host->nodes_end; n++) {
		if (is_eligible(search, n) &&
		    (best < 0 || room_bytes(room, class_on(search, n)) >
					 room_bytes(room, class_on(search, best))))
			best = n;
	}
	return best;
}

/* Release and fill */

/* The order about a bucket, or NULL. */
static struct order *find_order(struct decision *decision, const struct bucket_view *bucket)
{
	for (unsigned int i = 0; i < decision->n_orders; i++) {
		struct order *order = &decision->orders[i];

		if (order->segment_bytes == bucket->segment_bytes &&
		    page_class_equal(order->page_class, bucket->page_class))
			return order;
	}
	return NULL;
}

/* How many ready segments of a bucket could still be given back to make room on a node. */
static unsigned int releasable(const struct search *search, const struct bucket_view *bucket,
			       int node, struct decision *decision)
{
	const struct order *order;

	if (bucket->page_class.node != node || !bucket->segment_bytes ||
	    !room_is_shared(bucket->page_class.page, search->request->page))
		return 0;
	order = find_order(decision, bucket);
	return order ? bucket->n_ready - order->count : bucket->n_ready;
}

/* The smallest segment that makes enough room by itself; else the largest there is. */
static const struct bucket_view *next_release(const struct search *search, int node,
					      int64_t short_bytes, struct decision *decision)
{
	const struct bucket_view *best = NULL;

	for (unsigned int i = 0; i < search->pool->n_buckets; i++) {
		const struct bucket_view *bucket = &search->pool->bucket[i];
		bool is_enough = room_amount(bucket->segment_bytes) >= short_bytes;
		bool best_is_enough = best && room_amount(best->segment_bytes) >= short_bytes;

		if (!releasable(search, bucket, node, decision))
			continue;
		if (!best || is_enough > best_is_enough ||
		    (is_enough == best_is_enough &&
		     (is_enough ? bucket->segment_bytes < best->segment_bytes :
				  bucket->segment_bytes > best->segment_bytes)))
			best = bucket;
	}
	return best;
}

/* Orders as many segments of a bucket as do not exceed what is short, at least one. False: there is
 * no room for one more order. */
static bool order_release(const struct bucket_view *bucket, unsigned int n_most,
			  int64_t short_bytes, struct decision *ret, int64_t *ret_bytes)
{
	struct order *order = find_order(ret, bucket);
	uint64_t count = (uint64_t)short_bytes / bucket->segment_bytes;

	if (!order) {
		if (ret->n_orders == ARRAY_LEN(ret->orders))
			return false;
		order = &ret->orders[ret->n_orders++];
		*order = (struct order){
			.kind = ORDER_RELEASE,
			.page_class = bucket->page_class,
			.segment_bytes = bucket->segment_bytes,
		};
	}
	if (!count)
		count = 1;
	if (count > n_most)
		count = n_most;
	order->count += (unsigned int)count;
	*ret_bytes = room_amount(count * bucket->segment_bytes);
	return true;
}

/* Orders what must go so that the request fits on a node. Returns the bytes released, or -1 where all
 * of it would not do. More kinds of segments than orders hold are released over several decisions. */
static int64_t release_on(const struct search *search, const struct room *room, int node,
			  struct decision *ret)
{
	struct page_class page_class = class_on(search, node);
	struct room after = *room;
	int64_t released_bytes = 0;

	ret->n_orders = 0;
	while (room_bytes(&after, page_class) < search->need_bytes) {
		int64_t short_bytes = search->need_bytes - room_bytes(&after, page_class), bytes;
		const struct bucket_view *bucket = next_release(search, node, short_bytes, ret);

		if (!bucket)
			return -1;
		if (!order_release(bucket, releasable(search, bucket, node, ret), short_bytes, ret,
				   &bytes))
			break;
		room_take(&after, page_class, -bytes);
		released_bytes += bytes;
	}
	return released_bytes;
}

/* On the node where least has to go. */
static bool place_release(const struct search *search, const struct room *room,
			  struct decision *ret)
{
	struct decision best = {}, tried = *ret;
	int64_t best_bytes = -1;

	for (int n = 0; n < (int)search->host->nodes_end; n++) {
		int64_t bytes;

		if (!is_eligible(search, n))
			continue;
		bytes = release_on(search, room, n, &tried);
		if (bytes < 0 || (best_bytes >= 0 && bytes >= best_bytes))
			continue;
		best_bytes = bytes;
		best = tried;
		best.page_class = class_on(search, n);
	}
	if (best_bytes < 0)
		return false;
	best.placement = PLACE_RELEASE_AND_FILL;
	best.segment_bytes = search->request->segment_bytes;
	*ret = best;
	return true;
}

/* Wait or refuse */

/* What the pool holds on a node that makes room for the request once it comes back: lent, ready, or
 * on its way to be. */
static int64_t held_bytes(const struct search *search, int node)
{
	int64_t bytes = 0;

	for (unsigned int i = 0; i < search->pool->n_buckets; i++) {
		const struct bucket_view *bucket = &search->pool->bucket[i];
		uint64_t n = (uint64_t)bucket->n_lent + bucket->n_ready + bucket->n_filling;
		uint64_t bucket_bytes;

		if (bucket->page_class.node != node ||
		    !room_is_shared(bucket->page_class.page, search->request->page))
			continue;
		if (__builtin_mul_overflow(n, bucket->segment_bytes, &bucket_bytes))
			bucket_bytes = UINT64_MAX;
		bytes = room_amount((uint64_t)bytes + (uint64_t)room_amount(bucket_bytes));
	}
	return bytes;
}

/* Nothing can be had now: on the node that comes nearest, could it be later? */
static void place_later(const struct search *search, const struct room *room, struct decision *ret)
{
	int node = -1;
	int64_t best_bytes = 0;
	struct room later = *room;
	struct page_class page_class;

	for (int n = 0; n < (int)search->host->nodes_end; n++) {
		struct room with_held = *room;
		int64_t bytes;

		if (!is_eligible(search, n))
			continue;
		room_take(&with_held, class_on(search, n), -held_bytes(search, n));
		bytes = room_bytes(&with_held, class_on(search, n));
		if (node < 0 || bytes > best_bytes) {
			node = n;
			best_bytes = bytes;
			later = with_held;
		}
	}
	page_class = class_on(search, node);
	ret->page_class = page_class;
	ret->segment_bytes = search->request->segment_bytes;
	if (best_bytes >= search->need_bytes) {
		ret->placement = PLACE_WAIT;
		ret->why = room_shortage(room, page_class, search->need_bytes);
	} else {
		ret->placement = PLACE_REFUSE;
		ret->why = room_shortage(&later, page_class, search->need_bytes);
	}
}

void policy_place(const struct host_view *host, const struct pool_view *pool,
		  const struct goals *goals, const struct request *request, struct decision *ret)
{
	struct search search = {host, pool, request, room_amount(request->segment_bytes)};
	struct page_class asked = {request->page, request->node};
	int64_t have_bytes;
	struct room room;
	int node;

	*ret = (struct decision){
		.placement = PLACE_REFUSE,
		.page_class = asked,
		.segment_bytes = request->segment_bytes,
		.why = page_class_check(host, asked, request->segment_bytes),
		.need_bytes = request->segment_bytes,
	};
	if (ret->why != SHORT_NONE && ret->why != SHORT_MACHINE)
		return;
	if (ret->why == SHORT_NONE && (place_exact(&search, ret) || place_cut(&search, ret)))
		return;
	room_init(&room, host, goals);
	node = roomiest_node(&search, &room);
	if (node < 0) {
		ret->why = SHORT_NO_NODE;
		return;
	}
	have_bytes = room_bytes(&room, class_on(&search, node));
	ret->have_bytes = have_bytes > 0 ? (uint64_t)have_bytes : 0;
	if (ret->why == SHORT_MACHINE)
		return;
	if (have_bytes >= search.need_bytes) {
		ret->placement = PLACE_FILL;
		ret->page_class = class_on(&search, node);
		return;
	}
	if (!place_release(&search, &room, ret))
		place_later(&search, &room, ret);
}
