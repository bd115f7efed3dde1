// SPDX-License-Identifier: GPL-2.0-only
/* 6.14: its third argument became a bool. */
#include <linux/hugetlb.h>

static_assert(__same_type(alloc_hugetlb_folio,
			  struct folio *(struct vm_area_struct *, unsigned long, bool)));
