/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/headroom.h - may one more unit be taken from a class?
 *
 * Asked by team threads before every unit: the memory floor, leave_free, reservations of others and the
 * cgroup hold at every moment, not only when a fill was ordered. Thread safe.
 */
#ifndef PREZERO_DAEMON_HEADROOM_H
#define PREZERO_DAEMON_HEADROOM_H

#include "host/host.h"
#include "model/goal.h"

struct headroom;

/* Borrows host and seen; copies of goals what it needs. */
MUST_CHECK int headroom_new(struct host *host, const struct host_view *seen,
			    const struct goals *goals, struct headroom **ret);
struct headroom *headroom_free(struct headroom *headroom); /* returns NULL */
/* After a reload, and after what host_look_headroom() does not read has changed. */
MUST_CHECK int headroom_configure(struct headroom *headroom, const struct host_view *seen,
				  const struct goals *goals);

/* 0, or -ENOMEM. Waits for units that others are taking where those decide the answer. What is reserved
 * for the caller is granted in any case. */
MUST_CHECK int headroom_may_take(struct headroom *headroom, struct page_class page_class,
				 uint64_t unit_bytes, bool is_reserved);
/* What may_take granted is visible in the host's counters now. */
void headroom_took(struct headroom *headroom, struct page_class page_class, uint64_t unit_bytes);

#endif
