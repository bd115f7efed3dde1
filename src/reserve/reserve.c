// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * reserve/reserve.c - see reserve.h.
 *
 * Theory: a team of threads has the kernel allocate surplus pages (surplus.h), which stand on file
 * systems that this run holds; then each node's nr_hugepages is written. The kernel makes surplus
 * pages persistent for that before it allocates any, so the write takes no time where the team did its
 * work, and makes up for what is missing where it did not. The plain method is the same without a
 * team. Until that write a run has changed nothing but nr_overcommit_hugepages: a killed one leaves no
 * page behind.
 *
 * Free pages that were there before would be taken for the first reservations, so one file system
 * reserves those first. Others who want pages meanwhile get surplus pages: the limit is raised by as
 * many.
 *
 * Guarantees: see reserve.h.
 */
#include "reserve/reserve.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "fill/fill.h"
#include "policy/policy.h"
#include "reserve/intent.h"
#include "reserve/surplus.h"

#define NS_PER_MS 1000000ULL
#define TICK_MS 50
/* A plain write is what a stop waits for; many small ones would cost more than the pages do. */
#define FIRST_STEP_BYTES (1ULL << 30)
#define FIRST_OPTIMIZED_BYTES (2ULL << 30) /* with HVO each write waits for every CPU, too */
#define FIRST_UNZEROED_BYTES (16ULL << 30) /* takes as long, but for gigantic pages */
#define STEP_NS_MIN (50 * NS_PER_MS)
#define STEP_NS_MAX (400 * NS_PER_MS)
#define LOOKS_MAX 5

struct run;

struct node_work {
	struct run *run;
	int node;
	struct reserve_node_result *result;
	uint64_t to_pages;
	uint64_t expected_pages; /* what this run last saw there */
	uint64_t taken_pages; /* by the team; under the lock */
	bool is_at_floor; /* as last looked; under the lock */
	struct fill_job *job; /* NULL: it has ended */
};

struct run {
	const struct reserve_config *config;
	const struct reserve_goal *goal;
	const struct reserve_plan *plan;
	struct reserve_result *result;
	uint64_t start_ns, total_bytes, adopted_bytes;
	struct node_work work[NODES_MAX];
	struct intent intent;
	bool has_borrowed;
	unsigned int n_jobs;
	int error; /* of the team */
	pthread_mutex_t lock; /* guards what follows, and the work's where it says so */
	struct host_view *view;
	unsigned int n_fds, fds_max;
	int *fd;
};

static struct page_class class_on(const struct run *run, int node)
{
	return (struct page_class){{PAGE_HUGETLB, run->goal->page_bytes}, node};
}

static uint64_t elapsed_ns(const struct run *run)
{
	return monotonic_ns() - run->start_ns;
}

/* Asks the caller, and looks at the clock. */
static bool may_go_on(struct run *run, uint64_t done_bytes)
{
	const struct reserve_progress progress = {done_bytes, run->total_bytes, elapsed_ns(run)};
	const struct reserve_config *config = run->config;

	if (config->tick && !config->tick(config->arg, &progress))
		run->result->is_stopped = true;
	if (config->deadline_ms && progress.elapsed_ns > config->deadline_ms * NS_PER_MS)
		run->result->is_late = true;
	return !run->result->is_stopped && !run->result->is_late;
}

/* Whether so much can be taken from a node without the host or the node falling below the floor. Looks
 * afresh: others take memory meanwhile. */
static bool is_above_floor(struct node_work *work, uint64_t bytes)
{
	struct run *run = work->run;
	const int node = work->node;
	const struct page_class page_class = {{PAGE_BASE, run->view->base_page_bytes}, node};
	const struct goals goals = {.floor_bytes = run->goal->floor_bytes};
	uint64_t floor_bytes, share;
	bool is_above = true;

	pthread_mutex_lock(&run->lock);
	if (host_look_headroom(run->config->host, page_class, run->view) == 0) {
		floor_bytes = policy_floor_bytes(run->view, &goals);
		share = share_bytes(floor_bytes, run->view->node[node].total_bytes,
				    run->view->total_bytes);
		is_above = run->view->available_bytes >= floor_bytes + bytes &&
			   run->view->node[node].available_bytes >= share + bytes;
	}
	work->is_at_floor = !is_above;
	pthread_mutex_unlock(&run->lock);
	return is_above;
}

