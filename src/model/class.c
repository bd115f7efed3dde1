/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * model/class.c - the text of page sizes and page classes.
 *
 * Guarantees: what page_size_format() writes, page_size_parse() reads back.
 */
#include "model/class.h"

#include <string.h>

#include "base/parse.h"

int page_size_parse(const char *text, uint64_t thp_bytes, uint64_t base_bytes,
		    struct page_size *ret)
{
	uint64_t bytes;

	if (!strcmp(text, "thp")) {
		*ret = (struct page_size){PAGE_THP, thp_bytes};
		return 0;
	}
	if (!strcmp(text, "base")) {
		*ret = (struct page_size){PAGE_BASE, base_bytes};
		return 0;
	}
	if (parse_bytes(text, &bytes) < 0 || !bytes || (bytes & (bytes - 1)))
		return -EINVAL;
	*ret = (struct page_size){PAGE_HUGETLB, bytes};
	return 0;
}

const char *page_size_format(struct page_size page, char buf[PAGE_TEXT_MAX])
{
	char text[BYTES_TEXT_MAX];

	switch (page.kind) {
	case PAGE_THP:
		return strcpy(buf, "thp");
	case PAGE_BASE:
		return strcpy(buf, "base");
	case PAGE_HUGETLB:
		break;
	}
	snprintf(buf, PAGE_TEXT_MAX, "%s", format_bytes(page.bytes, text));
	return buf;
}

const char *page_class_format(struct page_class pc, char buf[CLASS_TEXT_MAX])
{
	char page[PAGE_TEXT_MAX];

	page_size_format(pc.page, page);
	/* PAGE_TEXT_MAX leaves no room for more than a node id, which is below NODES_MAX. */
	if (pc.node == NODE_ANY)
		snprintf(buf, CLASS_TEXT_MAX, "%s@any", page);
	else
		snprintf(buf, CLASS_TEXT_MAX, "%s@%d", page, pc.node);
	return buf;
}
