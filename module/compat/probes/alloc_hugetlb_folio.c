// SPDX-License-Identifier: GPL-2.0-only
/* 6.3: alloc_huge_page() became alloc_hugetlb_folio() and returns a folio. */
#include <linux/hugetlb.h>

static_assert(__same_type(alloc_hugetlb_folio(NULL, 0, 0), struct folio *));
