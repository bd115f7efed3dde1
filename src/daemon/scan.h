/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/scan.h - who holds a file: a look through /proc in a thread.
 */
#ifndef PREZERO_DAEMON_SCAN_H
#define PREZERO_DAEMON_SCAN_H

#include "daemon/daemon.h"
#include "wire/messages.h"

#define SCAN_HOLDERS_MAX 64

struct scan;

/* found() comes later, in the event loop's thread, unless the scan is abandoned or the daemon stops; *ret
 * is NULL again by then. ino 0: any file of the device. n_holders negative: that could not be found out. */
MUST_CHECK int scan_start(struct daemon *daemon, dev_t dev, ino_t ino,
			  void (*found)(void *arg, const struct holder *holders, int n_holders),
			  void *arg, struct scan **ret);
void scan_abandon(struct scan *scan); /* NULL is fine */

/* Those that are known, for a reply; borrows. Returns how many. */
size_t scan_wire_holders(const struct holder *holders, int n_holders,
			 struct wire_holder ret[SCAN_HOLDERS_MAX]);

#endif
