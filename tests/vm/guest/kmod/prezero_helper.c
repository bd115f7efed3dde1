// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Role: what a guest test needs from inside the kernel: another user of a function that prezero
 * hooks, the cost of one call of the zeroing function, and faults for a debug kernel to find.
 * Guarantees: built for tests only; holds a function the way a live patch does, changing nothing.
 */
#include <linux/ftrace.h>
#include <linux/gfp.h>
#include <linux/kernel.h>
#include <linux/kprobes.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

static char *steal = "";
module_param(steal, charp, 0444);
MODULE_PARM_DESC(steal, "Function to hold as a live patch would");

/*
 * A live patch claims the right to change the instruction pointer, which only one user of a
 * function may have. Holding it is all that matters here, so the handler changes nothing.
 */
static void notrace hold(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *ops,
			 struct ftrace_regs *regs)
{
}

static struct ftrace_ops thief = {
	.func = hold,
	.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_SAVE_REGS,
};

/* ---- the cost of a call ---- */

/*
 * The zeroing function on a single small page: (page, address, 1) suits both of its signatures,
 * clear_huge_page(page, address, pages) and folio_zero_user(folio, address). Run with and without
 * prezero loaded, the difference of the two times is prezero's hook.
 */
static const char *const zeroing_functions[] = {"folio_zero_user", "clear_huge_page"};
typedef void zeroing_function(struct page *page, unsigned long address, unsigned int pages);

static unsigned int calls = 20000;

static unsigned long find_function(const char *name)
{
	struct kprobe probe = {.symbol_name = name};
	unsigned long address;

	if (register_kprobe(&probe))
		return 0;
	address = (unsigned long)probe.addr - probe.offset;
	unregister_kprobe(&probe);
	/* Functions start at multiples of 16; a probe lies behind the landing pad of IBT. */
	return address & ~15UL;
}

/* The fastest of many batches: everything that is not the call only ever adds to it. */
static int call_ps_get(char *buffer, const struct kernel_param *param)
{
	zeroing_function *zero = NULL;
	u64 best_ns = U64_MAX;
	struct page *page;
	unsigned int i, batch;

	for (i = 0; i < ARRAY_SIZE(zeroing_functions) && !zero; i++)
		zero = (zeroing_function *)find_function(zeroing_functions[i]);
	if (!zero)
		return -ENOENT;
	page = alloc_page(GFP_KERNEL);
	if (!page)
		return -ENOMEM;
	for (batch = 0; batch < 100; batch++) {
		u64 start_ns = ktime_get_ns();
		u64 batch_ns;

		for (i = 0; i < calls / 100; i++)
			zero(page, 0, 1);
		batch_ns = ktime_get_ns() - start_ns;
		if (batch_ns < best_ns)
			best_ns = batch_ns;
		cond_resched();
	}
	__free_page(page);
	return sysfs_emit(buffer, "%llu\n", div_u64(best_ns * 1000, calls / 100));
}

static const struct kernel_param_ops call_ps_ops = {.get = call_ps_get};
module_param_cb(call_ps, &call_ps_ops, NULL, 0444);
MODULE_PARM_DESC(call_ps, "Reading it measures a call of the zeroing function, in picoseconds");

/* ---- faults to be found ---- */

static char *plant = "";
module_param(plant, charp, 0444);
MODULE_PARM_DESC(plant, "A fault that a debug kernel has to find: leak, overflow, sleep or locks");

static DEFINE_SPINLOCK(first);
static DEFINE_SPINLOCK(second);

static int plant_fault(void)
{
	if (!strcmp(plant, "leak")) {
		/* Overwritten at once, so that no copy of the address is left in a register. */
		void *volatile lost = kmalloc(100, GFP_KERNEL);

		lost = NULL;
		return lost ? -EINVAL : 0;
	}
	if (!strcmp(plant, "overflow")) {
		char *bytes = kmalloc(100, GFP_KERNEL);
		size_t end = 100;

		if (!bytes)
			return -ENOMEM;
		OPTIMIZER_HIDE_VAR(end);
		WRITE_ONCE(bytes[end], 1);
		kfree(bytes);
		return 0;
	}
	if (!strcmp(plant, "sleep")) {
		spin_lock(&first);
		might_sleep();
		spin_unlock(&first);
		return 0;
	}
	if (!strcmp(plant, "locks")) {
		spin_lock(&first);
		spin_lock(&second);
		spin_unlock(&second);
		spin_unlock(&first);
		spin_lock(&second);
		spin_lock(&first);
		spin_unlock(&first);
		spin_unlock(&second);
		return 0;
	}
	return -EINVAL;
}

static int __init helper_init(void)
{
	int error;

	if (*plant)
		return plant_fault();
	if (!*steal)
		return 0;
	error = ftrace_set_filter(&thief, (unsigned char *)steal, strlen(steal), 1);
	if (error)
		return error;
	error = register_ftrace_function(&thief);
	if (error)
		ftrace_free_filter(&thief);
	return error;
}

static void __exit helper_exit(void)
{
	if (!*steal)
		return;
	unregister_ftrace_function(&thief);
	ftrace_free_filter(&thief);
}

module_init(helper_init);
module_exit(helper_exit);
MODULE_DESCRIPTION("Helper of prezero's guest tests");
MODULE_LICENSE("GPL");
