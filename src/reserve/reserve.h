/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * reserve/reserve.h - bring the kernel's own pool of huge pages to a target.
 *
 * All or told: the result says for each node how many pages it has, and why not more. Nothing borrowed
 * outlives a run, or else the next one puts it back. Another administrator's later write wins: a count
 * or setting that is not what this run left there is not written again.
 */
#ifndef PREZERO_RESERVE_RESERVE_H
#define PREZERO_RESERVE_RESERVE_H

#include "host/host.h"
#include "policy/reserve.h"

struct reserve_progress {
	uint64_t done_bytes, total_bytes;
	uint64_t elapsed_ns;
};

struct reserve_config {
	struct host *host;
	const struct host_view *seen; /* that the plan was made from */
	const char *runtime_dir; /* for the lock and the record of what is borrowed */
	uint64_t deadline_ms; /* from the start; no more is tried after it. 0: none */
	bool all_or_nothing; /* what comes short is rolled back, also when stopped */
	bool is_imagined; /* the host is a tree of files: no kernel allocates anything there */
	/* Asked at least ten times a second while there is work, in the caller's thread: false stops the
	 * run at once. NULL: never asked. */
	bool (*tick)(void *arg, const struct reserve_progress *progress);
	void *arg;
};

struct reserve_node_result {
	int node;
	uint64_t from_pages, wanted_pages, have_pages; /* without surplus */
	uint64_t surplus_pages; /* still in use beyond have_pages, after shrinking */
	uint64_t retry_pages; /* of have_pages: what compaction gained */
	bool is_overruled; /* somebody else wrote the count meanwhile */
};

struct reserve_result {
	enum reserve_method method;
	enum reserve_reason reason;
	unsigned int n_threads; /* that did work */
	uint64_t elapsed_ns;
	unsigned int n_nodes;
	struct reserve_node_result node[NODES_MAX]; /* by node */
	/* Why wanted_pages were not reached: SHORT_NONE (they were, or it was stopped or overruled),
	 * SHORT_FLOOR, SHORT_PAGES (the kernel found no more contiguous memory). */
	enum shortage why;
	bool is_stopped, is_late, is_rolled_back;
	bool overcommit_overruled; /* nr_overcommit_hugepages was written meanwhile, and left so */
};

/* The plan for a goal, as policy_reserve(); fills in what the goal says of the kernel. Where *seen has too
 * little memory, CPUs' lists are drained and it is looked at anew. */
MUST_CHECK int reserve_decide(struct host *host, struct host_view *seen, struct reserve_goal *goal,
			      struct reserve_plan *ret, enum shortage *ret_why, int *ret_node);

/* As planned. 0 with *ret also where pages came short. -EBUSY: another run is under way; -EBADMSG: the
 * record in the runtime directory cannot be understood; otherwise what the kernel refused (-EACCES:
 * not root). */
MUST_CHECK int reserve_run(const struct reserve_config *config, const struct reserve_goal *goal,
			   const struct reserve_plan *plan, struct reserve_result *ret);

/* Puts back what a killed run had borrowed. 1: something was put back; 0: there was nothing, or somebody
 * wrote the setting since; -EBUSY: a run is under way and has borrowed. reserve_run() does it by itself. */
MUST_CHECK int reserve_mend(struct host *host, const char *runtime_dir);

#endif
