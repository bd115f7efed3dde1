// SPDX-License-Identifier: GPL-2.0-only
/*
 * Setting, clearing and redeeming the mark of a clean page. mark.h says why it is safe.
 */
#include <linux/random.h>

#include "mark.h"
#include "prezero.h"

unsigned long mark_cookie;

void mark_init(void)
{
	do {
		mark_cookie = get_random_u32() >> (MARK_SHIFT - 32);
	} while (!mark_cookie);
}

/*
 * The word is changed with compare-and-exchange: hugetlb changes its own bits with atomic
 * operations, and not all of them under hugetlb_lock.
 */
static void mark_change(struct folio *folio, unsigned long keep, unsigned long set)
{
	unsigned long old = READ_ONCE(*mark_word(folio));

	while (!try_cmpxchg(mark_word(folio), &old, (old & keep) | set))
		;
}

/* The caller has zeroed the page, and nobody else can reach it. */
void mark_set(struct folio *folio)
{
	mark_change(folio, BIT(MARK_SHIFT) - 1, mark_cookie << MARK_SHIFT | MARK_FLAG);
}

void mark_clear(struct folio *folio)
{
	mark_change(folio, (BIT(MARK_SHIFT) - 1) & ~MARK_FLAG, 0);
}

/*
 * Somebody is about to zero this folio: a huge page of hugetlb or any other folio. Returns true if
 * it is clean, which is then used up, so the answer is true only once.
 *
 * A huge page with a mapping is in use and may have been written to. Its mark, if one is left,
 * dates from before.
 */
bool mark_redeem(struct folio *folio)
{
	if (!mark_test(folio))
		return false;
	if (!PageHead(&folio->page) || !PageHuge(&folio->page) || READ_ONCE(folio->mapping))
		return false;
	mark_clear(folio);
	class_count(class_of_folio(folio), STAT_SKIPPED);
	return true;
}
