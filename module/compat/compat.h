/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's history, kept in one place. The rest of the module is written for the newest kernel;
 * what older ones did otherwise is here, found by compiling (probes/), never by a version number.
 *
 * Struct page and struct folio of a head page are the same memory, and functions that took the one
 * and now take the other are called alike. That is why the wrappers in handout.c serve both.
 */
#ifndef PREZERO_COMPAT_H
#define PREZERO_COMPAT_H

#include <linux/ftrace.h>
#include <linux/hugetlb.h>
#include <linux/mm.h>
#include <linux/vmstat.h>
#include "probed.h"

#ifdef HAVE_ALLOC_FLAG_IS_BOOL
typedef bool compat_alloc_flag;
#else
typedef int compat_alloc_flag;
#endif

#if defined(HAVE_ISOLATE_HUGETLB_INT) || defined(HAVE_FOLIO_ISOLATE_HUGETLB_INT)
typedef int compat_isolated;
#else
typedef bool compat_isolated;
#endif

/* The parameters that alloc_hugetlb_folio_nodemask() gained, and how to pass them on. */
#ifdef HAVE_NODEMASK_HAS_FALLBACK
#define COMPAT_FALLBACK_PARAM , bool allow_fallback
#define COMPAT_FALLBACK_ARG , allow_fallback
#else
#define COMPAT_FALLBACK_PARAM
#define COMPAT_FALLBACK_ARG
#endif

#ifdef HAVE_ALLOC_HUGETLB_FOLIO
/* Where the kernel's headers declare what we wrap, the compiler checks that we got it right. */
#define compat_same_as_kernel(kernel_function, wrapper)                                            \
	static_assert(__same_type(kernel_function, wrapper))
#else
#define compat_same_as_kernel(kernel_function, wrapper) static_assert(true)
#endif

/* Argument 0 of a function that ftrace has stopped at its entry. */
static __always_inline unsigned long compat_first_argument(struct ftrace_regs *fregs)
{
#ifdef HAVE_FTRACE_REGS_ARGUMENT
	return ftrace_regs_get_argument(fregs, 0);
#else
	return fregs->regs.di;
#endif
}

/* Makes the stopped function's caller run `target` in its place. */
static __always_inline void compat_redirect(struct ftrace_regs *fregs, unsigned long target)
{
#ifdef HAVE_FTRACE_REGS_ARGUMENT
	ftrace_regs_set_instruction_pointer(fregs, target);
#else
	ftrace_instruction_pointer_set(fregs, target);
#endif
}

/*
 * Zeroes physically contiguous pages as one run, which lets the processor clear whole lines without
 * reading them first. Older kernels clear single pages only, and their memset() may be a loop of
 * plain stores; so there this is what the newer ones' clear_pages() comes to.
 */
static inline void compat_clear_pages(void *start, unsigned int nr_pages)
{
#ifdef HAVE_CLEAR_PAGES
	clear_pages(start, nr_pages);
#else
	if (static_cpu_has(X86_FEATURE_ERMS)) {
		unsigned long bytes = nr_pages * PAGE_SIZE;

		asm volatile("rep stosb" : "+c"(bytes), "+D"(start) : "a"(0) : "memory");
		return;
	}
	for (; nr_pages; nr_pages--, start += PAGE_SIZE)
		clear_page(start);
#endif
}

/* Enters a page into the count of huge pages in use, which free_huge_folio() takes it out of. */
static inline void compat_count_in_use(struct folio *folio)
{
#ifdef HAVE_NR_HUGETLB
	lruvec_stat_mod_folio(folio, NR_HUGETLB, folio_nr_pages(folio));
#endif
}

/* hugetlb_file_setup()'s flags for "reserve nothing". */
#ifdef HAVE_VMA_FLAGS
#define COMPAT_NORESERVE mk_vma_flags(VMA_NORESERVE_BIT)
#else
#define COMPAT_NORESERVE VM_NORESERVE
#endif

#endif
