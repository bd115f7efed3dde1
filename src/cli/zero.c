// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cli/zero.c - `prezero zero`: has the kernel zero free huge pages through its file, here and now.
 *
 * Needs no daemon. The pages of every node are a job of their own for one team, so the nodes' memory
 * is zeroed at the same time, each by CPUs next to it. A signal cancels the jobs; what is done stays.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/signalfd.h>

#include "base/io.h"
#include "base/parse.h"
#include "cli/bar.h"
#include "cli/cli.h"
#include "cli/json.h"
#include "cli/text.h"
#include "fill/fill.h"
#include "host/host.h"
#include "policy/policy.h"

#define DRAW_MS 250

struct zero {
	struct session session; /* for how failures are told; there is no connection */
	const char *sysroot, *page_text;
	uint64_t pages_max; /* of COUNT; UINT64_MAX: max */
	int node; /* or PREZERO_NODE_ANY */
	unsigned int n_threads; /* 0: the default */
	struct id_set cpus; /* empty: all */

	struct host *host;
	struct host_view *view;
	struct page_size page;
	struct fill_team *team;
	unsigned int n_jobs;
	struct zero_job *job[NODES_MAX]; /* those that were submitted */
	atomic_uint threads_used;
	uint64_t began_ns, ended_ns;
	int stop_signal; /* that ended it early */
};

/* The pages of one node. */
struct zero_job {
	struct zero *zero;
	struct page_class page_class;
	struct fill_job *job; /* NULL when it has ended */
	struct fill_progress progress;
	int result;
};

enum { OPTION_PAGE = 0x100, OPTION_NODE, OPTION_THREADS, OPTION_CPUS, OPTION_JSON, OPTION_SYSROOT };

static const struct argp_option options[] = {
	{"page", OPTION_PAGE, "PAGE", 0,
	 "Page size, such as 2M or 1G (default: the host's default huge page)", 0},
	{"node", OPTION_NODE, "NODE", 0, "NUMA node, or any for all of them (default: any)", 0},
	{"threads", OPTION_THREADS, "NUMBER", 0,
	 "So many threads (default: a quarter of the CPUs, at least one)", 0},
	{"cpus", OPTION_CPUS, "LIST", 0, "Run on these CPUs, such as 0-3,8 (default: all)", 0},
	{"sysroot", OPTION_SYSROOT, "DIR", 0, "Look at /sys and /proc below DIR (default: /)", 0},
	{"json", OPTION_JSON, 0, 0, "Print one JSON value instead of text", -2},
	{0},
};

