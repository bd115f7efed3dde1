/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * policy/reserve.h - decide how the kernel's own pool of huge pages is brought to a target.
 *
 * Pure, as policy/policy.h. The plan says for each node from how many pages to how many, and with how
 * many threads; what the host cannot spare is left out of it and named.
 */
#ifndef PREZERO_POLICY_RESERVE_H
#define PREZERO_POLICY_RESERVE_H

#include "model/goal.h"
#include "model/view.h"

enum reserve_method {
	RESERVE_AUTO, /* in a goal only: the plan has one of the others */
	RESERVE_PLAIN, /* writes to nr_hugepages: one thread of the kernel's choosing, the caller's */
	RESERVE_PARALLEL, /* surplus pages allocated by a team of threads, then adopted */
};

/* Why that method: stable, part of the interface. */
enum reserve_reason {
	RESERVE_ASKED, /* the goal names it */
	RESERVE_GIGANTIC, /* pages of this size cannot be surplus */
	RESERVE_OPTIMIZED, /* the kernel gives up the pages' metadata (HVO): for surplus pages it does that
			    * one by one, which takes several times as long */
	RESERVE_NOT_ZEROED, /* the kernel zeroes nothing when it allocates: there is no work to share */
	RESERVE_FEW_THREADS, /* only one: nobody to share the work with */
	RESERVE_FEW_PAGES, /* what threads save does not make up for starting them */
	RESERVE_NO_GROWTH,
	RESERVE_ZEROED, /* the kernel zeroes what it allocates: threads share that */
};
const char *reserve_method_name(enum reserve_method method); /* "plain", "parallel" */
const char *reserve_reason_name(enum reserve_reason reason); /* a clause for people */

#define PERCENT_ALL 10000 /* hundredths of a percent */

struct reserve_share {
	int node;
	uint64_t bytes; /* 0: percent counts */
	unsigned int percent; /* of the goal's bytes; all shares together make PERCENT_ALL */
};

struct reserve_goal {
	uint64_t page_bytes;
	uint64_t bytes; /* that the pool is to have: in all, or on the nodes of the shares */
	unsigned int
		n_shares; /* 0: growth is spread evenly over the nodes, as far as they have room */
	struct reserve_share share[NODES_MAX];
	bool shrink; /* a pool that is larger gives back; else it stays */
	unsigned int n_threads; /* 0: a quarter of the usable CPUs, at least two, and one a node */
	struct id_set cpus; /* empty: all usable ones */
	uint64_t floor_bytes; /* stays available; 0: the default, see policy_floor_bytes() */
	enum reserve_method method;
	bool kernel_zeroes; /* what it allocates: init_on_alloc */
	bool kernel_optimizes; /* the metadata of huge pages: hugetlb_optimize_vmemmap */
};

struct reserve_node {
	int node;
	uint64_t from_pages; /* persistent: without surplus */
	uint64_t wanted_pages;
	uint64_t to_pages; /* what there is room for: between from_pages and wanted_pages */
	unsigned int n_threads;
};

struct reserve_plan {
	enum reserve_method method;
	enum reserve_reason reason;
	unsigned int n_threads;
	uint64_t unit_bytes; /* of one thread's work at a time */
	enum shortage why; /* to_pages stays behind wanted_pages: SHORT_FLOOR or SHORT_NONE */
	unsigned int n_nodes;
	struct reserve_node
		node[NODES_MAX]; /* only those that change or are named; most work first */
};

/* 0, or -EINVAL with *ret_why (and the node, or -1) for a goal that this host can never have: SHORT_NO_CLASS,
 * SHORT_NO_NODE, SHORT_NOT_MULTIPLE, SHORT_MACHINE, SHORT_CGROUP (of its cpuset's nodes). */
MUST_CHECK int policy_reserve(const struct host_view *host, const struct reserve_goal *goal,
			      struct reserve_plan *ret, enum shortage *ret_why, int *ret_node);

#endif
