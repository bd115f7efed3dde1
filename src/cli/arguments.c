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
