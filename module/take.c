// SPDX-License-Identifier: GPL-2.0-only
/*
 * Taking a dirty page off the free list and giving it back.
 *
 * A page that is taken looks to the kernel like one that was just handed out: on the active list,
 * one reference, not HPG_freed. Nobody hands it out, dissolves or migrates it.
 *
 * But it stays counted as free. Reservations and limits are kept by that count; were it lowered,
 * an mmap() would be refused for want of pages that come back in a moment. What the count
 * promises and the list does not have, an allocation waits for, see handout.c.
 */
#include <linux/ktime.h>
#include <linux/page_ref.h>
#include <linux/sched/signal.h>

#include "compat.h"
#include "mark.h"
#include "prezero.h"
#include "trace.h"

/* List entries looked at under one hold of hugetlb_lock. */
#define LOOK_ENTRIES 64

/* Dirty pages on the free list, as far as the counters know. (L) */
static bool may_have_dirty(const struct page_class *class)
{
	const struct hstate *h = class_hstate(class);

	return h->free_huge_pages_node[class->node] >
	       class->clean_pages + class->poisoned_pages + class->held_pages;
}

static void take(struct page_class *class, struct folio *folio)
{
	list_move(&folio->lru, &class_hstate(class)->hugepage_activelist);
	folio_ref_unfreeze(folio, 1);
	clear_bit(HPG_freed, mark_word(folio));
	class->held_pages++;
	class->size->held_pages++;
}

/*
 * One look at the end of the list, where dirty pages stand. A clean or poisoned one found there
 * goes to the front, which restores the order if a missed hook has upset it. Returns -ENOENT if
 * none of the entries looked at was dirty.
 */
static struct folio *look(struct page_class *class)
{
	struct list_head *list = &class_hstate(class)->hugepage_freelists[class->node];
	unsigned int i;

	if (class->size->waiters)
		return ERR_PTR(-EAGAIN);
	if (!zero_may_mark() || !may_have_dirty(class))
		return NULL;

	for (i = 0; i < LOOK_ENTRIES && !list_empty(list); i++) {
		struct folio *last = list_last_entry(list, struct folio, lru);

		if (!mark_test(last) && !PageHWPoison(&last->page)) {
			take(class, last);
			return last;
		}
		list_move(&last->lru, list);
	}
	return ERR_PTR(-ENOENT);
}

/*
 * Returns a dirty page, or NULL if there is none, or -EAGAIN if an allocation keeps zeroing out or
 * a signal is pending.
 */
struct folio *take_page(struct page_class *class)
{
	unsigned long looked_at = 0;

	for (;;) {
		struct folio *folio;

		spin_lock_irq(kernel.hugetlb_lock);
		folio = look(class);
		spin_unlock_irq(kernel.hugetlb_lock);
		if (folio != ERR_PTR(-ENOENT))
			return folio;

		/* Once through the list, and no dirty page: then the counters are wrong. */
		looked_at += LOOK_ENTRIES;
		if (looked_at > class_hstate(class)->free_huge_pages_node[class->node]) {
			count_verify(class);
			looked_at = 0;
		}
		if (signal_pending(current))
			return ERR_PTR(-EAGAIN);
		cond_resched();
	}
}

/*
 * Has the pool been asked to shrink meanwhile? Then the kernel, which did not find the page, has
 * counted it as surplus. A surplus page that a reservation counts on stays, though. (L)
 */
static bool is_unwanted(const struct page_class *class)
{
	const struct hstate *h = class_hstate(class);

	return h->surplus_huge_pages_node[class->node] && h->free_huge_pages > h->resv_huge_pages;
}

/*
 * May the page go back on the free list just like that? Not if it is unwanted, has got a memory
 * error, or somebody has taken a reference. (L)
 */
static bool may_list(const struct page_class *class, struct folio *folio)
{
	return !is_unwanted(class) && !PageHWPoison(&folio->page) &&
	       !folio_flag(folio, HPG_temporary) && folio_ref_freeze(folio, 1);
}

/*
 * Returns true if the page is back on the free list and clean.
 *
 * If it may not be listed the kernel's own free path, which knows best what to do, sees to it when
 * the last reference goes. That path takes the page for one in use like any other: it enters it
 * into the count of free pages, which the page never left, and takes it out of the count of pages
 * in use, which it never entered. So we do the opposite first.
 */
bool give_page(struct page_class *class, struct folio *folio, bool zeroed, u64 taken_ns)
{
	struct hstate *h = class_hstate(class);
	struct list_head *list = &h->hugepage_freelists[class->node];
	u64 hold_ns = ktime_get_ns() - taken_ns;
	bool clean, listed, last;

	spin_lock_irq(kernel.hugetlb_lock);
	class->held_pages--;
	last = !--class->size->held_pages;
	class->size->give_count++;
	class->longest_hold_ns = max_t(u64, class->longest_hold_ns, hold_ns);

	listed = may_list(class, folio);
	clean = listed && zeroed && zero_may_mark();
	if (clean) {
		mark_set(folio);
		count_enter(class, folio);
	}
	if (listed) {
		set_bit(HPG_freed, mark_word(folio));
		if (clean)
			list_move(&folio->lru, list);
		else
			list_move_tail(&folio->lru, list);
	} else {
		h->free_huge_pages--;
		h->free_huge_pages_node[class->node]--;
	}
	spin_unlock_irq(kernel.hugetlb_lock);

	trace_prezero_zero(folio_pfn(folio), huge_page_size(h), class->node, clean, hold_ns);
	if (!listed) {
		compat_count_in_use(folio);
		folio_put(folio);
		class_count(class, STAT_RETURNED);
	}
	if (last)
		wake_up_all(&class->size->held_wait);
	return clean;
}

/* Does an allocation wait for pages of this size? */
bool give_way_wanted(const struct huge_size *size)
{
	return READ_ONCE(size->waiters);
}

/* Sleeps until no allocation keeps zeroing out of this size, or a signal comes. */
void take_wait_for_turn(struct huge_size *size)
{
	if (give_way_wanted(size))
		(void)wait_event_interruptible(size->held_wait, !give_way_wanted(size));
}
