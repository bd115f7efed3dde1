/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cli/progress.h - a line on the terminal while a person waits for a fill.
 *
 * Drawn only where standard error is a terminal, and erased when the wait is over. A process of its
 * own draws it, over a connection of its own, so that it can neither delay nor fail the request; it
 * ends with the program however that ends.
 */
#ifndef PREZERO_CLI_PROGRESS_H
#define PREZERO_CLI_PROGRESS_H

#include <sys/types.h>

#include "cli/cli.h"

struct progress {
	pid_t pid; /* 0: nobody draws */
};

void progress_start(struct progress *progress, const struct session *session,
		    const struct prezero_request *request);
void progress_stop(struct progress *progress);

#endif
