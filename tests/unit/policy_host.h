/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/policy_host.h - a host and a pool for tests of policy, in a few lines.
 */
#ifndef PREZERO_TESTS_POLICY_HOST_H
#define PREZERO_TESTS_POLICY_HOST_H

#include <string.h>

#include "policy/policy.h"

#define MIB (1ULL << 20)
#define GIB (1ULL << 30)
#define TIB (1ULL << 40)

static const struct page_size page_2m = {PAGE_HUGETLB, 2 * MIB};
static const struct page_size page_1g = {PAGE_HUGETLB, GIB};
static const struct page_size page_thp = {PAGE_THP, 2 * MIB};
static const struct page_size page_base = {PAGE_BASE, 4096};

/* Nodes of equal memory, half of it available, 2M and 1G pages of which none are there yet. */
static inline void host_make(struct host_view *host, unsigned int n_nodes, uint64_t node_bytes)
{
	memset(host, 0, sizeof(*host));
	host->base_page_bytes = 4096;
	host->thp_bytes = 2 * MIB;
	host->total_bytes = n_nodes * node_bytes;
	host->available_bytes = host->total_bytes / 2;
	host->cgroup_headroom_bytes = UNLIMITED;
	host->nodes_end = n_nodes;
	for (unsigned int n = 0; n < n_nodes; n++) {
		host->node[n].online = true;
		host->node[n].total_bytes = node_bytes;
		host->node[n].free_bytes = host->node[n].available_bytes = node_bytes / 2;
		id_set_add(&host->node[n].cpus, n);
		id_set_add(&host->cpus, n);
	}
	host->n_hugetlb = 2;
	host->hugetlb[0].page_bytes = 2 * MIB;
	host->hugetlb[1].page_bytes = GIB;
	host->hugetlb[0].cgroup_headroom_bytes = UNLIMITED;
	host->hugetlb[1].cgroup_headroom_bytes = UNLIMITED;
}

static inline void host_add_pages(struct host_view *host, unsigned int i, unsigned int node,
				  uint64_t total, uint64_t free)
{
	host->hugetlb[i].node[node].total_pages += total;
	host->hugetlb[i].node[node].free_pages += free;
	host->hugetlb[i].total_pages += total;
	host->hugetlb[i].free_pages += free;
}

static inline void host_set_available(struct host_view *host, unsigned int node, uint64_t bytes)
{
	host->available_bytes += bytes - host->node[node].available_bytes;
	host->node[node].available_bytes = bytes;
}

#endif
