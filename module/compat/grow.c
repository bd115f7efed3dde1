// SPDX-License-Identifier: GPL-2.0-only
/*
 * Kernels up to 6.6 grow a pool page by page, each fresh page being listed by freeing it, and the
 * free path ends a mark. So a page that the kernel zeroed as it allocated it cannot bear its mark
 * that far, and is marked as it is listed.
 *
 * That it is the fresh page is known by what lies on the growing task's stack: which page it got,
 * while it has not returned from growing the pool by it. Nobody else can have had that page in
 * between, so a missed hook leaves pages unmarked and nothing else.
 */
#include <linux/list.h>
#include <linux/sched.h>
#include <linux/spinlock.h>

#include "grow.h"
#include "handout.h"
#include "prezero.h"

struct grower {
	struct list_head list;
	struct task_struct *task;
	struct folio *fresh;
};

/* Inside hugetlb_lock. */
static DEFINE_SPINLOCK(growers_lock);
static LIST_HEAD(growers);

DEFINE_STATIC_CALL_NULL(kernel_grow, on_grow);
DEFINE_STATIC_CALL_NULL(kernel_grow_page, on_grow_page);

static struct grower *find_grower(void)
{
	struct grower *grower;

	list_for_each_entry(grower, &growers, list)
		if (grower->task == current)
			return grower;
	return NULL;
}

/* The pool grows by one page: allocated by on_grow_page(), then freed. */
int on_grow(struct hstate *h, nodemask_t *nodes, nodemask_t *no_retry)
{
	struct grower self = { .task = current };
	int grown;

	handout_enter();
	spin_lock_irq(&growers_lock);
	list_add(&self.list, &growers);
	spin_unlock_irq(&growers_lock);

	grown = static_call(kernel_grow)(h, nodes, no_retry);

	spin_lock_irq(&growers_lock);
	list_del(&self.list);
	spin_unlock_irq(&growers_lock);
	handout_leave();
	return grown;
}

struct folio *on_grow_page(struct hstate *h, gfp_t gfp, int node, nodemask_t *nodes,
			   nodemask_t *no_retry)
{
	struct grower *grower;
	struct folio *folio;

	handout_enter();
	folio = static_call(kernel_grow_page)(h, gfp, node, nodes, no_retry);
	if (folio && handout_fresh_is_clean()) {
		spin_lock_irq(&growers_lock);
		grower = find_grower();
		if (grower)
			grower->fresh = folio;
		spin_unlock_irq(&growers_lock);
	}
	handout_leave();
	return folio;
}

/* Is this page, which is being listed, the one that the current task grows a pool by? (L) */
bool grow_is_fresh(struct folio *folio)
{
	struct grower *grower;
	bool fresh;

	if (likely(list_empty(&growers)))
		return false;
	spin_lock(&growers_lock);
	grower = find_grower();
	fresh = grower && grower->fresh == folio;
	if (fresh)
		grower->fresh = NULL;
	spin_unlock(&growers_lock);
	return fresh;
}
