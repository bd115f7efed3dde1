/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * host/host.h - look: what the kernel shows of memory, NUMA, CPUs and processes.
 *
 * Every path is relative to one root directory (`--sysroot`), so that tests show it captured or
 * imagined machines. Reads never change anything. host_look() and host_missing() belong to one thread;
 * the others may be called by several at once, meanwhile too.
 */
#ifndef PREZERO_HOST_HOST_H
#define PREZERO_HOST_HOST_H

#include <sys/types.h>

#include "model/goal.h"
#include "model/view.h"

struct host;

/* sysroot NULL or "/": the machine itself. */
MUST_CHECK int host_open(const char *sysroot, struct host **ret);
struct host *host_free(struct host *host); /* returns NULL */

/* Everything at once: some hundred small reads on an 8-node machine. -ENODATA: a file that every
 * kernel has is missing or does not parse; host_missing() names it. */
MUST_CHECK int host_look(struct host *host, struct host_view *ret);
const char *host_missing(const struct host *host);

/* A cheap look again at the few files that bound one class, for a check before every unit of work:
 * refreshes in *view only what policy_headroom_bytes() reads for page_class. A few preads on kept
 * descriptors. */
MUST_CHECK int host_look_headroom(struct host *host, struct page_class page_class,
				  struct host_view *view);

/* The kernel file of a class (zeroable_hugepages), for reading, writing and polling. -ENOENT: this
 * kernel has none there. */
MUST_CHECK int host_open_zeroable(struct host *host, struct page_class page_class);
/* How many free pages are dirty; only what comes after this makes the file ready (EPOLLPRI) again.
 * -ENODEV: the file has gone. */
MUST_CHECK int host_read_zeroable(int fd, uint64_t *ret_pages);
/* Has the kernel zero up to so many dirty pages in the calling thread, one a write, so that the number
 * done is known: returns it. It is less where a signal came or no page is dirty any more; -EINTR where
 * a signal came before the first. Opens the file for itself: writes to one open file take turns. */
MUST_CHECK int64_t host_zero(struct host *host, struct page_class page_class, uint64_t pages);

/* The kernel's own pool of huge pages (host/pages.c). Pages without surplus, and surplus pages, of one
 * node or of all (NODE_ANY); a write may come short without an error: read again. */
MUST_CHECK int host_read_pages(struct host *host, struct page_class page_class, uint64_t *ret_pages,
			       uint64_t *ret_surplus_pages);
MUST_CHECK int host_write_pages(struct host *host, struct page_class page_class, uint64_t pages);
/* Free pages that nobody reserved, of the whole host. */
MUST_CHECK int host_read_free_pages(struct host *host, uint64_t page_bytes, uint64_t *ret_pages);
MUST_CHECK int host_read_overcommit(struct host *host, uint64_t page_bytes, uint64_t *ret_pages);
/* -EINVAL for a size that takes no surplus pages. */
MUST_CHECK int host_write_overcommit(struct host *host, uint64_t page_bytes, uint64_t pages);
/* Has the kernel move pages of a node together, in the calling thread; takes long. */
int host_compact(struct host *host, int node);
/* Has every CPU give back what it keeps on lists of free pages beyond the least: up to an eighth of a
 * zone, which is not counted as free and cannot become part of a huge page. Needs root, changes no
 * setting; kernels before 6.7 keep short lists, and nothing happens. 0, or why not. */
int host_drain_lists(struct host *host);
/* The kernel's log as it stands, the caller's to free. Needs root. */
MUST_CHECK int host_read_log(const struct host *host, char **ret);
/* Whether the kernel zeroes what it allocates (init_on_alloc): from its command line, else from its
 * configuration, else from its log. -ENODATA: none of them says. */
MUST_CHECK int host_zeroes_on_alloc(struct host *host, bool *ret);
/* Whether it gives up most of the metadata of huge pages (hugetlb_optimize_vmemmap). */
bool host_optimizes_vmemmap(struct host *host);

/* Who has a file open or mapped (ino 0: any file of the device): a scan of /proc/PID/{fd,maps};
 * processes that come and go meanwhile are missed or skipped without error. At most holders_max are
 * written; returns how many there are. Negative: none was found, and not all could be looked at. The
 * calling process itself is left out. */
struct holder {
	pid_t pid;
	uid_t uid;
	char command[16];
	bool has_open, has_mapped;
};
MUST_CHECK int host_holders(struct host *host, dev_t dev, ino_t ino, struct holder *holders,
			    unsigned int holders_max);

#endif
