// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fill/team.c - the team: its threads, its queues, and who works on what.
 *
 * Guarantees: see fill.h. Everything shared is under team->lock, which is never held across a call that
 * may take long; a job's range is used without it by the threads that are on a unit of the job, and the
 * last of them unmaps it.
 *
 * The life of a job: queued, from fill_team_submit() until its last unit is claimed or it stops; then
 * closing, when no thread is on it but it is still mapped (only after a cancel); then ended, until
 * fill_team_reap() calls done() and frees it. Mapping and unmapping is left to team threads, for they
 * wait for every populate under way in this address space.
 */
#include "fill/fill.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/io.h"
#include "fill/range.h"
#include "fill/thread.h"

#define PRIORITIES 2
/* What the rate cap lets a team catch up that could not run for a while. */
#define RATE_CREDIT_NS 100000000ULL
#define NS_PER_S 1000000000ULL

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

static void lock(struct fill_team *team)
{
	pthread_mutex_lock(&team->lock);
}

static void unlock(struct fill_team *team)
{
	pthread_mutex_unlock(&team->lock);
}

static void tell_owner(struct fill_team *team)
{
	uint64_t one = 1;

	/* It can only fail when the counter is full, and then it is readable. */
	(void)!write(team->event_fd, &one, sizeof(one));
}

static void take_out_of_queue(struct fill_job *job)
{
	if (job->is_queued)
		TAILQ_REMOVE(&job->team->queue[job->priority], job, link);
	job->is_queued = false;
}

static void stop_job(struct fill_job *job, int result)
{
	if (!job->result)
		job->result = result;
	take_out_of_queue(job);
}

static void end_job(struct fill_job *job)
{
	job->fd = close_fd(job->fd);
	job->end_ns = monotonic_ns();
	TAILQ_INSERT_TAIL(&job->team->ended, job, link);
	tell_owner(job->team);
}

static void cancel(struct fill_job *job)
{
	struct fill_team *team = job->team;

	if (!job->is_queued && !job->n_busy)
		return; /* it is ending already */
	stop_job(job, -ECANCELED);
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
		end_job(job);
	}
}

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
		take_out_of_queue(job);
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

	unlock(team);
	fill_range_unmap(&job->range);
	lock(team);
	end_job(job);
}

/* Called and returns with the lock held. */
static void close_job(struct fill_job *job)
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

	lock(team);
	job->is_mapping = false;
	if (r < 0)
		stop_job(job, r);
	pthread_cond_broadcast(&team->work);
	unlock(team);
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
	unlock(team);

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

	lock(team);
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
		stop_job(job, r);
	if (--job->n_busy || job->is_queued)
		return;

	/* Nobody else looks at it any more. */
	unlock(team);
	if (!job->result && !job->work && job->range.page_class.page.kind == PAGE_THP)
		r = fill_range_check_pmd(&job->range);
	lock(team);
	if (r < 0)
		stop_job(job, r);
	unmap_and_end(job);
}

