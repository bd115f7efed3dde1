// SPDX-License-Identifier: GPL-2.0-only
/*
 * prezero: free huge pages are zeroed before anyone asks for them, by whoever writes to
 * zeroable_hugepages, and whoever faults one in is spared the wait.
 *
 * This file loads and unloads the module: everything is set up, or nothing is.
 */
#include <linux/module.h>

#include "mark.h"
#include "prezero.h"

static int __init prezero_init(void)
{
	int err;

	err = kernel_find();
	if (err)
		return err;
	err = layout_check();
	if (err)
		return err;
	err = classes_init();
	if (err)
		return err;
	mark_init();
	stats_init();
	err = hotplug_start();
	if (err)
		goto undo_stats;
	err = hooks_install();
	if (err)
		goto undo_hotplug;
	zero_start();
	err = selftest_run();
	if (err && err != -EAGAIN) /* without a free page it is put off */
		goto undo_zero;
	err = files_add();
	if (err)
		goto undo_zero;
	return 0;

undo_zero:
	zero_stop();
	hooks_remove();
undo_hotplug:
	hotplug_stop();
undo_stats:
	stats_done();
	classes_done();
	return err;
}

static void __exit prezero_exit(void)
{
	files_remove();
	zero_stop();
	hooks_remove();
	hotplug_stop();
	stats_done();
	classes_done();
}

module_init(prezero_init);
module_exit(prezero_exit);
MODULE_DESCRIPTION("Huge pages that are zero before they are asked for");
MODULE_LICENSE("GPL");
