// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cli/session.c - the options every subcommand has, the connection, and how failures are told.
 *
 * One place maps errors to exit statuses, so they are the same in every subcommand.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/text.h"

#define DEFAULT_SOCKET "/run/prezero/socket"

enum { OPTION_JSON = 0x100, OPTION_SOCKET };

static const struct argp_option options[] = {
	{"json", OPTION_JSON, 0, 0, "Print one JSON value instead of text", -2},
	{"socket", OPTION_SOCKET, "PATH", 0,
	 "Where the daemon listens (default: $PREZERO_SOCKET, else " DEFAULT_SOCKET ")", -2},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct session *session = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		session->socket_path = getenv("PREZERO_SOCKET");
		if (!session->socket_path || !session->socket_path[0])
			session->socket_path = DEFAULT_SOCKET;
		return 0;
	case OPTION_JSON:
		session->json = true;
		return 0;
	case OPTION_SOCKET:
		if (!arg[0])
			argp_error(state, "--socket: the path is empty");
		session->socket_path = arg;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

const struct argp session_argp = {.options = options, .parser = parse};
const struct argp_child session_options[] = {{.argp = &session_argp}, {0}};

/* An error's exit status, and its name in JSON. */
static const struct failure {
	int error;
	enum exit_status status;
	const char *code;
} failures[] = {
	{EINVAL, STATUS_INPUT, "input"},
	{ENODEV, STATUS_INPUT, "input"},
	{EEXIST, STATUS_INPUT, "input"},
	{ENAMETOOLONG, STATUS_INPUT, "input"},
	{ENOMEM, STATUS_REFUSED, "refused"},
	{EOPNOTSUPP, STATUS_REFUSED, "refused"},
	{ENOTCONN, STATUS_NO_DAEMON, "no-daemon"},
	{ECONNREFUSED, STATUS_NO_DAEMON, "no-daemon"},
	{EPIPE, STATUS_NO_DAEMON, "no-daemon"},
	{ECONNRESET, STATUS_NO_DAEMON, "no-daemon"},
	{ENOENT, STATUS_NO_LEASE, "no-lease"},
	{EPERM, STATUS_NOT_PERMITTED, "not-permitted"},
	{EACCES, STATUS_NOT_PERMITTED, "not-permitted"},
	{EDQUOT, STATUS_NOT_PERMITTED, "not-permitted"},
	{ETIMEDOUT, STATUS_TIMED_OUT, "timed-out"},
	{EBUSY, STATUS_TIMED_OUT, "in-use"},
	{0, STATUS_FAILED, "failed"},
};

static const struct failure *failure_of(int error)
{
	const struct failure *failure = failures;

	while (failure->error && failure->error != -error)
		failure++;
	return failure;
}

static void print_failure_json(const struct failure *failure, const char *message,
			       const char *reply_text)
{
	json_t *reply = json_loads(reply_text, JSON_REJECT_DUPLICATES, NULL);
	AUTO_JSON error = json_pack("{s:{s:s, s:s, s:o*}}", "error", "code", failure->code,
				    "message", message, "reply", reply);

	if (!error) /* the message is not UTF-8: it quotes what the user typed */
		error = json_pack("{s:{s:s}}", "error", "code", failure->code);
	print_json(error);
}

static int tell(const struct session *session, int error, const char *message, const char *reply)
{
	const struct failure *failure = failure_of(error);

	fflush(stdout);
	fprintf(stderr, "%s: ", session->command);
	print_safe(stderr, message);
	putc('\n', stderr);
	if (session->json)
		print_failure_json(failure, message, reply);
	fflush(stdout);
	return failure->status;
}

int session_fail_text(const struct session *session, int error, const char *format, ...)
{
	AUTO_FREE char *message = NULL;
	va_list args;
	int length;

	va_start(args, format);
	length = vasprintf(&message, format, args);
	va_end(args);
	if (length < 0)
		message = NULL;
	return tell(session, error, message ? message : strerror(-error), "");
}

int session_fail(const struct session *session, int error, const char *subject)
{
	const char *message = prezero_error(session->connection);

	if (message[0])
		return tell(session, error, message, prezero_error_json(session->connection));
	return session_fail_text(session, error, "%s: %s", subject, strerror(-error));
}

int session_open(struct session *session)
{
	int r = prezero_connect(&session->connection, session->socket_path);

	switch (r) {
	case 0:
		return STATUS_DONE;
	case -ENOENT:
	case -ECONNREFUSED:
		return session_fail_text(
			session, -ENOTCONN,
			"no daemon at %s: start it with "
			"`systemctl start prezerod`, or say with --socket where it is",
			session->socket_path);
	case -EACCES:
		return session_fail_text(session, r,
					 "%s: permission denied: the daemon serves root and "
					 "its group: add yourself with `usermod -aG prezero $USER`",
					 session->socket_path);
	default:
		return session_fail_text(session, r, "%s: %s", session->socket_path, strerror(-r));
	}
}

void session_close(struct session *session)
{
	session->connection = prezero_disconnect(session->connection);
}

int session_flush(const struct session *session)
{
	if (!ferror(stdout) && !fflush(stdout))
		return STATUS_DONE;
	fprintf(stderr, "%s: standard output: %s\n", session->command, strerror(errno));
	return STATUS_FAILED;
}
