// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cli/reserve.c - `prezero reserve`: the kernel's own pool of huge pages, brought to a size.
 *
 * All or told: a short result has an exit status of its own and says which node, how much, and why.
 */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <syslog.h>

#include "base/parse.h"
#include "cli/json.h"
#include "cli/pages.h"
#include "cli/text.h"
#include "reserve/reserve.h"

#define DEFAULT_RUNTIME_DIR "/run/prezero"
#define DEFAULT_DEADLINE_MS 600000
#define BAR_WIDTH 20
#define BAR_AFTER_NS 300000000ULL
#define ERASE_LINE "\r\033[K"

struct reserve {
	struct session *session;
	struct pages_wish wish;
	const char *runtime_dir;
	uint64_t deadline_ms;
	bool all_or_nothing, is_dry;
	bool is_drawn;
	struct reserve_result result;
};

enum {
	OPTION_CPUS = 0x200,
	OPTION_METHOD,
	OPTION_SHRINK,
	OPTION_ALL,
	OPTION_DEADLINE,
	OPTION_FLOOR,
	OPTION_DRY,
	OPTION_RUNTIME,
};

static const struct argp_option options[] = {
	{"cpus", OPTION_CPUS, "LIST", 0, "Use these CPUs only: 0-3,8", 0},
	{"method", OPTION_METHOD, "METHOD", 0,
	 "plain, parallel or auto: what suits this kernel (default)", 0},
	{"shrink", OPTION_SHRINK, 0, 0, "Give pages back where the pool is larger than SIZE", 0},
	{"all-or-nothing", OPTION_ALL, 0, 0,
	 "Put everything back when it comes short, or on Ctrl-C", 0},
	{"deadline", OPTION_DEADLINE, "TIME", 0, "Try no more after so long (default: 10m)", 0},
	{"floor", OPTION_FLOOR, "SIZE", 0,
	 "Memory that stays available (default: 2G, or 5 % of RAM if that is more)", 0},
	{"dry-run", OPTION_DRY, 0, 0, "Say what would be done", 0},
	{"runtime-dir", OPTION_RUNTIME, "DIR", OPTION_HIDDEN, "Instead of " DEFAULT_RUNTIME_DIR, 0},
	{0},
};

static volatile sig_atomic_t is_interrupted;

static void on_signal(int number)
{
	(void)number;
	is_interrupted = 1;
}

