/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/daemon.h - what the parts of prezerod share.
 *
 * One thread, the event loop's, owns all of it. Each part keeps its own state behind its header:
 *
 *   methods   what a call means             -> lending, leases, status
 *   server    sockets, connections          -> methods
 *   lending   takes: place, cut, fill, wait -> filling, leases
 *   leases    gives, and leases that end
 *   manager   look, decide, do              -> lending, filling
 *   filling   segments being filled         -> headroom
 *   headroom  may one more unit be taken?   (asked by team threads)
 */
#ifndef PREZERO_DAEMON_DAEMON_H
#define PREZERO_DAEMON_DAEMON_H

#include <systemd/sd-event.h>

#include "daemon/config.h"
#include "daemon/runtime.h"
#include "fill/fill.h"
#include "host/host.h"
#include "policy/policy.h"
#include "pool/pool.h"

#define PAGE_POOLS_MAX (HUGETLB_SIZES_MAX + 2) /* hugetlb sizes, thp, base */

/* One page size: its mount and the pool in it. */
struct page_pool {
	struct daemon *daemon;
	struct page_size page;
	char name[PAGE_TEXT_MAX];
	int dir_fd; /* of the mount */
	struct pool *pool;
	sd_event_source *watch; /* tells of leases that may have ended, */
	uint64_t watch_due_ns; /* which are looked at then; 0: none */
	uint64_t lost_ns; /* when the mount was found missing and could not be made anew; 0 */
};

struct counters {
	uint64_t takes, gives, refusals, filled_bytes;
};

struct daemon {
	sd_event *event;
	uint64_t started_ns;
	const char *config_path;
	bool config_may_be_missing;
	struct config *config;
	struct runtime runtime;
	struct host *host;
	struct host_view *seen; /* the latest look, as the kernel shows it */
	struct host_view *net; /* the same, less what fills under way have yet to take */
	unsigned int n_freeing; /* chores that give pages back: what is short now may soon be there */
	unsigned int n_pools;
	struct page_pool pool[PAGE_POOLS_MAX]; /* hugetlb by size, thp, base */
	unsigned int n_threads;
	struct fill_team *team;
	struct headroom *headroom;
	struct filling_set *fillings;
	struct manager *manager;
	struct lending *lending;
	struct leases *leases;
	struct server *server;
	struct counters counters;
};

/* NULL when the daemon does not serve that page size. */
struct page_pool *daemon_pool(struct daemon *daemon, struct page_size page);
/* As page_size_parse() on this host; NULL text: the host's default huge page. */
MUST_CHECK int daemon_parse_page(const struct daemon *daemon, const char *text,
				 struct page_size *ret);
/* "RUNTIME/2M/lent/0-..."; allocated. NULL: out of memory. */
char *daemon_segment_path(const struct page_pool *pages, const struct segment *segment);
/* Closes a descriptor, the last of an unlinked file, where that takes no time of the event loop's. */
void daemon_free_pages(struct page_pool *pages, int fd, uint64_t bytes);

#endif
