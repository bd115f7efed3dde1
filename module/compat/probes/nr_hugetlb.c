// SPDX-License-Identifier: GPL-2.0-only
/* 6.14: huge pages in use are counted in NR_HUGETLB. */
#include <linux/vmstat.h>

void probe(struct folio *folio);
void probe(struct folio *folio)
{
	lruvec_stat_mod_folio(folio, NR_HUGETLB, 512);
}
