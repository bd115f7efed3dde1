/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fill/fill.h - a team of threads that has the kernel zero pages.
 *
 * Jobs are submitted and finished in one thread (the owner's); team threads only work on units. A
 * fill job populates a range of an open segment file on one node with MADV_POPULATE_WRITE (base
 * pages: by writing zeros), unit by unit, or does other work on pages of one node; a chore runs a
 * slow call (unlink, truncate, a scan of /proc) off the owner's thread.
 *
 * Guarantees: a unit is never below one page; no thread idles while a job that may use it has a unit
 * left; a cancelled job stops within one unit per thread; every page is verified to be on its node;
 * a job's done() runs exactly once, in fill_team_reap(), when its mapping is gone. Threads sleep on a
 * condition when there is nothing to do: no wake-ups.
 */
#ifndef PREZERO_FILL_FILL_H
#define PREZERO_FILL_FILL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/parse.h"
#include "model/class.h"

struct fill_team;
struct fill_job;

enum fill_priority {
	FILL_STOCK, /* in the background: idle CPU time only (SCHED_IDLE), under the rate cap */
	FILL_DEMAND, /* somebody waits: ahead of everything, normal priority, no cap */
};

#define FILL_THREADS_MAX 1024

/* What interrupts work() of a cancelled job. The first team gives it a handler that does nothing,
 * without SA_RESTART; only team threads are sent it. SIGURG, for a process that has no such handler
 * ignores it: one that comes late or from elsewhere does no harm. */
#define FILL_SIGNAL SIGURG

struct fill_config {
	unsigned int n_threads; /* 1 to FILL_THREADS_MAX */
	struct id_set cpus; /* workers run on these, and of these on the CPUs of the node they fill;
			     * empty: wherever the process may run */
	uint64_t rate_bytes_per_s; /* of FILL_STOCK jobs together; 0: no cap */
};

struct fill_request {
	int fd; /* read-write; the team duplicates it; -1 with work() */
	uint64_t offset_bytes, length_bytes; /* multiples of the page */
	struct page_class page_class; /* node must be real */
	struct id_set node_cpus; /* of that node */
	uint64_t unit_bytes; /* of one thread's work at a time; 0: page_size_unit_bytes() */
	enum fill_priority priority;
	bool bind; /* bind to the node and verify; false only where the host has a single node */

	/* What a team thread does with a unit instead of populating it, as write(2) writes: returns the
	 * bytes done, maybe fewer than asked; 0 where nothing is left to do, which ends the job well; or
	 * a negative errno. A cancel makes its system calls return: it then returns what it has done, or
	 * -EINTR. Where that signal was another's, it is called again. NULL: populate. */
	int64_t (*work)(void *arg, uint64_t offset_bytes, uint64_t unit_bytes);

	/* Asked by a team thread before every unit, so it must be thread safe; a negative errno stops
	 * the job with that error. NULL: never asked. */
	int (*may_take)(void *arg, uint64_t unit_bytes);
	/* In the same thread, after every unit that may_take allowed, whether its pages came or not: what
	 * was granted is now visible in the host's counters. NULL: never called. */
	void (*took)(void *arg, uint64_t unit_bytes);
	/* In the owner's thread, from fill_team_reap(). result is 0 or a negative errno: -ECANCELED,
	 * -ENOMEM (no free page, a limit), -EXDEV (a page came out on another node), -ENOTSUP (thp
	 * that does not map by PMD), or what may_take said. */
	void (*done)(void *arg, struct fill_job *job, int result);
	void *arg;
};

struct fill_progress {
	uint64_t done_bytes, total_bytes;
	uint64_t elapsed_ns; /* since the first unit was taken, until now or the end */
	unsigned int threads_used; /* different threads that did at least one unit */
	int wrong_node; /* with -EXDEV: where the page was */
};

/* All threads run before this returns. */
MUST_CHECK int fill_team_start(const struct fill_config *config, struct fill_team **ret);
/* Cancels everything, waits for the threads (one unit or one chore at most), reaps, frees. Chores that
 * no thread has begun are not run: their done() gets -ECANCELED. Returns NULL. */
struct fill_team *fill_team_stop(struct fill_team *team);
/* CPUs and rate take effect at the next unit. The number of threads may change too. */
MUST_CHECK int fill_team_configure(struct fill_team *team, const struct fill_config *config);

MUST_CHECK int fill_team_submit(struct fill_team *team, const struct fill_request *request,
				struct fill_job **ret);
void fill_job_cancel(struct fill_job *job); /* done() still comes */
void fill_job_raise(struct fill_job *job, enum fill_priority priority);
void fill_job_progress(const struct fill_job *job, struct fill_progress *ret);

/* run() in a team thread ahead of fills; done() as for a fill job. Chores cannot be cancelled. Like
 * may_take(), run() has 256 KiB of stack, and had better not call malloc(): each thread that does gets
 * an arena of its own. */
MUST_CHECK int fill_team_submit_chore(struct fill_team *team, int (*run)(void *arg),
				      void (*done)(void *arg, int result), void *arg);

/* Readable (poll it) when fill_team_reap() has something to do. */
int fill_team_fd(const struct fill_team *team);
/* Calls done() for everything that has ended. */
void fill_team_reap(struct fill_team *team);

#endif