static void parse_count(struct zero *zero, const struct argp_state *state, const char *text)
{
	if (zero->pages_max)
		argp_error(state, "one COUNT is enough: '%s'", text);
	if (!strcmp(text, "max"))
		zero->pages_max = UINT64_MAX;
	else if (parse_u64(text, &zero->pages_max) < 0 || !zero->pages_max)
		argp_error(state, "COUNT '%s': write a number of pages, or max", text);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct zero *zero = state->input;
	uint64_t number = 0;

	switch (key) {
	case OPTION_PAGE:
		zero->page_text = arg;
		return 0;
	case OPTION_NODE:
		zero->node = argument_node(state, arg);
		return 0;
	case OPTION_THREADS:
		if (parse_u64(arg, &number) < 0 || !number || number > FILL_THREADS_MAX)
			argp_error(state, "--threads '%s': write a number from 1 to %d", arg,
				   FILL_THREADS_MAX);
		zero->n_threads = (unsigned int)number;
		return 0;
	case OPTION_CPUS:
		if (parse_id_set(arg, &zero->cpus) < 0 || id_set_is_empty(&zero->cpus))
			argp_error(state, "--cpus '%s': write a list such as 0-3,8", arg);
		return 0;
	case OPTION_SYSROOT:
		zero->sysroot = arg;
		return 0;
	case OPTION_JSON:
		zero->session.json = true;
		return 0;
	case ARGP_KEY_ARG:
		parse_count(zero, state, arg);
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "COUNT is missing: write a number of pages, or max");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* What there is. */

static int look(struct zero *zero)
{
	int r = host_open(zero->sysroot, &zero->host);

	if (r < 0)
		return session_fail_text(&zero->session, -EINVAL, "--sysroot '%s': %s",
					 zero->sysroot, strerror(-r));
	zero->view = calloc(1, sizeof(*zero->view));
	r = zero->view ? host_look(zero->host, zero->view) : -ENOMEM;
	if (r < 0)
		return session_fail_text(&zero->session, -EIO,
					 "the host cannot be looked at: %s %s", strerror(-r),
					 host_missing(zero->host));
	return STATUS_DONE;
}

/* Names those that there are. */
static int no_such_page(const struct zero *zero, const char *text)
{
	AUTO_FREE char *list = NULL;
	size_t list_bytes;
	FILE *f = open_memstream(&list, &list_bytes);

	for (unsigned int i = 0; f && i < zero->view->n_hugetlb; i++) {
		struct page_size page = {PAGE_HUGETLB, zero->view->hugetlb[i].page_bytes};
		char name[PAGE_TEXT_MAX];

		fprintf(f, " %s", page_size_format(page, name));
	}
	if (f)
		fclose(f);
	return session_fail_text(&zero->session, -EINVAL,
				 "--page '%s': no such huge page here; there is:%s", text,
				 list && *list ? list : " none");
}

static int choose_page(struct zero *zero)
{
	const char *text = zero->page_text;
	int r = 0;

	if (text)
		r = page_size_parse(text, 0, 0, &zero->page);
	else
		zero->page = (struct page_size){PAGE_HUGETLB, zero->view->default_hugetlb_bytes};
	if (r < 0 || zero->page.kind != PAGE_HUGETLB ||
	    !host_view_hugetlb(zero->view, zero->page.bytes))
		return no_such_page(zero, text ? text : "");
	return STATUS_DONE;
}

/* Opens the file as the threads will, so that what would stop all of them is told before they start. */
static int check_file(const struct zero *zero, struct page_class page_class)
{
	char name[CLASS_TEXT_MAX];
	int fd = host_open_zeroable(zero->host, page_class);

	close_fd(fd);
	if (fd >= 0)
		return STATUS_DONE;
	page_class_format(page_class, name);
	if (fd == -ENOENT)
		return session_fail_text(
			&zero->session, -EOPNOTSUPP,
			"%s: this kernel has no zeroable_hugepages: load the module with "
			"`modprobe prezero`, or boot a kernel that brings the file by itself",
			name);
	if (fd == -EACCES || fd == -EPERM)
		return session_fail_text(
			&zero->session, fd,
			"%s: zeroable_hugepages: permission denied: run it as root", name);
	return session_fail_text(&zero->session, fd, "%s: zeroable_hugepages: %s", name,
				 strerror(-fd));
}

/* Doing it. */

static int64_t zero_unit(void *arg, uint64_t offset_bytes, uint64_t unit_bytes)
{
	const struct zero_job *job = arg;
	uint64_t page_bytes = job->page_class.page.bytes;
	static __thread bool is_counted;
	int64_t pages = host_zero(job->zero->host, job->page_class, unit_bytes / page_bytes);

	(void)offset_bytes;
	if (pages > 0 && !is_counted) {
		is_counted = true;
		atomic_fetch_add(&job->zero->threads_used, 1);
	}
	return pages > 0 ? pages * (int64_t)page_bytes : pages;
}

static void job_done(void *arg, struct fill_job *fill_job, int result)
{
	struct zero_job *job = arg;

	fill_job_progress(fill_job, &job->progress);
	job->result = result;
	job->job = NULL;
}

static int submit(struct zero *zero, int node, uint64_t pages)
{
	struct zero_job *job = calloc(1, sizeof(*job));
	struct fill_request request = {
		.fd = -1,
		.length_bytes = pages * zero->page.bytes,
		.page_class = {zero->page, node},
		.node_cpus = zero->view->node[node].cpus,
		.priority = FILL_DEMAND,
		.work = zero_unit,
		.done = job_done,
		.arg = job,
	};
	int r;

	if (!job)
		return -ENOMEM;
	job->zero = zero;
	job->page_class = request.page_class;
	r = fill_team_submit(zero->team, &request, &job->job);
	if (r < 0) {
		free(job);
		return r;
	}
	zero->job[zero->n_jobs++] = job;
	return 0;
}

static bool is_meant(const struct zero *zero, unsigned int node)
{
	return zero->view->node[node].online &&
	       (zero->node == PREZERO_NODE_ANY || zero->node == (int)node);
}

/* All that could be refused is, before anything is done. */
static int check_files(const struct zero *zero)
{
	int r = STATUS_DONE;

	for (unsigned int node = 0; !r && node < zero->view->nodes_end; node++) {
		if (is_meant(zero, node))
			r = check_file(zero, (struct page_class){zero->page, (int)node});
	}
	return r;
}

static int submit_all(struct zero *zero)
{
	const struct hugetlb_view *size = host_view_hugetlb(zero->view, zero->page.bytes);
	uint64_t left_pages = zero->pages_max;

	for (unsigned int node = 0; node < zero->view->nodes_end; node++) {
		uint64_t pages = is_meant(zero, node) ? size->node[node].zeroable_pages : 0;
		int r;

		if (pages > left_pages)
			pages = left_pages;
		r = pages ? submit(zero, (int)node, pages) : 0;
		if (r < 0)
			return session_fail_text(&zero->session, r, "%s", strerror(-r));
		left_pages -= pages;
	}
	return STATUS_DONE;
}

static int start_team(struct zero *zero)
{
	struct fill_config config = {
		.n_threads = policy_threads(zero->view, zero->n_threads),
		.cpus = zero->cpus,
	};
	struct id_set usable = zero->cpus;
	int r;

	id_set_and(&usable, &zero->view->cpus);
	if (!id_set_is_empty(&zero->cpus) && id_set_is_empty(&usable))
		return session_fail_text(&zero->session, -EINVAL,
					 "--cpus: none of these may be used here");
	if (config.n_threads > FILL_THREADS_MAX)
		config.n_threads = FILL_THREADS_MAX;
	r = fill_team_start(&config, &zero->team);
	if (r < 0)
		return session_fail_text(&zero->session, -EIO, "%u threads: %s", config.n_threads,
					 strerror(-r));
	return STATUS_DONE;
}

static void sum_up(const struct zero *zero, struct fill_progress *ret)
{
	*ret = (struct fill_progress){0};
	for (unsigned int i = 0; i < zero->n_jobs; i++) {
		struct fill_progress progress = zero->job[i]->progress;

		if (zero->job[i]->job)
			fill_job_progress(zero->job[i]->job, &progress);
		ret->done_bytes += progress.done_bytes;
		ret->total_bytes += progress.total_bytes;
	}
}

static void draw(const struct zero *zero)
{
	uint64_t elapsed_ns = monotonic_ns() - zero->began_ns;
	char place[PLACE_TEXT_MAX], page[PAGE_TEXT_MAX];
	AUTO_FREE char *line = NULL;
	struct fill_progress sum;
	size_t line_bytes;
	struct bar bar;
	FILE *f;

	sum_up(zero, &sum);
	bar = (struct bar){
		.done_bytes = sum.done_bytes,
		.total_bytes = sum.total_bytes,
		.place = format_place(page_size_format(zero->page, page), zero->node, place),
		.bytes_per_second =
			(uint64_t)((double)sum.done_bytes * 1e9 / (double)(elapsed_ns + 1)),
	};
	if (bar.bytes_per_second) {
		bar.left_ms = (uint64_t)((double)(sum.total_bytes - sum.done_bytes) * 1000 /
					 (double)bar.bytes_per_second);
		bar.knows_left_ms = true;
	}
	f = open_memstream(&line, &line_bytes);
	if (!f)
		return;
	bar_print(f, &bar);
	if (!fclose(f))
		bar_draw(line);
}

static bool is_busy(const struct zero *zero)
{
	for (unsigned int i = 0; i < zero->n_jobs; i++) {
		if (zero->job[i]->job)
			return true;
	}
	return false;
}

static void cancel_all(struct zero *zero)
{
	for (unsigned int i = 0; i < zero->n_jobs; i++) {
		if (zero->job[i]->job)
			fill_job_cancel(zero->job[i]->job);
	}
}

/* Until all jobs have ended; a signal cancels them. */
static void wait_for_jobs(struct zero *zero, int signal_fd)
{
	bool draws = bar_is_wanted();

	while (is_busy(zero)) {
		struct pollfd poll_fd[] = {
			{.fd = fill_team_fd(zero->team), .events = POLLIN},
			{.fd = signal_fd, .events = POLLIN},
		};
		struct signalfd_siginfo info;

		if (poll(poll_fd, ARRAY_LEN(poll_fd), draws ? DRAW_MS : -1) == 0)
			draw(zero);
		if (read(signal_fd, &info, sizeof(info)) == sizeof(info)) {
			zero->stop_signal = (int)info.ssi_signo;
			cancel_all(zero);
		}
		fill_team_reap(zero->team);
	}
	bar_erase();
}

/* Telling it. */

static int tell_failure(const struct zero *zero)
{
	for (unsigned int i = 0; i < zero->n_jobs; i++) {
		const struct zero_job *job = zero->job[i];
		char name[CLASS_TEXT_MAX];

		if (job->result < 0 && job->result != -ECANCELED)
			return session_fail_text(
				&zero->session, -EIO, "%s: zeroable_hugepages: %s%s",
				page_class_format(job->page_class, name), strerror(-job->result),
				job->result == -ENODEV || job->result == -ENOENT ?
					": it went away: was the module removed?" :
					"");
	}
	return STATUS_DONE;
}

static int tell(const struct zero *zero)
{
	double seconds = (double)(zero->ended_ns - zero->began_ns) / 1e9, gb_per_second;
	char place[PLACE_TEXT_MAX], page[PAGE_TEXT_MAX], bytes[BYTES_TEXT_MAX];
	struct fill_progress sum;
	uint64_t pages;

	sum_up(zero, &sum);
	pages = sum.done_bytes / zero->page.bytes;
	gb_per_second = seconds > 0 ? (double)sum.done_bytes / 1e9 / seconds : 0;
	page_size_format(zero->page, page);
	if (zero->session.json) {
		AUTO_JSON object = json_pack(
			"{s:s, s:i, s:I, s:I, s:f, s:f, s:i, s:b}", "page", page, "node",
			zero->node, "pages", (json_int_t)pages, "bytes", (json_int_t)sum.done_bytes,
			"seconds", seconds, "gb_per_second", gb_per_second, "threads",
			(int)atomic_load(&zero->threads_used), "stopped", zero->stop_signal != 0);

		print_json(object);
	} else {
		printf("zeroed %s: %llu pages, %s in %.3f s, %.2f GB/s, %u threads%s\n",
		       format_place(page, zero->node, place), (unsigned long long)pages,
		       format_bytes_short(sum.done_bytes, bytes), seconds, gb_per_second,
		       atomic_load(&zero->threads_used), zero->stop_signal ? "; stopped" : "");
	}
	return session_flush(&zero->session);
}

static int run(struct zero *zero, int signal_fd)
{
	int r = look(zero);

	if (!r)
		r = choose_page(zero);
	if (!r && zero->node != PREZERO_NODE_ANY && !host_view_has_node(zero->view, zero->node))
		r = session_fail_text(&zero->session, -EINVAL,
				      "--node %d: no such NUMA node with memory here", zero->node);
	if (!r)
		r = check_files(zero);
	if (!r)
		r = start_team(zero);
	zero->began_ns = monotonic_ns();
	if (!r)
		r = submit_all(zero);
	if (r)
		return r;
	wait_for_jobs(zero, signal_fd);
	zero->ended_ns = monotonic_ns();
	r = tell_failure(zero);
	return r ? r : tell(zero);
}

static void done(struct zero *zero)
{
	fill_team_stop(zero->team);
	for (unsigned int i = 0; i < zero->n_jobs; i++)
		free(zero->job[i]);
	host_free(zero->host);
	free(zero->view);
}

/* Stopped, it ends as a program that knows of no signals would: the shell sees why. */
static _Noreturn void end_by(int signal_number)
{
	sigset_t set;

	signal(signal_number, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, signal_number);
	raise(signal_number);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	_exit(128 + signal_number);
}

int cmd_zero(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "COUNT|max",
		.doc = "Have the kernel zero COUNT free huge pages, or all that are dirty, so that whoever "
		       "uses them next need not wait. Needs no daemon, but a kernel with "
		       "zeroable_hugepages: the module prezero brings it.",
	};
	struct zero zero = {.session = {.command = argv[0]}, .node = PREZERO_NODE_ANY};
	AUTO_FD signal_fd = -1;
	sigset_t signals;
	int r;

	argp_parse(&argp, argc, argv, 0, NULL, &zero);
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signal_fd < 0)
		return session_fail_text(&zero.session, -errno, "signalfd: %s", strerror(errno));
	r = run(&zero, signal_fd);
	done(&zero);
	if (zero.stop_signal)
		end_by(zero.stop_signal);
	return r;
}
