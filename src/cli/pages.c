// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cli/pages.c - how many pages to have where, from arguments to a plan.
 */
#include <limits.h>
#include <string.h>

#include "base/parse.h"
#include "cli/pages.h"
#include "fill/fill.h"
#include "reserve/reserve.h"

enum {
	OPTION_PAGE = 0x100,
	OPTION_NODE,
	OPTION_SPLIT,
	OPTION_THREADS,
	OPTION_SYSROOT,
	OPTION_JSON
};

static const struct argp_option options[] = {
	{"page", OPTION_PAGE, "PAGE", 0,
	 "Page size: 2M, 1G (default: the host's default huge page)", 0},
	{"node", OPTION_NODE, "NODE", 0, "SIZE is of this NUMA node (default: of all together)", 0},
	{"split", OPTION_SPLIT, "NODE=PART,...", 0,
	 "What of SIZE each node has: 0=25%,1=75% or 0=48G,1=16G", 0},
	{"threads", OPTION_THREADS, "N", 0,
	 "Threads in all (default: a quarter of the CPUs, at least two, and one a node)", 0},
	{"sysroot", OPTION_SYSROOT, "DIR", OPTION_HIDDEN, "Look at the machine that DIR shows", 0},
	{"json", OPTION_JSON, 0, 0, "Print exactly one JSON value", -2},
	{0},
};

/* "25%", "12.5%": hundredths of a percent. */
static int parse_percent(const char *text, unsigned int *ret)
{
	char digits[16], *point;
	uint64_t whole, part = 0;
	size_t length = strlen(text);

	if (length < 2 || length >= sizeof(digits) || text[length - 1] != '%')
		return -EINVAL;
	memcpy(digits, text, length - 1);
	digits[length - 1] = '\0';
	point = strchr(digits, '.');
	if (point) {
		*point++ = '\0';
		if (strlen(point) > 2 || parse_u64(point, &part) < 0)
			return -EINVAL;
		part *= strlen(point) == 1 ? 10 : 1;
	}
	if (parse_u64(digits, &whole) < 0 || whole > 100)
		return -EINVAL;
	*ret = (unsigned int)(whole * 100 + part);
	return 0;
}

static void parse_share(const struct argp_state *state, struct reserve_goal *goal, char *text)
{
	char *part = strchr(text, '=');
	struct reserve_share share = {0};
	uint64_t node = 0;

	if (part)
		*part++ = '\0';
	if (!part || parse_u64(text, &node) < 0 || node > INT_MAX ||
	    (parse_percent(part, &share.percent) < 0 && parse_bytes(part, &share.bytes) < 0))
		argp_error(state, "--split: not a split: write 0=25%%,1=75%% or 0=48G,1=16G");
	share.node = (int)node;
	for (unsigned int i = 0; i < goal->n_shares; i++) {
		if (goal->share[i].node == share.node)
			argp_error(state, "--split: node %d stands there twice", share.node);
	}
	if (goal->n_shares == NODES_MAX)
		argp_error(state, "--split: more than %d nodes", NODES_MAX);
	goal->share[goal->n_shares++] = share;
}

static void parse_split(const struct argp_state *state, struct reserve_goal *goal, const char *arg)
{
	AUTO_FREE char *text = strdup(arg);
	char *save = NULL;

	if (!text)
		argp_failure(state, STATUS_FAILED, ENOMEM, "--split");
	goal->n_shares = 0;
	for (char *share = strtok_r(text, ",", &save); share; share = strtok_r(NULL, ",", &save))
		parse_share(state, goal, share);
	if (!goal->n_shares)
		argp_error(state, "--split: no node in it: write 0=25%%,1=75%% or 0=48G,1=16G");
}