/* The file system is the run's to close. On failure the caller's. */
static int keep_fd(struct run *run, int fd)
{
	if (run->n_fds == run->fds_max) {
		unsigned int fds_max = run->fds_max ? run->fds_max * 2 : 64;
		int *grown = realloc(run->fd, fds_max * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		run->fd = grown;
		run->fds_max = fds_max;
	}
	run->fd[run->n_fds++] = fd;
	return 0;
}

/* In a team thread. A unit that cannot be had ends the job well: the write of nr_hugepages comes to that
 * too, and gets what part of it there is. */
static int64_t take_unit(void *arg, uint64_t offset_bytes, uint64_t unit_bytes)
{
	struct node_work *work = arg;
	struct run *run = work->run;
	uint64_t pages = unit_bytes / run->goal->page_bytes;
	AUTO_FD fd = -1;
	int r;

	(void)offset_bytes;
	if (!is_above_floor(work, unit_bytes))
		return 0;
	fd = surplus_take(run->goal->page_bytes, pages, work->node);
	if (fd == -ENOMEM || fd == -EMFILE || fd == -ENFILE)
		return 0;
	if (fd < 0)
		return fd;
	pthread_mutex_lock(&run->lock);
	r = keep_fd(run, fd);
	if (!r) {
		TAKE_FD(fd);
		work->taken_pages += pages;
	}
	pthread_mutex_unlock(&run->lock);
	return r < 0 ? r : (int64_t)unit_bytes;
}

static void job_done(void *arg, struct fill_job *job, int result)
{
	struct node_work *work = arg;
	struct fill_progress progress;

	fill_job_progress(job, &progress);
	if (progress.threads_used > work->run->result->n_threads)
		work->run->result->n_threads = progress.threads_used;
	work->job = NULL;
	work->run->n_jobs--;
	if (result < 0 && result != -ECANCELED)
		work->run->error = result;
}

static int submit(struct run *run, struct fill_team *team, struct node_work *work)
{
	struct fill_request request = {
		.fd = -1,
		.length_bytes = (work->to_pages - work->expected_pages) * run->goal->page_bytes,
		.page_class = class_on(run, work->node),
		.node_cpus = run->view->node[work->node].cpus,
		.unit_bytes = run->plan->unit_bytes,
		.priority = FILL_DEMAND,
		.work = take_unit,
		.done = job_done,
		.arg = work,
	};
	int r;

	/* Surplus pages come from where the thread runs: no CPU, no place for it. */
	id_set_and(&request.node_cpus, &run->view->cpus);
	if (!id_set_is_empty(&run->goal->cpus))
		id_set_and(&request.node_cpus, &run->goal->cpus);
	if (id_set_is_empty(&request.node_cpus) || work->to_pages <= work->expected_pages)
		return 0;
	r = fill_team_submit(team, &request, &work->job);
	if (!r)
		run->n_jobs++;
	return r;
}

static uint64_t team_done_bytes(const struct run *run)
{
	uint64_t bytes = 0;

	for (unsigned int i = 0; i < run->result->n_nodes; i++) {
		struct fill_progress progress;

		if (!run->work[i].job) {
			bytes += run->work[i].taken_pages * run->goal->page_bytes;
			continue;
		}
		fill_job_progress(run->work[i].job, &progress);
		bytes += progress.done_bytes;
	}
	return bytes;
}

static void wait_for_jobs(struct run *run, struct fill_team *team)
{
	struct pollfd poll_fd = {.fd = fill_team_fd(team), .events = POLLIN};
	bool is_cancelled = false;

	while (run->n_jobs) {
		poll(&poll_fd, 1, TICK_MS);
		if (!is_cancelled && !may_go_on(run, team_done_bytes(run))) {
			is_cancelled = true;
			for (unsigned int i = 0; i < run->result->n_nodes; i++) {
				if (run->work[i].job)
					fill_job_cancel(run->work[i].job);
			}
		}
		fill_team_reap(team);
	}
}

/* Raises nr_overcommit_hugepages, having written down what it was. */
static int borrow(struct run *run, uint64_t free_pages)
{
	struct host *host = run->config->host;
	uint64_t surplus_pages = 0, grow_pages = 0;
	int r = host_read_overcommit(host, run->goal->page_bytes, &run->intent.before_pages);

	if (r < 0)
		return r;
	for (unsigned int i = 0; i < run->result->n_nodes; i++)
		grow_pages += run->work[i].to_pages > run->work[i].expected_pages ?
				      run->work[i].to_pages - run->work[i].expected_pages :
				      0;
	for (unsigned int i = 0; i < run->view->n_hugetlb; i++) {
		if (run->view->hugetlb[i].page_bytes == run->goal->page_bytes)
			surplus_pages = run->view->hugetlb[i].surplus_pages;
	}
	run->intent.page_bytes = run->goal->page_bytes;
	run->intent.borrowed_pages = run->intent.before_pages + surplus_pages + grow_pages +
				     free_pages;
	r = intent_write(run->config->runtime_dir, &run->intent);
	if (r < 0)
		return r;
	run->has_borrowed = true;
	return host_write_overcommit(host, run->goal->page_bytes, run->intent.borrowed_pages);
}

/* 1: put back, 0: somebody wrote another value since. */
static int put_back(struct host *host, const char *runtime_dir, const struct intent *intent)
{
	uint64_t now_pages;
	int r = host_read_overcommit(host, intent->page_bytes, &now_pages);
	bool is_ours = !r && now_pages == intent->borrowed_pages;

	if (is_ours && intent->before_pages != intent->borrowed_pages)
		r = host_write_overcommit(host, intent->page_bytes, intent->before_pages);
	if (!r)
		r = intent_clear(runtime_dir);
	return r < 0 ? r : is_ours;
}

static int allocate_surplus(struct run *run)
{
	const struct fill_config team_config = {
		.n_threads = run->plan->n_threads,
		.cpus = run->goal->cpus,
	};
	struct fill_team *team = NULL;
	uint64_t free_pages;
	int fd, r = host_read_free_pages(run->config->host, run->goal->page_bytes, &free_pages);

	if (!r)
		r = borrow(run, free_pages);
	/* A size that takes no surplus: nr_hugepages does it. */
	if (r == -EINVAL)
		return 0;
	if (r < 0 || run->config->is_imagined)
		return r;
	if (free_pages) {
		fd = surplus_take(run->goal->page_bytes, free_pages, -1);
		if (fd >= 0 && keep_fd(run, fd) < 0)
			close_fd(fd);
	}
	r = fill_team_start(&team_config, &team);
	if (r < 0)
		return r;
	/* Most work first. */
	for (unsigned int i = 0; i < run->plan->n_nodes && !r; i++) {
		for (unsigned int k = 0; k < run->result->n_nodes && !r; k++) {
			if (run->work[k].node == run->plan->node[i].node)
				r = submit(run, team, &run->work[k]);
		}
	}
	if (!r)
		wait_for_jobs(run, team);
	fill_team_stop(team);
	return r < 0 ? r : run->error;
}

/* Reads what a node has. While others allocate, a page may be counted between the two reads: looks again
 * before it says that the count is not what it was. */
static int look_at_node(struct run *run, struct node_work *work, uint64_t *ret_pages)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	int r = 0;

	for (unsigned int i = 0; i < LOOKS_MAX; i++) {
		if (i)
			nanosleep(&pause, NULL);
		r = host_read_pages(run->config->host, class_on(run, work->node), ret_pages,
				    &work->result->surplus_pages);
		if (r < 0 || *ret_pages == work->expected_pages)
			break;
	}
	return r;
}

