/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/scan.c - who holds a file: a look through /proc in a thread.
 *
 * Guarantees: found() comes once, or never after scan_abandon().
 */
#include "daemon/scan.h"

struct scan {
	struct daemon *daemon;
	struct host *host;
	dev_t dev;
	ino_t ino;
	struct holder holders[SCAN_HOLDERS_MAX];
	void (*found)(void *arg, const struct holder *holders, int n_holders); /* or NULL */
	void *arg;
	struct scan **owner; /* where the one who asked keeps it */
};

static int scan_run(void *arg)
{
	struct scan *scan = arg;
	int n = host_holders(scan->host, scan->dev, scan->ino, scan->holders, SCAN_HOLDERS_MAX);

	return n > SCAN_HOLDERS_MAX ? SCAN_HOLDERS_MAX : n;
}

static void scan_done(void *arg, int result)
{
	struct scan *scan = arg;

	scan->daemon->n_scans--;
	if (scan->found)
		*scan->owner = NULL;
	/* Cancelled: the daemon stops, and knows nothing. */
	if (scan->found && result != -ECANCELED)
		scan->found(scan->arg, scan->holders, result);
	free(scan);
}

int scan_start(struct daemon *daemon, dev_t dev, ino_t ino,
	       void (*found)(void *arg, const struct holder *holders, int n_holders), void *arg,
	       struct scan **ret)
{
	struct scan *scan = calloc(1, sizeof(*scan));
	int r;

	if (!scan)
		return -ENOMEM;
	scan->daemon = daemon;
	scan->host = daemon->host;
	scan->dev = dev;
	scan->ino = ino;
	scan->found = found;
	scan->arg = arg;
	scan->owner = ret;
	r = fill_team_submit_chore(daemon->team, scan_run, scan_done, scan);
	if (r < 0) {
		free(scan);
		return r;
	}
	daemon->n_scans++;
	*ret = scan;
	return 0;
}

void scan_abandon(struct scan *scan)
{
	if (scan)
		scan->found = NULL;
}

size_t scan_wire_holders(const struct holder *holders, int n_holders,
			 struct wire_holder ret[SCAN_HOLDERS_MAX])
{
	for (int i = 0; i < n_holders; i++)
		ret[i] = (struct wire_holder){.pid = holders[i].pid,
					      .uid = holders[i].uid,
					      .command = holders[i].command};
	return n_holders > 0 ? (size_t)n_holders : 0;
}
