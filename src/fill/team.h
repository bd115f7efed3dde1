/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fill/team.h - what a team's owner (team.c) and its workers (worker.c) share.
 *
 * Everything is under team->lock, which is never held across a call that may take long; a job's range is
 * used without it by the threads that are on a unit of the job, and the last of them unmaps it.
 *
 * The life of a job: queued, from fill_team_submit() until its last unit is claimed or it stops; then
 * closing, when no thread is on it but it is still mapped (only after a cancel); then ended, until
 * fill_team_reap() calls done() and frees it. Mapping and unmapping is left to team threads, for they
 * wait for every populate under way in this address space.
 */
#ifndef PREZERO_FILL_TEAM_H
#define PREZERO_FILL_TEAM_H

#include <pthread.h>
#include <sys/queue.h>

#include "fill/fill.h"
#include "fill/range.h"
#include "fill/thread.h"

#define PRIORITIES 2

struct fill_job {
	TAILQ_ENTRY(fill_job) link; /* in the one list that its state says */
	bool is_queued;
	bool is_mapping; /* a thread is at it; others cannot work on this job yet */
	_Atomic enum fill_priority priority; /* written under the lock */
	struct fill_team *team;
	int64_t (*work)(void *arg, uint64_t offset_bytes, uint64_t unit_bytes);
	int (*may_take)(void *arg, uint64_t unit_bytes);
	void (*took)(void *arg, uint64_t unit_bytes);
	void (*done)(void *arg, struct fill_job *job, int result);
	void *arg;
	int fd; /* until it is mapped */
	uint64_t offset_bytes; /* in the file */
	struct fill_range range;
	struct id_set node_cpus;
	struct id_set cpus; /* where its threads run */
	unsigned int threads_max;
	uint64_t unit_bytes;
	uint64_t claimed_bytes, done_bytes;
	unsigned int n_busy; /* threads on a unit of it */
	_Atomic int result; /* negative: it stops; written under the lock */
	int wrong_node;
	uint64_t start_ns, end_ns;
	uint64_t threads[FILL_THREADS_MAX / 64]; /* that did a unit */
};
TAILQ_HEAD(job_list, fill_job);

struct chore {
	STAILQ_ENTRY(chore) link;
	int (*run)(void *arg);
	void (*done)(void *arg, int result);
	void *arg;
	int result;
};
STAILQ_HEAD(chore_list, chore);

struct worker {
	struct fill_team *team;
	pthread_t thread;
	unsigned int index;
	bool is_created; /* the owner's: to be joined */
	bool has_quit;
	pid_t tid;
	struct fill_job *job; /* on a unit of this one */
	struct fill_interrupt interrupt; /* while that one was cancelled */
	/* the thread's own */
	enum sched_class sched_class;
	struct id_set cpus;
};

struct fill_team {
	pthread_mutex_t lock;
	pthread_cond_t work; /* for workers: there may be something to do */
	pthread_cond_t running; /* for the owner: a worker has started */
	struct job_list queue[PRIORITIES]; /* by priority; have units to claim */
	struct job_list closing;
	struct job_list ended;
	struct chore_list chores, ended_chores;
	unsigned int node_busy[NODES_MAX]; /* threads that fill a node now */
	unsigned int n_threads, n_running;
	bool is_stopping;
	bool has_timekeeper; /* a worker waits until next_stock_ns; the others need not */
	uint64_t rate_bytes_per_s;
	uint64_t next_stock_ns; /* when the rate cap lets the next stock unit be claimed */
	struct id_set cpus; /* configured, or all that the process may use */
	int event_fd;
	unsigned int n_workers; /* entries, at most FILL_THREADS_MAX; the owner's */
	struct worker **worker;
};

static inline void team_lock(struct fill_team *team)
{
	pthread_mutex_lock(&team->lock);
}

static inline void team_unlock(struct fill_team *team)
{
	pthread_mutex_unlock(&team->lock);
}

/* All with the lock held. */
void team_tell_owner(struct fill_team *team);
void team_unqueue_job(struct fill_job *job);
void team_stop_job(struct fill_job *job, int result); /* no thread begins on it any more */
void team_end_job(struct fill_job *job); /* no thread is on it, and it is unmapped */
/* Takes one out of closing, unmaps it without the lock, and ends it. */
void team_close_job(struct fill_job *job);

void *fill_worker_main(void *worker);

#endif
