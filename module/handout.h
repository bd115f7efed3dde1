/* SPDX-License-Identifier: GPL-2.0-only */
/* What handout.c offers to others that stand in front of the kernel's functions. */
#ifndef PREZERO_HANDOUT_H
#define PREZERO_HANDOUT_H

#include <linux/ftrace.h>
#include <linux/types.h>

/* Around the whole of a function that can sleep: unloading waits for those inside. */
void handout_enter(void);
void handout_leave(void);
void handout_wait_idle(void);

/* At the entry of the function that zeroes a folio for user space. */
void handout_at_zeroing(struct ftrace_regs *fregs);

/* May a page that comes straight from the buddy allocator be marked? */
bool handout_fresh_is_clean(void);

#endif
