// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where the kernel's huge pages come and go: the functions that we put in front of the kernel's
 * own, and the table of them.
 *
 * Each calls the kernel's function, unchanged and with the same arguments, and adds to it:
 *  - on the free list, clean pages stand in front and dirty ones behind, so that clean ones are
 *    handed out first and a dirty one is found at once; and the counters follow;
 *  - the zeroing of a clean page is skipped, once;
 *  - an allocation that found no page because we have them waits and asks again.
 */
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/percpu.h>
#include <linux/sched.h>

#include "compat.h"
#include "grow.h"
#include "handout.h"
#include "hooks.h"
#include "mark.h"
#include "prezero.h"
#include "trace.h"

/*
 * Tasks inside a function of ours that can sleep, by the CPU where they entered; a task may leave
 * on another, so only the sum means something.
 */
static DEFINE_PER_CPU(long, sleepers);

void handout_enter(void)
{
	this_cpu_inc(sleepers);
}

void handout_leave(void)
{
	this_cpu_dec(sleepers);
}

/*
 * Nobody enters any more. So the parts of the sum only fall while it is being taken, and it is
 * never less than the number of tasks inside.
 */
void handout_wait_idle(void)
{
	for (;;) {
		long inside = 0;
		int cpu;

		for_each_possible_cpu(cpu)
			inside += READ_ONCE(*per_cpu_ptr(&sleepers, cpu));
		if (!inside)
			return;
		msleep(1);
	}
}

/* -- the zeroing is skipped -- */

static noinline void do_nothing(void)
{
	barrier();
}

/*
 * At the entry of the kernel's function that zeroes a folio for user space, which serves every
 * large folio, not only ours. Nothing but two comparisons is done for the others.
 */
void notrace handout_at_zeroing(struct ftrace_regs *fregs)
{
	struct folio *folio = (struct folio *)compat_first_argument(fregs);

	if (likely(!mark_test(folio)) || !mark_redeem(folio))
		return;
	trace_prezero_skip(folio_pfn(folio));
	compat_redirect(fregs, (unsigned long)do_nothing);
}

/* -- pages fresh from the buddy allocator -- */

/*
 * With init_on_alloc, many distributions' default, the kernel has just zeroed such a page, whatever
 * it is for, and would do it again at the first fault.
 */
bool handout_fresh_is_clean(void)
{
	return (want_init_on_alloc(GFP_HIGHUSER) || want_init_on_free()) && zero_may_mark() &&
	       selftest_passed();
}

/* The page has no user yet, and is not free yet either, so it can be marked right here. */
static void fresh_page(struct folio *folio)
{
	if (!handout_fresh_is_clean())
		return;
	mark_set(folio);
	class_count(class_of_folio(folio), STAT_FRESH);
}

/* -- the free list: all of these are called under hugetlb_lock -- */

static void on_enqueue(struct hstate *h, struct folio *folio);
DEFINE_STATIC_CALL_NULL(kernel_enqueue, on_enqueue);

/*
 * A page becomes free. If it bears a mark the kernel zeroed it as it was allocated, see
 * fresh_page(); the mark of a page that was in use has just been cleared.
 */
static void on_enqueue(struct hstate *h, struct folio *folio)
{
	struct page_class *class = class_of(h, folio);

	static_call(kernel_enqueue)(h, folio);
	if (grow_is_fresh(folio))
		fresh_page(folio);
	if (mark_test(folio)) {
		if (zero_may_mark()) {
			count_enter(class, folio);
			return;
		}
		mark_clear(folio);
	}
	list_move_tail(&folio->lru, &h->hugepage_freelists[folio_nid(folio)]);
	if (unlikely(PageHWPoison(&folio->page)))
		count_suspect(class);
	else
		file_dirty_event(class);
}

static struct folio *on_dequeue(struct hstate *h, gfp_t gfp, int node, nodemask_t *nodes);
DEFINE_STATIC_CALL_NULL(kernel_dequeue, on_dequeue);

