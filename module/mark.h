/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The mark: how we know that a free huge page is zero. It cannot claim so wrongly, whatever goes
 * wrong.
 *
 * A marked page has, in the word that hugetlb keeps its flags in (folio->private),
 *   - HPG_migratable set. A page in use carries this flag from when it is mapped or in a file, so
 *     it says nothing there; and the kernel clears it, under hugetlb_lock, on every free. So on a
 *     free page only we can have set it, and only since the page was last freed.
 *   - a cookie in its top 24 bits, drawn at random when the module is loaded. The kernel uses the
 *     lowest few bits of the word. The buddy allocator resets all of it whenever it hands out a
 *     page.
 *
 * Hence a mark ends by the kernel's own doing, not by ours: freeing a page ends it (the flag),
 * leaving the pool ends it (the word), unloading the module ends it (the cookie). A hook of ours
 * that is missed, disabled or taken by another user can only leave a clean page unmarked, which
 * costs a needless zeroing. The obvious design, a private bit that a hook on the free path clears,
 * leaks one consumer's data to the next as soon as that hook is missed once. PREZERO_UNSAFE_MARK
 * builds that design, for the leak tests to catch.
 *
 * Between being handed out and being filled a page still carries its mark. It may be believed while
 * folio->mapping is NULL: nobody can have written to the page, since it is neither mapped nor in a
 * file.
 */
#ifndef PREZERO_MARK_H
#define PREZERO_MARK_H

#include <linux/hugetlb.h>
#include <linux/mm.h>

#define MARK_SHIFT 40

static_assert(BITS_PER_LONG == 64, "the mark lives in the upper half of a 64-bit word");
static_assert(__NR_HPAGEFLAGS <= MARK_SHIFT, "hugetlb's flags have grown into the mark");

#ifdef PREZERO_UNSAFE_MARK
#define MARK_FLAG 0UL
#else
#define MARK_FLAG BIT(HPG_migratable)
#endif

extern unsigned long mark_cookie;

void mark_init(void);
void mark_set(struct folio *folio);
void mark_clear(struct folio *folio);
bool mark_redeem(struct folio *folio);

static __always_inline unsigned long *mark_word(struct folio *folio)
{
	return (unsigned long *)&folio->private;
}

/* Only for a page known to be a huge page of hugetlb, or where a chance match does no harm. */
static __always_inline bool mark_test(struct folio *folio)
{
	unsigned long word = READ_ONCE(*mark_word(folio));

	return word >> MARK_SHIFT == mark_cookie && (word & MARK_FLAG) == MARK_FLAG;
}

/* hugetlb's own flags in the same word. */
static __always_inline bool folio_flag(struct folio *folio, enum hugetlb_page_flags flag)
{
	return test_bit(flag, mark_word(folio));
}

#endif
