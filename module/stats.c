// SPDX-License-Identifier: GPL-2.0-only
/*
 * Statistics: /sys/kernel/debug/prezero/statistics, a table with a line for each page class that
 * has or had pages. prezero-module(7) says what the columns mean.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>

#include "prezero.h"

static const char *const statistic_names[NR_STATISTICS] = {
	[STAT_ZEROED] = "zeroed",
	[STAT_FRESH] = "fresh",
	[STAT_UNFINISHED] = "unfinished",
	[STAT_SKIPPED] = "skipped",
	[STAT_HANDED_CLEAN] = "handed_clean",
	[STAT_HANDED_DIRTY] = "handed_dirty",
	[STAT_WAITED] = "waited",
	[STAT_RETURNED] = "returned",
	[STAT_RECOUNTED] = "recounted",
	[STAT_DRIFTED] = "drifted",
};

static struct dentry *directory;

static void show_class(struct seq_file *out, struct page_class *class)
{
	struct hstate *h = class_hstate(class);
	unsigned long free_pages, clean_pages, poisoned_pages, held_pages, longest_hold_ns;
	enum statistic i;
	char name[32];

	spin_lock_irq(kernel.hugetlb_lock);
	free_pages = h->free_huge_pages_node[class->node];
	clean_pages = class->clean_pages;
	poisoned_pages = class->poisoned_pages;
	held_pages = class->held_pages;
	longest_hold_ns = class->longest_hold_ns;
	spin_unlock_irq(kernel.hugetlb_lock);

	seq_printf(out, "%s %lu %lu %lu %lu", class_name(class, name, sizeof(name)), free_pages,
		   clean_pages, poisoned_pages, held_pages);
	for (i = 0; i < NR_STATISTICS; i++)
		seq_printf(out, " %ld", atomic_long_read(&class->statistics[i]));
	seq_printf(out, " %lu\n", longest_hold_ns);
}

static int statistics_show(struct seq_file *out, void *data)
{
	struct page_class *class;
	enum statistic i;
	unsigned int size_index;
	int node;

	seq_puts(out, "class free clean poisoned held");
	for (i = 0; i < NR_STATISTICS; i++)
		seq_printf(out, " %s", statistic_names[i]);
	seq_puts(out, " longest_hold_ns\n");
	for_each_class(class, size_index, node)
		if (node_state(node, N_MEMORY))
			show_class(out, class);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(statistics);

/* Without debugfs there are no statistics, and everything else works. */
void stats_init(void)
{
	directory = debugfs_create_dir("prezero", NULL);
	debugfs_create_file("statistics", 0444, directory, NULL, &statistics_fops);
}

void stats_done(void)
{
	debugfs_remove_recursive(directory);
}
