/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/pools.h - a mount and a pool for every page size that the host has.
 */
#ifndef PREZERO_DAEMON_POOLS_H
#define PREZERO_DAEMON_POOLS_H

#include "daemon/daemon.h"

/* Mounts (or adopts) and recovers each; a page size that cannot be mounted is logged and not served. */
MUST_CHECK int pools_open(struct daemon *daemon);
void pools_close(struct daemon *daemon);
/* Whether every mount still stands; one that is gone is told, and made anew once nothing is under way
 * in it. True: one is still missing, come again. */
bool pools_check_mounts(struct daemon *daemon);

/* "RUNTIME/2M/lent/0-..."; allocated. NULL: out of memory. */
char *pools_segment_path(const struct page_pool *pages, const struct segment *segment);
/* pool_drop(), quickly; a failure is logged. */
void pools_drop(struct page_pool *pages, struct segment *segment);
/* Whether giving so much back takes longer than the event loop should: then ask pool for the last
 * descriptor and have a thread close it. -1 is fine. */
bool pools_free_slowly(uint64_t bytes);
void pools_free_pages(struct daemon *daemon, int fd);

#endif
