/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench/work.h - the pieces of work that are timed, and the memory they are done on.
 *
 * Errors are negative errnos; nothing is left mapped or open on failure.
 */
#ifndef PREZERO_BENCH_WORK_H
#define PREZERO_BENCH_WORK_H

#include <stddef.h>

#include "base/parse.h"
#include "bench/harness.h"

double now_s(void);

/* Anonymous memory: of hugetlb pages (shared, so that they are reserved and no touch can fail), or
 * of thp or base pages (private, aligned to the huge page). */
MUST_CHECK int map_anonymous(struct page_size page, uint64_t bytes, void **ret);
/* A file, shared and aligned to the page, without a reservation. */
MUST_CHECK int map_file(struct page_size page, int fd, uint64_t bytes, void **ret);
/* An unlinked file of that length: a memfd of hugetlb pages, or one in a tmpfs of its own that is
 * mounted nowhere (needs root). */
MUST_CHECK int open_memory_file(struct page_size page, uint64_t bytes, int *ret_fd);

/* Writes one byte to every page: what a program's first use of its memory costs. */
void touch(void *address, uint64_t bytes, uint64_t page_bytes);

/* A bare loop of MADV_POPULATE_WRITE, one thread a span, in units as the fill team's; the threads
 * run before the clock starts. */
struct span {
	void *address;
	uint64_t bytes;
};
MUST_CHECK int populate(const struct span *spans, unsigned int n_spans, uint64_t unit_bytes,
			double *ret_s);

/* How much of a mapping is in huge pages mapped by PMD, from smaps: AnonHugePages and
 * ShmemPmdMapped. */
MUST_CHECK int smaps_huge_bytes(const void *address, uint64_t bytes, uint64_t *ret);

#endif
