/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hooks as data. handout.c has the table of what is hooked, and the functions put in place; hooks.c
 * puts them there and takes them away.
 */
#ifndef PREZERO_HOOKS_H
#define PREZERO_HOOKS_H

#include <linux/static_call.h>

/* Why something is hooked. Of the hooks for one purpose the first that the kernel has is used. */
enum hook_purpose {
	PURPOSE_SKIP,
	PURPOSE_ENQUEUE,
	PURPOSE_DEQUEUE,
	PURPOSE_REMOVE,
	PURPOSE_ISOLATE,
	PURPOSE_WAIT_FAULT,
	PURPOSE_WAIT_MIGRATION,
	PURPOSE_WAIT_PIN,
	PURPOSE_FRESH_POOL,
	PURPOSE_FRESH_SURPLUS,
	PURPOSE_FRESH_PAGE,
	NR_PURPOSES,
};

struct purpose {
	const char *lost; /* what is lost without it, for the log; NULL: nothing to tell */
	bool critical;	  /* then the module does not load without it */
};

struct hook {
	enum hook_purpose purpose;
	const char *symbol;
	/*
	 * The function's type as layout.c compares it with the running kernel's own description:
	 * result and parameters, v(oid), p(ointer) or i(nteger).
	 */
	const char *prototype;

	/* Run instead of the function; NULL: it zeroes a folio, and handout_at_zeroing() decides. */
	void *instead;
	/* The static call by which that one reaches the kernel's function. */
	struct static_call_key *original;
	void *original_trampoline;

	unsigned long address; /* in the running kernel */
};

extern const struct purpose hook_purposes[NR_PURPOSES];
extern struct hook hook_table[];
extern const unsigned int hook_table_entries;

bool layout_function_matches(const char *symbol, const char *prototype);

#endif
