// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cli/give.c - `prezero give`: ends a lease, by its name, its id or its path.
 *
 * A lease that others still hold ends when they close it: that is told, with who they are, and is an
 * exit status of its own.
 */
#include "cli/cli.h"
#include "cli/json.h"

struct give {
	struct session *session;
	const char *lease;
	int64_t wait_ms;
};

enum { OPTION_WAIT = 0x100 };

static const struct argp_option options[] = {
	{"wait", OPTION_WAIT, "TIME", 0,
	 "Wait at most so long for others to close it (default: not at all)", 0},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct give *give = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = give->session;
		return 0;
	case OPTION_WAIT:
		give->wait_ms = argument_wait_ms(state, arg);
		return 0;
	case ARGP_KEY_ARG:
		if (give->lease)
			argp_error(state, "one LEASE at a time: '%s'", arg);
		if (!arg[0])
			argp_error(state, "LEASE is empty: write a name, an id or a path");
		give->lease = arg;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "LEASE is missing: write a name, an id or a path");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int cmd_give(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "LEASE",
		.doc = "End LEASE, named by its name, its id or its path. While others still hold it, "
		       "say who; it ends when they close it.",
		.children = session_options,
	};
	AUTO_SESSION session = {.command = argv[0]};
	struct give give = {.session = &session};
	int r;

	argp_parse(&argp, argc, argv, 0, NULL, &give);
	r = session_open(&session);
	if (r)
		return r;
	r = prezero_give(session.connection, give.lease, give.wait_ms);
	if (r < 0)
		return session_fail(&session, r, give.lease);
	if (session.json) {
		AUTO_JSON object = json_pack("{s:s, s:b}", "lease", give.lease, "completed", 1);

		print_json(object);
	}
	return session_flush(&session);
}
