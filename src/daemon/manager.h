/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/manager.h - look, decide, do.
 *
 * One cycle looks at the host, retries the requests that wait, asks policy what the stocks need and
 * issues its orders. It runs after whatever may have changed something, many events together, and on
 * a timer only while something is short.
 */
#ifndef PREZERO_DAEMON_MANAGER_H
#define PREZERO_DAEMON_MANAGER_H

#include "daemon/daemon.h"

struct manager;

MUST_CHECK int manager_new(struct daemon *daemon, struct manager **ret);
struct manager *manager_free(struct manager *manager); /* returns NULL */

/* Something may have changed: a cycle comes soon. Cheap, may be called at any time. */
void manager_kick(struct daemon *daemon);
/* The configuration changed: what was told as short is told again. */
void manager_reconfigured(struct daemon *daemon);

/* daemon->seen and daemon->net are up to date: everything, or what bounds one page size. */
MUST_CHECK int manager_look(struct daemon *daemon);
MUST_CHECK int manager_look_at(struct daemon *daemon, struct page_size page, int node);
/* All pools' buckets, with fillings as policy counts them; valid until the next change. */
MUST_CHECK int manager_pool_view(struct daemon *daemon, struct pool_view *ret);
/* What each stock (in the order of the goals) lacks; from the latest look. Freed by the caller. */
MUST_CHECK int manager_shortages(struct daemon *daemon, enum shortage **ret);

/* Gives so many ready segments back as the order says and as there are; returns how many. */
unsigned int manager_release(struct daemon *daemon, const struct order *order);

/* The most fillings for stock at a time: enough for every thread, few enough for descriptors. */
unsigned int manager_fillings_max(const struct daemon *daemon);

#endif
