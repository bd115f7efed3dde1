// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fill/worker.c - a team's thread: what it works on next, and the work.
 *
 * Guarantees: see fill.h; what is shared and when, see team.h.
 */
#include "fill/team.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/io.h"

/* What the rate cap lets a team catch up that could not run for a while. */
#define RATE_CREDIT_NS 100000000ULL
#define NS_PER_S 1000000000ULL

/*
 * Which job to work on: the most urgent, there on the node with the fewest threads so that all memory
 * controllers are busy, then, for base pages, the file with the fewest (they take turns in one file),
 * then the oldest.
 */
static struct fill_job *least_crowded(struct fill_team *team, struct job_list *queue)
{
	struct fill_job *job, *best = NULL;
	unsigned int best_crowd = 0;

	TAILQ_FOREACH(job, queue, link) {
		unsigned int on_node = team->node_busy[job->range.page_class.node];
		unsigned int crowd = on_node * (FILL_THREADS_MAX + 1);

		if (job->is_mapping || on_node >= job->threads_max)
			continue;
		if (job->range.page_class.page.kind == PAGE_BASE)
			crowd += job->n_busy;
		if (!best || crowd < best_crowd) {
			best = job;
			best_crowd = crowd;
		}
	}
	return best;
}

static struct fill_job *next_job(struct fill_team *team, uint64_t *ret_wait_until_ns)
{
	struct fill_job *job = least_crowded(team, &team->queue[FILL_DEMAND]);

	if (job)
		return job;
	job = least_crowded(team, &team->queue[FILL_STOCK]);
	if (job && team->rate_bytes_per_s && team->next_stock_ns > monotonic_ns()) {
		*ret_wait_until_ns = team->next_stock_ns;
		return NULL;
	}
	return job;
}

static void pay_for_unit(struct fill_team *team, uint64_t unit_bytes)
{
	uint64_t now_ns = monotonic_ns();
	uint64_t cost_ns;

	if (!team->rate_bytes_per_s)
		return;
	cost_ns = (uint64_t)((unsigned __int128)unit_bytes * NS_PER_S / team->rate_bytes_per_s);
	if (team->next_stock_ns + RATE_CREDIT_NS < now_ns)
		team->next_stock_ns = now_ns - RATE_CREDIT_NS;
	team->next_stock_ns += cost_ns;
}

static uint64_t claim_unit(struct worker *worker, struct fill_job *job, uint64_t *ret_unit_bytes)
{
	struct fill_team *team = worker->team;
	uint64_t start_bytes = job->claimed_bytes;
	uint64_t unit_bytes = job->unit_bytes;

	if (unit_bytes > job->range.bytes - start_bytes)
		unit_bytes = job->range.bytes - start_bytes;
	if (!job->start_ns)
		job->start_ns = monotonic_ns();
	if (job->priority == FILL_STOCK)
		pay_for_unit(team, unit_bytes);
	job->claimed_bytes += unit_bytes;
	if (job->claimed_bytes == job->range.bytes)
		team_unqueue_job(job);
	job->n_busy++;
	team->node_busy[job->range.page_class.node]++;
	worker->job = job;
	*ret_unit_bytes = unit_bytes;
	return start_bytes;
}

/* Called and returns with the lock held. Pages that are given up are free when the owner hears of it. */
static void unmap_and_end(struct fill_job *job)
{
	struct fill_team *team = job->team;

	team_unlock(team);
	fill_range_unmap(&job->range);
	team_lock(team);
	team_end_job(job);
}

/* Called and returns with the lock held. */
void team_close_job(struct fill_job *job)
{
	TAILQ_REMOVE(&job->team->closing, job, link);
	unmap_and_end(job);
}

static void set_cpus(struct worker *worker, const struct id_set *cpus)
{
	if (!memcmp(&worker->cpus, cpus, sizeof(*cpus)))
		return;
	worker->cpus = *cpus;
	fill_thread_set_cpus(cpus);
}

static void become(struct worker *worker, enum sched_class sched_class)
{
	if (worker->sched_class == sched_class)
		return;
	worker->sched_class = sched_class;
	fill_thread_set_class(0, sched_class);
}

/* fill_job_raise() may come at any instant: it raises the job first and the threads on it next, so
 * that either it sees this thread idle, or this thread sees the job raised. */
static void become_as_urgent_as(struct worker *worker, struct fill_job *job)
{
	become(worker, job->priority == FILL_STOCK ? SCHED_CLASS_IDLE : SCHED_CLASS_NORMAL);
	if (job->priority == FILL_DEMAND)
		become(worker, SCHED_CLASS_NORMAL);
}

static int map_job(struct fill_job *job)
{
	struct fill_team *team = job->team;
	int r = fill_range_map(&job->range, job->fd, job->offset_bytes);

	team_lock(team);
	job->is_mapping = false;
	if (r < 0)
		team_stop_job(job, r);
	pthread_cond_broadcast(&team->work);
	team_unlock(team);
	return r;
}

