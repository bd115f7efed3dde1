// SPDX-License-Identifier: GPL-2.0-only
/* 6.11: clear_huge_page() became folio_zero_user(). */
#include <linux/mm.h>

static_assert(__same_type(folio_zero_user, void(struct folio *, unsigned long)));
