// SPDX-License-Identifier: GPL-2.0-only
/* 6.10: alloc_hugetlb_folio_nodemask() is told whether it may fall back to other nodes. */
#include <linux/hugetlb.h>

static_assert(__same_type(alloc_hugetlb_folio_nodemask,
			  struct folio *(struct hstate *, int, nodemask_t *, gfp_t, bool)));
