/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fill/range.h - a mapped part of a segment file, and what the kernel does with its pages.
 *
 * The calls that a team thread makes for a job. Nothing here allocates, and nothing touches the
 * mapped memory from user space, so that a file cut by somebody else can never raise SIGBUS.
 */
#ifndef PREZERO_FILL_RANGE_H
#define PREZERO_FILL_RANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "model/class.h"

struct fill_range {
	char *address; /* NULL: not mapped */
	int fd; /* of the file while it is mapped; the caller's */
	uint64_t offset_bytes, bytes;
	struct page_class page_class;
	bool bind;
};

/* Maps [offset, offset + range->bytes) of the file and sets the placement. fd stays open until it is
 * unmapped. */
MUST_CHECK int fill_range_map(struct fill_range *range, int fd, uint64_t offset_bytes);
void fill_range_unmap(struct fill_range *range);

/* Has the kernel allocate and zero the pages of one unit, and looks where they are. -ENOMEM: a page
 * could not be had; -EXDEV: one is on another node, *ret_wrong_node. */
MUST_CHECK int fill_range_populate(const struct fill_range *range, uint64_t start_bytes,
				   uint64_t unit_bytes, int *ret_wrong_node);
/* 0 when the whole, populated range is mapped by PMD, else -ENOTSUP. */
MUST_CHECK int fill_range_check_pmd(const struct fill_range *range);

#endif
