/* SPDX-License-Identifier: GPL-2.0-only */
/* See grow.c: kernels up to 6.6 list a fresh page by freeing it. */
#ifndef PREZERO_GROW_H
#define PREZERO_GROW_H

#include <linux/hugetlb.h>
#include <linux/static_call.h>

int on_grow(struct hstate *h, nodemask_t *nodes, nodemask_t *no_retry);
struct folio *on_grow_page(struct hstate *h, gfp_t gfp, int node, nodemask_t *nodes,
			   nodemask_t *no_retry);

DECLARE_STATIC_CALL(kernel_grow, on_grow);
DECLARE_STATIC_CALL(kernel_grow_page, on_grow_page);

bool grow_is_fresh(struct folio *folio);

#endif
