// SPDX-License-Identifier: GPL-2.0-only
/* Up to 6.1: isolating a huge page for migration returns an errno; later it says yes or no. */
#include <linux/hugetlb.h>

static_assert(__same_type(isolate_hugetlb, int(struct page *, struct list_head *)));
