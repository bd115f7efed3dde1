// SPDX-License-Identifier: GPL-2.0-only
/*
 * Zeroing: in the caller's context and so at the caller's expense, one page after the other, until
 * there is no dirty page left, the limit is reached, or a signal comes.
 *
 * Any number of callers may be at it. They share hugetlb_lock for the moment of taking and giving a
 * page, and nothing while they zero.
 */
#include <linux/ktime.h>
#include <linux/memory_hotplug.h>
#include <linux/sched/signal.h>

#include "compat.h"
#include "prezero.h"

/*
 * Pages cleared between two rescheduling points: 128 KiB, which takes about 13 us at 10 GB/s. This
 * is what zeroing adds to the scheduling latency of a kernel without full preemption.
 */
#define EXTENT_PAGES 32U

/* May pages be marked? Not before the self-test, nor while memory goes offline, nor at unload. */
static bool started;
static atomic_t blocks = ATOMIC_INIT(0);
/* Callers are to return: the module is about to be unloaded. */
static bool interrupted;

bool zero_may_mark(void)
{
	return READ_ONCE(started) && !atomic_read(&blocks);
}

void zero_start(void)
{
	WRITE_ONCE(started, true);
}

void zero_interrupt(void)
{
	WRITE_ONCE(interrupted, true);
}

/* With zero_may_mark() false no page is taken any more; waits until those taken before are back. */
static void wait_for_held_pages(void)
{
	unsigned int i;

	/* It is asked under this lock, so everybody who asks after us gets the new answer. */
	spin_lock_irq(kernel.hugetlb_lock);
	spin_unlock_irq(kernel.hugetlb_lock);

	for (i = 0; i < class_nr_sizes(); i++) {
		struct huge_size *size = size_of(&kernel.hstates[i]);

		wait_event(size->held_wait, !READ_ONCE(size->held_pages));
	}
}

/* Until zero_unblock() pages are neither taken nor marked. */
void zero_block(void)
{
	atomic_inc(&blocks);
	wait_for_held_pages();
}

void zero_unblock(void)
{
	atomic_dec(&blocks);
}

/* Leaves no page marked. */
void zero_stop(void)
{
	unsigned int i;
	int node;

	WRITE_ONCE(started, false);
	wait_for_held_pages();
	/* Fresh pages are marked before they are listed; wait for pools that are growing. */
	for (i = 0; i < class_nr_sizes(); i++) {
		mutex_lock(&kernel.hstates[i].resize_lock);
		mutex_unlock(&kernel.hstates[i].resize_lock);
	}
	for_each_online_node(node)
		count_clear_marks(node_start_pfn(node), node_end_pfn(node));
}

static bool must_stop(void)
{
	return signal_pending(current) || READ_ONCE(interrupted);
}

/*
 * Pages of more than 16 MiB, 1G in practice, are left unfinished when somebody is in a hurry. For
 * smaller ones finishing is as quick as stopping, and the work is not lost.
 */
static bool must_leave(const struct page_class *class)
{
	return huge_page_size(class_hstate(class)) > SZ_16M &&
	       (must_stop() || give_way_wanted(class->size) || atomic_read(&blocks));
}

/* Returns false if it was left unfinished. */
static bool zero_page(const struct page_class *class, struct folio *folio)
{
	unsigned int nr_pages = pages_per_huge_page(class_hstate(class));
	char *start = page_address(&folio->page);
	unsigned int done;

	for (done = 0; done < nr_pages; done += EXTENT_PAGES) {
		if (done && must_leave(class))
			return false;
		compat_clear_pages(start + done * PAGE_SIZE, min(EXTENT_PAGES, nr_pages - done));
		cond_resched();
	}
	return true;
}

/*
 * Zeroes up to `limit_pages` dirty pages of the class. Returns how many, or -EINTR if a signal came
 * before one was finished.
 *
 * The size of the pool is a bound too: on a busy host pages become dirty as fast as they are zeroed,
 * and "max" would never end.
 */
long zero_pages(struct page_class *class, unsigned long limit_pages)
{
	unsigned long done_pages = 0;

	limit_pages = min_t(unsigned long, limit_pages,
			    READ_ONCE(class_hstate(class)->nr_huge_pages_node[class->node]));

	while (done_pages < limit_pages) {
		struct folio *folio;
		u64 taken_ns;
		bool zeroed;

		if (must_stop()) {
			if (!done_pages)
				return -EINTR;
			break;
		}
		folio = take_page(class);
		if (!folio)
			break;
		if (IS_ERR(folio)) {
			take_wait_for_turn(class->size);
			continue;
		}

		taken_ns = ktime_get_ns();
		zeroed = zero_page(class, folio);
		if (give_page(class, folio, zeroed, taken_ns)) {
			class_count(class, STAT_ZEROED);
			done_pages++;
		} else if (!zeroed) {
			class_count(class, STAT_UNFINISHED);
		}
		cond_resched();
	}
	return done_pages;
}
