// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fill/team.c - the team as its owner sees it: its threads, its jobs and chores, and how they end.
 *
 * Guarantees: see fill.h; what is shared and when, see team.h.
 */
#include "fill/team.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/io.h"

void team_tell_owner(struct fill_team *team)
{
	uint64_t one = 1;

	/* It can only fail when the counter is full, and then it is readable. */
	(void)!write(team->event_fd, &one, sizeof(one));
}

void team_unqueue_job(struct fill_job *job)
{
	if (job->is_queued)
		TAILQ_REMOVE(&job->team->queue[job->priority], job, link);
	job->is_queued = false;
}

void team_stop_job(struct fill_job *job, int result)
{
	if (!job->result)
		job->result = result;
	team_unqueue_job(job);
}

void team_end_job(struct fill_job *job)
{
	job->fd = close_fd(job->fd);
	job->end_ns = monotonic_ns();
	TAILQ_INSERT_TAIL(&job->team->ended, job, link);
	team_tell_owner(job->team);
}

static void cancel(struct fill_job *job)
{
	struct fill_team *team = job->team;

	if (!job->is_queued && !job->n_busy)
		return; /* it is ending already */
	team_stop_job(job, -ECANCELED);
	for (unsigned int i = 0; job->work && i < team->n_workers; i++) {
		if (team->worker[i] && team->worker[i]->job == job)
			fill_interrupt_start(&team->worker[i]->interrupt, team->worker[i]->tid);
	}
	if (job->n_busy)
		return;
	if (job->range.address) {
		TAILQ_INSERT_TAIL(&team->closing, job, link);
		pthread_cond_signal(&team->work);
	} else {
		team_end_job(job);
	}
}

static int start_worker(struct fill_team *team, unsigned int index)
{
	struct worker *worker = team->worker[index];
	int r;

	if (!worker) {
		worker = calloc(1, sizeof(*worker));
		if (!worker)
			return -ENOMEM;
		worker->team = team;
		worker->index = index;
		team->worker[index] = worker;
	} else if (worker->is_created) {
		bool has_quit;

		team_lock(team);
		has_quit = worker->has_quit;
		team_unlock(team);
		/* One that was to quit and has not yet noticed stays. */
		if (!has_quit)
			return 0;
		pthread_join(worker->thread, NULL);
		worker->is_created = false;
		worker->has_quit = false;
		worker->sched_class = SCHED_CLASS_NORMAL;
		memset(&worker->cpus, 0, sizeof(worker->cpus));
	}

	r = fill_thread_start(&worker->thread, fill_worker_main, worker);
	if (r < 0)
		return r;
	worker->is_created = true;
	return 0;
}

/* Sets the number of threads; returns when the new ones run. On failure some may have been started:
 * they quit when told the old number. */