/* Called and returns with the lock held. */
static void run_chore(struct worker *worker, struct chore *chore)
{
	struct fill_team *team = worker->team;

	STAILQ_REMOVE_HEAD(&team->chores, link);
	unlock(team);
	become(worker, SCHED_CLASS_NORMAL);
	chore->result = chore->run(chore->arg);
	lock(team);
	STAILQ_INSERT_TAIL(&team->ended_chores, chore, link);
	tell_owner(team);
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

static void *worker_main(void *arg)
{
	struct worker *worker = arg;
	struct fill_team *team = worker->team;

	pthread_setname_np(pthread_self(), "prezero-fill");
	lock(team);
	worker->tid = gettid();
	team->n_running++;
	pthread_cond_signal(&team->running);
	while (!team->is_stopping && worker->index < team->n_threads) {
		uint64_t wait_until_ns = 0;
		struct fill_job *job;

		if (!STAILQ_EMPTY(&team->chores))
			run_chore(worker, STAILQ_FIRST(&team->chores));
		else if ((job = TAILQ_FIRST(&team->closing)))
			close_job(job);
		else if ((job = next_job(team, &wait_until_ns)))
			work_on(worker, job);
		else
			wait_for_work(team, wait_until_ns);
	}
	team->n_running--;
	worker->has_quit = true;
	/* It may have been woken for work that another has to do now. */
	pthread_cond_signal(&team->work);
	unlock(team);
	return NULL;
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

		lock(team);
		has_quit = worker->has_quit;
		unlock(team);
		/* One that was to quit and has not yet noticed stays. */
		if (!has_quit)
			return 0;
		pthread_join(worker->thread, NULL);
		worker->is_created = false;
		worker->has_quit = false;
		worker->sched_class = SCHED_CLASS_NORMAL;
		memset(&worker->cpus, 0, sizeof(worker->cpus));
	}

	r = fill_thread_start(&worker->thread, worker_main, worker);
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
	lock(team);
	n_before = team->n_threads;
	team->n_threads = n_threads;
	pthread_cond_broadcast(&team->work);
	unlock(team);

	for (unsigned int i = 0; i < n_threads && r == 0; i++)
		r = start_worker(team, i);

	lock(team);
	if (r < 0)
		team->n_threads = n_before;
	while (team->n_running < team->n_threads)
		pthread_cond_wait(&team->running, &team->lock);
	pthread_cond_broadcast(&team->work);
	unlock(team);
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

	lock(team);
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
	unlock(team);
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

	lock(team);
	place_job(team, job);
	TAILQ_INSERT_TAIL(&team->queue[job->priority], job, link);
	job->is_queued = true;
	if (team->is_stopping)
		cancel(job);
	pthread_cond_broadcast(&team->work);
	unlock(team);
	*ret = job;
	return 0;
}

void fill_job_cancel(struct fill_job *job)
{
	lock(job->team);
	cancel(job);
	unlock(job->team);
}

void fill_job_raise(struct fill_job *job, enum fill_priority priority)
{
	struct fill_team *team = job->team;

	lock(team);
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
	unlock(team);
}

void fill_job_progress(const struct fill_job *job, struct fill_progress *ret)
{
	lock(job->team);
	*ret = (struct fill_progress){
		.done_bytes = job->done_bytes,
		.total_bytes = job->range.bytes,
		.wrong_node = job->wrong_node,
	};
	if (job->start_ns)
		ret->elapsed_ns = (job->end_ns ? job->end_ns : monotonic_ns()) - job->start_ns;
	for (unsigned int i = 0; i < FILL_THREADS_MAX / 64; i++)
		ret->threads_used += (unsigned int)__builtin_popcountll(job->threads[i]);
	unlock(job->team);
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
	lock(team);
	STAILQ_INSERT_TAIL(&team->chores, chore, link);
	pthread_cond_signal(&team->work);
	unlock(team);
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
	lock(team);
	for (;;) {
		struct chore *chore = STAILQ_FIRST(&team->ended_chores);
		struct fill_job *job = TAILQ_FIRST(&team->ended);

		if (chore) {
			STAILQ_REMOVE_HEAD(&team->ended_chores, link);
			unlock(team);
			chore->done(chore->arg, chore->result);
			free(chore);
		} else if (job) {
			TAILQ_REMOVE(&team->ended, job, link);
			unlock(team);
			job->done(job->arg, job, job->result);
			free(job);
		} else {
			break;
		}
		lock(team);
	}
	unlock(team);
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
	lock(team);
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
	unlock(team);

	for (unsigned int i = 0; i < team->n_workers; i++)
		if (team->worker[i] && team->worker[i]->is_created)
			pthread_join(team->worker[i]->thread, NULL);

	lock(team);
	while ((job = TAILQ_FIRST(&team->closing)))
		close_job(job);
	unlock(team);
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