/* The parts are of one kind and make the whole. */
static void check_split(const struct argp_state *state, const struct pages_wish *wish)
{
	const struct reserve_goal *goal = &wish->goal;
	unsigned int percent = 0, n_percent = 0;
	uint64_t bytes = 0;

	for (unsigned int i = 0; i < goal->n_shares; i++) {
		percent += goal->share[i].percent;
		n_percent += goal->share[i].percent > 0;
		if (__builtin_add_overflow(bytes, goal->share[i].bytes, &bytes))
			bytes = UINT64_MAX;
	}
	if (!goal->n_shares || (!bytes && percent == PERCENT_ALL))
		return;
	if (!n_percent && bytes == goal->bytes)
		return;
	argp_error(state,
		   "--split: the parts do not make SIZE %s: write all of them in %% or all "
		   "as sizes, and together the whole",
		   wish->size_text);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct pages_wish *wish = state->input;
	uint64_t number = 0;

	switch (key) {
	case OPTION_PAGE:
		wish->page_text = arg;
		return 0;
	case OPTION_NODE:
		if (parse_u64(arg, &number) < 0 || number > INT_MAX)
			argp_error(state, "--node '%s': not a NUMA node: write its number", arg);
		wish->goal.n_shares = 1;
		wish->goal.share[0] =
			(struct reserve_share){.node = (int)number, .percent = PERCENT_ALL};
		return 0;
	case OPTION_SPLIT:
		parse_split(state, &wish->goal, arg);
		return 0;
	case OPTION_THREADS:
		if (parse_u64(arg, &number) < 0 || !number || number > FILL_THREADS_MAX)
			argp_error(state, "--threads '%s': not a number from 1 to %d", arg,
				   FILL_THREADS_MAX);
		wish->goal.n_threads = (unsigned int)number;
		return 0;
	case OPTION_SYSROOT:
		wish->sysroot = arg;
		return 0;
	case OPTION_JSON:
		wish->session->json = true;
		return 0;
	case ARGP_KEY_ARG:
		if (wish->size_text)
			argp_error(state, "one SIZE is enough: '%s'", arg);
		wish->size_text = arg;
		if (parse_bytes(arg, &wish->goal.bytes) < 0)
			argp_error(state, "SIZE '%s': not a size: write 512M, 8G or 1.5T", arg);
		return 0;
	case ARGP_KEY_END:
		if (wish->size_text)
			check_split(state, wish);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp pages_argp = {.options = options, .parser = parse};
const struct argp_child pages_options[] = {{.argp = &pages_argp}, {0}};

static int fail_no_page(const struct pages_wish *wish, const char *what)
{
	char list[HUGETLB_SIZES_MAX * (BYTES_TEXT_MAX + 2)] = "", text[BYTES_TEXT_MAX];

	for (unsigned int i = 0; i < wish->view->n_hugetlb; i++) {
		strcat(list, i ? ", " : "");
		strcat(list, format_bytes(wish->view->hugetlb[i].page_bytes, text));
	}
	return session_fail_text(wish->session, -EINVAL, "--page %s: this host has %s", what,
				 list[0] ? list : "no huge pages");
}

static int fail_cpuset(const struct pages_wish *wish, int node)
{
	char usable[BYTES_TEXT_MAX], total[BYTES_TEXT_MAX];
	uint64_t usable_bytes = 0;

	if (node >= 0)
		return session_fail_text(
			wish->session, -ENOMEM,
			"node %d: the cgroup of this process (cpuset.mems) keeps it "
			"away from that node: run it outside of that cgroup",
			node);
	for (unsigned int i = 0; i < wish->view->nodes_end; i++) {
		if (wish->view->node[i].online)
			usable_bytes += wish->view->node[i].total_bytes;
	}
	return session_fail_text(
		wish->session, -ENOMEM,
		"SIZE %s: the cgroup of this process (cpuset.mems) lets it use nodes with %s of this "
		"machine's %s: run it outside of that cgroup",
		wish->size_text, format_bytes_short(usable_bytes, usable),
		format_bytes_short(wish->view->total_bytes, total));
}

static int fail_goal(const struct pages_wish *wish, enum shortage why, int node)
{
	char page[BYTES_TEXT_MAX], total[BYTES_TEXT_MAX];

	format_bytes(wish->goal.page_bytes, page);
	switch (why) {
	case SHORT_NO_CLASS:
		return fail_no_page(wish, page);
	case SHORT_NO_NODE:
		return session_fail_text(wish->session, -EINVAL,
					 "node %d: no such NUMA node here, or it has no memory for "
					 "this process",
					 node);
	case SHORT_CGROUP:
		return fail_cpuset(wish, node);
	case SHORT_NOT_MULTIPLE:
		return session_fail_text(wish->session, -EINVAL,
					 "SIZE %s: not a multiple of the page, %s", wish->size_text,
					 page);
	default:
		break;
	}
	if (node < 0)
		return session_fail_text(wish->session, -ENOMEM,
					 "SIZE %s: this machine has %s of memory", wish->size_text,
					 format_bytes_short(wish->view->total_bytes, total));
	return session_fail_text(wish->session, -ENOMEM, "SIZE %s: node %d has %s of memory",
				 wish->size_text, node,
				 format_bytes_short(wish->view->node[node].total_bytes, total));
}

int pages_decide(struct pages_wish *wish)
{
	const struct session *session = wish->session;
	enum shortage why;
	int node, r = host_open(wish->sysroot, &wish->host);

	if (r < 0)
		return session_fail_text(session, -EIO, "%s: %s",
					 wish->sysroot ? wish->sysroot : "/", strerror(-r));
	wish->view = malloc(sizeof(*wish->view));
	r = wish->view ? host_look(wish->host, wish->view) : -ENOMEM;
	if (r < 0)
		return session_fail_text(session, -EIO, "cannot see what memory there is: %s: %s",
					 host_missing(wish->host), strerror(-r));
	wish->goal.page_bytes = wish->view->default_hugetlb_bytes;
	if (wish->page_text &&
	    (parse_bytes(wish->page_text, &wish->goal.page_bytes) < 0 || !wish->goal.page_bytes))
		return fail_no_page(wish, wish->page_text);
	if (!wish->goal.page_bytes)
		return fail_no_page(wish, "(default)");
	r = reserve_decide(wish->host, wish->view, &wish->goal, &wish->plan, &why, &node);
	return r < 0 ? fail_goal(wish, why, node) : STATUS_DONE;
}

void pages_done(struct pages_wish *wish)
{
	wish->host = host_free(wish->host);
	free(wish->view);
}