static int set_n_threads(struct fill_team *team, unsigned int n_threads)
{
	unsigned int n_before;
	int r = 0;

	if (n_threads > team->n_workers) {
		struct worker **grown = realloc(team->worker, n_threads * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		memset(grown + team->n_workers, 0, (n_threads - team->n_workers) * sizeof(*grown));
		team->worker = grown;
		team->n_workers = n_threads;
	}
	team_lock(team);
	n_before = team->n_threads;
	team->n_threads = n_threads;
	pthread_cond_broadcast(&team->work);
	team_unlock(team);

	for (unsigned int i = 0; i < n_threads && r == 0; i++)
		r = start_worker(team, i);

	team_lock(team);
	if (r < 0)
		team->n_threads = n_before;
	while (team->n_running < team->n_threads)
		pthread_cond_wait(&team->running, &team->lock);
	pthread_cond_broadcast(&team->work);
	team_unlock(team);
	return r;
}

static void place_job(const struct fill_team *team, struct fill_job *job)
{
	job->cpus = team->cpus;
	id_set_and(&job->cpus, &job->node_cpus);
	/* A node without CPUs, or with none that may be used, is filled from elsewhere. */
	if (id_set_is_empty(&job->cpus))
		job->cpus = team->cpus;
	job->threads_max = id_set_count(&job->cpus);
}

int fill_team_configure(struct fill_team *team, const struct fill_config *config)
{
	struct id_set cpus = config->cpus;
	int r;

	if (!config->n_threads || config->n_threads > FILL_THREADS_MAX)
		return -EINVAL;
	if (id_set_is_empty(&cpus) &&
	    syscall(SYS_sched_getaffinity, getpid(), sizeof(cpus.word), cpus.word) < 0)
		return -errno;
	r = set_n_threads(team, config->n_threads);
	if (r < 0)
		return r;

	team_lock(team);
	team->cpus = cpus;
	if (team->rate_bytes_per_s != config->rate_bytes_per_s)
		team->next_stock_ns = 0;
	team->rate_bytes_per_s = config->rate_bytes_per_s;
	for (unsigned int p = 0; p < PRIORITIES; p++) {
		struct fill_job *job;

		TAILQ_FOREACH(job, &team->queue[p], link)
			place_job(team, job);
	}
	pthread_cond_broadcast(&team->work);
	team_unlock(team);
	return 0;
}

int fill_team_start(const struct fill_config *config, struct fill_team **ret)
{
	struct fill_team *team = calloc(1, sizeof(*team));
	pthread_condattr_t attr;
	int r;

	if (!team)
		return -ENOMEM;
	fill_interrupt_prepare();
	pthread_mutex_init(&team->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&team->work, &attr);
	pthread_cond_init(&team->running, &attr);
	pthread_condattr_destroy(&attr);
	for (unsigned int p = 0; p < PRIORITIES; p++)
		TAILQ_INIT(&team->queue[p]);
	TAILQ_INIT(&team->closing);
	TAILQ_INIT(&team->ended);
	STAILQ_INIT(&team->chores);
	STAILQ_INIT(&team->ended_chores);

	team->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = team->event_fd < 0 ? -errno : fill_team_configure(team, config);
	if (r < 0) {
		fill_team_stop(team);
		return r;
	}
	*ret = team;
	return 0;
}

static int take_file(struct fill_job *job, const struct fill_request *request)
{
	struct stat st;

	if (fstat(request->fd, &st) < 0)
		return -errno;
	if (request->offset_bytes > (uint64_t)st.st_size ||
	    request->length_bytes > (uint64_t)st.st_size - request->offset_bytes)
		return -EINVAL;
	job->fd = fcntl(request->fd, F_DUPFD_CLOEXEC, 0);
	return job->fd < 0 ? -errno : 0;
}

int fill_team_submit(struct fill_team *team, const struct fill_request *request,
		     struct fill_job **ret)
{
	uint64_t page_bytes = request->page_class.page.bytes;
	struct fill_job *job;
	int r;

	if (!page_bytes || !request->length_bytes || request->length_bytes % page_bytes ||
	    request->unit_bytes % page_bytes || request->offset_bytes % page_bytes ||
	    request->page_class.node < 0 || request->page_class.node >= NODES_MAX ||
	    (unsigned int)request->priority >= PRIORITIES)
		return -EINVAL;
	job = calloc(1, sizeof(*job));
	if (!job)
		return -ENOMEM;
	job->fd = -1;
	r = request->work ? 0 : take_file(job, request);
	if (r < 0) {
		free(job);
		return r;
	}
	job->team = team;
	job->work = request->work;
	job->unit_bytes = request->unit_bytes;
	if (!job->unit_bytes)
		job->unit_bytes = page_size_unit_bytes(request->page_class.page);
	job->priority = request->priority;
	job->may_take = request->may_take;
	job->took = request->took;
	job->done = request->done;
	job->arg = request->arg;
	job->offset_bytes = request->offset_bytes;
	job->range.bytes = request->length_bytes;
	job->range.page_class = request->page_class;
	job->range.bind = request->bind;
	job->node_cpus = request->node_cpus;
	job->wrong_node = -1;

	team_lock(team);
	place_job(team, job);
	TAILQ_INSERT_TAIL(&team->queue[job->priority], job, link);
	job->is_queued = true;
	if (team->is_stopping)
		cancel(job);
	pthread_cond_broadcast(&team->work);
	team_unlock(team);
	*ret = job;
	return 0;
}

void fill_job_cancel(struct fill_job *job)
{
	team_lock(job->team);
	cancel(job);
	team_unlock(job->team);
}

void fill_job_raise(struct fill_job *job, enum fill_priority priority)
{
	struct fill_team *team = job->team;

	team_lock(team);
	if (job->is_queued && job->priority != priority) {
		TAILQ_REMOVE(&team->queue[job->priority], job, link);
		TAILQ_INSERT_TAIL(&team->queue[priority], job, link);
	}
	job->priority = priority;
	/* On a busy host a thread of the idle class may take very long to end its unit. */
	for (unsigned int i = 0; i < team->n_workers && priority == FILL_DEMAND; i++)
		if (team->worker[i] && team->worker[i]->job == job)
			fill_thread_set_class(team->worker[i]->tid, SCHED_CLASS_NORMAL);
	pthread_cond_broadcast(&team->work);
	team_unlock(team);
}

void fill_job_progress(const struct fill_job *job, struct fill_progress *ret)
{
	team_lock(job->team);
	*ret = (struct fill_progress){
		.done_bytes = job->done_bytes,
		.total_bytes = job->range.bytes,
		.wrong_node = job->wrong_node,
	};
	if (job->start_ns)
		ret->elapsed_ns = (job->end_ns ? job->end_ns : monotonic_ns()) - job->start_ns;
	for (unsigned int i = 0; i < FILL_THREADS_MAX / 64; i++)
		ret->threads_used += (unsigned int)__builtin_popcountll(job->threads[i]);
	team_unlock(job->team);
}

int fill_team_submit_chore(struct fill_team *team, int (*run)(void *arg),
			   void (*done)(void *arg, int result), void *arg)
{
	struct chore *chore = calloc(1, sizeof(*chore));

	if (!chore)
		return -ENOMEM;
	chore->run = run;
	chore->done = done;
	chore->arg = arg;
	team_lock(team);
	STAILQ_INSERT_TAIL(&team->chores, chore, link);
	pthread_cond_signal(&team->work);
	team_unlock(team);
	return 0;
}

int fill_team_fd(const struct fill_team *team)
{
	return team->event_fd;
}

void fill_team_reap(struct fill_team *team)
{
	uint64_t count;

	/* First, so that what ends from here on makes it readable again. */
	(void)!read(team->event_fd, &count, sizeof(count));
	team_lock(team);
	for (;;) {
		struct chore *chore = STAILQ_FIRST(&team->ended_chores);
		struct fill_job *job = TAILQ_FIRST(&team->ended);

		if (chore) {
			STAILQ_REMOVE_HEAD(&team->ended_chores, link);
			team_unlock(team);
			chore->done(chore->arg, chore->result);
			free(chore);
		} else if (job) {
			TAILQ_REMOVE(&team->ended, job, link);
			team_unlock(team);
			job->done(job->arg, job, job->result);
			free(job);
		} else {
			break;
		}
		team_lock(team);
	}
	team_unlock(team);
}

static void cancel_chores(struct fill_team *team)
{
	struct chore *chore;

	STAILQ_FOREACH(chore, &team->chores, link)
		chore->result = -ECANCELED;
	STAILQ_CONCAT(&team->ended_chores, &team->chores);
}

struct fill_team *fill_team_stop(struct fill_team *team)
{
	struct fill_job *job;

	if (!team)
		return NULL;
	team_lock(team);
	team->is_stopping = true;
	for (unsigned int p = 0; p < PRIORITIES; p++)
		while ((job = TAILQ_FIRST(&team->queue[p])))
			cancel(job);
	/* A unit of other work may take long: those whose last one is under way are in no queue. */
	for (unsigned int i = 0; i < team->n_workers; i++) {
		job = team->worker[i] ? team->worker[i]->job : NULL;
		if (job && job->work)
			cancel(job);
	}
	pthread_cond_broadcast(&team->work);
	team_unlock(team);

	for (unsigned int i = 0; i < team->n_workers; i++)
		if (team->worker[i] && team->worker[i]->is_created)
			pthread_join(team->worker[i]->thread, NULL);

	team_lock(team);
	while ((job = TAILQ_FIRST(&team->closing)))
		team_close_job(job);
	team_unlock(team);
	/* done() may submit again: refused at once, and reaped as well. */
	do {
		cancel_chores(team);
		fill_team_reap(team);
	} while (!STAILQ_EMPTY(&team->chores));

	for (unsigned int i = 0; i < team->n_workers; i++)
		free(team->worker[i]);
	free(team->worker);
	close_fd(team->event_fd);
	pthread_cond_destroy(&team->running);
	pthread_cond_destroy(&team->work);
	pthread_mutex_destroy(&team->lock);
	free(team);
	return NULL;
}
