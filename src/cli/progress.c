// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cli/progress.c - a line on the terminal while a person waits for a fill.
 *
 * Theory: the waiting program sits in prezero_take(). A child asks the daemon for its status four times
 * a second and draws the fill that looks most like the request. The first line comes after a moment,
 * so what is ready at once draws nothing. Killing the child stops it at any point: it owns nothing
 * but the line, which its signal handler erases.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "base/parse.h"
#include "cli/bar.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/text.h"

static void erase_and_exit(int signal_number)
{
	(void)signal_number;
	bar_erase();
	_exit(0);
}

static bool fill_fits(const json_t *fill, const struct prezero_request *request, bool is_exact)
{
	return (!request->page || !strcmp(member_text(fill, "page"), request->page)) &&
	       (request->node < 0 || member_node(fill) == request->node) &&
	       (!is_exact || member_u64(fill, "total_bytes") == request->bytes);
}

/* The fill of exactly the request's size, else any in its class; NULL if there is none. */
static const json_t *find_fill(const json_t *status, const struct prezero_request *request)
{
	const json_t *fills = json_object_get(status, "fills"), *fill;
	size_t i;

	for (int is_exact = 1; is_exact >= 0; is_exact--) {
		json_array_foreach((json_t *)fills, i, fill) {
			if (fill_fits(fill, request, is_exact))
				return fill;
		}
	}
	return NULL;
}

static void print_fill(FILE *f, const json_t *fill)
{
	char place[PLACE_TEXT_MAX];
	struct bar bar = {
		.done_bytes = member_u64(fill, "done_bytes"),
		.total_bytes = member_u64(fill, "total_bytes"),
		.place = format_place(member_text(fill, "page"), member_node(fill), place),
		.bytes_per_second = member_u64(fill, "bytes_per_second"),
		.left_ms = member_u64(fill, "eta_ms"),
		.knows_left_ms = json_object_get(fill, "eta_ms") != NULL,
	};

	bar_print(f, &bar);
}

static void draw(const json_t *status, const struct prezero_request *request)
{
	const json_t *fill = find_fill(status, request);
	AUTO_FREE char *line = NULL;
	char size[BYTES_TEXT_MAX];
	size_t line_bytes;
	FILE *f = open_memstream(&line, &line_bytes);

	if (!f)
		return;
	if (fill)
		print_fill(f, fill);
	else
		fprintf(f, "waiting for %s", format_bytes(request->bytes, size));
	if (!fclose(f) && !bar_draw(line))
		_exit(1);
}

static _Noreturn void draw_until_killed(const char *socket_path,
					const struct prezero_request *request)
{
	struct prezero *connection;

	if (prezero_connect(&connection, socket_path) < 0)
		_exit(0);
	for (;;) {
		AUTO_FREE char *text = NULL;
		AUTO_JSON status = NULL;

		nanosleep(&(struct timespec){.tv_nsec = 250000000}, NULL);
		if (prezero_status_json(connection, &text) < 0)
			_exit(0);
		status = json_loads(text, 0, NULL);
		if (status)
			draw(status, request);
	}
}

void progress_start(struct progress *progress, const struct session *session,
		    const struct prezero_request *request)
{
	pid_t parent = getpid();

	progress->pid = 0;
	if (request->wait_ms == 0 || !bar_is_wanted())
		return;
	progress->pid = fork();
	if (progress->pid > 0)
		return;
	if (progress->pid < 0) {
		progress->pid = 0; /* a line less: no reason to fail */
		return;
	}
	signal(SIGTERM, erase_and_exit);
	signal(SIGINT, erase_and_exit);
	if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent)
		_exit(0);
	draw_until_killed(session->socket_path, request);
}

void progress_stop(struct progress *progress)
{
	if (!progress->pid)
		return;
	kill(progress->pid, SIGTERM);
	while (waitpid(progress->pid, NULL, 0) < 0 && errno == EINTR)
		;
	progress->pid = 0;
}
