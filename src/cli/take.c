// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cli/take.c - `prezero take`: memory as a named lease, since this program's own descriptor closes
 * when it ends.
 *
 * The lease is given back where its path could not be told to anybody.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/text.h"

struct take {
	struct session *session;
	struct prezero_request request, *filled_in; /* the same */
	const char *size_text;
	char generated_name[24];
};

enum { OPTION_NAME = 0x100 };

static const struct argp_option options[] = {
	{"name", OPTION_NAME, "NAME", 0, "The lease's name (default: one that is made up)", 0},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct take *take = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[REQUEST_SESSION] = take->session;
		state->child_inputs[REQUEST_REQUEST] = &take->filled_in;
		take->filled_in = &take->request;
		return 0;
	case OPTION_NAME:
		take->request.name = arg;
		return 0;
	case ARGP_KEY_ARG:
		if (take->size_text)
			argp_error(state, "one SIZE is enough: '%s'", arg);
		take->size_text = arg;
		take->request.bytes = argument_bytes(state, "SIZE", arg);
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "SIZE is missing");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int make_name(struct take *take)
{
	uint64_t random;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return -errno;
	snprintf(take->generated_name, sizeof(take->generated_name), "take-%016" PRIx64, random);
	take->request.name = take->generated_name;
	return 0;
}

static void print_lease(const struct take *take, const struct prezero_lease *lease)
{
	if (take->session->json) {
		AUTO_JSON object = lease_json(lease, take->request.name);

		print_json(object);
	} else {
		print_safe(stdout, prezero_lease_path(lease));
		putchar('\n');
	}
}

int cmd_take(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "SIZE",
		.doc = "Take SIZE bytes of memory as a lease and print the path of its segment. The "
		       "lease lasts until `prezero give`.",
		.children = request_options,
	};
	AUTO_SESSION session = {.command = argv[0]};
	struct take take = {.session = &session, .request = PREZERO_REQUEST_INIT};
	struct prezero_lease *lease;
	struct progress progress;
	int r;

	argp_parse(&argp, argc, argv, 0, NULL, &take);
	signal(SIGPIPE, SIG_IGN); /* a closed pipe must not leave a lease that nobody knows of */
	r = take.request.name ? 0 : make_name(&take);
	if (r < 0)
		return session_fail_text(&session, r, "no random number: %s", strerror(-r));
	r = session_open(&session);
	if (r)
		return r;
	progress_start(&progress, &session, &take.request);
	r = prezero_take(session.connection, &take.request, sizeof(take.request), &lease);
	progress_stop(&progress);
	if (r < 0)
		return session_fail(&session, r, take.size_text);
	print_lease(&take, lease);
	prezero_lease_free(lease);
	r = session_flush(&session);
	if (r)
		prezero_give(session.connection, take.request.name, 0);
	return r;
}
