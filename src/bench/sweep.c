/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench/sweep.c - see sweep.h.
 *
 * One measurement: from a pool without these pages to pages that are reserved and zero, by n threads
 * for both. Thread counts take turns, round by round; the first round warms up.
 */
#include "bench/sweep.h"

#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <linux/memfd.h>
#include <sys/mman.h>

#include "base/io.h"
#include "base/parse.h"
#include "bench/plot.h"
#include "fill/fill.h"
#include "host/host.h"
#include "policy/reserve.h"
#include "reserve/reserve.h"

#define RUNTIME_DIR "/run/prezero" /* `prezero reserve` and prezerod mend what a kill -9 leaves */
#define PAGE_BYTES (2ULL << 20)
#define DEFAULT_BYTES (2ULL << 30)
#define SPARE_BYTES (4ULL << 30)
#define DEFAULT_ROUNDS 5
#define POINTS_MAX 16
#define SIZES 4
#define KNEE 1.1 /* the fewest threads that take at most so many times the best */

struct point {
	unsigned int n_threads;
	uint64_t bytes;
	enum reserve_method method;
	struct series reserve, zero, all;
};

struct sweep {
	const struct bench_options *options;
	struct host *host;
	struct host_view *view;
	int node;
	uint64_t bytes;
	uint64_t base_pages;
	unsigned int n_points, n_cpus, best_threads;
	struct point plain, point[POINTS_MAX], size[SIZES];
	double fixed_s, s_per_gib;
};

static double median(const struct series *series)
{
	return series_summary(series).median;
}

static struct page_class class_of(const struct sweep *sweep)
{
	return (struct page_class){{PAGE_HUGETLB, PAGE_BYTES}, sweep->node};
}

static int reserve(struct sweep *sweep, const struct point *point, double *ret_s)
{
	const struct reserve_config config = {
		.host = sweep->host, .seen = sweep->view, .runtime_dir = RUNTIME_DIR};
	AUTO_FREE struct reserve_goal *goal = calloc(1, sizeof(*goal));
	AUTO_FREE struct reserve_plan *plan = malloc(sizeof(*plan));
	AUTO_FREE struct reserve_result *result = malloc(sizeof(*result));
	enum shortage why;
	int node, r;

	if (!goal || !plan || !result)
		return -ENOMEM;
	goal->page_bytes = PAGE_BYTES;
	goal->bytes = sweep->base_pages * PAGE_BYTES + point->bytes;
	goal->n_shares = 1;
	goal->share[0] = (struct reserve_share){sweep->node, goal->bytes, 0};
	goal->n_threads = point->n_threads;
	goal->method = point->method;
	r = host_look(sweep->host, sweep->view);
	if (!r)
		r = reserve_decide(sweep->host, sweep->view, goal, plan, &why, &node);
	if (!r)
		r = reserve_run(&config, goal, plan, result);
	if (r < 0)
		return r;
	*ret_s = (double)result->elapsed_ns / 1e9;
	return result->node[0].have_pages * PAGE_BYTES == goal->bytes ? 0 : -ENOMEM;
}

static void note_result(void *arg, struct fill_job *job, int result)
{
	(void)job;
	*(int *)arg = result;
}

static int fill(struct fill_team *team, const struct sweep *sweep, int fd, uint64_t bytes)
{
	int result = 1;
	struct fill_request request = {
		.fd = fd,
		.length_bytes = bytes,
		.page_class = class_of(sweep),
		.node_cpus = sweep->view->node[sweep->node].cpus,
		.priority = FILL_DEMAND,
		.bind = true,
		.done = note_result,
		.arg = &result,
	};
	struct pollfd poll_fd = {.fd = fill_team_fd(team), .events = POLLIN};
	struct fill_job *job;
	int r = fill_team_submit(team, &request, &job);

	while (!r && result > 0) {
		poll(&poll_fd, 1, -1);
		fill_team_reap(team);
	}
	return r < 0 ? r : result;
}

static int zero(const struct sweep *sweep, const struct point *point, double *ret_s)
{
	const struct fill_config config = {.n_threads = point->n_threads};
	AUTO_FD fd = memfd_create("prezero-sweep", MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB);
	struct fill_team *team;
	uint64_t start_ns;
	int r;

	if (fd < 0 || ftruncate(fd, (off_t)point->bytes) < 0)
		return -errno;
	start_ns = monotonic_ns();
	r = fill_team_start(&config, &team);
	if (r < 0)
		return r;
	r = fill(team, sweep, fd, point->bytes);
	*ret_s = (double)(monotonic_ns() - start_ns) / 1e9;
	fill_team_stop(team);
	return r;
}

/* The pool is as it was when this returns, whatever failed. */
static int measure(struct sweep *sweep, struct point *point, bool counts)
{
	double reserve_s = 0, zero_s = 0;
	sigset_t pending;
	int r = reserve(sweep, point, &reserve_s), returned;

	if (!r)
		r = zero(sweep, point, &zero_s);
	returned = host_write_pages(sweep->host, class_of(sweep), sweep->base_pages);
	if (!r)
		r = returned;
	if (!r && counts) {
		series_add(&point->reserve, reserve_s);
		series_add(&point->zero, zero_s);
		series_add(&point->all, reserve_s + zero_s);
	}
	if (!r && !sigpending(&pending) &&
	    (sigismember(&pending, SIGINT) || sigismember(&pending, SIGTERM)))
		r = -EINTR;
	return r;
}