/* A free page is handed out. It keeps its mark until it is zeroed (skipped then) or freed. */
static struct folio *on_dequeue(struct hstate *h, gfp_t gfp, int node, nodemask_t *nodes)
{
	struct folio *folio = static_call(kernel_dequeue)(h, gfp, node, nodes);

	if (folio) {
		struct page_class *class = class_of(h, folio);

		if (mark_test(folio)) {
			count_leave(class, folio);
			class_count(class, STAT_HANDED_CLEAN);
		} else {
			class_count(class, STAT_HANDED_DIRTY);
		}
	}
	return folio;
}

/*
 * A page leaves the pool, free or just freed: for the buddy allocator, or to be split into smaller
 * huge pages. The buddy allocator would reset the mark by itself; the pieces would not.
 *
 * So the pieces of a clean page are dirty. To carry the mark over, this place would have to know
 * that the page is about to be split, and the pieces' way onto the free list that they are its
 * pieces. The kernel tells neither, and a guess that is wrong once is a leak.
 */
static void before_remove(struct hstate *h, struct folio *folio)
{
	struct page_class *class = class_of(h, folio);

	if (mark_test(folio)) {
		if (folio_flag(folio, HPG_freed))
			count_leave(class, folio);
		mark_clear(folio);
	}
	if (unlikely(PageHWPoison(&folio->page)))
		count_suspect(class);
}

static void on_remove(struct hstate *h, struct folio *folio, bool adjust_surplus);
DEFINE_STATIC_CALL_NULL(kernel_remove, on_remove);

static void on_remove(struct hstate *h, struct folio *folio, bool adjust_surplus)
{
	before_remove(h, folio);
	static_call(kernel_remove)(h, folio, adjust_surplus);
	barrier(); /* no tail call: our return address tells at_hook() who calls */
}

/* Up to 6.7 it was also told whether the page is to be split. */
static void on_remove_demote(struct hstate *h, struct folio *folio, bool adjust_surplus,
			     bool demote);
DEFINE_STATIC_CALL_NULL(kernel_remove_demote, on_remove_demote);

static void on_remove_demote(struct hstate *h, struct folio *folio, bool adjust_surplus,
			     bool demote)
{
	before_remove(h, folio);
	static_call(kernel_remove_demote)(h, folio, adjust_surplus, demote);
	barrier(); /* as above */
}

/* -- migration -- */

static compat_isolated on_isolate(struct folio *folio, struct list_head *list);
DEFINE_STATIC_CALL_NULL(kernel_isolate, on_isolate);

/*
 * Migration wants to take a huge page from its user. It asks HPG_migratable whether the page is in
 * place yet, and a marked page that was just handed out would say so too early. Without a mapping a
 * page is not in place: then the mark goes, and the kernel's function sees what it would without
 * us.
 */
static compat_isolated on_isolate(struct folio *folio, struct list_head *list)
{
	compat_isolated isolated;

	if (unlikely(mark_test(folio))) {
		spin_lock_irq(kernel.hugetlb_lock);
		if (PageHuge(&folio->page) && mark_test(folio) && !READ_ONCE(folio->mapping)) {
			if (folio_flag(folio, HPG_freed))
				count_spoil(class_of_folio(folio), folio);
			else
				mark_clear(folio);
		}
		spin_unlock_irq(kernel.hugetlb_lock);
	}
	isolated = static_call(kernel_isolate)(folio, list);
	barrier(); /* as above */
	return isolated;
}

/* -- allocations wait for pages that are being zeroed -- */

/*
 * An allocation's turn. Pages being zeroed are off the free list but counted as free: every promise
 * that the kernel makes by that count (reservations, limits) stays true, and only the allocation
 * itself may find the list empty. Then it keeps zeroing out of this size, waits until the pages
 * being zeroed are back (2M: until they are done; larger ones give way), and asks the kernel again.
 * That second answer is the kernel's own: none of its pages is with us.
 */
struct turn {
	struct huge_size *size;
	unsigned long give_count;
	bool keeps_zeroing_out;
};

