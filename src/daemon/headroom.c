/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/headroom.c - may one more unit be taken from a class?
 *
 * Between a grant and the moment when its pages are gone from the kernel's counters, the counters
 * show too much. So grants are counted until headroom_took(), those of all nodes together, for what is
 * reserved and what a cgroup may have bounds the host. A unit that fits even with all of them still to
 * come is granted at once; one that does not waits until they have come, and then what the counters
 * show is the truth. So the limits are never crossed, and nothing is refused that fits.
 *
 * Guarantees: one mutex, held for a few preads; no allocation on that path.
 */
#include "daemon/headroom.h"

#include <pthread.h>
#include <string.h>

#include "policy/policy.h"

struct headroom {
	struct host *host;
	pthread_mutex_t lock;
	pthread_cond_t took;
	/* All below under lock. */
	struct host_view view;
	struct goals goals; /* without stocks */
	/* Granted and not yet taken: of hugetlb by size, of other pages (they share memory) in all. */
	uint64_t hugetlb_bytes[HUGETLB_SIZES_MAX];
	uint64_t other_bytes;
};

/* NULL: no such size on this host; policy has no headroom for it either. */
static uint64_t *granted_bytes(struct headroom *h, struct page_size page)
{
	if (page.kind != PAGE_HUGETLB)
		return &h->other_bytes;
	for (unsigned int i = 0; i < h->view.n_hugetlb; i++) {
		if (h->view.hugetlb[i].page_bytes == page.bytes)
			return &h->hugetlb_bytes[i];
	}
	return NULL;
}

int headroom_configure(struct headroom *h, const struct host_view *seen, const struct goals *goals)
{
	struct leave_free *leave_free = NULL;

	if (goals->n_leave_free) {
		leave_free = calloc(goals->n_leave_free, sizeof(*leave_free));
		if (!leave_free)
			return -ENOMEM;
		memcpy(leave_free, goals->leave_free, goals->n_leave_free * sizeof(*leave_free));
	}
	pthread_mutex_lock(&h->lock);
	free(h->goals.leave_free);
	h->goals = (struct goals){
		.n_leave_free = goals->n_leave_free,
		.leave_free = leave_free,
		.floor_bytes = goals->floor_bytes,
	};
	h->view = *seen;
	pthread_mutex_unlock(&h->lock);
	return 0;
}

int headroom_new(struct host *host, const struct host_view *seen, const struct goals *goals,
		 struct headroom **ret)
{
	struct headroom *h = calloc(1, sizeof(*h));
	int r;

	if (!h)
		return -ENOMEM;
	h->host = host;
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->took, NULL);
	r = headroom_configure(h, seen, goals);
	if (r < 0) {
		headroom_free(h);
		return r;
	}
	*ret = h;
	return 0;
}

struct headroom *headroom_free(struct headroom *h)
{
	if (h) {
		pthread_cond_destroy(&h->took);
		pthread_mutex_destroy(&h->lock);
		free(h->goals.leave_free);
		free(h);
	}
	return NULL;
}

int headroom_may_take(struct headroom *h, struct page_class page_class, uint64_t unit_bytes,
		      bool is_reserved)
{
	uint64_t *granted, have_bytes;
	enum shortage why;
	int r;

	pthread_mutex_lock(&h->lock);
	for (;;) {
		granted = granted_bytes(h, page_class.page);
		if (granted && is_reserved) {
			*granted += unit_bytes;
			r = 0;
			break;
		}
		r = granted ? host_look_headroom(h->host, page_class, &h->view) : -ENOMEM;
		if (r < 0)
			break;
		have_bytes = policy_headroom_bytes(&h->view, &h->goals, page_class, &why);
#ifdef PREZERO_BREAK_NO_HEADROOM
		have_bytes = UINT64_MAX;
#endif
		if (have_bytes >= unit_bytes && have_bytes - unit_bytes >= *granted) {
			*granted += unit_bytes;
			break;
		}
		if (!*granted) {
			r = -ENOMEM;
			break;
		}
		pthread_cond_wait(&h->took, &h->lock);
	}
	pthread_mutex_unlock(&h->lock);
	return r;
}

void headroom_took(struct headroom *h, struct page_class page_class, uint64_t unit_bytes)
{
	uint64_t *granted;

	pthread_mutex_lock(&h->lock);
	granted = granted_bytes(h, page_class.page);
	if (granted)
		*granted -= unit_bytes;
	pthread_cond_broadcast(&h->took);
	pthread_mutex_unlock(&h->lock);
}
