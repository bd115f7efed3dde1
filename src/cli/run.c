// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cli/run.c - `prezero run`: a command on memory that is returned when it ends.
 *
 * Theory: this program takes the leases, leaves their descriptors open and becomes the command, as
 * env(1) does. So there is nobody in between to pass signals, job control or the exit status on, and
 * no way to kill the one and leave the other: the kernel ends the leases with the last process that
 * has the segments open or mapped.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/parse.h"
#include "cli/cli.h"
#include "cli/json.h"
#include "cli/progress.h"

#define MEMORIES_MAX 64U

struct memory {
	struct prezero_request request;
	const char *size_text;
	struct prezero_lease *lease;
};

struct run {
	struct session *session;
	unsigned int n_memories;
	struct memory memory[MEMORIES_MAX];
	/* What was given before the first --memory: the default for each. */
	struct prezero_request common;
	struct prezero_request *filled_in; /* by the options that come now */
	char **command; /* ends with NULL */
};

enum { OPTION_MEMORY = 0x100 };

static const struct argp_option options[] = {
	{"memory", OPTION_MEMORY, "SIZE", 0, "Take SIZE bytes; may be repeated", 0},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct run *run = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[REQUEST_SESSION] = run->session;
		state->child_inputs[REQUEST_REQUEST] = &run->filled_in;
		run->filled_in = &run->common;
		return 0;
	case OPTION_MEMORY:
		if (run->n_memories == MEMORIES_MAX)
			argp_error(state, "more than %u times --memory", MEMORIES_MAX);
		run->filled_in = &run->memory[run->n_memories].request;
		*run->filled_in = run->common;
		run->filled_in->bytes = argument_bytes(state, "--memory", arg);
		run->memory[run->n_memories++].size_text = arg;
		return 0;
	case ARGP_KEY_ARGS:
		run->command = state->argv + state->next;
		return 0;
	case ARGP_KEY_END:
		if (!run->n_memories)
			argp_error(state, "--memory is missing");
		if (!run->command)
			argp_error(state, "the COMMAND is missing");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Recognises {memory}, {memory2}, {fd}, {fd2} and so on at text: its length, 0 where there is none. */
static size_t read_word(const char *text, bool *is_fd, uint64_t *number)
{
	const char *end = strchr(text, '}');
	char digits[24];
	size_t length;

	*is_fd = !strncmp(text, "{fd", 3);
	if (!end || (!*is_fd && strncmp(text, "{memory", 7)))
		return 0;
	text += *is_fd ? 3 : 7;
	length = (size_t)(end - text);
	*number = 1;
	if (length >= sizeof(digits))
		return 0;
	memcpy(digits, text, length);
	digits[length] = '\0';
	if (length && parse_u64(digits, number) < 0)
		return 0;
	return length + (*is_fd ? 4 : 8);
}

/* Every {word} must name a --memory: seen before anything is taken. */
static int check_words(const struct run *run)
{
	for (char **argument = run->command; *argument; argument++) {
		for (const char *p = strchr(*argument, '{'); p; p = strchr(p + 1, '{')) {
			uint64_t number;
			bool is_fd;
			size_t length = read_word(p, &is_fd, &number);

			if (length && (number < 1 || number > run->n_memories))
				return session_fail_text(run->session, -EINVAL,
							 "%.*s: --memory is given %u times",
							 (int)length, p, run->n_memories);
		}
	}
	return 0;
}

/* The argument with its words replaced; NULL where there is no memory for it. */
static char *replace_words(const struct run *run, const char *argument)
{
	char *text = NULL;
	size_t text_bytes;
	FILE *f = open_memstream(&text, &text_bytes);

	if (!f)
		return NULL;
	while (*argument) {
		uint64_t number;
		bool is_fd;
		size_t length = read_word(argument, &is_fd, &number);

		if (!length)
			putc(*argument++, f);
		else if (is_fd)
			fprintf(f, "%d", prezero_lease_fd(run->memory[number - 1].lease));
		else
			fputs(prezero_lease_path(run->memory[number - 1].lease), f);
		argument += length;
	}
	if (fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}

static int replace_all_words(struct run *run)
{
	for (char **argument = run->command; *argument; argument++) {
		*argument = replace_words(run, *argument);
		if (!*argument)
			return -ENOMEM;
	}
	return 0;
}

static int take_all(struct run *run)
{
	struct progress progress;

	for (unsigned int i = 0; i < run->n_memories; i++) {
		struct memory *memory = &run->memory[i];
		int r;

		progress_start(&progress, run->session, &memory->request);
		r = prezero_take(run->session->connection, &memory->request,
				 sizeof(memory->request), &memory->lease);
		progress_stop(&progress);
		if (r < 0)
			return session_fail(run->session, r, memory->size_text);
	}
	return 0;
}

static int set_variable(const char *name, unsigned int number, const char *value)
{
	char variable[32];

	if (number == 1)
		snprintf(variable, sizeof(variable), "%s", name);
	else
		snprintf(variable, sizeof(variable), "%s_%u", name, number);
	return setenv(variable, value, 1) < 0 ? -errno : 0;
}

/* The command finds each lease in the environment, and its descriptor open. */
static int hand_on(const struct run *run)
{
	char fd_text[16];
	int r;

	for (unsigned int i = 0; i < run->n_memories; i++) {
		const struct prezero_lease *lease = run->memory[i].lease;
		int fd = prezero_lease_fd(lease);

		snprintf(fd_text, sizeof(fd_text), "%d", fd);
		r = set_variable("PREZERO_MEMORY", i + 1, prezero_lease_path(lease));
		if (r >= 0)
			r = set_variable("PREZERO_FD", i + 1, fd_text);
		if (r < 0)
			return r;
		if (fcntl(fd, F_SETFD, 0) < 0)
			return -errno;
	}
	return 0;
}

static void run_done(struct run *run)
{
	for (unsigned int i = 0; i < run->n_memories; i++)
		run->memory[i].lease = prezero_lease_free(run->memory[i].lease);
}

static void print_leases(const struct run *run)
{
	AUTO_JSON leases = json_array();
	AUTO_JSON object = json_object();

	for (unsigned int i = 0; i < run->n_memories; i++)
		json_array_append_new(leases, lease_json(run->memory[i].lease, NULL));
	json_object_set(object, "leases", leases);
	print_json(object);
}

int cmd_run(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "--memory SIZE -- COMMAND [ARGUMENT...]",
		.doc = "Take memory and become COMMAND, which finds its path in {memory} and "
		       "$PREZERO_MEMORY and its descriptor in {fd} and $PREZERO_FD; of the second "
		       "--memory in {memory2}, $PREZERO_MEMORY_2, {fd2} and $PREZERO_FD_2, and so on. "
		       "The memory is returned when nobody has it open or mapped any more.\v"
		       "Options after a --memory are for that one; before the first, for all.",
		.children = request_options,
	};
	AUTO_SESSION session = {.command = argv[0]};
	__attribute__((cleanup(run_done))) struct run run = {.session = &session,
							     .common = PREZERO_REQUEST_INIT};
	int r;

	argp_err_exit_status = STATUS_RUN_FAILED;
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &run);
	if (check_words(&run) || session_open(&session) || take_all(&run))
		return STATUS_RUN_FAILED;
	r = hand_on(&run);
	if (r >= 0)
		r = replace_all_words(&run);
	if (r < 0) {
		session_fail_text(&session, r, "%s", strerror(-r));
		return STATUS_RUN_FAILED;
	}
	if (session.json)
		print_leases(&run);
	if (session_flush(&session))
		return STATUS_RUN_FAILED;
	execvp(run.command[0], run.command);
	r = -errno;
	session_fail_text(&session, r, "%s: %s", run.command[0], strerror(-r));
	return r == -ENOENT ? STATUS_RUN_NOT_FOUND : STATUS_RUN_CANNOT;
}
