/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/pools.c - a mount and a pool for every page size that the host has.
 *
 * Guarantees: what an earlier daemon left is adopted before anything new is made; a mount that
 * somebody took away costs the segments in it and nothing else.
 */
#include "daemon/pools.h"

#include <string.h>

#include "daemon/filling.h"
#include "daemon/leases.h"
#include "daemon/log.h"
#include "daemon/manager.h"

/* Closing the last descriptor of more takes a moment: not in the event loop. */
#define FREE_IN_PLACE_BYTES UNIT_BYTES_MIN

struct page_pool *daemon_pool(struct daemon *daemon, struct page_size page)
{
	for (unsigned int i = 0; i < daemon->n_pools; i++) {
		if (page_size_equal(daemon->pool[i].page, page))
			return daemon->pool[i].is_lost ? NULL : &daemon->pool[i];
	}
	return NULL;
}

/* The mount, and what recovery finds in it. */
static int open_one(struct page_pool *pages)
{
	struct daemon *daemon = pages->daemon;
	struct pool_recovery recovery;
	AUTO_FD dir_fd = -1;
	struct pool *pool;
	bool was_there;
	int r;

	r = runtime_mount(&daemon->runtime, pages->page, daemon->seen->total_bytes, &dir_fd,
			  &was_there);
	if (r < 0) {
		log_warning("%s pages are not served: %s/%s cannot be mounted: %s%s", pages->name,
			    daemon->runtime.path, pages->name, strerror(-r),
			    r == -EEXIST ? " (something else is mounted there)" : "");
		return r;
	}
	r = pool_open(dir_fd, pages->page, &pool, &recovery);
	if (r < 0) {
		log_warning(
			"%s pages are not served: what stands in %s/%s cannot be taken over: %s",
			pages->name, daemon->runtime.path, pages->name, strerror(-r));
		return r;
	}
	if (was_there)
		log_info(
			"%s: %u ready segments adopted, %u refused; %u leases go on, %u ended; %u unfinished segments dropped",
			pages->name, recovery.n_ready_adopted, recovery.n_ready_refused,
			recovery.n_lent_kept, recovery.n_lent_ended, recovery.n_filling_dropped);
	close_fd(pages->dir_fd);
	pages->pool = pool_close(pages->pool);
	pages->pool = pool;
	pages->dir_fd = TAKE_FD(dir_fd);
	return leases_attach(pages);
}

static void add_pool(struct daemon *daemon, struct page_size page)
{
	struct page_pool *pages = &daemon->pool[daemon->n_pools];

	*pages = (struct page_pool){.daemon = daemon, .page = page, .dir_fd = -1};
	page_size_format(page, pages->name);
	if (open_one(pages) >= 0)
		daemon->n_pools++;
}

int pools_open(struct daemon *daemon)
{
	const struct host_view *seen = daemon->seen;

	for (unsigned int i = 0; i < seen->n_hugetlb; i++)
		add_pool(daemon, (struct page_size){PAGE_HUGETLB, seen->hugetlb[i].page_bytes});
	if (seen->thp_bytes)
		add_pool(daemon, (struct page_size){PAGE_THP, seen->thp_bytes});
	add_pool(daemon, (struct page_size){PAGE_BASE, seen->base_page_bytes});
	return daemon->n_pools ? 0 : -ENODEV;
}

void pools_close(struct daemon *daemon)
{
	while (daemon->n_pools) {
		struct page_pool *pages = &daemon->pool[--daemon->n_pools];

		leases_detach(pages);
		pages->pool = pool_close(pages->pool);
		pages->dir_fd = close_fd(pages->dir_fd);
	}
}

static bool try_again(struct page_pool *pages)
{
	if (pages->n_busy)
		return false; /* what was under way is being cancelled */
	leases_detach(pages);
	if (open_one(pages) < 0)
		return false;
	pages->is_lost = false;
	log_notice("%s: mounted anew", pages->name);
	return true;
}

bool pools_check_mounts(struct daemon *daemon)
{
	bool any_lost = false;

	for (unsigned int i = 0; i < daemon->n_pools; i++) {
		struct page_pool *pages = &daemon->pool[i];

		if (!pages->is_lost &&
		    !runtime_is_mounted(&daemon->runtime, pages->page, pages->dir_fd)) {
			log_error(
				"%s/%s was unmounted by somebody: its ready segments are lost, its leases end with their holders",
				daemon->runtime.path, pages->name);
			pages->is_lost = true;
			filling_cancel_all(daemon->fillings, pages);
		}
		if (pages->is_lost && !try_again(pages))
			any_lost = true;
	}
	return any_lost;
}

char *pools_segment_path(const struct page_pool *pages, const struct segment *segment)
{
	char below[256], *path;

	if (pool_segment_path(pages->pool, segment, below, sizeof(below)) < 0 ||
	    asprintf(&path, "%s/%s/%s", pages->daemon->runtime.path, pages->name, below) < 0)
		return NULL;
	return path;
}

/* Freeing. */

bool pools_free_slowly(uint64_t bytes)
{
	return bytes > FREE_IN_PLACE_BYTES;
}

struct freeing {
	struct daemon *daemon;
	int fd;
};

static int freeing_run(void *arg)
{
	const struct freeing *freeing = arg;

	return close(freeing->fd) < 0 ? -errno : 0;
}

static void freeing_done(void *arg, int result)
{
	struct freeing *freeing = arg;
	struct daemon *daemon = freeing->daemon;

	if (result == -ECANCELED)
		close_fd(freeing->fd); /* the team is being stopped */
	daemon->n_freeing--;
	free(freeing);
	manager_kick(daemon);
}

void pools_free_pages(struct daemon *daemon, int fd)
{
	struct freeing *freeing;

	if (fd < 0)
		return;
	freeing = calloc(1, sizeof(*freeing));
	if (freeing)
		*freeing = (struct freeing){.daemon = daemon, .fd = fd};
	if (!freeing ||
	    fill_team_submit_chore(daemon->team, freeing_run, freeing_done, freeing) < 0) {
		free(freeing);
		close_fd(fd);
		return;
	}
	daemon->n_freeing++;
}

void pools_drop(struct page_pool *pages, struct segment *segment)
{
	bool slowly = pools_free_slowly(segment->bytes);
	int fd = -1, r;

	r = pool_drop(pages->pool, segment, slowly ? &fd : NULL);
	if (r < 0)
		log_warning("%s: a segment cannot be removed: %s", pages->name, strerror(-r));
	pools_free_pages(pages->daemon, fd);
}