/* No SA_RESTART: the kernel stops a write to nr_hugepages at a signal. */
static void catch_signals(void)
{
	const struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static enum reserve_method parse_method(const struct argp_state *state, const char *text)
{
	for (int method = RESERVE_AUTO; method <= RESERVE_PARALLEL; method++) {
		if (!strcmp(text, reserve_method_name((enum reserve_method)method)))
			return (enum reserve_method)method;
	}
	argp_error(state, "--method '%s': write plain, parallel or auto", text);
	return RESERVE_AUTO;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct reserve *reserve = state->input;
	struct reserve_goal *goal = &reserve->wish.goal;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &reserve->wish;
		return 0;
	case OPTION_CPUS:
		if (parse_id_set(arg, &goal->cpus) < 0 || id_set_is_empty(&goal->cpus))
			argp_error(state, "--cpus '%s': not a list of CPUs: write 0-3,8", arg);
		return 0;
	case OPTION_METHOD:
		goal->method = parse_method(state, arg);
		return 0;
	case OPTION_SHRINK:
		goal->shrink = true;
		return 0;
	case OPTION_ALL:
		reserve->all_or_nothing = true;
		return 0;
	case OPTION_DEADLINE:
		if (parse_duration_ms(arg, &reserve->deadline_ms) < 0 || !reserve->deadline_ms)
			argp_error(state, "--deadline '%s': not a time: write 30s or 5m", arg);
		return 0;
	case OPTION_FLOOR:
		goal->floor_bytes = argument_bytes(state, "--floor", arg);
		return 0;
	case OPTION_DRY:
		reserve->is_dry = true;
		return 0;
	case OPTION_RUNTIME:
		reserve->runtime_dir = arg;
		return 0;
	case ARGP_KEY_END:
		if (!reserve->wish.size_text)
			argp_error(state, "SIZE is missing");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static bool tick(void *arg, const struct reserve_progress *progress)
{
	struct reserve *reserve = arg;
	char done[BYTES_TEXT_MAX], total[BYTES_TEXT_MAX], left[DURATION_TEXT_MAX] = "?";
	double share;
	int filled;

	if (is_interrupted)
		return false;
	if (!isatty(STDERR_FILENO) || progress->elapsed_ns < BAR_AFTER_NS || !progress->total_bytes)
		return true;
	share = (double)progress->done_bytes / (double)progress->total_bytes;
	filled = (int)(share * BAR_WIDTH);
	if (progress->done_bytes)
		format_duration(
			(uint64_t)((double)progress->elapsed_ns / 1e6 * (1 - share) / share), left);
	fprintf(stderr, ERASE_LINE "[%.*s%.*s] %3d%%  %s of %s, %s left", filled,
		"####################", BAR_WIDTH - filled, "....................",
		(int)(share * 100), format_bytes_short(progress->done_bytes, done),
		format_bytes_short(progress->total_bytes, total), left);
	fflush(stderr);
	reserve->is_drawn = true;
	return true;
}

static uint64_t gained_pages(const struct reserve_node_result *node)
{
	return node->have_pages > node->from_pages ? node->have_pages - node->from_pages : 0;
}

/* What all nodes gained together. */
static uint64_t gained_bytes(const struct reserve *reserve)
{
	uint64_t pages = 0;

	for (unsigned int i = 0; i < reserve->result.n_nodes; i++)
		pages += gained_pages(&reserve->result.node[i]);
	return pages * reserve->wish.goal.page_bytes;
}

static double rate_gb_per_s(uint64_t bytes, uint64_t elapsed_ns)
{
	return elapsed_ns ? (double)bytes / (double)elapsed_ns : 0;
}

static int result_status(const struct reserve_result *result)
{
	bool is_full = true, has_changed = false;

	for (unsigned int i = 0; i < result->n_nodes; i++) {
		is_full &= result->node[i].have_pages == result->node[i].wanted_pages;
		has_changed |= result->node[i].have_pages != result->node[i].from_pages;
	}
	return is_full ? STATUS_DONE : has_changed ? STATUS_PARTIAL : STATUS_REFUSED;
}

static const char *why_short(const struct reserve *reserve, const struct reserve_node_result *node)
{
	const struct reserve_result *result = &reserve->result;

	if (node->is_overruled)
		return "somebody else changed nr_hugepages meanwhile, and that stands";
	if (result->is_stopped)
		return "interrupted";
	if (result->is_late)
		return "the deadline passed: give more with --deadline";
	if (result->why == SHORT_FLOOR)
		return "the memory floor keeps the rest: end programs that use the memory, or lower "
		       "it with --floor";
	if (result->why == SHORT_PAGES && reserve->wish.plan.reason == RESERVE_GIGANTIC)
		return "the kernel found no more contiguous memory: pages of this size are best "
		       "reserved at boot, see `prezero boot-args`";
	return "the kernel found no more contiguous memory, also after compaction: reserve at boot, "
	       "see `prezero boot-args`";
}

static void tell_short(const struct reserve *reserve)
{
	const uint64_t page_bytes = reserve->wish.goal.page_bytes;
	char have[BYTES_TEXT_MAX], need[BYTES_TEXT_MAX];

	for (unsigned int i = 0; i < reserve->result.n_nodes; i++) {
		const struct reserve_node_result *node = &reserve->result.node[i];

		if (node->have_pages == node->wanted_pages)
			continue;
		fprintf(stderr,
			"%s: node %d has %" PRIu64 " of %" PRIu64 " pages (%s of %s)%s: %s\n",
			reserve->session->command, node->node, node->have_pages, node->wanted_pages,
			format_bytes(node->have_pages * page_bytes, have),
			format_bytes(node->wanted_pages * page_bytes, need),
			reserve->result.is_rolled_back ? ", all put back" : "",
			why_short(reserve, node));
	}
	if (reserve->result.overcommit_overruled)
		fprintf(stderr,
			"%s: somebody else changed nr_overcommit_hugepages meanwhile, and that stands\n",
			reserve->session->command);
}

static void print_result(const struct reserve *reserve)
{
	const struct reserve_result *result = &reserve->result;
	const uint64_t bytes = gained_bytes(reserve), page_bytes = reserve->wish.goal.page_bytes;
	char page[BYTES_TEXT_MAX], gained[BYTES_TEXT_MAX], have[BYTES_TEXT_MAX];

	printf("%s pages: %" PRIu64 " more (%s) in %.3f s, %.2f GB/s, %u thread%s, %s (%s)\n",
	       format_bytes(page_bytes, page), bytes / page_bytes, format_bytes(bytes, gained),
	       (double)result->elapsed_ns / 1e9, rate_gb_per_s(bytes, result->elapsed_ns),
	       result->n_threads, result->n_threads == 1 ? "" : "s",
	       reserve_method_name(result->method), reserve_reason_name(result->reason));
	for (unsigned int i = 0; i < result->n_nodes; i++) {
		const struct reserve_node_result *node = &result->node[i];

		printf("  node %d: %" PRIu64 " pages -> %" PRIu64 " (%s)", node->node,
		       node->from_pages, node->have_pages,
		       format_bytes(node->have_pages * page_bytes, have));
		if (node->retry_pages)
			printf(", %" PRIu64 " of them after compaction", node->retry_pages);
		if (node->surplus_pages)
			printf(", %" PRIu64 " more go when their users end", node->surplus_pages);
		putchar('\n');
	}
}

static json_t *result_json(const struct reserve *reserve)
{
	const struct reserve_result *result = &reserve->result;
	const uint64_t bytes = gained_bytes(reserve), page_bytes = reserve->wish.goal.page_bytes;
	json_t *nodes = json_array();
	char page[BYTES_TEXT_MAX];

	for (unsigned int i = 0; i < result->n_nodes; i++) {
		const struct reserve_node_result *node = &result->node[i];

		json_array_append_new(
			nodes, json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:b}", "node", node->node,
					 "from_pages", (json_int_t)node->from_pages, "wanted_pages",
					 (json_int_t)node->wanted_pages, "have_pages",
					 (json_int_t)node->have_pages, "retry_pages",
					 (json_int_t)node->retry_pages, "surplus_pages",
					 (json_int_t)node->surplus_pages, "overruled",
					 node->is_overruled));
	}
	return json_pack(
		"{s:s, s:I, s:s, s:s, s:i, s:f, s:I, s:I, s:f, s:b, s:s, s:b, s:b, s:b, s:b, "
		"s:o}",
		"page", format_bytes(page_bytes, page), "page_bytes", (json_int_t)page_bytes,
		"method", reserve_method_name(result->method), "reason",
		reserve_reason_name(result->reason), "threads", (int)result->n_threads, "seconds",
		(double)result->elapsed_ns / 1e9, "pages", (json_int_t)(bytes / page_bytes),
		"bytes", (json_int_t)bytes, "gb_per_s", rate_gb_per_s(bytes, result->elapsed_ns),
		"full", result_status(result) == STATUS_DONE, "short", shortage_name(result->why),
		"interrupted", result->is_stopped, "late", result->is_late, "rolled_back",
		result->is_rolled_back, "overcommit_overruled", result->overcommit_overruled,
		"nodes", nodes);
}