static void keep_zeroing_out(struct turn *turn)
{
	struct huge_size *size = turn->size;
	u64 start_ns = ktime_get_ns();

	spin_lock_irq(kernel.hugetlb_lock);
	size->waiters++;
	spin_unlock_irq(kernel.hugetlb_lock);
	turn->keeps_zeroing_out = true;

	/* A task that is being killed need not wait: the kernel's answer no longer matters. */
	(void)wait_event_killable(size->held_wait, !READ_ONCE(size->held_pages));
	class_count(class_at(size->hstate - kernel.hstates, numa_node_id()), STAT_WAITED);
	trace_prezero_wait(huge_page_size(size->hstate), ktime_get_ns() - start_ns);
}

static void turn_begin(struct turn *turn, struct hstate *h)
{
	struct huge_size *size = size_of(h);
	unsigned int held_pages = READ_ONCE(size->held_pages);

	handout_enter();
	turn->size = size;
	turn->keeps_zeroing_out = false;
	/* All that is free is with us: do not send the kernel to the buddy allocator meanwhile. */
	if (unlikely(held_pages && held_pages >= READ_ONCE(h->free_huge_pages)))
		keep_zeroing_out(turn);
	turn->give_count = READ_ONCE(size->give_count);
}

/* It failed: because of us? Then ask once more. */
static bool turn_again(struct turn *turn)
{
	struct huge_size *size = turn->size;

	if (turn->keeps_zeroing_out)
		return false;
	if (!READ_ONCE(size->held_pages) && READ_ONCE(size->give_count) == turn->give_count)
		return false;
	keep_zeroing_out(turn);
	return true;
}

static void turn_end(struct turn *turn)
{
	struct huge_size *size = turn->size;

	if (turn->keeps_zeroing_out) {
		bool last;

		spin_lock_irq(kernel.hugetlb_lock);
		last = !--size->waiters;
		spin_unlock_irq(kernel.hugetlb_lock);
		if (last)
			wake_up_all(&size->held_wait);
	}
	handout_leave();
}

static struct folio *on_alloc(struct vm_area_struct *vma, unsigned long address,
			      compat_alloc_flag flag);
DEFINE_STATIC_CALL_NULL(kernel_alloc, on_alloc);
compat_same_as_kernel(alloc_hugetlb_folio, on_alloc);

/* A page for a mapping or a file: faults, copies on write, fallocate, userfaultfd. */
static struct folio *on_alloc(struct vm_area_struct *vma, unsigned long address,
			      compat_alloc_flag flag)
{
	struct folio *folio;
	struct turn turn;

	turn_begin(&turn, hstate_vma(vma));
	folio = static_call(kernel_alloc)(vma, address, flag);
	if (IS_ERR(folio) && turn_again(&turn))
		folio = static_call(kernel_alloc)(vma, address, flag);
	turn_end(&turn);
	return folio;
}

static struct folio *on_alloc_nodemask(struct hstate *h, int node, nodemask_t *nodes,
				       gfp_t gfp COMPAT_FALLBACK_PARAM);
DEFINE_STATIC_CALL_NULL(kernel_alloc_nodemask, on_alloc_nodemask);
compat_same_as_kernel(alloc_hugetlb_folio_nodemask, on_alloc_nodemask);

/* A page for migration, or for no mapping at all. */
static struct folio *on_alloc_nodemask(struct hstate *h, int node, nodemask_t *nodes,
				       gfp_t gfp COMPAT_FALLBACK_PARAM)
{
	struct folio *folio;
	struct turn turn;

	turn_begin(&turn, h);
	folio = static_call(kernel_alloc_nodemask)(h, node, nodes, gfp COMPAT_FALLBACK_ARG);
	if (!folio && turn_again(&turn))
		folio = static_call(kernel_alloc_nodemask)(h, node, nodes, gfp COMPAT_FALLBACK_ARG);
	turn_end(&turn);
	return folio;
}

