/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * host/host.c - look: the layout, the figures, and what little else a view holds.
 *
 * Guarantees: a view is written whole or not at all by host_look(); host_look_headroom() from other
 * threads never sees a descriptor that is being closed.
 */
#include "host/host.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>

#include "base/io.h"
#include "base/parse.h"
#include "host/internal.h"
#include "host/text.h"

struct host {
	int root_fd;
	bool is_imagined; /* files, and no kernel behind them */
	pthread_rwlock_t lock; /* guards kept, which host_look() alone replaces */
	struct kept *kept;
	/* host_look()'s: */
	struct fault fault; /* of the last one */
	struct layout layout; /* that there is now, and */
	struct host_view
		view; /* what there is to see, until it is known to be whole: a large allocation
				* would wait for the populates under way in this address space */
};

/* Threads that look in turns without a pause must not keep host_look() out. */
static int init_lock(pthread_rwlock_t *lock)
{
	pthread_rwlockattr_t attr;
	int r = pthread_rwlockattr_init(&attr);

	if (r)
		return -r;
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	r = pthread_rwlock_init(lock, &attr);
	pthread_rwlockattr_destroy(&attr);
	return -r;
}

int host_open(const char *sysroot, struct host **ret)
{
	AUTO_FD root_fd = open(sysroot ? sysroot : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_FREE struct host *host = NULL;
	int r;

	if (root_fd < 0)
		return -errno;
	host = calloc(1, sizeof(*host));
	if (!host)
		return -ENOMEM;
	r = init_lock(&host->lock);
	if (r < 0)
		return r;
	host->root_fd = TAKE_FD(root_fd);
	host->is_imagined = sysroot && strcmp(sysroot, "/");
	*ret = TAKE_PTR(host);
	return 0;
}

struct host *host_free(struct host *host)
{
	if (!host)
		return NULL;
	kept_close(host->kept);
	pthread_rwlock_destroy(&host->lock);
	close_fd(host->root_fd);
	free(host);
	return NULL;
}

const char *host_missing(const struct host *host)
{
	return host->fault.text;
}

int host_root_fd(const struct host *host)
{
	return host->root_fd;
}

bool host_is_imagined(const struct host *host)
{
	return host->is_imagined;
}

/* Makes the kept descriptors those of the layout that is there now. */
static int refresh_kept(struct host *host)
{
	struct layout *layout = &host->layout;
	struct kept *kept, *old;
	int r;

	r = layout_look(host->root_fd, layout, &host->fault);
	if (r < 0 || (host->kept && layout_equal(&host->kept->layout, layout)))
		return r;
	r = kept_open(host->root_fd, layout, &kept, &host->fault);
	if (r < 0)
		return r;
	pthread_rwlock_wrlock(&host->lock);
	old = host->kept;
	host->kept = kept;
	pthread_rwlock_unlock(&host->lock);
	kept_close(old);
	return 0;
}

/* A number in a file; nothing where it is absent. */
static int PRINTF(3, 4) look_count(struct host *host, uint64_t *ret, const char *format, ...)
{
	char path[160];
	va_list args;
	int r;

	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	r = read_u64_at(host->root_fd, path, ret);
	if (is_absent(r)) {
		*ret = 0;
		return -ENOENT;
	}
	return r < 0 ? fault_note(&host->fault, r, "/%s", path) : 0;
}

static int absent_is_fine(int r)
{
	return r == -ENOENT ? 0 : r;
}

static int look_hugetlb_node(struct host *host, const struct layout *layout, unsigned int node,
			     struct hugetlb_view *size)
{
	struct hugetlb_node_view *ret = &size->node[node];
	char dir[96];
	int r;

	if (layout->has_nodes)
		snprintf(dir, sizeof(dir), NODES_DIR "/node%u/hugepages/hugepages-%llukB", node,
			 (unsigned long long)size->page_bytes / 1024);
	else
		snprintf(dir, sizeof(dir), HUGEPAGES_DIR "/hugepages-%llukB",
			 (unsigned long long)size->page_bytes / 1024);
	r = absent_is_fine(look_count(host, &ret->total_pages, "%s/nr_hugepages", dir));
	if (!r)
		r = absent_is_fine(
			look_count(host, &ret->surplus_pages, "%s/surplus_hugepages", dir));
	if (r < 0)
		return r;
	r = look_count(host, &ret->zeroable_pages, "%s/zeroable_hugepages", dir);
	ret->has_zeroable = !r;
	return absent_is_fine(r);
}

static int look_hugetlb(struct host *host, const struct layout *layout, unsigned int i,
			struct host_view *view)
{
	struct hugetlb_view *ret = &view->hugetlb[i];
	char dir[96];
	int r;

	ret->page_bytes = layout->page_bytes[i];
	snprintf(dir, sizeof(dir), HUGEPAGES_DIR "/hugepages-%llukB",
		 (unsigned long long)ret->page_bytes / 1024);
	r = absent_is_fine(look_count(host, &ret->total_pages, "%s/nr_hugepages", dir));
	if (!r)
		r = absent_is_fine(
			look_count(host, &ret->surplus_pages, "%s/surplus_hugepages", dir));
	if (!r)
		r = absent_is_fine(look_count(host, &ret->overcommit_pages,
					      "%s/nr_overcommit_hugepages", dir));
	for (unsigned int node = 0; !r && node < NODES_MAX; node++) {
		if (layout_has_memory(layout, node))
			r = look_hugetlb_node(host, layout, node, ret);
	}
	return r < 0 ? r : kept_read_hugetlb(host->kept, i, view, &host->fault);
}

static int look_cpus(struct host *host, const struct layout *layout, struct host_view *view)
{
	struct id_set online, allowed;
	int r = look_id_set(host->root_fd, "sys/devices/system/cpu/online", &online, &host->fault);

	if (r < 0)
		return r == -ENOENT ?
			       fault_note(&host->fault, r, "/sys/devices/system/cpu/online") :
			       r;
	/* Affinity and cpuset; it may name CPUs that are offline. */
	r = look_allowed(host->root_fd, "Cpus_allowed_list", &allowed, &host->fault);
	if (r < 0 && r != -ENOENT)
		return r;
	view->cpus = online;
	if (!r)
		id_set_and(&view->cpus, &allowed);
	for (unsigned int node = 0; node < NODES_MAX; node++) {
		char path[64];

		if (!layout_has_memory(layout, node))
			continue;
		if (!layout->has_nodes) {
			view->node[node].cpus = online;
			continue;
		}
		snprintf(path, sizeof(path), NODES_DIR "/node%u/cpulist", node);
		r = absent_is_fine(
			look_id_set(host->root_fd, path, &view->node[node].cpus, &host->fault));
		if (r < 0)
			return r;
	}
	return 0;
}

static int look_thp(struct host *host, struct host_view *view)
{
	char text[128], choice[16];
	int r = absent_is_fine(look_count(host, &view->thp_bytes, THP_DIR "/hpage_pmd_size"));

	if (r < 0)
		return r;
	r = (int)read_file_at(host->root_fd, THP_DIR "/shmem_enabled", text, sizeof(text));
	if (is_absent(r)) {
		/* tmpfs was built without them. */
		view->thp_shmem_denied = true;
		return 0;
	}
	if (r >= 0)
		r = text_choice(text, choice, sizeof(choice));
	if (r < 0)
		return fault_note(&host->fault, r, "/" THP_DIR "/shmem_enabled");
	view->thp_shmem_denied = !strcmp(choice, "deny");
	return 0;
}

static int look(struct host *host, struct host_view *view)
{
	const struct layout *layout;
	int r = refresh_kept(host);

	if (r < 0)
		return r;
	layout = &host->kept->layout;
	view->base_page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	for (unsigned int node = 0; node < NODES_MAX; node++) {
		view->node[node].online = layout->usable_nodes >> node & 1;
		if (view->node[node].online)
			view->nodes_end = node + 1;
	}
	r = look_cpus(host, layout, view);
	if (!r)
		r = look_thp(host, view);
	if (!r)
		r = kept_read_memory(host->kept, NODE_ANY, view, &host->fault);
	view->n_hugetlb = layout->n_sizes;
	for (unsigned int i = 0; !r && i < layout->n_sizes; i++)
		r = look_hugetlb(host, layout, i, view);
	return r;
}

int host_look(struct host *host, struct host_view *ret)
{
	int r;

	host->fault.text[0] = '\0';
	memset(&host->view, 0, sizeof(host->view));
	r = look(host, &host->view);
	if (r < 0)
		return r;
	*ret = host->view;
	return 0;
}

int host_look_headroom(struct host *host, struct page_class page_class, struct host_view *view)
{
	struct fault fault;
	int r = -ENODEV;

	pthread_rwlock_rdlock(&host->lock);
	if (!host->kept) {
		r = -EINVAL;
	} else if (page_class.page.kind != PAGE_HUGETLB) {
		r = kept_read_memory(host->kept, page_class.node, view, &fault);
	} else {
		for (unsigned int i = 0; i < host->kept->layout.n_sizes && i < view->n_hugetlb;
		     i++) {
			/* The view may be older than the layout. */
			if (view->hugetlb[i].page_bytes == page_class.page.bytes &&
			    host->kept->layout.page_bytes[i] == page_class.page.bytes)
				r = kept_read_hugetlb(host->kept, i, view, &fault);
		}
	}
	pthread_rwlock_unlock(&host->lock);
	return r;
}
