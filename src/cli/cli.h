/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cli/cli.h - what the subcommands of `prezero` share: options, the connection, failures, arguments.
 *
 * A subcommand is `int cmd_NAME(int argc, char **argv)` with argv[0] "prezero NAME"; it returns the
 * exit status. Standard output carries the result, with --json exactly one JSON value; standard
 * error carries sentences for people.
 */
#ifndef PREZERO_CLI_CLI_H
#define PREZERO_CLI_CLI_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "prezero.h"

/* Stable: scripts depend on them; prezero(1) lists them. */
enum exit_status {
	STATUS_DONE = 0,
	STATUS_FAILED = 1, /* something unexpected */
	STATUS_INPUT = 2, /* bad usage or input */
	STATUS_REFUSED = 3, /* short of memory, or the kernel has no such file */
	STATUS_NO_DAEMON = 4,
	STATUS_NO_LEASE = 5,
	STATUS_NOT_PERMITTED = 6, /* another user's lease, or the user's limit */
	STATUS_TIMED_OUT = 7,
	STATUS_PARTIAL = 8, /* `reserve` got some of the pages */
	STATUS_RUN_FAILED = 125, /* `run` itself, as env(1) does: below are the command's own */
	STATUS_RUN_CANNOT = 126,
	STATUS_RUN_NOT_FOUND = 127,
};

struct command {
	const char *name;
	const char *summary;
	int (*run)(int argc, char **argv);
};

int cmd_status(int argc, char **argv);
int cmd_take(int argc, char **argv);
int cmd_give(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_zero(int argc, char **argv);
int cmd_reserve(int argc, char **argv);
int cmd_boot_args(int argc, char **argv);

/* The options that every subcommand has, and the connection. */
struct session {
	const char *command; /* argv[0]: begins every message */
	const char *socket_path; /* never NULL once the options are parsed */
	bool json;
	struct prezero *connection;
};

/* The child parser of --json and --socket: its input is the session, handed over with
 * state->child_inputs[0] at ARGP_KEY_INIT. */
extern const struct argp session_argp;
extern const struct argp_child session_options[];

/* STATUS_DONE, or the exit status after having said why. */
MUST_CHECK int session_open(struct session *session);
void session_close(struct session *session);
#define AUTO_SESSION __attribute__((cleanup(session_close))) struct session

/* Says on standard error what failed (and with --json on standard output too), and returns the exit
 * status for it. error is a negative errno; of a library call it is explained in the daemon's words
 * where there are some. subject is what the user asked for: a size, a lease. */
int session_fail(const struct session *session, int error, const char *subject);
/* The same in the caller's own words; they may hold text of others. */
int session_fail_text(const struct session *session, int error, const char *format, ...)
	PRINTF(3, 4);
/* Makes sure that standard output was written: STATUS_DONE or STATUS_FAILED. */
MUST_CHECK int session_flush(const struct session *session);

/* Arguments: what does not parse ends the program as bad usage, naming `what` and the text. */
uint64_t argument_bytes(const struct argp_state *state, const char *what, const char *text);
int argument_node(const struct argp_state *state, const char *text);
int64_t argument_wait_ms(const struct argp_state *state, const char *text);

/* The child parsers of what takes memory: those of session_options, and --page, --node, --wait and
 * --partial, whose input is where the request that they fill in is found: a struct prezero_request **. */
extern const struct argp_child request_options[];
enum { REQUEST_SESSION, REQUEST_REQUEST }; /* in state->child_inputs */

#endif
