// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory that comes and goes.
 *
 * Before memory goes offline its free huge pages become unmarked and stay so until it is over: what
 * looks for pages to migrate out of the way takes HPG_migratable at its word, on free pages too,
 * and on some kernels would look for ever. Nor may a page be with a writer then, for that one would
 * not be dissolved.
 */
#include <linux/memory.h>
#include <linux/notifier.h>
#include <linux/workqueue.h>

#include "prezero.h"

/* The kernel makes a new node's directories some time after its memory is online. */
#define SYNC_DELAY_MS 200

static void sync_work(struct work_struct *work)
{
	files_sync();
}

static DECLARE_DELAYED_WORK(sync, sync_work);

static int memory_changes(struct notifier_block *notifier, unsigned long action, void *data)
{
	const struct memory_notify *memory = data;

	switch (action) {
	case MEM_GOING_OFFLINE:
		zero_block();
		count_clear_marks(memory->start_pfn, memory->start_pfn + memory->nr_pages);
		break;
	case MEM_CANCEL_OFFLINE:
		zero_unblock();
		break;
	case MEM_OFFLINE:
		zero_unblock();
		fallthrough;
	case MEM_ONLINE:
		schedule_delayed_work(&sync, msecs_to_jiffies(SYNC_DELAY_MS));
		break;
	}
	return NOTIFY_OK;
}

static struct notifier_block notifier = { .notifier_call = memory_changes };

int hotplug_start(void)
{
	return register_memory_notifier(&notifier);
}

void hotplug_stop(void)
{
	unregister_memory_notifier(&notifier);
	cancel_delayed_work_sync(&sync);
}
