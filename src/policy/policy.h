/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * policy/policy.h - decide: a view and goals in, orders out.
 *
 * The host's view is what is left once the fills under way are done: whoever runs them deducts what
 * they still have to take.
 *
 * Pure: no clock, no file, no thread, no allocation; the same input gives the same output. Safe to
 * call from anywhere.
 */
#ifndef PREZERO_POLICY_POLICY_H
#define PREZERO_POLICY_POLICY_H

#include "model/goal.h"
#include "model/view.h"

/* The floor in force: the configured one, else the larger of 2 GiB and 5 % of RAM. */
uint64_t policy_floor_bytes(const struct host_view *host, const struct goals *goals);

/* The bytes that the pool may still take from a class now, and what stops it there. hugetlb: free
 * pages that nobody reserved, less leave_free. thp, base: what is available above the floor, of the
 * host and of the node (the node's share of the floor is its share of RAM), and cgroup headroom. */
uint64_t policy_headroom_bytes(const struct host_view *host, const struct goals *goals,
			       struct page_class page_class, enum shortage *ret_why);

/* What to fill and what to release so that the stocks stand as configured. Fills under way are in the
 * view and are not ordered again. Writes at most orders_max orders, most urgent first, and returns
 * how many. short_of[i] says what keeps stock i from being met; SHORT_NONE when it is met or under
 * way. Ready segments of a size that no stock wants, or beyond `keep`, are ordered released. */
unsigned int policy_stock(const struct host_view *host, const struct pool_view *pool,
			  const struct goals *goals, struct order *orders, unsigned int orders_max,
			  enum shortage *short_of);

/* Where a request is best met. Flat in the number of segments: looks at buckets only. */
void policy_place(const struct host_view *host, const struct pool_view *pool,
		  const struct goals *goals, const struct request *request, struct decision *ret);

/* How many of a class's dirty free pages to zero in place, so that clean_bytes (UNLIMITED: all) of its
 * free pages are clean. */
uint64_t policy_clean_pages(uint64_t page_bytes, uint64_t free_pages, uint64_t zeroable_pages,
			    uint64_t clean_bytes);

/* Threads for filling: the configured number, else a quarter of the usable CPUs, at least one. */
unsigned int policy_threads(const struct host_view *host, unsigned int configured);

#endif
