/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/limits.h - how much each user holds.
 */
#ifndef PREZERO_DAEMON_LIMITS_H
#define PREZERO_DAEMON_LIMITS_H

#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"

/* All zero is a valid start. */
struct limits {
	unsigned int n_accounts;
	struct account {
		uid_t uid;
		uint64_t bytes; /* of leases, as they were lent */
		uint64_t grown_bytes; /* what they have grown by, when last measured */
		uint64_t measured_ns;
	} * account;
};

void limits_done(struct limits *limits);
/* NULL: the user holds nothing, or memory is out. */
struct account *limits_find(struct limits *limits, uid_t uid);
void limits_add(struct limits *limits, uid_t uid, uint64_t bytes);
void limits_subtract(struct limits *limits, uid_t uid, uint64_t bytes);

#endif
