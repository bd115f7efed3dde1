/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * policy/room.c - what the pool may still take, and what stops it there.
 *
 * Guarantees: pages that are reserved and pages that leave_free keeps are never counted as room; a
 * node's share of the floor is its share of RAM.
 */
#include "policy/room.h"

#include "policy/policy.h"

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t pages_amount(uint64_t pages, uint64_t page_bytes)
{
	uint64_t bytes;

	return __builtin_mul_overflow(pages, page_bytes, &bytes) ? ROOM_MAX : room_amount(bytes);
}

static uint64_t leave_free_bytes(const struct goals *goals, uint64_t page_bytes)
{
	for (unsigned int i = 0; i < goals->n_leave_free; i++) {
		if (goals->leave_free[i].page.kind == PAGE_HUGETLB &&
		    goals->leave_free[i].page.bytes == page_bytes)
			return goals->leave_free[i].bytes_per_node;
	}
	return 0;
}

static void init_hugetlb(struct room *room, unsigned int i, const struct host_view *host,
			 const struct goals *goals)
{
	const struct hugetlb_view *view = &host->hugetlb[i];
	int64_t host_bytes = pages_amount(view->free_pages, view->page_bytes);
	int64_t leave_bytes = room_amount(leave_free_bytes(goals, view->page_bytes));
	int64_t sum_bytes = 0;

	room->hugetlb[i].page_bytes = view->page_bytes;
	room->hugetlb[i].leave_bytes = leave_bytes;
	room->hugetlb[i].cgroup_bytes = room_amount(view->cgroup_headroom_bytes);
	room->hugetlb[i].owed_bytes = pages_amount(view->reserved_pages, view->page_bytes);
	for (unsigned int n = 0; n < room->n_nodes; n++) {
		int64_t free_bytes = 0;

		if (host->node[n].online)
			free_bytes = pages_amount(view->node[n].free_pages, view->page_bytes);
		room->hugetlb[i].node_bytes[n] = free_bytes - leave_bytes;
		sum_bytes += free_bytes;
	}
	/* The counters are read one after the other: where the host already says less, it holds. */
	if (host_bytes < sum_bytes)
		room->hugetlb[i].owed_bytes += sum_bytes - host_bytes;
}

void room_init(struct room *room, const struct host_view *host, const struct goals *goals)
{
	uint64_t floor_bytes = policy_floor_bytes(host, goals);

	room->n_nodes = host->nodes_end;
	room->n_hugetlb = host->n_hugetlb;
	for (unsigned int i = 0; i < host->n_hugetlb; i++)
		init_hugetlb(room, i, host, goals);
	room->host_bytes = room_amount(host->available_bytes) - room_amount(floor_bytes);
	room->cgroup_bytes = room_amount(host->cgroup_headroom_bytes);
	for (unsigned int n = 0; n < NODES_MAX; n++) {
		const struct node_view *node = &host->node[n];
		uint64_t share = share_bytes(floor_bytes, node->total_bytes, host->total_bytes);

		room->node_bytes[n] = 0;
		if (host_view_has_node(host, (int)n))
			room->node_bytes[n] = room_amount(node->available_bytes) -
					      room_amount(share);
	}
}

static unsigned int size_index(const struct room *room, uint64_t page_bytes)
{
	unsigned int i = 0;

	while (i < room->n_hugetlb && room->hugetlb[i].page_bytes != page_bytes)
		i++;
	return i;
}

/* The kernel counts reservations for the whole host; a reserved page may come from any node. So each
 * node's room is bounded by what is free there, and all rooms together by what is not reserved. A node
 * that has less than it should leave owes nothing to the others. */
static int64_t hugetlb_host_bytes(const struct room *room, unsigned int i, int64_t leave_bytes)
{
	int64_t bytes = -room->hugetlb[i].owed_bytes;

	for (unsigned int n = 0; n < room->n_nodes; n++) {
		int64_t free_bytes = room->hugetlb[i].node_bytes[n] + room->hugetlb[i].leave_bytes;

		if (free_bytes > leave_bytes)
			bytes += free_bytes - leave_bytes;
	}
	return bytes;
}

