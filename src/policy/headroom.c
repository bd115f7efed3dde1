/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * policy/headroom.c - the floor, the headroom above it, and how many threads fill.
 *
 * Guarantees: what headroom says can be taken without touching what belongs to others.
 */
#include "policy/policy.h"

#include "policy/room.h"

#define FLOOR_BYTES_MIN (2ULL << 30)
#define FLOOR_SHARE 20 /* a twentieth of RAM */
#define THREADS_SHARE 4 /* a quarter of the CPUs */

uint64_t policy_floor_bytes(const struct host_view *host, const struct goals *goals)
{
	uint64_t share_of_ram = host->total_bytes / FLOOR_SHARE;

	if (goals->floor_bytes)
		return goals->floor_bytes;
	return share_of_ram > FLOOR_BYTES_MIN ? share_of_ram : FLOOR_BYTES_MIN;
}

uint64_t policy_headroom_bytes(const struct host_view *host, const struct goals *goals,
			       struct page_class page_class, enum shortage *ret_why)
{
	struct room room;
	int64_t bytes;
	enum shortage why = page_class_check(host, page_class, page_class.page.bytes);

	if (why == SHORT_NONE && page_class.node == NODE_ANY)
		why = SHORT_NO_NODE;
	*ret_why = why;
	if (why != SHORT_NONE)
		return 0;
	room_init(&room, host, goals);
	bytes = room_bytes(&room, page_class);
	*ret_why = room_shortage(&room, page_class, bytes + 1);
	if (bytes < 0)
		return 0;
	return (uint64_t)bytes - (uint64_t)bytes % page_class.page.bytes;
}

unsigned int policy_threads(const struct host_view *host, unsigned int configured)
{
	unsigned int n_cpus = id_set_count(&host->cpus);

	if (configured)
		return configured;
	return n_cpus / THREADS_SHARE ? n_cpus / THREADS_SHARE : 1;
}
