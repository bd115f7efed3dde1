/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/uevent.h - the kernel says that a module, a node or memory came or went.
 *
 * Files in /sys appear without a word to anybody; this is how their coming is known without polling.
 */
#ifndef PREZERO_DAEMON_UEVENT_H
#define PREZERO_DAEMON_UEVENT_H

#include <systemd/sd-event.h>

#include "base/cleanup.h"

/* Calls changed() from the event loop, once for many messages; until *ret is unreferenced. */
MUST_CHECK int uevent_watch(sd_event *event, void (*changed)(void *arg), void *arg,
			    sd_event_source **ret);

#endif
