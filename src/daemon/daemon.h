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
 *   clean     free pages of the kernel's zeroed in place
 *   grower    the kernel's pool grown for stocks, in a process of its own
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
	uint64_t watch_rest_ns; /* from the telling to the look */
	unsigned int n_busy; /* fillings and cuts under way */
	bool is_lost; /* the mount is gone: nothing is begun here until it is made anew */
};

struct counters {
	uint64_t takes, gives, refusals, filled_bytes;
};

struct daemon_options {
	const char *config_path;
	bool config_may_be_missing;
	const char *runtime_path;
	const char *sysroot; /* or NULL */
};

struct daemon {
	sd_event *event;
	uint64_t started_ns;
	struct daemon_options options;
	struct config *config;
	struct runtime runtime;
	struct host *host;
	struct host_view *seen; /* the latest look, as the kernel shows it */
	struct host_view *net; /* the same, less what fills under way have yet to take */
	unsigned int
		n_freeing; /* chores that give pages back: what is short now may soon be there */
	unsigned int n_scans; /* of /proc, queued or under way */
	unsigned int n_pools;
	struct page_pool pool[PAGE_POOLS_MAX]; /* hugetlb by size, thp, base */
	unsigned int n_threads;
	struct fill_team *team;
	sd_event_source *team_source;
	struct headroom *headroom;
	struct filling_set *fillings;
	struct manager *manager;
	struct clean_set *clean;
	struct lending *lending;
	struct leases *leases;
	struct server *server;
	struct grower *grower;
	struct counters counters;
};

/* Everything from the lock to the socket, in order; what fails is logged. */
MUST_CHECK int daemon_start(struct daemon *daemon, const struct daemon_options *options);
/* The exact reverse; also after a start that failed. ready/ and lent/ stay as they are. */
void daemon_stop(struct daemon *daemon);
/* Reads the configuration anew; a bad one is logged, and the old one stays. */
void daemon_reload(struct daemon *daemon);
/* The configuration as this host would read it; a fault is logged. */
MUST_CHECK int daemon_load_config(const struct daemon_options *options,
				  const struct host_view *seen, struct config **ret);

/* NULL when the daemon does not serve that page size. */
struct page_pool *daemon_pool(struct daemon *daemon, struct page_size page);
/* As page_size_parse() on this host; NULL text: the host's default huge page. */
MUST_CHECK int daemon_parse_page(const struct daemon *daemon, const char *text,
				 struct page_size *ret);

#endif
