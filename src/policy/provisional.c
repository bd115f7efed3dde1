// SPDX-License-Identifier: GPL-2.0-or-later
/* policy/provisional.c - stands in until policy lands, so that prezerod links. */
#include "policy/policy.h"
#include <string.h>
uint64_t policy_floor_bytes(const struct host_view *h, const struct goals *g)
{
	if (g->floor_bytes)
		return g->floor_bytes;
	uint64_t f = h->total_bytes / 20;
	return f > (2ULL << 30) ? f : (2ULL << 30);
}
uint64_t policy_headroom_bytes(const struct host_view *h, const struct goals *g,
			       struct page_class c, enum shortage *why)
{
	*why = SHORT_NONE;
	if (!host_view_has_node(h, c.node)) {
		*why = SHORT_NO_NODE;
		return 0;
	}
	if (c.page.kind == PAGE_HUGETLB) {
		const struct hugetlb_view *v = host_view_hugetlb(h, c.page.bytes);
		if (!v) {
			*why = SHORT_NO_CLASS;
			return 0;
		}
		uint64_t f = v->free_pages > v->reserved_pages ? v->free_pages - v->reserved_pages :
								 0;
		if (v->node[c.node].free_pages < f)
			f = v->node[c.node].free_pages;
		f *= c.page.bytes;
		*why = SHORT_PAGES;
		for (unsigned i = 0; i < g->n_leave_free; i++)
			if (g->leave_free[i].page.bytes == c.page.bytes) {
				f = f > g->leave_free[i].bytes_per_node ?
					    f - g->leave_free[i].bytes_per_node :
					    0;
				*why = SHORT_LEAVE_FREE;
			}
		return f;
	}
	uint64_t fl = policy_floor_bytes(h, g), a = h->available_bytes;
	if (h->node[c.node].available_bytes < a)
		a = h->node[c.node].available_bytes;
	a = a > fl ? a - fl : 0;
	*why = SHORT_FLOOR;
	if (h->cgroup_headroom_bytes < a) {
		a = h->cgroup_headroom_bytes;
		*why = SHORT_CGROUP;
	}
	return a / c.page.bytes * c.page.bytes;
}
unsigned int policy_stock(const struct host_view *h, const struct pool_view *p,
			  const struct goals *g, struct order *o, unsigned max, enum shortage *s)
{
	unsigned n = 0;
	unsigned keep[1000] = {0};
	for (unsigned b = 0; b < p->n_buckets && b < 1000; b++)
		for (unsigned i = 0; i < g->n_stocks; i++)
			if (page_size_equal(g->stock[i].page_class.page,
					    p->bucket[b].page_class.page) &&
			    g->stock[i].segment_bytes == p->bucket[b].segment_bytes &&
			    (g->stock[i].page_class.node == NODE_ANY ||
			     g->stock[i].page_class.node == p->bucket[b].page_class.node))
				keep[b] = g->stock[i].keep;
	for (unsigned b = 0; b < p->n_buckets; b++)
		if (p->bucket[b].n_ready > keep[b] && n < max)
			o[n++] = (struct order){ORDER_RELEASE, p->bucket[b].page_class,
						p->bucket[b].segment_bytes,
						p->bucket[b].n_ready - keep[b]};
	for (unsigned i = 0; i < g->n_stocks; i++) {
		const struct stock *st = &g->stock[i];
		unsigned have = 0;
		s[i] = SHORT_NONE;
		for (unsigned b = 0; b < p->n_buckets; b++)
			if (page_size_equal(st->page_class.page, p->bucket[b].page_class.page) &&
			    st->segment_bytes == p->bucket[b].segment_bytes)
				have += p->bucket[b].n_ready + p->bucket[b].n_filling;
		if (have >= st->keep)
			continue;
		struct page_class c = st->page_class;
		if (c.node == NODE_ANY)
			c.node = 0;
		enum shortage w;
		uint64_t room = policy_headroom_bytes(h, g, c, &w) / st->segment_bytes;
		unsigned want = st->keep - have;
		if (room < want) {
			s[i] = w;
			want = room;
		}
		if (want && n < max)
			o[n++] = (struct order){ORDER_FILL, c, st->segment_bytes, want};
	}
	return n;
}
void policy_place(const struct host_view *h, const struct pool_view *p, const struct goals *g,
		  const struct request *r, struct decision *d)
{
	memset(d, 0, sizeof *d);
	d->page_class = (struct page_class){r->page, r->node == NODE_ANY ? 0 : r->node};
	d->need_bytes = r->segment_bytes;
	d->placement = PLACE_REFUSE;
	if (r->page.kind == PAGE_HUGETLB && !host_view_hugetlb(h, r->page.bytes)) {
		d->why = SHORT_NO_CLASS;
		return;
	}
	if (!host_view_has_node(h, d->page_class.node)) {
		d->why = SHORT_NO_NODE;
		return;
	}
	if (r->segment_bytes % r->page.bytes) {
		d->why = SHORT_NOT_MULTIPLE;
		return;
	}
	if (r->segment_bytes > h->total_bytes) {
		d->why = SHORT_MACHINE;
		d->have_bytes = h->total_bytes;
		return;
	}
	uint64_t ready = 0;
	const struct bucket_view *cut = NULL;
	for (unsigned b = 0; b < p->n_buckets; b++) {
		const struct bucket_view *v = &p->bucket[b];
		if (!page_class_equal(v->page_class, d->page_class) || !v->n_ready)
			continue;
		ready += v->n_ready * v->segment_bytes;
		if (v->segment_bytes == r->segment_bytes) {
			d->placement = PLACE_EXACT;
			d->segment_bytes = v->segment_bytes;
			return;
		}
		if (r->page.kind == PAGE_HUGETLB && v->segment_bytes > r->segment_bytes &&
		    (!cut || v->segment_bytes < cut->segment_bytes))
			cut = v;
	}
	if (cut) {
		d->placement = PLACE_CUT;
		d->segment_bytes = cut->segment_bytes;
		return;
	}
	uint64_t room = policy_headroom_bytes(h, g, d->page_class, &d->why);
	d->have_bytes = room + ready;
	if (room >= r->segment_bytes) {
		d->placement = PLACE_FILL;
		return;
	}
	if (room + ready >= r->segment_bytes) {
		d->placement = PLACE_RELEASE_AND_FILL;
		uint64_t need = r->segment_bytes - room;
		for (unsigned b = 0; b < p->n_buckets && need && d->n_orders < 16; b++) {
			const struct bucket_view *v = &p->bucket[b];
			if (!page_class_equal(v->page_class, d->page_class) || !v->n_ready)
				continue;
			unsigned c = (need + v->segment_bytes - 1) / v->segment_bytes;
			if (c > v->n_ready)
				c = v->n_ready;
			d->orders[d->n_orders++] =
				(struct order){ORDER_RELEASE, v->page_class, v->segment_bytes, c};
			need -= need < c * v->segment_bytes ? need : c * v->segment_bytes;
		}
		return;
	}
	uint64_t total = r->page.kind == PAGE_HUGETLB ?
				 host_view_hugetlb(h, r->page.bytes)->total_pages * r->page.bytes :
				 h->total_bytes;
	d->placement = total >= r->segment_bytes ? PLACE_WAIT : PLACE_REFUSE;
}
unsigned policy_threads(const struct host_view *h, unsigned c)
{
	unsigned n = id_set_count(&h->cpus) / 4;
	if (c)
		return c;
	return n ? n : 1;
}
