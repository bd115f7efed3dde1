/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/clean.h - free pages of the kernel's own pool, zeroed in place as [clean] wants.
 *
 * Works through zeroable_hugepages, whoever brings that file. The kernel says when pages become dirty
 * (POLLPRI) and when modules come and go, and a daemon whose classes are clean does not wake up. That
 * somebody took clean pages it does not say: a class that has as many as wanted, and dirty ones besides,
 * is looked at ever more seldom. Where there is no file the pool is what there is: that is told once.
 */
#ifndef PREZERO_DAEMON_CLEAN_H
#define PREZERO_DAEMON_CLEAN_H

#include "daemon/filling.h"

struct clean_set;

MUST_CHECK int clean_new(struct daemon *daemon, struct clean_set **ret);
/* The team has been stopped. Returns NULL. */
struct clean_set *clean_free(struct clean_set *set);

/* Files that came or went, and what is dirty: after daemon->seen was looked at. */
void clean_look(struct clean_set *set);
/* The classes that are being zeroed; *cursor starts at 0; false at the end. */
bool clean_next_progress(const struct clean_set *set, unsigned int *cursor,
			 struct filling_progress *ret);
/* After a reload: what was told is told again; jobs for what is no longer wanted are cancelled. */
void clean_reconfigured(struct clean_set *set);

#endif
