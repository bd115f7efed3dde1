/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * reserve/intent.h - the record of what is borrowed from the host, written before it is.
 *
 * One run at a time holds the lock; the record outlives a run only if that was killed. Whoever takes
 * the lock next finds it and puts back what was borrowed. Both lie in the runtime directory, which a
 * boot empties, as it does the settings themselves.
 */
#ifndef PREZERO_RESERVE_INTENT_H
#define PREZERO_RESERVE_INTENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"

struct intent {
	uint64_t page_bytes;
	uint64_t before_pages; /* nr_overcommit_hugepages as it was */
	uint64_t borrowed_pages; /* what it is raised to */
};

/* The lock: a descriptor, released by closing it. Makes the directory where it is missing. -EBUSY:
 * another run has it. */
MUST_CHECK int intent_lock(const char *runtime_dir);

/* With the lock held. Whole on disk when this returns. */
MUST_CHECK int intent_write(const char *runtime_dir, const struct intent *intent);
/* -ENOENT: nothing was left behind. -EBADMSG: there is a record that is not ours to understand. */
MUST_CHECK int intent_read(const char *runtime_dir, struct intent *ret);
MUST_CHECK int intent_clear(const char *runtime_dir);

#endif