#ifdef HAVE_ALLOC_HUGETLB_FOLIO_RESERVE
static struct folio *on_alloc_reserve(struct hstate *h, int node, nodemask_t *nodes, gfp_t gfp);
DEFINE_STATIC_CALL_NULL(kernel_alloc_reserve, on_alloc_reserve);
compat_same_as_kernel(alloc_hugetlb_folio_reserve, on_alloc_reserve);

/* A reserved page for pinning a memfd. */
static struct folio *on_alloc_reserve(struct hstate *h, int node, nodemask_t *nodes, gfp_t gfp)
{
	struct folio *folio;
	struct turn turn;

	turn_begin(&turn, h);
	folio = static_call(kernel_alloc_reserve)(h, node, nodes, gfp);
	if (!folio && turn_again(&turn))
		folio = static_call(kernel_alloc_reserve)(h, node, nodes, gfp);
	turn_end(&turn);
	return folio;
}
#endif

/* -- pages fresh from the buddy allocator, which the pool or a consumer gets -- */

static struct folio *on_alloc_surplus(struct hstate *h, gfp_t gfp, int node, nodemask_t *nodes);
DEFINE_STATIC_CALL_NULL(kernel_alloc_surplus, on_alloc_surplus);

/* A page beyond the pool, for a consumer right away. */
static struct folio *on_alloc_surplus(struct hstate *h, gfp_t gfp, int node, nodemask_t *nodes)
{
	struct folio *folio;

	handout_enter();
	folio = static_call(kernel_alloc_surplus)(h, gfp, node, nodes);
	if (folio)
		fresh_page(folio);
	handout_leave();
	return folio;
}

static struct folio *on_alloc_pool(struct hstate *h, nodemask_t *nodes, nodemask_t *no_retry,
				   int *next_node);
DEFINE_STATIC_CALL_NULL(kernel_alloc_pool, on_alloc_pool);

/* A page for the growing pool. */
static struct folio *on_alloc_pool(struct hstate *h, nodemask_t *nodes, nodemask_t *no_retry,
				   int *next_node)
{
	struct folio *folio;

	handout_enter();
	folio = static_call(kernel_alloc_pool)(h, nodes, no_retry, next_node);
	if (folio)
		fresh_page(folio);
	handout_leave();
	return folio;
}

/* -- the table -- */

const struct purpose hook_purposes[NR_PURPOSES] = {
	[PURPOSE_SKIP] = { "spare a consumer the zeroing of a clean page", true },
	[PURPOSE_ENQUEUE] = { "hand out clean pages before dirty ones, and count them", true },
	[PURPOSE_DEQUEUE] = { "count the clean pages", true },
	[PURPOSE_REMOVE] = { "count the clean pages, and unmark pages that leave the pool", true },
	[PURPOSE_ISOLATE] = { "keep migration from pages that are being handed out", true },
	[PURPOSE_WAIT_FAULT] = { "keep faults from failing while pages are zeroed", true },
	[PURPOSE_WAIT_MIGRATION] = { "keep migration from failing while pages are zeroed", true },
#ifdef HAVE_ALLOC_HUGETLB_FOLIO_RESERVE
	[PURPOSE_WAIT_PIN] = { "keep memfd pinning from failing while pages are zeroed", true },
#endif
	[PURPOSE_FRESH_POOL] = { "use the kernel's own zeroing when a pool grows", false },
	[PURPOSE_FRESH_PAGE] = { NULL, false }, /* only some kernels need it, see grow.c */
	[PURPOSE_FRESH_SURPLUS] = { "use the kernel's own zeroing of surplus pages", false },
};

#define INSTEAD(function, call)                                                                    \
	.instead = (function), .original = &STATIC_CALL_KEY(call),                                 \
	.original_trampoline = STATIC_CALL_TRAMP_ADDR(call)

struct hook hook_table[] = {
	{ PURPOSE_SKIP, "folio_zero_user", "vpi" },
	{ PURPOSE_SKIP, "clear_huge_page", "vpii" },