/* Does one unit, or what there is of it. */
static int do_unit(struct fill_job *job, uint64_t start_bytes, uint64_t unit_bytes,
		   uint64_t *done_bytes, int *wrong_node)
{
	int r;

	if (!job->work) {
		r = fill_range_populate(&job->range, start_bytes, unit_bytes, wrong_node);
		if (r == 0)
			*done_bytes = unit_bytes;
		return r;
	}
	while (*done_bytes < unit_bytes && !job->result) {
		int64_t n =
			job->work(job->arg, start_bytes + *done_bytes, unit_bytes - *done_bytes);

		if (n == -EINTR)
			continue;
		if (n <= 0)
			return (int)n;
		*done_bytes += (uint64_t)n;
	}
	return 0;
}

/* Called and returns with the lock held. */
static void work_on(struct worker *worker, struct fill_job *job)
{
	struct fill_team *team = worker->team;
	bool map = !job->work && !job->range.address, is_granted = false;
	int wrong_node = -1, r = 0;
	uint64_t start_bytes, unit_bytes, done_bytes = 0;
	struct id_set cpus = job->cpus;

	start_bytes = claim_unit(worker, job, &unit_bytes);
	job->is_mapping = map;
	team_unlock(team);

	set_cpus(worker, &cpus);
	become_as_urgent_as(worker, job);
	if (map)
		r = map_job(job);
	if (r == 0 && job->may_take) {
		r = job->may_take(job->arg, unit_bytes);
		is_granted = r >= 0;
	}
	if (r >= 0)
		r = do_unit(job, start_bytes, unit_bytes, &done_bytes, &wrong_node);
	if (is_granted && job->took)
		job->took(job->arg, unit_bytes);

	team_lock(team);
	/* Raised meanwhile: fill_job_raise() has changed this thread's class. */
	if (job->priority == FILL_DEMAND)
		worker->sched_class = SCHED_CLASS_NORMAL;
	worker->job = NULL;
	fill_interrupt_stop(&worker->interrupt);
	team->node_busy[job->range.page_class.node]--;
	job->threads[worker->index / 64] |= 1ULL << (worker->index % 64);
	job->done_bytes += done_bytes;
	if (r == -EXDEV && job->wrong_node < 0)
		job->wrong_node = wrong_node;
	if (done_bytes < unit_bytes)
		team_stop_job(job, r);
	if (--job->n_busy || job->is_queued)
		return;

	/* Nobody else looks at it any more. */
	team_unlock(team);
	if (!job->result && !job->work && job->range.page_class.page.kind == PAGE_THP)
		r = fill_range_check_pmd(&job->range);
	team_lock(team);
	if (r < 0)
		team_stop_job(job, r);
	unmap_and_end(job);
}

/* Called and returns with the lock held. */
static void run_chore(struct worker *worker, struct chore *chore)
{
	struct fill_team *team = worker->team;

	STAILQ_REMOVE_HEAD(&team->chores, link);
	team_unlock(team);
	become(worker, SCHED_CLASS_NORMAL);
	chore->result = chore->run(chore->arg);
	team_lock(team);
	STAILQ_INSERT_TAIL(&team->ended_chores, chore, link);
	team_tell_owner(team);
}

static void wait_for_work(struct fill_team *team, uint64_t until_ns)
{
	const struct timespec until = {
		.tv_sec = (time_t)(until_ns / NS_PER_S),
		.tv_nsec = (long)(until_ns % NS_PER_S),
	};

	if (!until_ns || team->has_timekeeper) {
		pthread_cond_wait(&team->work, &team->lock);
		return;
	}
	team->has_timekeeper = true;
	pthread_cond_timedwait(&team->work, &team->lock, &until);
	team->has_timekeeper = false;
	/* This one will be busy now: somebody else has to look at the time. */
	pthread_cond_signal(&team->work);
}

void *fill_worker_main(void *arg)
{
	struct worker *worker = arg;
	struct fill_team *team = worker->team;

	pthread_setname_np(pthread_self(), "prezero-fill");
	team_lock(team);
	worker->tid = gettid();
	team->n_running++;
	pthread_cond_signal(&team->running);
	while (!team->is_stopping && worker->index < team->n_threads) {
		uint64_t wait_until_ns = 0;
		struct fill_job *job;

		if (!STAILQ_EMPTY(&team->chores))
			run_chore(worker, STAILQ_FIRST(&team->chores));
		else if ((job = TAILQ_FIRST(&team->closing)))
			team_close_job(job);
		else if ((job = next_job(team, &wait_until_ns)))
			work_on(worker, job);
		else
			wait_for_work(team, wait_until_ns);
	}
	team->n_running--;
	worker->has_quit = true;
	/* It may have been woken for work that another has to do now. */
	pthread_cond_signal(&team->work);
	team_unlock(team);
	return NULL;
}