/* Writes a node's count, if it still is what this run left there; *ret_pages is what it is then. */
static int write_node(struct run *run, struct node_work *work, uint64_t pages, uint64_t *ret_pages)
{
	struct page_class page_class = class_on(run, work->node);
	uint64_t now_pages;
	int r = look_at_node(run, work, &now_pages);

	if (r < 0)
		return r;
	if (now_pages != work->expected_pages) {
		work->result->is_overruled = true;
		work->expected_pages = *ret_pages = now_pages;
		return 0;
	}
	r = host_write_pages(run->config->host, page_class, pages);
	if (!r)
		r = host_read_pages(run->config->host, page_class, &work->expected_pages,
				    &work->result->surplus_pages);
	*ret_pages = work->expected_pages;
	return r;
}

/*
 * What the team took on several nodes becomes the pool's own by one write for the whole host: before 6.7 a
 * write for one node takes the surplus pages of the others for pages that are missing, and allocates as
 * many again. Not where somebody else has surplus pages, which would be taken for ours.
 */
static int adopt_everywhere(struct run *run)
{
	struct host *host = run->config->host;
	uint64_t taken_pages = 0, pages, surplus_pages;
	unsigned int n_nodes = 0;
	int r = 0;

	for (unsigned int i = 0; i < run->result->n_nodes; i++) {
		struct node_work *work = &run->work[i];

		if (!work->taken_pages)
			continue;
		n_nodes++;
		taken_pages += work->taken_pages;
		r = look_at_node(run, work, &pages);
		/* Somebody else has written: node by node, that is found and told. */
		if (r < 0 || pages != work->expected_pages)
			return r;
	}
	if (n_nodes < 2)
		return 0;
	r = host_read_pages(host, class_on(run, NODE_ANY), &pages, &surplus_pages);
	if (r < 0 || surplus_pages != taken_pages)
		return r;
	r = host_write_pages(host, class_on(run, NODE_ANY), pages + taken_pages);
	for (unsigned int i = 0; i < run->result->n_nodes && !r; i++) {
		struct node_work *work = &run->work[i];

		if (!work->taken_pages)
			continue;
		run->adopted_bytes += work->taken_pages * run->goal->page_bytes;
		work->taken_pages = 0;
		r = host_read_pages(host, class_on(run, work->node), &work->expected_pages,
				    &work->result->surplus_pages);
	}
	return r;
}

