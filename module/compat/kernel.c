// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finds what the kernel does not export to modules.
 *
 * kallsyms_lookup_name() knows every symbol, but is not exported either. A kprobe, which is, can be
 * put on it by name, and then says where it is.
 */
#include <linux/errno.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/static_call.h>

#include "prezero.h"

struct kernel_symbols kernel;

DEFINE_STATIC_CALL_NULL(kernel_lookup_name, kernel_address);

/* A kprobe at a function's entry may stand behind its landing pad; the name tells by how much. */
static unsigned long symbol_start(unsigned long address)
{
	char name[KSYM_SYMBOL_LEN];
	unsigned long offset;
	const char *plus;

	sprint_symbol(name, address);
	plus = strchr(name, '+');
	if (!plus || sscanf(plus, "+0x%lx/", &offset) != 1)
		return 0;
	return address - offset;
}

static int find_lookup_name(void)
{
	/*
	 * Never armed: taking an armed probe back may want memory, and where there is none the
	 * kernel says nothing and keeps a pointer to it.
	 */
	struct kprobe probe = {
		.symbol_name = "kallsyms_lookup_name",
		.flags = KPROBE_FLAG_DISABLED,
	};
	unsigned long address;
	int err;

	err = register_kprobe(&probe);
	if (err) {
		pr_err("cannot find the kernel's symbols: no kprobe (error %d)\n", err);
		return err;
	}
	address = symbol_start((unsigned long)probe.addr);
	unregister_kprobe(&probe);
	if (!address)
		return -ENOENT;
	/* Called directly, as hooks.c explains, so the function need not have a landing pad. */
	static_call_update(kernel_lookup_name, (unsigned long (*)(const char *))address);
	return 0;
}

/* The address of a function or variable, or 0. */
unsigned long kernel_address(const char *name)
{
	return static_call(kernel_lookup_name)(name);
}

static void *find(const char *name, int *err)
{
	unsigned long address = kernel_address(name);

	if (!address) {
		pr_err("not loaded: this kernel has no %s\n", name);
		*err = -ENOENT;
	}
	return (void *)address;
}

int kernel_find(void)
{
	int err = find_lookup_name();

	if (err)
		return err;
	kernel.hugetlb_lock = find("hugetlb_lock", &err);
	kernel.hstates = find("hstates", &err);
	kernel.hugetlb_max_hstate = find("hugetlb_max_hstate", &err);
	kernel.node_devices = find("node_devices", &err);
	return err;
}