static json_t *plan_json(const struct reserve *reserve)
{
	const struct reserve_plan *plan = &reserve->wish.plan;
	json_t *nodes = json_array();

	for (unsigned int i = 0; i < plan->n_nodes; i++) {
		const struct reserve_node *node = &plan->node[i];

		json_array_append_new(nodes,
				      json_pack("{s:i, s:I, s:I, s:I, s:i}", "node", node->node,
						"from_pages", (json_int_t)node->from_pages,
						"wanted_pages", (json_int_t)node->wanted_pages,
						"to_pages", (json_int_t)node->to_pages, "threads",
						(int)node->n_threads));
	}
	return json_pack("{s:s, s:s, s:i, s:I, s:s, s:o}", "method",
			 reserve_method_name(plan->method), "reason",
			 reserve_reason_name(plan->reason), "threads", (int)plan->n_threads,
			 "unit_bytes", (json_int_t)plan->unit_bytes, "short",
			 shortage_name(plan->why), "nodes", nodes);
}

static void print_plan(const struct reserve *reserve)
{
	const struct reserve_plan *plan = &reserve->wish.plan;
	char unit[BYTES_TEXT_MAX];

	if (reserve->session->json) {
		AUTO_JSON object = plan_json(reserve);

		print_json(object);
		return;
	}
	printf("%s (%s), %u thread%s, %s at a time%s\n", reserve_method_name(plan->method),
	       reserve_reason_name(plan->reason), plan->n_threads, plan->n_threads == 1 ? "" : "s",
	       format_bytes(plan->unit_bytes, unit),
	       plan->why == SHORT_FLOOR ? "; the memory floor keeps some" : "");
	for (unsigned int i = 0; i < plan->n_nodes; i++) {
		const struct reserve_node *node = &plan->node[i];

		printf("  node %d: %" PRIu64 " pages -> %" PRIu64 " of %" PRIu64 " wanted",
		       node->node, node->from_pages, node->to_pages, node->wanted_pages);
		if (node->n_threads)
			printf(", %u thread%s", node->n_threads, node->n_threads == 1 ? "" : "s");
		putchar('\n');
	}
}

