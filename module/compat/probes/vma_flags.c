// SPDX-License-Identifier: GPL-2.0-only
/* 7.0: hugetlb_file_setup() takes the flags of a mapping as a set. */
#include <linux/hugetlb.h>

static_assert(__same_type(hugetlb_file_setup,
			  struct file *(const char *, size_t, vma_flags_t, int, int)));
