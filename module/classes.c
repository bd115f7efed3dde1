// SPDX-License-Identifier: GPL-2.0-only
/*
 * The page classes. All that can ever be needed are made when the module is loaded: sizes are fixed
 * from boot on, and nodes that can appear later are known to be possible. So no hook has to
 * allocate, or to cope with a class that is missing.
 */
#include <linux/slab.h>

#include "prezero.h"

static struct huge_size sizes[HUGE_MAX_HSTATE];
static struct page_class *classes[HUGE_MAX_HSTATE][MAX_NUMNODES];

unsigned int class_nr_sizes(void)
{
	return *kernel.hugetlb_max_hstate;
}

struct page_class *class_at(unsigned int size_index, int node)
{
	return classes[size_index][node];
}

struct page_class *class_of_folio(struct folio *folio)
{
	/* Not folio_hstate(): it warns about a page that is just changing hands. */
	unsigned int i;

	for (i = 0; i < class_nr_sizes() - 1; i++)
		if (huge_page_order(sizes[i].hstate) == folio_order(folio))
			break;
	return classes[i][folio_nid(folio)];
}

struct page_class *class_of(struct hstate *h, struct folio *folio)
{
	return classes[h - kernel.hstates][folio_nid(folio)];
}

struct huge_size *size_of(struct hstate *h)
{
	return &sizes[h - kernel.hstates];
}

/* `2M@0`, as everywhere in prezero. */
const char *class_name(const struct page_class *class, char *buffer, size_t buffer_bytes)
{
	unsigned long kib = huge_page_size(class_hstate(class)) / SZ_1K;

	if (kib % SZ_1M == 0)
		snprintf(buffer, buffer_bytes, "%luG@%d", kib / SZ_1M, class->node);
	else if (kib % SZ_1K == 0)
		snprintf(buffer, buffer_bytes, "%luM@%d", kib / SZ_1K, class->node);
	else
		snprintf(buffer, buffer_bytes, "%luK@%d", kib, class->node);
	return buffer;
}

int classes_init(void)
{
	unsigned int i;
	int node;

	if (!class_nr_sizes()) {
		pr_err("not loaded: huge pages are switched off\n");
		return -ENODEV;
	}
	for (i = 0; i < class_nr_sizes(); i++) {
		sizes[i].hstate = &kernel.hstates[i];
		init_waitqueue_head(&sizes[i].held_wait);
		for_each_node(node) {
			struct page_class *class = kzalloc(sizeof(*class), GFP_KERNEL);

			if (!class) {
				classes_done();
				return -ENOMEM;
			}
			class->size = &sizes[i];
			class->node = node;
			classes[i][node] = class;
		}
	}
	return 0;
}

void classes_done(void)
{
	unsigned int i;
	int node;

	for (i = 0; i < class_nr_sizes(); i++)
		for_each_node(node)
			kfree(classes[i][node]);
}
