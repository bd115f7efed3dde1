// SPDX-License-Identifier: GPL-2.0-only
/* 6.11: memfd_pin_folios() takes reserved pages by a function of its own. */
#include <linux/hugetlb.h>

static_assert(__same_type(alloc_hugetlb_folio_reserve,
			  struct folio *(struct hstate *, int, nodemask_t *, gfp_t)));
