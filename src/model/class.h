/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * model/class.h - page sizes and page classes.
 *
 * A page class is a page size on a NUMA node: 2M@0, 1G@1, thp@0, base@1. Plain data; compared and
 * copied by value.
 */
#ifndef PREZERO_MODEL_CLASS_H
#define PREZERO_MODEL_CLASS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"

enum page_kind {
	PAGE_HUGETLB,
	PAGE_THP, /* tmpfs huge=always, mapped by PMD */
	PAGE_BASE, /* tmpfs huge=never */
};

struct page_size {
	enum page_kind kind;
	uint64_t
		bytes; /* of one page: 2M and 1G hugetlb, PMD size for thp, 4K (or the base page) */
};

#define NODE_ANY (-1)
#define NODES_MAX 64 /* node ids below this number; the kernel's own limit on x86-64 is 1024 */

struct page_class {
	struct page_size page;
	int node;
};

/* A unit of work: one page or 16 MiB, whichever is larger. Never less than one page. */
#define UNIT_BYTES_MIN (16ULL << 20)
static inline uint64_t page_size_unit_bytes(struct page_size page)
{
	return page.bytes > UNIT_BYTES_MIN ? page.bytes : UNIT_BYTES_MIN;
}

static inline bool page_size_equal(struct page_size a, struct page_size b)
{
	return a.kind == b.kind && a.bytes == b.bytes;
}

static inline bool page_class_equal(struct page_class a, struct page_class b)
{
	return page_size_equal(a.page, b.page) && a.node == b.node;
}

#define PAGE_TEXT_MAX 24
#define CLASS_TEXT_MAX 32
/* "2M", "1G", "thp", "base"; the hugetlb size must be a power of two. The bytes of thp and base are
 * the host's: the caller passes them. -EINVAL otherwise. */
MUST_CHECK int page_size_parse(const char *text, uint64_t thp_bytes, uint64_t base_bytes,
			       struct page_size *ret);
/* Return buf. */
const char *page_size_format(struct page_size page, char buf[PAGE_TEXT_MAX]);
const char *page_class_format(struct page_class pc, char buf[CLASS_TEXT_MAX]);

#endif
