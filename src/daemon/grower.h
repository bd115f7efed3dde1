/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/grower.h - the kernel's pool is grown while the daemon serves.
 *
 * Growing takes minutes on a large machine. So it is done by a process of its own, the same program
 * with --grow, and nothing here ever waits for it but the daemon's stop, for one step of it.
 */
#ifndef PREZERO_DAEMON_GROWER_H
#define PREZERO_DAEMON_GROWER_H

#include <sys/types.h>

#include "base/cleanup.h"

struct daemon;
struct daemon_options;
struct grower;

MUST_CHECK int grower_new(struct daemon *daemon, struct grower **ret);
/* Stops what is under way; what it has added until then is recorded. Returns NULL. */
struct grower *grower_free(struct grower *grower);
/* The configuration is another: stocks with reserve=yes may lack pages. */
void grower_reconfigured(struct grower *grower);

/* The process of its own, which ends with the daemon: 0 or a negative errno. */
MUST_CHECK int grower_main(const struct daemon_options *options, pid_t daemon_pid);

#endif
