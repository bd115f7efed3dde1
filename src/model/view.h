/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * model/view.h - what was seen: the host's memory and the pool's segments at one moment.
 *
 * Plain data, filled by host and pool, read by policy. A host_view is large (about 100 KiB): static or
 * on the heap rather than on a stack.
 */
#ifndef PREZERO_MODEL_VIEW_H
#define PREZERO_MODEL_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/parse.h"
#include "model/class.h"

#define HUGETLB_SIZES_MAX 8
#define UNLIMITED UINT64_MAX

/* One hugetlb size on one node. */
struct hugetlb_node_view {
	uint64_t total_pages;
	uint64_t free_pages;
	uint64_t surplus_pages;
	uint64_t zeroable_pages; /* valid when has_zeroable */
	bool has_zeroable; /* the kernel file is there */
};

/* One hugetlb size on the host. Reservations are counted by the kernel for the whole host only. */
struct hugetlb_view {
	uint64_t page_bytes;
	uint64_t total_pages;
	uint64_t free_pages;
	uint64_t reserved_pages;
	uint64_t surplus_pages;
	uint64_t overcommit_pages;
	uint64_t
		cgroup_headroom_bytes; /* of the hugetlb controller, up the daemon's path; UNLIMITED */
	struct hugetlb_node_view node[NODES_MAX]; /* by node id */
};

struct node_view {
	bool online; /* has memory that this process may use */
	uint64_t total_bytes;
	uint64_t free_bytes;
	uint64_t available_bytes; /* free and cheaply reclaimable: an estimate as MemAvailable is */
	struct id_set cpus;
};

struct host_view {
	uint64_t base_page_bytes;
	uint64_t default_hugetlb_bytes; /* Hugepagesize of /proc/meminfo; 0: no hugetlb here */
	uint64_t thp_bytes; /* 0: no transparent huge pages here */
	bool thp_shmem_denied; /* shmem_enabled=deny: thp segments cannot be had */
	uint64_t total_bytes;
	uint64_t available_bytes;
	uint64_t cgroup_headroom_bytes; /* least of limit - usage up the daemon's path; UNLIMITED */
	struct id_set cpus; /* that this process may use: affinity and cpuset */
	unsigned int nodes_end; /* one more than the highest online node id */
	struct node_view node[NODES_MAX]; /* by node id */
	unsigned int n_hugetlb;
	struct hugetlb_view hugetlb[HUGETLB_SIZES_MAX]; /* by page_bytes, ascending */
};

/* What of an amount falls to a part of the whole, in proportion; nothing of nothing. */
static inline uint64_t share_bytes(uint64_t amount_bytes, uint64_t part_bytes, uint64_t whole_bytes)
{
	if (part_bytes >= whole_bytes)
		return whole_bytes ? amount_bytes : 0;
	return (uint64_t)((double)amount_bytes * ((double)part_bytes / (double)whole_bytes));
}

/* NULL when the host has no such size. */
const struct hugetlb_view *host_view_hugetlb(const struct host_view *view, uint64_t page_bytes);
bool host_view_has_node(const struct host_view *view, int node);

/* All segments of one size in one class: what the pool counts, without the list of them. */
struct bucket_view {
	struct page_class page_class;
	uint64_t segment_bytes;
	unsigned int n_filling; /* for stock; those for a waiting request are not counted here */
	unsigned int n_ready;
	unsigned int n_lent;
};

struct pool_view {
	unsigned int n_buckets;
	const struct bucket_view *bucket;
};

#endif
