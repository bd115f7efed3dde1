/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * model/view.c - looking things up in a view.
 *
 * Guarantees: reads only.
 */
#include "model/view.h"

const struct hugetlb_view *host_view_hugetlb(const struct host_view *view, uint64_t page_bytes)
{
	for (unsigned int i = 0; i < view->n_hugetlb; i++) {
		if (view->hugetlb[i].page_bytes == page_bytes)
			return &view->hugetlb[i];
	}
	return NULL;
}

bool host_view_has_node(const struct host_view *view, int node)
{
	return node >= 0 && (unsigned int)node < view->nodes_end && view->node[node].online;
}
