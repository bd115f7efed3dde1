/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/growth.h - the pages that stocks with reserve=yes bring along.
 *
 * The kernel's own pool is grown by exactly what such stocks keep, once: what was added is recorded in
 * the run-time directory before it is and stands there until it is given back, whatever becomes of the
 * daemon. An administrator who writes nr_hugepages afterwards wins: that count is left alone.
 */
#ifndef PREZERO_DAEMON_GROWTH_H
#define PREZERO_DAEMON_GROWTH_H

#include "host/host.h"

struct daemon;

/* Before there are segments and connections, or in a process of its own (grower.h): blocks until the pages are there, or known to be short.
 * What falls short is logged and is no failure. Looks at the host anew. */
MUST_CHECK int growth_start(struct daemon *daemon);

struct growth_release {
	uint64_t bytes; /* given back */
	unsigned int n_overruled; /* counts that somebody wrote since, and left so */
};
/* After all segments are gone. Removes the record. -EBADMSG: it cannot be understood. */
MUST_CHECK int growth_release(struct host *host, const char *runtime_path,
			      struct growth_release *ret);

#endif
