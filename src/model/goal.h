/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * model/goal.h - what the configuration wants, and what policy orders.
 *
 * Goals are what an administrator wrote; orders are what the loop does next. Plain data.
 */
#ifndef PREZERO_MODEL_GOAL_H
#define PREZERO_MODEL_GOAL_H

#include <stdbool.h>
#include <stdint.h>

#include "model/class.h"
#include "model/view.h"

/* One [stock NAME] section: keep `keep` segments of `segment_bytes` ready in a class. */
struct stock {
	char name[32];
	struct page_class page_class; /* node NODE_ANY: spread evenly over the online nodes */
	uint64_t segment_bytes;
	unsigned int keep;
	bool reserve; /* the kernel's pool is grown by as much */
};

/* Pages of a hugetlb size that the pool leaves to other users of the host, on every node. */
struct leave_free {
	struct page_size page;
	uint64_t bytes_per_node;
};

struct goals {
	unsigned int n_stocks;
	struct stock *stock; /* in the order of the configuration: earlier is filled first */
	unsigned int n_leave_free;
	struct leave_free *leave_free;
	uint64_t floor_bytes; /* stays available on the host; 0: the default, see floor_bytes() */
};

/* A consumer's wish. */
struct request {
	struct page_size page;
	int node; /* or NODE_ANY */
	uint64_t segment_bytes;
};

enum order_kind {
	ORDER_FILL, /* a new segment of segment_bytes in page_class */
	ORDER_RELEASE, /* one ready segment of that size goes back to the kernel */
};

struct order {
	enum order_kind kind;
	struct page_class page_class;
	uint64_t segment_bytes;
	unsigned int count;
};

/* How a request is met: from best to worst. */
enum placement {
	PLACE_EXACT, /* lend a ready segment of this size */
	PLACE_CUT, /* cut this larger ready segment to size, then lend it */
	PLACE_FILL, /* fill one from the kernel's free pages */
	PLACE_RELEASE_AND_FILL, /* first give ready segments of other sizes back: orders[] */
	PLACE_WAIT, /* nothing now; leases that end, or fills under way, would make it possible */
	PLACE_REFUSE, /* impossible on this host as it is configured */
};

/* Why a request or a stock cannot be met; stable, part of the interface. */
enum shortage {
	SHORT_NONE,
	SHORT_NO_CLASS, /* the host has no such page size */
	SHORT_NO_NODE, /* no such NUMA node, or it has no memory */
	SHORT_NOT_MULTIPLE, /* not a multiple of the page */
	SHORT_MACHINE, /* larger than the machine's memory */
	SHORT_PAGES, /* too few free huge pages */
	SHORT_LEAVE_FREE, /* leave_free keeps what is left */
	SHORT_FLOOR, /* the memory floor */
	SHORT_CGROUP, /* the daemon's cgroup limit */
	SHORT_THP, /* transparent huge pages cannot be had for tmpfs */
	SHORT_LIMIT, /* the user's limit */
};
const char *shortage_name(enum shortage why); /* "pages", "floor", ...: as on the wire */

struct decision {
	enum placement placement;
	struct page_class page_class; /* node resolved unless refused */
	uint64_t segment_bytes; /* of the ready segment to lend or cut */
	unsigned int n_orders; /* PLACE_RELEASE_AND_FILL: what to release first */
	struct order orders[16];
	enum shortage why; /* PLACE_WAIT and PLACE_REFUSE */
	uint64_t have_bytes, need_bytes;
};

#endif