/* Towards the target in steps, as far as the kernel goes. */
static int settle_node(struct run *run, struct node_work *work)
{
	uint64_t page_bytes = run->goal->page_bytes, got_pages;
	bool is_slow = run->goal->kernel_zeroes || page_bytes >= FIRST_STEP_BYTES;
	uint64_t step_bytes = !is_slow			  ? FIRST_UNZEROED_BYTES :
			      run->goal->kernel_optimizes ? FIRST_OPTIMIZED_BYTES :
							    FIRST_STEP_BYTES;
	uint64_t step_ns_max = run->goal->kernel_optimizes ? 2 * STEP_NS_MAX : STEP_NS_MAX;
	uint64_t step_pages = step_bytes > page_bytes ? step_bytes / page_bytes : 1;
	uint64_t adopt_pages = work->taken_pages;
	int r = 0;

	while (!r && work->expected_pages != work->to_pages && !work->result->is_overruled) {
		uint64_t pages = work->to_pages, more_pages = 0, start_ns = monotonic_ns();

		if (pages > work->expected_pages) {
			more_pages = pages - work->expected_pages;
			/* What the team has taken is there: a stop keeps it, and it costs nothing. */
			if (adopt_pages)
				more_pages = adopt_pages < more_pages ? adopt_pages : more_pages;
			else if (!may_go_on(run, run->adopted_bytes))
				break;
			else if (more_pages > step_pages)
				more_pages = step_pages;
			if (!adopt_pages && !is_above_floor(work, more_pages * page_bytes))
				break;
			pages = work->expected_pages + more_pages;
		}
		adopt_pages = 0;
		r = write_node(run, work, pages, &got_pages);
		if (!r && more_pages)
			run->adopted_bytes += more_pages * page_bytes;
		if (!r && got_pages != pages)
			break;
		if (monotonic_ns() - start_ns < STEP_NS_MIN)
			step_pages *= 2;
		else if (monotonic_ns() - start_ns > step_ns_max && step_pages > 1)
			step_pages /= 2;
	}
	return r;
}

/* The kernel found no more: has it collect free pages from CPUs and move others together, and asks
 * again, as long as that helps. */
static int retry_node(struct run *run, struct node_work *work)
{
	int r = 0;

	while (!r && work->expected_pages < work->to_pages && !work->result->is_overruled &&
	       may_go_on(run, run->adopted_bytes)) {
		uint64_t before_pages = work->expected_pages;

		(void)host_drain_lists(run->config->host);
		if (!is_above_floor(work, run->goal->page_bytes))
			break;
		(void)host_compact(run->config->host, work->node);
		work->taken_pages = 0;
		r = settle_node(run, work);
		if (work->expected_pages <= before_pages)
			break;
		work->result->retry_pages += work->expected_pages - before_pages;
	}
	return r;
}

static int settle(struct run *run)
{
	struct reserve_result *result = run->result;
	bool roll_back = result->is_stopped && run->config->all_or_nothing;
	int r = roll_back ? 0 : adopt_everywhere(run);

	for (unsigned int i = 0; i < result->n_nodes && !r && !roll_back; i++)
		r = settle_node(run, &run->work[i]);
	for (unsigned int i = 0; i < result->n_nodes && !r && !roll_back; i++) {
		if (!run->config->is_imagined)
			r = retry_node(run, &run->work[i]);
	}
	for (unsigned int i = 0; i < result->n_nodes; i++) {
		struct node_work *work = &run->work[i];

		if (work->expected_pages == work->result->wanted_pages ||
		    work->result->is_overruled)
			continue;
		if (!result->is_stopped && !result->is_late)
			result->why = work->is_at_floor ||
						      work->to_pages < work->result->wanted_pages ?
					      SHORT_FLOOR :
					      SHORT_PAGES;
		roll_back |= run->config->all_or_nothing;
	}
	for (unsigned int i = 0; i < result->n_nodes && roll_back; i++) {
		struct node_work *work = &run->work[i];
		uint64_t pages;
		int undone = 0;

		if (work->expected_pages != work->result->from_pages && !work->result->is_overruled)
			undone = write_node(run, work, work->result->from_pages, &pages);
		r = r < 0 ? r : undone;
		result->is_rolled_back = true;
	}
	return r;
}

