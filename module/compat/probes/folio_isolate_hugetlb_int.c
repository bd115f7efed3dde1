// SPDX-License-Identifier: GPL-2.0-only
/* The same, in stable kernels that took the later name early. */
#include <linux/hugetlb.h>

static_assert(__same_type(folio_isolate_hugetlb, int(struct page *, struct list_head *)));
