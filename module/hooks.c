// SPDX-License-Identifier: GPL-2.0-only
/*
 * Puts our functions in the place of the kernel's, and takes them away again, all or none.
 *
 * How a call is replaced: the kernel can stop at the entry of (nearly) every function, for tracing
 * and live patching, and lets one user say where to go on (IPMODIFY). We say: in our function. No
 * code is patched by us, ftrace refuses a second user who wants the same, and PERMANENT keeps
 * sysctl kernel.ftrace_enabled=0 from switching us off.
 *
 * How our function calls the original: by a static call, which is a direct call instruction that
 * the kernel patches for us. An indirect call would not do: with indirect branch tracking (IBT) a
 * function whose address the kernel never takes has no landing pad and must not be reached that
 * way. The original's entry then stops again, and the return address says that the caller is us.
 *
 * Why removing them is safe: see hooks_remove().
 */
#include <linux/ftrace.h>
#include <linux/module.h>
#include <linux/rcupdate.h>

#include "compat.h"
#include "handout.h"
#include "hooks.h"
#include "prezero.h"

/* The hook that serves each purpose; NULL where none does. */
static struct hook *installed[NR_PURPOSES];

/*
 * ftrace tells where it has stopped: at the call that a function starts with, or has behind its
 * landing pad of four bytes. That call has five, so no other function's is as near.
 */
static __always_inline struct hook *hook_at(unsigned long ip)
{
	enum hook_purpose purpose;

	for (purpose = 0; purpose < NR_PURPOSES; purpose++) {
		struct hook *hook = READ_ONCE(installed[purpose]);

		if (hook && ip - hook->address < MCOUNT_INSN_SIZE)
			return hook;
	}
	return NULL;
}

static void notrace at_hook(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *ops,
			    struct ftrace_regs *fregs)
{
	struct hook *hook = hook_at(ip);

	if (!hook)
		return;
	if (!hook->instead)
		handout_at_zeroing(fregs);
	else if (!within_module(parent_ip, THIS_MODULE))
		compat_redirect(fregs, (unsigned long)hook->instead);
}

/* One for all hooks: to take it away changes the kernel's code once, and is waited for once. */
static struct ftrace_ops ops = {
	.func = at_hook,
	.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT,
};

/* The first hook registers it; the others join one by one, so that each has an answer of its own. */
static int hook_install(struct hook *hook)
{
	int err;

	if (hook->instead)
		__static_call_update(hook->original, hook->original_trampoline,
				     (void *)hook->address);
	WRITE_ONCE(installed[hook->purpose], hook);
	err = ftrace_set_filter_ip(&ops, hook->address, 0, 0);
	if (!err && !(ops.flags & FTRACE_OPS_FL_ENABLED)) {
		err = register_ftrace_function(&ops);
		if (err)
			ftrace_set_filter_ip(&ops, hook->address, 1, 0);
	}
	if (err)
		WRITE_ONCE(installed[hook->purpose], NULL);
	return err;
}

/* Is the kernel's function there, and of the type that our code was written for? */
static bool hook_fits(struct hook *hook)
{
	hook->address = kernel_address(hook->symbol);
	return hook->address && layout_function_matches(hook->symbol, hook->prototype);
}

static int purpose_install(enum hook_purpose purpose)
{
	const struct purpose *why = &hook_purposes[purpose];
	unsigned int i;
	int err = -ENOENT;

	for (i = 0; i < hook_table_entries; i++) {
		struct hook *hook = &hook_table[i];

		if (hook->purpose != purpose || !hook_fits(hook))
			continue;
		err = hook_install(hook);
		if (!err)
			return 0;
		pr_warn("cannot hook %s: error %d%s\n", hook->symbol, err,
			err == -EBUSY ? " (a live patch or a tracing program has it)" : "");
	}
	if (!why->critical) {
		if (why->lost)
			pr_info("this kernel does not allow: %s\n", why->lost);
		return 0;
	}
	if (err == -ENOENT)
		for (i = 0; i < hook_table_entries; i++)
			if (hook_table[i].purpose == purpose)
				pr_err("this kernel has no %s of the known type\n",
				       hook_table[i].symbol);
	pr_err("not loaded, for without it there is no way to: %s\n", why->lost);
	return err;
}

int hooks_install(void)
{
	enum hook_purpose purpose;
	int err;

	for (purpose = 0; purpose < NR_PURPOSES; purpose++) {
		err = purpose_install(purpose);
		if (err) {
			hooks_remove();
			return err;
		}
	}
	return 0;
}

/*
 * When this returns no task is in a function of ours, nor on its way there:
 *
 *  1. Without the hooks nobody new is sent to us.
 *  2. synchronize_rcu_tasks() waits until every task has slept or been in user space. A task that
 *     was sent to us before step 1 is then past the first instructions of our function, so it has
 *     either left, or has counted itself in.
 *  3. Functions that can sleep count the tasks inside; that count falls to 0.
 *  4. A task that has counted itself out may still have to run the last instructions. It does not
 *     sleep there, so a second synchronize_rcu_tasks() waits for it.
 *
 * The functions that run under hugetlb_lock need no count, since nobody sleeps in them.
 */
void hooks_remove(void)
{
	if (ops.flags & FTRACE_OPS_FL_ENABLED)
		unregister_ftrace_function(&ops);
	ftrace_free_filter(&ops);
	synchronize_rcu_tasks();
	handout_wait_idle();
	synchronize_rcu_tasks();
}