static void init_work(struct run *run)
{
	const struct reserve_plan *plan = run->plan;
	struct reserve_result *result = run->result;

	/* By node: the plan is by work. */
	for (int node = 0; node < NODES_MAX; node++) {
		for (unsigned int i = 0; i < plan->n_nodes; i++) {
			const struct reserve_node *from = &plan->node[i];
			unsigned int n = result->n_nodes;

			if (from->node != node)
				continue;
			result->node[n] = (struct reserve_node_result){
				.node = node,
				.from_pages = from->from_pages,
				.wanted_pages = from->wanted_pages,
			};
			run->work[n] = (struct node_work){
				.run = run,
				.node = node,
				.result = &result->node[n],
				.to_pages = from->to_pages,
				.expected_pages = from->from_pages,
			};
			if (from->to_pages > from->from_pages)
				run->total_bytes += (from->to_pages - from->from_pages) *
						    run->goal->page_bytes;
			result->n_nodes++;
		}
	}
}

/* All file systems go at once, with what of their pages was not adopted. */
static void close_all(struct run *run)
{
	for (unsigned int i = 0; i < run->n_fds; i++)
		close_fd(run->fd[i]);
	free(run->fd);
}

static int mend(struct host *host, const char *runtime_dir)
{
	struct intent intent;
	int r = intent_read(runtime_dir, &intent);

	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : put_back(host, runtime_dir, &intent);
}

int reserve_mend(struct host *host, const char *runtime_dir)
{
	AUTO_FD lock_fd = -1;
	struct intent intent;

	/* Where there is nothing to mend, no lock file is left either. */
	if (intent_read(runtime_dir, &intent) == -ENOENT)
		return 0;
	lock_fd = intent_lock(runtime_dir);
	return lock_fd < 0 ? lock_fd : mend(host, runtime_dir);
}

static int run_locked(struct run *run)
{
	const struct reserve_config *config = run->config;
	int r = mend(config->host, config->runtime_dir), returned;

	if (r < 0)
		return r;
	run->start_ns = monotonic_ns();
	init_work(run);
	run->result->n_threads = 1;
	if (run->plan->method == RESERVE_PARALLEL)
		r = allocate_surplus(run);
	if (!r)
		r = settle(run);
	close_all(run);
	if (run->has_borrowed) {
		returned = put_back(config->host, config->runtime_dir, &run->intent);
		run->result->overcommit_overruled = returned == 0;
		if (!r && returned < 0)
			r = returned;
	}
	for (unsigned int i = 0; i < run->result->n_nodes; i++) {
		struct node_work *work = &run->work[i];
		int read = host_read_pages(config->host, class_on(run, work->node),
					   &work->result->have_pages, &work->result->surplus_pages);

		r = r < 0 ? r : read;
	}
	run->result->elapsed_ns = elapsed_ns(run);
	return r;
}

int reserve_run(const struct reserve_config *config, const struct reserve_goal *goal,
		const struct reserve_plan *plan, struct reserve_result *ret)
{
	AUTO_FREE struct host_view *view = malloc(sizeof(*view));
	AUTO_FREE struct run *run = calloc(1, sizeof(*run));
	AUTO_FREE struct reserve_result *result = calloc(1, sizeof(*result));
	AUTO_FD lock_fd = -1;
	int r;

	if (!view || !run || !result)
		return -ENOMEM;
	lock_fd = intent_lock(config->runtime_dir);
	if (lock_fd < 0)
		return lock_fd;
	*view = *config->seen;
	*run = (struct run){
		.config = config,
		.goal = goal,
		.plan = plan,
		.result = result,
		.view = view,
	};
	pthread_mutex_init(&run->lock, NULL);
	result->method = plan->method;
	result->reason = plan->reason;
	r = run_locked(run);
	pthread_mutex_destroy(&run->lock);
	if (r < 0)
		return r;
	*ret = *result;
	return 0;
}
