// SPDX-License-Identifier: GPL-2.0-only
/*
 * How many free pages are clean and how many dirty, without walking the free list.
 *
 * Counted are the marked pages on the free list, as they enter and leave it, under the lock that
 * guards it. The dirty ones are the rest of what the kernel itself counts as free. A counter that
 * cannot be right (a hook was missed; a free page got a memory error) makes its class suspect, and
 * the next who asks counts anew.
 *
 * Counting anew does not hold the lock for long either, and is exact all the same: it looks at
 * the pages of a node in the order of their addresses, a batch at a time. What changes between
 * batches below the point reached changes both the counter and the recount; above it, only the
 * counter, for the recount is yet to come there.
 */
#include <linux/memory_hotplug.h>
#include <linux/mutex.h>
#include <linux/sched.h>

#include "mark.h"
#include "prezero.h"
#include "trace.h"

/* Struct pages looked at under one hold of hugetlb_lock: some 20 us where none is in the cache. */
#define BATCH_PAGES 256

static DEFINE_MUTEX(class_mutex);

void count_enter(struct page_class *class, struct folio *folio)
{
	class->clean_pages++;
	if (folio_pfn(folio) < class->recount_pfn)
		class->recount_clean++;
}

void count_leave(struct page_class *class, struct folio *folio)
{
	if (likely(class->clean_pages))
		class->clean_pages--;
	else
		count_suspect(class);
	if (folio_pfn(folio) < class->recount_pfn && class->recount_clean)
		class->recount_clean--;
}

void count_spoil(struct page_class *class, struct folio *folio)
{
	count_leave(class, folio);
	mark_clear(folio);
	file_dirty_event(class);
}

void count_suspect(struct page_class *class)
{
	WRITE_ONCE(class->suspect, true);
}

/* Pages being zeroed are among the dirty ones until they are done. */
unsigned long count_dirty(struct page_class *class)
{
	unsigned long free_pages, not_dirty_pages;

	if (unlikely(READ_ONCE(class->suspect)))
		count_verify(class);

	spin_lock_irq(kernel.hugetlb_lock);
	free_pages = class_hstate(class)->free_huge_pages_node[class->node];
	not_dirty_pages = class->clean_pages + class->poisoned_pages;
	if (unlikely(free_pages < not_dirty_pages))
		count_suspect(class);
	spin_unlock_irq(kernel.hugetlb_lock);

	return free_pages > not_dirty_pages ? free_pages - not_dirty_pages : 0;
}

/* The free huge page that starts at this page frame, if one does. (L) */
static struct folio *free_folio_at(unsigned long pfn)
{
	struct page *page = pfn_to_online_page(pfn);
	struct folio *folio = (struct folio *)page;

	/* HPG_freed changes under hugetlb_lock only, so with it set the page stays what it is. */
	if (!page || !PageHead(page) || !PageHuge(page) || !folio_flag(folio, HPG_freed))
		return NULL;
	return folio;
}

static unsigned long smallest_size_pages(void)
{
	unsigned int order = huge_page_order(&kernel.hstates[0]), i;

	for (i = 1; i < class_nr_sizes(); i++)
		order = min(order, huge_page_order(&kernel.hstates[i]));
	return 1UL << order;
}

/*
 * Visits, under hugetlb_lock, every place in the range where a huge page can start: with the free
 * page there, or NULL.
 */
static void walk_range(unsigned long start_pfn, unsigned long end_pfn,
		       void (*visit)(unsigned long pfn, struct folio *folio, void *data),
		       void *data)
{
	unsigned long step_pages = smallest_size_pages();
	unsigned long pfn = ALIGN(start_pfn, step_pages);

	while (pfn < end_pfn) {
		unsigned int i;

		spin_lock_irq(kernel.hugetlb_lock);
		for (i = 0; i < BATCH_PAGES && pfn < end_pfn; i++, pfn += step_pages)
			visit(pfn, free_folio_at(pfn), data);
		spin_unlock_irq(kernel.hugetlb_lock);
		cond_resched();
	}
}

static void recount_page(unsigned long pfn, struct folio *folio, void *data)
{
	struct page_class *class = data;

	class->recount_pfn = pfn + 1;
	if (!folio || class_of_folio(folio) != class)
		return;
	if (PageHWPoison(&folio->page))
		class->recount_poisoned++;
	else if (mark_test(folio))
		class->recount_clean++;
}

void count_verify(struct page_class *class)
{
	mutex_lock(&class_mutex);

	spin_lock_irq(kernel.hugetlb_lock);
	class->suspect = false;
	class->recount_pfn = 1;
	class->recount_clean = 0;
	class->recount_poisoned = 0;
	spin_unlock_irq(kernel.hugetlb_lock);

	if (node_online(class->node))
		walk_range(node_start_pfn(class->node), node_end_pfn(class->node), recount_page,
			   class);

	spin_lock_irq(kernel.hugetlb_lock);
	if (class->clean_pages != class->recount_clean)
		class_count(class, STAT_DRIFTED);
	class->clean_pages = class->recount_clean;
	class->poisoned_pages = class->recount_poisoned;
	class->recount_pfn = 0;
	spin_unlock_irq(kernel.hugetlb_lock);

	mutex_unlock(&class_mutex);
	class_count(class, STAT_RECOUNTED);
}

static void clear_mark(unsigned long pfn, struct folio *folio, void *data)
{
	if (folio && mark_test(folio))
		count_spoil(class_of_folio(folio), folio);
}

/* Makes all free pages that overlap the range dirty. The caller keeps new marks from being set. */
void count_clear_marks(unsigned long start_pfn, unsigned long end_pfn)
{
	unsigned int i;

	/* A page that starts below the range can reach into it. */
	for (i = 0; i < class_nr_sizes(); i++)
		start_pfn = min(start_pfn,
				ALIGN_DOWN(start_pfn, pages_per_huge_page(&kernel.hstates[i])));
	mutex_lock(&class_mutex);
	walk_range(start_pfn, end_pfn, clear_mark, NULL);
	mutex_unlock(&class_mutex);
}
