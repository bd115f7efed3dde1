// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cli/main.c - `prezero`: finds the subcommand and runs it.
 *
 * The table of subcommands is the only list of them: --help, the completion and the tests that hold
 * the manual against the program all read it.
 */
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "cli/cli.h"

static const struct command commands[] = {
	{"status", "Show what stands ready, what is being filled and what is lent", cmd_status},
	{"take", "Take memory as a named lease and print its path", cmd_take},
	{"give", "Give a lease back", cmd_give},
	{"list", "List segments, one a line", cmd_list},
	{"run", "Run a command on memory that is returned when it ends", cmd_run},
	{"zero", "Zero free huge pages in place, through the kernel", cmd_zero},
	{"reserve", "Grow the kernel's own pool of huge pages, in parallel", cmd_reserve},
	{"boot-args", "Print the kernel parameters for a pool from boot on", cmd_boot_args},
	{"bench", "Measure what the pool saves on this machine", bench_main},
};

const char *argp_program_version = "prezero " PREZERO_VERSION;

/* The commands follow the options in --help. */
static char *describe(int key, const char *text, void *input)
{
	char *list = NULL;
	size_t list_bytes;
	FILE *f;

	(void)input;
	if (key != ARGP_KEY_HELP_POST_DOC)
		return (char *)text;
	f = open_memstream(&list, &list_bytes);
	if (!f)
		return NULL;
	fputs("Commands:\n", f);
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		fprintf(f, "  %-9s  %s\n", commands[i].name, commands[i].summary);
	fputs("\n`prezero COMMAND --help` explains one; the manual is prezero(1).", f);
	fclose(f);
	return list;
}

struct choice {
	const struct command *command;
	int index; /* of its name in argv */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct choice *choice = state->input;

	(void)arg;
	switch (key) {
	case ARGP_KEY_ARGS: /* the first argument; what follows is the command's */
		choice->index = state->next;
		for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
			if (!strcmp(state->argv[state->next], commands[i].name))
				choice->command = &commands[i];
		}
		if (!choice->command)
			argp_error(state, "no command '%s'", state->argv[state->next]);
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "a command is missing");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = parse,
		.args_doc = "COMMAND [ARGUMENT...]",
		.doc = "Huge pages that are allocated, on the right NUMA node and already zero.\v",
		.help_filter = describe,
	};
	struct choice choice = {0};
	char name[32];

	argp_err_exit_status = STATUS_INPUT;
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &choice);
	snprintf(name, sizeof(name), "prezero %s", choice.command->name);
	argv[choice.index] = name;
	return choice.command->run(argc - choice.index, argv + choice.index);
}
