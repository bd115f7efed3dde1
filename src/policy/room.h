/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * policy/room.h - what the pool may still take, kept while decisions are made about it.
 *
 * Amounts are signed: below zero is what others are owed first (reservations, leave_free, the floor),
 * and what is given back pays that before it makes room. Every amount is cut at 64 PiB, so that sums
 * over all nodes cannot overflow whatever the view says.
 */
#ifndef PREZERO_POLICY_ROOM_H
#define PREZERO_POLICY_ROOM_H

#include "model/goal.h"
#include "model/view.h"

#define ROOM_MAX (1LL << 56)

struct room {
	unsigned int n_nodes;
	unsigned int n_hugetlb;
	struct {
		uint64_t page_bytes;
		int64_t leave_bytes; /* of every node */
		int64_t owed_bytes; /* by all nodes together: what is reserved */
		int64_t cgroup_bytes;
		int64_t node_bytes[NODES_MAX]; /* free, less leave_bytes */
	} hugetlb[HUGETLB_SIZES_MAX];
	/* thp and base pages share the memory above the floor. */
	int64_t host_bytes, cgroup_bytes;
	int64_t node_bytes[NODES_MAX];
};

void room_init(struct room *room, const struct host_view *host, const struct goals *goals);

/* The page size is the room's, from here on: see page_class_check(). */
int64_t room_bytes(const struct room *room, struct page_class page_class);
/* What bounds all nodes together. */
int64_t room_host_bytes(const struct room *room, struct page_size page);
void room_take(struct room *room, struct page_class page_class, int64_t bytes);
/* What is in the way of taking bytes, which are more than room_bytes(). */
enum shortage room_shortage(const struct room *room, struct page_class page_class, int64_t bytes);
/* Whether what one class gives back makes room in another. */
bool room_is_shared(struct page_size a, struct page_size b);

/* Why the host can never have a segment of that class, as it is; SHORT_NONE: it can. */
enum shortage page_class_check(const struct host_view *host, struct page_class page_class,
			       uint64_t segment_bytes);

/* An amount of a view or a request as room: nothing is larger than ROOM_MAX. */
static inline int64_t room_amount(uint64_t bytes)
{
	return bytes > (uint64_t)ROOM_MAX ? ROOM_MAX : (int64_t)bytes;
}

#endif