	{ PURPOSE_ENQUEUE, "enqueue_hugetlb_folio", "vpp", INSTEAD(on_enqueue, kernel_enqueue) },
	{ PURPOSE_ENQUEUE, "enqueue_huge_page", "vpp", INSTEAD(on_enqueue, kernel_enqueue) },

	{ PURPOSE_DEQUEUE, "dequeue_hugetlb_folio_nodemask", "ppiip",
	  INSTEAD(on_dequeue, kernel_dequeue) },
	{ PURPOSE_DEQUEUE, "dequeue_huge_page_nodemask", "ppiip",
	  INSTEAD(on_dequeue, kernel_dequeue) },

	/* Where the longer one exists, the shorter one does not see the pages to be split. */
	{ PURPOSE_REMOVE, "__remove_hugetlb_folio", "vppii",
	  INSTEAD(on_remove_demote, kernel_remove_demote) },
	{ PURPOSE_REMOVE, "__remove_hugetlb_page", "vppii",
	  INSTEAD(on_remove_demote, kernel_remove_demote) },
	{ PURPOSE_REMOVE, "remove_hugetlb_folio", "vppi", INSTEAD(on_remove, kernel_remove) },

	{ PURPOSE_ISOLATE, "folio_isolate_hugetlb", "ipp", INSTEAD(on_isolate, kernel_isolate) },
	{ PURPOSE_ISOLATE, "isolate_hugetlb", "ipp", INSTEAD(on_isolate, kernel_isolate) },

	{ PURPOSE_WAIT_FAULT, "alloc_hugetlb_folio", "ppii", INSTEAD(on_alloc, kernel_alloc) },
	{ PURPOSE_WAIT_FAULT, "alloc_huge_page", "ppii", INSTEAD(on_alloc, kernel_alloc) },

#ifdef HAVE_NODEMASK_HAS_FALLBACK
	{ PURPOSE_WAIT_MIGRATION, "alloc_hugetlb_folio_nodemask", "ppipii",
	  INSTEAD(on_alloc_nodemask, kernel_alloc_nodemask) },
#else
	{ PURPOSE_WAIT_MIGRATION, "alloc_hugetlb_folio_nodemask", "ppipi",
	  INSTEAD(on_alloc_nodemask, kernel_alloc_nodemask) },
	{ PURPOSE_WAIT_MIGRATION, "alloc_huge_page_nodemask", "ppipi",
	  INSTEAD(on_alloc_nodemask, kernel_alloc_nodemask) },
#endif

#ifdef HAVE_ALLOC_HUGETLB_FOLIO_RESERVE
	{ PURPOSE_WAIT_PIN, "alloc_hugetlb_folio_reserve", "ppipi",
	  INSTEAD(on_alloc_reserve, kernel_alloc_reserve) },
#endif

	{ PURPOSE_FRESH_POOL, "alloc_pool_huge_folio", "ppppp",
	  INSTEAD(on_alloc_pool, kernel_alloc_pool) },
	{ PURPOSE_FRESH_POOL, "alloc_pool_huge_folio", "ippp", INSTEAD(on_grow, kernel_grow) },
	{ PURPOSE_FRESH_POOL, "alloc_pool_huge_page", "ippp", INSTEAD(on_grow, kernel_grow) },
	{ PURPOSE_FRESH_PAGE, "alloc_fresh_hugetlb_folio", "ppiipp",
	  INSTEAD(on_grow_page, kernel_grow_page) },
	{ PURPOSE_FRESH_PAGE, "alloc_fresh_huge_page", "ppiipp",
	  INSTEAD(on_grow_page, kernel_grow_page) },
	{ PURPOSE_FRESH_SURPLUS, "alloc_surplus_hugetlb_folio", "ppiip",
	  INSTEAD(on_alloc_surplus, kernel_alloc_surplus) },
	{ PURPOSE_FRESH_SURPLUS, "alloc_surplus_huge_page", "ppiip",
	  INSTEAD(on_alloc_surplus, kernel_alloc_surplus) },
};

const unsigned int hook_table_entries = ARRAY_SIZE(hook_table);
