/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/limits.c - how much each user holds.
 *
 * Guarantees: users who hold nothing cost nothing. Few users hold leases at a time: a plain array.
 */
#include "daemon/limits.h"

struct account *limits_find(struct limits *limits, uid_t uid)
{
	for (unsigned int i = 0; i < limits->n_accounts; i++) {
		if (limits->account[i].uid == uid)
			return &limits->account[i];
	}
	return NULL;
}

void limits_add(struct limits *limits, uid_t uid, uint64_t bytes)
{
	struct account *account = limits_find(limits, uid), *larger;

	if (!account) {
		larger = reallocarray(limits->account, limits->n_accounts + 1, sizeof(*larger));
		if (!larger)
			return;
		limits->account = larger;
		account = &larger[limits->n_accounts++];
		*account = (struct account){.uid = uid};
	}
	account->bytes += bytes;
}

void limits_subtract(struct limits *limits, uid_t uid, uint64_t bytes)
{
	struct account *account = limits_find(limits, uid);

	if (!account)
		return;
	account->bytes -= bytes < account->bytes ? bytes : account->bytes;
	if (!account->bytes)
		*account = limits->account[--limits->n_accounts];
}

void limits_done(struct limits *limits)
{
	free(limits->account);
	*limits = (struct limits){0};
}
