// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * reserve/decide.c - what policy is told of the kernel, and asked again where memory stood on lists.
 */
#include "reserve/reserve.h"

int reserve_decide(struct host *host, struct host_view *seen, struct reserve_goal *goal,
		   struct reserve_plan *ret, enum shortage *ret_why, int *ret_node)
{
	int r;

	/* A kernel that does not say it is taken for one that does, as those of the distributions. */
	if (host_zeroes_on_alloc(host, &goal->kernel_zeroes) < 0)
		goal->kernel_zeroes = true;
	goal->kernel_optimizes = host_optimizes_vmemmap(host);
	r = policy_reserve(seen, goal, ret, ret_why, ret_node);
	/* What stands on CPUs' lists was not counted as available. */
	if (!r && ret->why == SHORT_FLOOR && host_drain_lists(host) == 0 &&
	    host_look(host, seen) == 0)
		r = policy_reserve(seen, goal, ret, ret_why, ret_node);
	return r;
}
