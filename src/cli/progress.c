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
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "base/parse.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/text.h"

#define BAR_WIDTH 20
#define ERASE_LINE "\r\033[K"

static volatile sig_atomic_t is_drawn;

static void erase_and_exit(int signal_number)
{
	(void)signal_number;
	if (is_drawn && write(STDERR_FILENO, ERASE_LINE, strlen(ERASE_LINE)) < 0)
		_exit(1);
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
		json_array_foreach((json_t *)fills, i, fill)
		{
			if (fill_fits(fill, request, is_exact))
				return fill;
		}
	}
	return NULL;
}

static void print_fill(FILE *f, const json_t *fill)
{
	uint64_t done_bytes = member_u64(fill, "done_bytes");
	uint64_t total_bytes = member_u64(fill, "total_bytes");
	double share = done_bytes < total_bytes ? (double)done_bytes / (double)total_bytes : 1;
	int filled = (int)(share * BAR_WIDTH);
	char done[BYTES_TEXT_MAX], total[BYTES_TEXT_MAX], place[PLACE_TEXT_MAX];
	char eta[DURATION_TEXT_MAX];

	fprintf(f, "[%.*s%.*s] %3d%%  %s of %s on ", filled, "####################",
		BAR_WIDTH - filled, "....................", (int)(share * 100),
		format_bytes_short(done_bytes, done), format_bytes_short(total_bytes, total));
	print_safe(f, format_place(member_text(fill, "page"), member_node(fill), place));
	fprintf(f, "  %.1f GB/s", (double)member_u64(fill, "bytes_per_second") / 1e9);
	if (json_object_get(fill, "eta_ms"))
		fprintf(f, "  %s left", format_duration(member_u64(fill, "eta_ms") + 999, eta));
}

/* One write a line, cut to the terminal's width. */
static void draw(const json_t *status, const struct prezero_request *request)
{
	const json_t *fill = find_fill(status, request);
	struct winsize window = {.ws_col = 80};
	AUTO_FREE char *line = NULL;
	char size[BYTES_TEXT_MAX];
	size_t line_bytes;
	FILE *f = open_memstream(&line, &line_bytes);

	if (!f)
		return;
	fputs(ERASE_LINE, f);
	if (fill)
		print_fill(f, fill);
	else
		fprintf(f, "waiting for %s", format_bytes(request->bytes, size));
	if (fclose(f))
		return;
	ioctl(STDERR_FILENO, TIOCGWINSZ, &window);
	if (window.ws_col > 1 && line_bytes > strlen(ERASE_LINE) + window.ws_col - 1)
		line_bytes = strlen(ERASE_LINE) + window.ws_col - 1;
	is_drawn = 1;
	if (write(STDERR_FILENO, line, line_bytes) < 0)
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
		/* A job in the background does not write over somebody else's line. */
		if (status && tcgetpgrp(STDERR_FILENO) == getpgrp())
			draw(status, request);
	}
}

void progress_start(struct progress *progress, const struct session *session,
		    const struct prezero_request *request)
{
	const char *terminal = getenv("TERM");
	pid_t parent = getpid();

	progress->pid = 0;
	if (request->wait_ms == 0 || !isatty(STDERR_FILENO) || !terminal ||
	    !strcmp(terminal, "dumb"))
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
