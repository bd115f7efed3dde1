/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * policy/clean.c - how many dirty pages to zero in place.
 *
 * Guarantees: see policy.h.
 */
#include "policy/policy.h"

uint64_t policy_clean_pages(uint64_t page_bytes, uint64_t free_pages, uint64_t zeroable_pages,
			    uint64_t clean_bytes)
{
	uint64_t clean_pages = free_pages > zeroable_pages ? free_pages - zeroable_pages : 0;
	uint64_t missing_pages;

	if (clean_bytes == UNLIMITED)
		return zeroable_pages;
	missing_pages = clean_bytes / page_bytes;
	missing_pages -= missing_pages < clean_pages ? missing_pages : clean_pages;
	return missing_pages < zeroable_pages ? missing_pages : zeroable_pages;
}