static int choose(struct sweep *sweep)
{
	const struct bench_options *options = sweep->options;
	struct node_view *node;
	struct id_set cpus;
	uint64_t surplus_pages;

	sweep->node = options->node;
	for (unsigned int i = 0; sweep->node == NODE_ANY && i < sweep->view->nodes_end; i++) {
		if (sweep->view->node[i].online && !id_set_is_empty(&sweep->view->node[i].cpus))
			sweep->node = (int)i;
	}
	if (!host_view_has_node(sweep->view, sweep->node) ||
	    !host_view_hugetlb(sweep->view, PAGE_BYTES))
		return -ENODEV;
	node = &sweep->view->node[sweep->node];
	cpus = node->cpus;
	id_set_and(&cpus, &sweep->view->cpus);
	sweep->n_cpus = id_set_count(&cpus) ? id_set_count(&cpus) : 1;
	sweep->bytes = options->bytes ? options->bytes : DEFAULT_BYTES;
	while (!options->bytes && sweep->bytes > PAGE_BYTES * 64 &&
	       sweep->bytes + SPARE_BYTES > node->available_bytes)
		sweep->bytes /= 2;
	for (unsigned int n = 1; n <= sweep->n_cpus && sweep->n_points < POINTS_MAX; n *= 2)
		sweep->point[sweep->n_points++].n_threads = n;
	if (sweep->point[sweep->n_points - 1].n_threads < sweep->n_cpus &&
	    sweep->n_points < POINTS_MAX)
		sweep->point[sweep->n_points++].n_threads = sweep->n_cpus;
	for (unsigned int i = 0; i < sweep->n_points; i++)
		sweep->point[i].bytes = sweep->bytes;
	sweep->plain =
		(struct point){.n_threads = 1, .bytes = sweep->bytes, .method = RESERVE_PLAIN};
	return host_read_pages(sweep->host, class_of(sweep), &sweep->base_pages, &surplus_pages);
}

/* Least squares over the medians of growing sizes. */
static void fit_line(struct sweep *sweep)
{
	double sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;

	for (unsigned int i = 0; i < SIZES; i++) {
		double x = (double)sweep->size[i].bytes / (double)(1ULL << 30);
		double y = median(&sweep->size[i].all);

		sum_x += x;
		sum_y += y;
		sum_xx += x * x;
		sum_xy += x * y;
	}
	sweep->s_per_gib = (SIZES * sum_xy - sum_x * sum_y) / (SIZES * sum_xx - sum_x * sum_x);
	sweep->fixed_s = (sum_y - sweep->s_per_gib * sum_x) / SIZES;
}

static void choose_threads(struct sweep *sweep)
{
	double best_s = median(&sweep->point[0].all);

	for (unsigned int i = 1; i < sweep->n_points; i++) {
		if (median(&sweep->point[i].all) < best_s)
			best_s = median(&sweep->point[i].all);
	}
	for (unsigned int i = sweep->n_points; i-- > 0;) {
		if (median(&sweep->point[i].all) <= best_s * KNEE)
			sweep->best_threads = sweep->point[i].n_threads;
	}
}

static int measure_all(struct sweep *sweep)
{
	unsigned int rounds = sweep->options->pairs ? sweep->options->pairs : DEFAULT_ROUNDS;
	int r = 0;

	for (unsigned int round = 0; round <= rounds && !r; round++) {
		r = measure(sweep, &sweep->plain, round > 0);
		for (unsigned int i = 0; i < sweep->n_points && !r; i++)
			r = measure(sweep, &sweep->point[i], round > 0);
	}
	if (r < 0)
		return r;
	choose_threads(sweep);
	for (unsigned int round = 0; round < rounds && !r; round++) {
		for (unsigned int i = 0; i < SIZES && !r; i++) {
			sweep->size[i].n_threads = sweep->best_threads;
			sweep->size[i].bytes = (sweep->bytes >> (SIZES - 1 - i)) / PAGE_BYTES *
					       PAGE_BYTES;
			r = measure(sweep, &sweep->size[i], true);
		}
	}
	if (!r)
		fit_line(sweep);
	return r;
}

static json_t *point_json(const struct point *point)
{
	return json_pack("{s:i, s:I, s:f, s:f, s:f}", "threads", (int)point->n_threads, "bytes",
			 (json_int_t)point->bytes, "reserve_s", median(&point->reserve), "zero_s",
			 median(&point->zero), "seconds", median(&point->all));
}

static json_t *points_json(const struct point *point, unsigned int n)
{
	json_t *list = json_array();

	for (unsigned int i = 0; i < n; i++)
		json_array_append_new(list, point_json(&point[i]));
	return list;
}

