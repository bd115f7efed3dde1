// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cli/bar.c - a progress bar: one line on the terminal, drawn over itself and erased in the end.
 */
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/parse.h"
#include "cli/bar.h"
#include "cli/text.h"

#define BAR_WIDTH 20
#define ERASE_LINE "\r\033[K"

static volatile sig_atomic_t is_drawn;

bool bar_is_wanted(void)
{
	const char *terminal = getenv("TERM");

	return isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb");
}

void bar_print(FILE *f, const struct bar *bar)
{
	double share = bar->done_bytes < bar->total_bytes ?
			       (double)bar->done_bytes / (double)bar->total_bytes :
			       1;
	int filled = (int)(share * BAR_WIDTH);
	char done[BYTES_TEXT_MAX], total[BYTES_TEXT_MAX], left[DURATION_TEXT_MAX];

	fprintf(f, "[%.*s%.*s] %3d%%  %s of %s on ", filled, "####################",
		BAR_WIDTH - filled, "....................", (int)(share * 100),
		format_bytes_short(bar->done_bytes, done),
		format_bytes_short(bar->total_bytes, total));
	print_safe(f, bar->place);
	fprintf(f, "  %.1f GB/s", (double)bar->bytes_per_second / 1e9);
	if (bar->knows_left_ms)
		fprintf(f, "  %s left", format_duration(bar->left_ms + 999, left));
}

/* One write a line. */
bool bar_draw(const char *line)
{
	struct winsize window = {.ws_col = 80};
	size_t length = strlen(line);
	char text[512];

	if (tcgetpgrp(STDERR_FILENO) != getpgrp())
		return true; /* somebody else's line now */
	ioctl(STDERR_FILENO, TIOCGWINSZ, &window);
	if (window.ws_col > 1 && length > window.ws_col - 1U)
		length = window.ws_col - 1U;
	snprintf(text, sizeof(text), ERASE_LINE "%.*s", (int)length, line);
	is_drawn = 1;
	return write(STDERR_FILENO, text, strlen(text)) >= 0;
}

void bar_erase(void)
{
	if (is_drawn && write(STDERR_FILENO, ERASE_LINE, strlen(ERASE_LINE)) >= 0)
		is_drawn = 0;
}
