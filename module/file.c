// SPDX-License-Identifier: GPL-2.0-only
/*
 * The files: nodeN/hugepages/hugepages-<size>kB/zeroable_hugepages, next to the kernel's own.
 *
 *	read	the number of dirty free pages
 *	write	N or "max": zero so many of them, here and now
 *	poll	POLLPRI when pages have become dirty, at most every 10 ms
 */
#include <linux/ctype.h>
#include <linux/device.h>
#include <linux/kernfs.h>
#include <linux/kobject.h>
#include <linux/memory_hotplug.h>
#include <linux/node.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include <linux/workqueue.h>

#include "prezero.h"

#define FILE_NAME "zeroable_hugepages"
#define EVENT_INTERVAL_MS 10

struct zeroable_file {
	struct kobj_attribute attribute;
	struct page_class *class;
	struct kernfs_node *node; /* of the file, while it exists */
	struct delayed_work event;
};

static struct zeroable_file *files[HUGE_MAX_HSTATE][MAX_NUMNODES];
static DEFINE_MUTEX(files_mutex);
static bool files_ready;

static ssize_t zeroable_show(struct kobject *kobj, struct kobj_attribute *attribute, char *buffer)
{
	struct zeroable_file *file = container_of(attribute, struct zeroable_file, attribute);

	return sysfs_emit(buffer, "%lu\n", count_dirty(file->class));
}

/* A decimal number or "max", and nothing else: no sign, no base, no blanks. */
static int parse_limit(const char *buffer, unsigned long *limit_pages)
{
	if (sysfs_streq(buffer, "max")) {
		*limit_pages = ULONG_MAX;
		return 0;
	}
	return isdigit(buffer[0]) && !kstrtoul(buffer, 10, limit_pages) ? 0 : -EINVAL;
}

static ssize_t zeroable_store(struct kobject *kobj, struct kobj_attribute *attribute,
			      const char *buffer, size_t length)
{
	struct zeroable_file *file = container_of(attribute, struct zeroable_file, attribute);
	unsigned long limit_pages;
	long result;

	result = parse_limit(buffer, &limit_pages);
	if (result)
		return result;
	if (!limit_pages || !count_dirty(file->class))
		return length;

	/* Where no page was free when the module was loaded, it still has to show that it works. */
	result = selftest_run();
	if (result)
		return result;
	result = zero_pages(file->class, limit_pages);
	return result < 0 ? result : length;
}

/* -- events -- */

static void send_event(struct work_struct *work)
{
	struct zeroable_file *file = container_of(work, struct zeroable_file, event.work);

	kernfs_notify(file->node);
}

/*
 * The first event after a pause waits for the others of its interval, so one event tells of them
 * all. Scheduling what is scheduled already costs next to nothing, as it must on every free.
 */
void file_dirty_event(struct page_class *class)
{
	struct zeroable_file *file;

	if (!files_ready)
		return;
	file = files[class_hstate(class) - kernel.hstates][class->node];
	if (file->node)
		schedule_delayed_work(&file->event, msecs_to_jiffies(EVENT_INTERVAL_MS));
}

/* -- adding and removing -- */

/* The directory of a page class, with a reference, or NULL. */
static struct kernfs_node *find_directory(const struct page_class *class)
{
	struct node *node = kernel.node_devices[class->node];
	struct kernfs_node *parent, *directory;

	if (!node || !node->dev.kobj.sd)
		return NULL;
	parent = kernfs_find_and_get(node->dev.kobj.sd, "hugepages");
	if (!parent)
		return NULL;
	directory = kernfs_find_and_get(parent, class_hstate(class)->name);
	kernfs_put(parent);
	return directory;
}

/* Under the lock that file_dirty_event() is called with: after NULL it schedules no event. */
static void set_node(struct zeroable_file *file, struct kernfs_node *node)
{
	spin_lock_irq(kernel.hugetlb_lock);
	file->node = node;
	spin_unlock_irq(kernel.hugetlb_lock);
}

static int file_add(struct zeroable_file *file)
{
	struct kernfs_node *directory = find_directory(file->class);
	struct kernfs_node *existing;
	int err;

	if (!directory)
		return 0; /* a node without memory */
	existing = kernfs_find_and_get(directory, FILE_NAME);
	if (existing) {
		kernfs_put(existing);
		err = -EEXIST;
	} else {
		err = sysfs_create_file(directory->priv, &file->attribute.attr);
	}
	if (!err)
		set_node(file, kernfs_find_and_get(directory, FILE_NAME));
	kernfs_put(directory);
	return err;
}

/* Waits for writers to be done, see zero_interrupt(). */
static void file_remove(struct zeroable_file *file)
{
	struct kernfs_node *node = file->node;
	struct kernfs_node *directory;

	if (!node)
		return;
	directory = find_directory(file->class);
	if (directory) {
		sysfs_remove_file(directory->priv, &file->attribute.attr);
		kernfs_put(directory);
	}
	set_node(file, NULL);
	cancel_delayed_work_sync(&file->event);
	kernfs_put(node);
}

/* Nodes have come or gone: a new directory gets its file, an old one took it along. */
void files_sync(void)
{
	struct page_class *class;
	unsigned int i;
	int node;

	mutex_lock(&files_mutex);
	if (!files_ready)
		goto unlock;
	for_each_class(class, i, node) {
		struct kernfs_node *directory = find_directory(class);

		if (directory && !files[i][node]->node && file_add(files[i][node]))
			pr_warn("no %s for node %d\n", FILE_NAME, node);
		if (!directory)
			file_remove(files[i][node]);
		kernfs_put(directory);
	}
unlock:
	mutex_unlock(&files_mutex);
}

static struct zeroable_file *file_new(struct page_class *class)
{
	struct zeroable_file *file = kzalloc(sizeof(*file), GFP_KERNEL);

	if (!file)
		return NULL;
	sysfs_attr_init(&file->attribute.attr);
	file->attribute.attr.name = FILE_NAME;
	file->attribute.attr.mode = 0644;
	file->attribute.show = zeroable_show;
	file->attribute.store = zeroable_store;
	file->class = class;
	INIT_DELAYED_WORK(&file->event, send_event);
	return file;
}

void files_remove(void)
{
	struct page_class *class;
	unsigned int i;
	int node;

	zero_interrupt();
	mutex_lock(&files_mutex);
	/* Under the lock that file_dirty_event() is called with: none is under way after it. */
	spin_lock_irq(kernel.hugetlb_lock);
	files_ready = false;
	spin_unlock_irq(kernel.hugetlb_lock);
	for_each_class(class, i, node) {
		if (!files[i][node])
			continue;
		file_remove(files[i][node]);
		kfree(files[i][node]);
		files[i][node] = NULL;
	}
	mutex_unlock(&files_mutex);
}

int files_add(void)
{
	struct page_class *class;
	unsigned int i;
	int node, err = 0;

	for_each_class(class, i, node) {
		files[i][node] = file_new(class);
		if (!files[i][node]) {
			files_remove();
			return -ENOMEM;
		}
	}
	mutex_lock(&files_mutex);
	spin_lock_irq(kernel.hugetlb_lock);
	files_ready = true;
	spin_unlock_irq(kernel.hugetlb_lock);
	for_each_class(class, i, node) {
		err = file_add(files[i][node]);
		if (err)
			break;
	}
	mutex_unlock(&files_mutex);
	if (err) {
		if (err == -EEXIST)
			pr_err("this kernel has %s by itself; prezero is not needed\n", FILE_NAME);
		files_remove();
	}
	return err;
}