int64_t room_host_bytes(const struct room *room, struct page_size page)
{
	unsigned int i;

	if (page.kind != PAGE_HUGETLB)
		return least(room->host_bytes, room->cgroup_bytes);
	i = size_index(room, page.bytes);
	if (i == room->n_hugetlb)
		return 0;
	return least(hugetlb_host_bytes(room, i, room->hugetlb[i].leave_bytes),
		     room->hugetlb[i].cgroup_bytes);
}

static int64_t node_room(const struct room *room, struct page_class page_class)
{
	unsigned int i;

	if (page_class.page.kind != PAGE_HUGETLB)
		return room->node_bytes[page_class.node];
	i = size_index(room, page_class.page.bytes);
	return i == room->n_hugetlb ? 0 : room->hugetlb[i].node_bytes[page_class.node];
}

int64_t room_bytes(const struct room *room, struct page_class page_class)
{
	return least(node_room(room, page_class), room_host_bytes(room, page_class.page));
}

void room_take(struct room *room, struct page_class page_class, int64_t bytes)
{
	unsigned int i;

	if (page_class.page.kind != PAGE_HUGETLB) {
		room->node_bytes[page_class.node] -= bytes;
		room->host_bytes -= bytes;
		room->cgroup_bytes -= bytes;
		return;
	}
	i = size_index(room, page_class.page.bytes);
	if (i == room->n_hugetlb)
		return;
	room->hugetlb[i].node_bytes[page_class.node] -= bytes;
	room->hugetlb[i].cgroup_bytes -= bytes;
}

enum shortage room_shortage(const struct room *room, struct page_class page_class, int64_t bytes)
{
	int64_t node_bytes = node_room(room, page_class);
	unsigned int i;

	if (page_class.page.kind != PAGE_HUGETLB)
		return least(node_bytes, room->host_bytes) < bytes ? SHORT_FLOOR : SHORT_CGROUP;
	i = size_index(room, page_class.page.bytes);
	if (i == room->n_hugetlb)
		return SHORT_NO_CLASS;
	if (node_bytes + room->hugetlb[i].leave_bytes < bytes ||
	    hugetlb_host_bytes(room, i, 0) < bytes)
		return SHORT_PAGES;
	if (node_bytes < bytes || hugetlb_host_bytes(room, i, room->hugetlb[i].leave_bytes) < bytes)
		return SHORT_LEAVE_FREE;
	return SHORT_CGROUP;
}

bool room_is_shared(struct page_size a, struct page_size b)
{
	if (a.kind == PAGE_HUGETLB || b.kind == PAGE_HUGETLB)
		return page_size_equal(a, b);
	return true;
}

enum shortage page_class_check(const struct host_view *host, struct page_class page_class,
			       uint64_t segment_bytes)
{
	struct page_size page = page_class.page;
	uint64_t largest_bytes = 0;

	if (!page.bytes || (page.kind == PAGE_HUGETLB && !host_view_hugetlb(host, page.bytes)) ||
	    (page.kind == PAGE_THP && page.bytes != host->thp_bytes) ||
	    (page.kind == PAGE_BASE && page.bytes != host->base_page_bytes))
		return SHORT_NO_CLASS;
	if (page.kind == PAGE_THP && host->thp_shmem_denied)
		return SHORT_THP;
	if (page_class.node != NODE_ANY && !host_view_has_node(host, page_class.node))
		return SHORT_NO_NODE;
	if (!segment_bytes || segment_bytes % page.bytes)
		return SHORT_NOT_MULTIPLE;
	/* A segment stands on one node. */
	for (unsigned int n = 0; n < host->nodes_end; n++) {
		if (host->node[n].online && host->node[n].total_bytes > largest_bytes &&
		    (page_class.node == NODE_ANY || page_class.node == (int)n))
			largest_bytes = host->node[n].total_bytes;
	}
	return segment_bytes > largest_bytes ? SHORT_MACHINE : SHORT_NONE;
}