static int fail_run(const struct reserve *reserve, int r)
{
	switch (r) {
	case -EBUSY:
		return session_fail_text(
			reserve->session, r,
			"another `prezero reserve` is under way: wait for its end");
	case -EBADMSG:
		return session_fail_text(
			reserve->session, -EIO,
			"%s/reserve.intent is no record of ours: set "
			"nr_overcommit_hugepages as it should be and remove the file",
			reserve->runtime_dir);
	case -EACCES:
	case -EPERM:
		return session_fail_text(reserve->session, r,
					 "only root may change the kernel's pool: use sudo");
	default:
		return session_fail_text(reserve->session, r, "%s", strerror(-r));
	}
}

static void log_result(const struct reserve *reserve)
{
	const struct reserve_result *result = &reserve->result;
	char page[BYTES_TEXT_MAX], gained[BYTES_TEXT_MAX];
	uint64_t bytes = gained_bytes(reserve);

	openlog("prezero", LOG_PID, LOG_DAEMON);
	syslog(result_status(result) == STATUS_DONE ? LOG_INFO : LOG_WARNING,
	       "reserve %s: %s more of %s pages in %.3f s, %u threads, %s%s",
	       reserve->wish.size_text, format_bytes(bytes, gained),
	       format_bytes(reserve->wish.goal.page_bytes, page), (double)result->elapsed_ns / 1e9,
	       result->n_threads, reserve_method_name(result->method),
	       result_status(result) == STATUS_DONE ? "" : "; not all that was asked for");
	closelog();
}

static int run(struct reserve *reserve)
{
	struct session *session = reserve->session;
	const struct reserve_config config = {
		.host = reserve->wish.host,
		.seen = reserve->wish.view,
		.runtime_dir = reserve->runtime_dir,
		.deadline_ms = reserve->deadline_ms,
		.all_or_nothing = reserve->all_or_nothing,
		.is_imagined = reserve->wish.sysroot != NULL,
		.tick = tick,
		.arg = reserve,
	};
	int r;

	catch_signals();
	r = reserve_run(&config, &reserve->wish.goal, &reserve->wish.plan, &reserve->result);
	if (reserve->is_drawn)
		fputs(ERASE_LINE, stderr);
	if (r < 0)
		return fail_run(reserve, r);
	if (!reserve->wish.sysroot)
		log_result(reserve);
	if (session->json) {
		AUTO_JSON object = result_json(reserve);

		print_json(object);
	} else {
		print_result(reserve);
	}
	r = session_flush(session);
	tell_short(reserve);
	return r ? r : result_status(&reserve->result);
}

int cmd_reserve(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "SIZE",
		.doc = "Bring the kernel's own pool of huge pages to SIZE, with as many threads as help. "
		       "The pages stay in the pool, for everyone. 0 with --shrink gives all back.",
		.children = pages_options,
	};
	struct session session = {.command = argv[0]};
	AUTO_FREE struct reserve *reserve = calloc(1, sizeof(*reserve));
	int status;

	if (!reserve)
		return session_fail_text(&session, -ENOMEM, "%s", strerror(ENOMEM));
	reserve->session = reserve->wish.session = &session;
	reserve->runtime_dir = DEFAULT_RUNTIME_DIR;
	reserve->deadline_ms = DEFAULT_DEADLINE_MS;
	argp_parse(&argp, argc, argv, 0, NULL, reserve);
	status = pages_decide(&reserve->wish);
	if (status == STATUS_DONE && reserve->is_dry) {
		print_plan(reserve);
		status = session_flush(&session);
	} else if (status == STATUS_DONE) {
		status = run(reserve);
	}
	pages_done(&reserve->wish);
	return status;
}
