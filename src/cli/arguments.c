// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cli/arguments.c - arguments that people type: sizes, nodes, waits.
 *
 * What does not parse ends the program with bad usage before anything was asked of the daemon. What
 * only the daemon can know (which pages and nodes there are) is left to it.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/parse.h"
#include "cli/cli.h"

uint64_t argument_bytes(const struct argp_state *state, const char *what, const char *text)
{
	uint64_t bytes = 0;
	int r = parse_bytes(text, &bytes);

	if (r == -ERANGE || bytes > INT64_MAX)
		argp_error(state, "%s %s: more than any machine has", what, text);
	else if (r < 0)
		argp_error(state, "%s '%s': not a size: write 512M, 8G or 1.5T", what, text);
	else if (bytes == 0)
		argp_error(state, "%s %s: nothing to take: write 512M, 8G or 1.5T", what, text);
	return bytes;
}

int argument_node(const struct argp_state *state, const char *text)
{
	uint64_t node = 0;

	if (!strcmp(text, "any"))
		return PREZERO_NODE_ANY;
	if (parse_u64(text, &node) < 0 || node > INT_MAX)
		argp_error(state, "--node '%s': not a NUMA node: write its number, or any", text);
	return (int)node;
}

int64_t argument_wait_ms(const struct argp_state *state, const char *text)
{
	uint64_t ms = 0;

	if (parse_duration_ms(text, &ms) < 0 || ms > INT64_MAX)
		argp_error(state, "--wait '%s': not a time: write 500ms, 30s or 5m", text);
	return (int64_t)ms;
}

enum { OPTION_PAGE = 0x100, OPTION_NODE, OPTION_WAIT, OPTION_PARTIAL };

static const struct argp_option options[] = {
	{"page", OPTION_PAGE, "PAGE", 0,
	 "Page size: 2M, 1G, thp or base (default: the host's default huge page)", 0},
	{"node", OPTION_NODE, "NODE", 0, "NUMA node (default: any)", 0},
	{"wait", OPTION_WAIT, "TIME", 0,
	 "Wait at most so long, 0 not at all (default: as long as filling takes)", 0},
	{"partial", OPTION_PARTIAL, 0, 0, "Take it even while it is still being filled", 0},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct prezero_request *request = *(struct prezero_request **)state->input;

	switch (key) {
	case OPTION_PAGE:
		request->page = arg;
		return 0;
	case OPTION_NODE:
		request->node = argument_node(state, arg);
		return 0;
	case OPTION_WAIT:
		request->wait_ms = argument_wait_ms(state, arg);
		return 0;
	case OPTION_PARTIAL:
		request->flags |= PREZERO_TAKE_PARTIAL;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp request_argp = {.options = options, .parser = parse};
const struct argp_child request_options[] = {
	[REQUEST_SESSION] = {.argp = &session_argp},
	[REQUEST_REQUEST] = {.argp = &request_argp},
	{0},
};