/* The same measurement has one name without the module and another with it; the other is null, and why. */
static json_t *write_figures(const struct sweep *sweep, const struct point *best)
{
	double ratio = median(&sweep->plain.reserve) / median(&best->reserve);
	const struct hugetlb_view *size = host_view_hugetlb(sweep->view, PAGE_BYTES);
	bool has_module = size && size->node[sweep->node].has_zeroable;

	return json_pack(
		"{s:o, s:o, s:{s:s}}", "reserve_over_plain_write",
		has_module ? json_null() : json_real(ratio), "reserve_over_plain_write_with_module",
		has_module ? json_real(ratio) : json_null(), "reasons",
		has_module ? "reserve_over_plain_write" : "reserve_over_plain_write_with_module",
		has_module ? "this kernel has zeroable_hugepages: run it without the module" :
			     "this kernel has no zeroable_hugepages: run it with the module "
			     "loaded");
}

static json_t *sweep_json(const struct sweep *sweep)
{
	const struct point *one = &sweep->point[0], *best = one;
	json_t *two = json_null(), *object, *write;

	for (unsigned int i = 0; i < sweep->n_points; i++) {
		if (sweep->point[i].n_threads == sweep->best_threads)
			best = &sweep->point[i];
		if (sweep->point[i].n_threads == 2)
			two = json_real(median(&one->all) / median(&sweep->point[i].all));
	}
	object = json_pack(
		"{s:o, s:o, s:o, s:{s:f, s:f}, s:{s:i, s:o, s:f}}", "grow_and_touch",
		point_json(&sweep->plain), "threads", points_json(sweep->point, sweep->n_points),
		"sizes", points_json(sweep->size, SIZES), "fit", "fixed_s", sweep->fixed_s,
		"s_per_gib", sweep->s_per_gib, "figures", "recommended_threads",
		(int)sweep->best_threads, "two_threads_speedup", two, "ready_over_grow_and_touch",
		median(&sweep->plain.all) / median(&best->all));
	write = write_figures(sweep, best);
	json_object_update(json_object_get(object, "figures"), write);
	json_decref(write);
	return object;
}

static void print_table(const struct sweep *sweep)
{
	char bytes[BYTES_TEXT_MAX];

	printf("%s of 2M pages on node %d, seconds\n\n", format_bytes(sweep->bytes, bytes),
	       sweep->node);
	printf("%-16s %9s %9s %9s\n", "threads", "reserve", "zero", "both");
	printf("%-16s %9.3f %9.3f %9.3f\n", "plain, 1 touches", median(&sweep->plain.reserve),
	       median(&sweep->plain.zero), median(&sweep->plain.all));
	for (unsigned int i = 0; i < sweep->n_points; i++) {
		const struct point *point = &sweep->point[i];

		printf("%-16u %9.3f %9.3f %9.3f\n", point->n_threads, median(&point->reserve),
		       median(&point->zero), median(&point->all));
	}
	printf("\n%u threads are recommended: the fewest within %d %% of the fastest\n\n",
	       sweep->best_threads, (int)(KNEE * 100 + 0.5) - 100);
	for (unsigned int i = 0; i < SIZES; i++)
		printf("%-16s %29.3f\n", format_bytes(sweep->size[i].bytes, bytes),
		       median(&sweep->size[i].all));
	printf("\nabout %.3f s and %.3f s a GiB\n", sweep->fixed_s, sweep->s_per_gib);
}

static int print(const struct sweep *sweep)
{
	json_t *object = sweep_json(sweep);
	char why[REASON_MAX];

	if (!object)
		return -ENOMEM;
	if (sweep->options->plot_dir &&
	    plot_threads(json_object_get(object, "threads"), sweep->options->plot_dir, why,
			 sizeof(why)) < 0)
		fprintf(stderr, "prezero bench: no plot: %s\n", why);
	if (sweep->options->json) {
		json_dumpf(object, stdout, JSON_REAL_PRECISION(6));
		putchar('\n');
	} else {
		print_table(sweep);
	}
	json_decref(object);
	return fflush(stdout) ? -errno : 0;
}

int sweep_run(const struct bench_options *options)
{
	AUTO_FREE struct sweep *sweep = calloc(1, sizeof(*sweep));
	AUTO_FREE struct host_view *view = malloc(sizeof(*view));
	sigset_t blocked, before;
	int r;

	if (!sweep || !view)
		return 1;
	sweep->options = options;
	sweep->view = view;
	/* Looked for after each measurement, when the pool is as it was. */
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGINT);
	sigaddset(&blocked, SIGTERM);
	sigprocmask(SIG_BLOCK, &blocked, &before);
	r = host_open(NULL, &sweep->host);
	if (!r)
		r = host_look(sweep->host, view);
	if (!r)
		r = choose(sweep);
	if (!r)
		r = measure_all(sweep);
	if (!r)
		r = print(sweep);
	host_free(sweep->host);
	if (r < 0 && r != -EINTR)
		fprintf(stderr, "prezero bench: the sweep failed: %s\n", strerror(-r));
	sigprocmask(SIG_SETMASK, &before, NULL);
	return r < 0 ? 1 : 0;
}
