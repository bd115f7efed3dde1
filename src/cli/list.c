// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cli/list.c - `prezero list`: segments, one a line, printed as they come.
 *
 * Holds one segment at a time, however many there are. With --json the array is closed also when
 * the listing breaks off: the exit status tells.
 */
#include <errno.h>
#include <pwd.h>
#include <string.h>

#include "base/parse.h"
#include "cli/cli.h"
#include "cli/json.h"
#include "cli/text.h"

struct list {
	struct session *session;
	const char *state;
	unsigned int n_printed;
	/* Of the last line: neighbours often have the same owner. */
	json_int_t uid;
	char user[33];
};

enum { OPTION_STATE = 0x100 };

static const struct argp_option options[] = {
	{"state", OPTION_STATE, "STATE", 0, "Only those that are filling, ready or lent", 0},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct list *list = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = list->session;
		return 0;
	case OPTION_STATE:
		if (strcmp(arg, "filling") && strcmp(arg, "ready") && strcmp(arg, "lent"))
			argp_error(state, "--state '%s': write filling, ready or lent", arg);
		list->state = arg;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s': list takes no arguments", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const char *user_of(struct list *list, const json_t *segment)
{
	json_t *uid = json_object_get(segment, "uid");
	const struct passwd *passwd;

	if (!json_is_integer(uid))
		return "-";
	if (list->user[0] && list->uid == json_integer_value(uid))
		return list->user;
	list->uid = json_integer_value(uid);
	passwd = getpwuid((uid_t)list->uid);
	if (passwd)
		snprintf(list->user, sizeof(list->user), "%s", passwd->pw_name);
	else
		snprintf(list->user, sizeof(list->user), "%" JSON_INTEGER_FORMAT, list->uid);
	return list->user;
}

/* Columns of fixed width: a stream cannot know what is to come. */
static void print_row(const char *const cell[])
{
	static const int width[] = {16, 8, 6, 7, 6, 8, 0};

	for (size_t i = 0; i < ARRAY_LEN(width); i++) {
		if (i)
			putchar(' ');
		print_cell(stdout, cell[i], width[i]);
	}
	putchar('\n');
}

static void print_segment_row(struct list *list, const json_t *segment)
{
	static const char *const titles[] = {"SEGMENT", "CLASS", "SIZE", "STATE",
					     "AGE",	"USER",	 "PATH"};
	const char *name = member_text(segment, "name");
	char place[PLACE_TEXT_MAX], size[BYTES_TEXT_MAX], age[DURATION_TEXT_MAX];

	if (!list->n_printed)
		print_row(titles);
	print_row((const char *const[]){
		name[0] ? name : member_text(segment, "id"),
		format_place(member_text(segment, "page"), member_node(segment), place),
		format_bytes(member_u64(segment, "bytes"), size),
		member_text(segment, "state"),
		format_duration(member_u64(segment, "age_ms"), age),
		user_of(list, segment),
		member_text(segment, "path"),
	});
}

static int print_segment(const char *segment_json, void *arg)
{
	struct list *list = arg;

	if (list->session->json) {
		fputs(list->n_printed ? ",\n" : "[\n", stdout);
		fputs(segment_json, stdout);
	} else {
		AUTO_JSON segment = json_loads(segment_json, 0, NULL);

		if (!segment)
			return -EPROTO;
		print_segment_row(list, segment);
	}
	list->n_printed++;
	return fflush(stdout) ? -EIO : 0;
}

int cmd_list(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.doc = "List segments, one a line: what stands ready, what is being filled and what is "
		       "lent to whom.",
		.children = session_options,
	};
	AUTO_SESSION session = {.command = argv[0]};
	struct list list = {.session = &session};
	int r;

	argp_parse(&argp, argc, argv, 0, NULL, &list);
	r = session_open(&session);
	if (r)
		return r;
	r = prezero_list_json(session.connection, list.state, print_segment, &list);
	if (session.json && (list.n_printed || !r))
		puts(list.n_printed ? "\n]" : "[]");
	if (ferror(stdout) || !r)
		return session_flush(&session);
	session.json &= !list.n_printed; /* one value is out already */
	return session_fail(&session, r, "list");
}
