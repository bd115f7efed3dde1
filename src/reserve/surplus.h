/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * reserve/surplus.h - surplus huge pages that are allocated and not touched.
 *
 * Theory: a hugetlbfs with min_size= has its pages reserved when it is made, and what the pool lacks
 * for that is allocated as surplus, in the calling thread and, while a page is being allocated, outside
 * of every lock. So threads that each make a file system of their own have the kernel allocate (and,
 * under init_on_alloc, zero) in parallel, once; faults would zero every page a second time, and
 * mappings would wait for one another in mmap_lock. The file system is never mounted: it is a
 * descriptor, and what of its pages nobody adopted goes when that is closed, however the process ends.
 */
#ifndef PREZERO_RESERVE_SURPLUS_H
#define PREZERO_RESERVE_SURPLUS_H

#include <stdint.h>

#include "base/cleanup.h"

/* Reserves that many pages; allocates those that are neither free nor allowed to be had otherwise. Of
 * the node the calling thread runs on, as far as it has them (node >= 0: on no other, where the kernel
 * obeys a memory policy here: 6.11 and later). Returns a descriptor; -ENOMEM: not that many. */
MUST_CHECK int surplus_take(uint64_t page_bytes, uint64_t pages, int node);

#endif
