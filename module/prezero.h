/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of prezero.ko share. README.md tells the story; this is the order of the locks.
 *
 * (L) in a comment means: under the kernel's own hugetlb_lock, which guards the free lists and
 * which we reach as kernel.hugetlb_lock. It is taken with interrupts off and held for a bounded
 * number of list entries, never across zeroing. Inside it we take only what schedule_work() takes.
 *
 *	files_mutex -> kernfs active reference (removing a file waits for its writers)
 *	kernfs active reference -> selftest_mutex -> resize_lock, mmap_lock (a page's round)
 *	kernfs active reference -> class_mutex (recounts, sweeps) -> hugetlb_lock -> growers_lock
 *
 * An allocation that waits for a page that is being zeroed may hold mmap_lock and hugetlb's fault
 * mutex. A writer takes neither, nor anything else that a fault can hold, while it has a page.
 */
#ifndef PREZERO_H
#define PREZERO_H

/*
 * Under PREEMPT_RT hugetlb_lock sleeps, and hooks.c's reason why the module can be unloaded fails;
 * on 32 bits there is no room for the mark.
 */
#if !defined(CONFIG_X86_64) || defined(CONFIG_PREEMPT_RT)
#error "prezero is for x86-64 without PREEMPT_RT"
#endif

#undef pr_fmt
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/hugetlb.h>
#include <linux/mm.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>

/* -- classes.c: the page classes, one for each huge page size on each node -- */

enum statistic {
	STAT_ZEROED,	   /* pages made clean by writers */
	STAT_FRESH,	   /* pages that came clean from the kernel's zeroing at allocation */
	STAT_UNFINISHED,   /* pages given back dirty: a signal, or an allocation that wanted them */
	STAT_SKIPPED,	   /* zeroings that consumers were spared */
	STAT_HANDED_CLEAN, /* clean pages handed out, for whatever purpose */
	STAT_HANDED_DIRTY, /* dirty pages handed out: each costs its consumer a zeroing */
	STAT_WAITED,	   /* allocations that waited for pages being zeroed */
	STAT_RETURNED,	   /* pages left to the kernel's own free path */
	STAT_RECOUNTED,	   /* times the counters were checked against the pages */
	STAT_DRIFTED,	   /* and were found wrong */
	NR_STATISTICS,
};

/* A huge page size: what its classes on all nodes share. */
struct huge_size {
	struct hstate *hstate;
	unsigned int held_pages;     /* (L) taken by writers, on every node */
	unsigned long give_count;    /* (L) pages given back so far */
	unsigned int waiters;	     /* (L) allocations that keep zeroing out */
	wait_queue_head_t held_wait; /* held_pages or waiters fell to 0 */
};

struct page_class {
	struct huge_size *size;
	int node;
	unsigned int held_pages;      /* (L) taken by writers */
	unsigned long clean_pages;    /* (L) marked pages on the free list */
	unsigned long poisoned_pages; /* (L) free pages with a memory error, when last recounted */

	/* Counting anew, see count.c. */
	bool suspect;			/* (L) a counter cannot be right */
	unsigned long recount_pfn;	/* (L) pages below are recounted; 0: no recount */
	unsigned long recount_clean;	/* (L) */
	unsigned long recount_poisoned; /* (L) */

	unsigned long longest_hold_ns; /* (L) longest time a page was off the free list */
	atomic_long_t statistics[NR_STATISTICS];
};

int classes_init(void);
void classes_done(void);
struct page_class *class_of_folio(struct folio *folio);
struct page_class *class_of(struct hstate *h, struct folio *folio);
struct huge_size *size_of(struct hstate *h);
struct page_class *class_at(unsigned int size_index, int node);
unsigned int class_nr_sizes(void);
const char *class_name(const struct page_class *class, char *buffer, size_t buffer_bytes);

static inline struct hstate *class_hstate(const struct page_class *class)
{
	return class->size->hstate;
}

static inline void class_count(struct page_class *class, enum statistic statistic)
{
	atomic_long_inc(&class->statistics[statistic]);
}

#define for_each_class(class, size_index, node)                                                    \
	for ((size_index) = 0; (size_index) < class_nr_sizes(); (size_index)++)                    \
		for_each_node(node)                                                                \
			if (!((class) = class_at(size_index, node))) {                             \
			} else

/* -- count.c: how many free pages are clean, kept as they come and go -- */

void count_enter(struct page_class *class, struct folio *folio); /* (L) became clean and free */
void count_leave(struct page_class *class, struct folio *folio); /* (L) ceased to be so */
void count_spoil(struct page_class *class, struct folio *folio); /* (L) is made dirty, free */
void count_suspect(struct page_class *class);			 /* (L) a counter is wrong */
unsigned long count_dirty(struct page_class *class);
void count_verify(struct page_class *class);
void count_clear_marks(unsigned long start_pfn, unsigned long end_pfn);

/* -- hooks.c -- */

int hooks_install(void);
void hooks_remove(void);

/* -- take.c: taking pages off the free list, and giving them back -- */

struct folio *take_page(struct page_class *class);
bool give_page(struct page_class *class, struct folio *folio, bool zeroed, u64 taken_ns);
void take_wait_for_turn(struct huge_size *size);
bool give_way_wanted(const struct huge_size *size);

/* -- zero.c -- */

void zero_start(void);
void zero_stop(void);
void zero_block(void);
void zero_unblock(void);
void zero_interrupt(void);
bool zero_may_mark(void);
long zero_pages(struct page_class *class, unsigned long limit_pages);

/* -- file.c: zeroable_hugepages -- */

int files_add(void);
void files_remove(void);
void files_sync(void);
void file_dirty_event(struct page_class *class); /* (L) */

/* -- the rest, each a file of that name -- */

int hotplug_start(void);
void hotplug_stop(void);

int selftest_run(void);
bool selftest_passed(void);

void stats_init(void);
void stats_done(void);

int layout_check(void);

/* -- compat/kernel.c: what the kernel does not export -- */

struct kernel_symbols {
	spinlock_t *hugetlb_lock;
	struct hstate *hstates;
	int *hugetlb_max_hstate;
	struct node **node_devices;
};

extern struct kernel_symbols kernel;

int kernel_find(void);
unsigned long kernel_address(const char *name);

#endif
