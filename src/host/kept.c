/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * host/kept.c - the figures that change by the moment, read from descriptors that stay open.
 *
 * Guarantees: reads never move a file position, so that threads may share the descriptors; a file
 * that has gone (a node taken out) is -ENODEV.
 */
#include "host/internal.h"

#include <fcntl.h>
#include <stdarg.h>
#include <string.h>

#include "base/io.h"
#include "base/parse.h"
#include "host/text.h"

static int PRINTF(4, 5) keep(int root_fd, int *fd, struct fault *fault, const char *format, ...)
{
	char path[160];
	va_list args;

	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	*fd = openat(root_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (*fd >= 0 || is_absent(-errno))
		return 0;
	return fault_note(fault, -errno, "/%s", path);
}

static int keep_size(int root_fd, struct kept *kept, unsigned int i, struct fault *fault)
{
	const struct layout *layout = &kept->layout;
	unsigned long long kb = layout->page_bytes[i] / 1024;
	int r = keep(root_fd, &kept->size[i].free_fd, fault,
		     HUGEPAGES_DIR "/hugepages-%llukB/free_hugepages", kb);

	if (!r)
		r = keep(root_fd, &kept->size[i].reserved_fd, fault,
			 HUGEPAGES_DIR "/hugepages-%llukB/resv_hugepages", kb);
	for (unsigned int node = 0; !r && layout->has_nodes && node < NODES_MAX; node++) {
		if (layout_has_memory(layout, node))
			r = keep(root_fd, &kept->size[i].node_free_fd[node], fault,
				 NODES_DIR "/node%u/hugepages/hugepages-%llukB/free_hugepages",
				 node, kb);
	}
	if (r < 0)
		return r;
	r = cgroup_limits_open(root_fd, &layout->place, layout->page_bytes[i],
			       &kept->size[i].limits);
	return r < 0 ? fault_note(fault, r, "hugetlb limits of the control group") : 0;
}

static int keep_all(int root_fd, struct kept *kept, struct fault *fault)
{
	const struct layout *layout = &kept->layout;
	int r = keep(root_fd, &kept->meminfo_fd, fault, "proc/meminfo");

	for (unsigned int node = 0; !r && !layout_is_single(layout) && node < NODES_MAX; node++) {
		if (layout_has_memory(layout, node))
			r = keep(root_fd, &kept->node_meminfo_fd[node], fault,
				 NODES_DIR "/node%u/meminfo", node);
	}
	for (unsigned int i = 0; !r && i < layout->n_sizes; i++)
		r = keep_size(root_fd, kept, i, fault);
	if (r < 0)
		return r;
	r = cgroup_limits_open(root_fd, &layout->place, 0, &kept->limits);
	return r < 0 ? fault_note(fault, r, "memory limits of the control group") : 0;
}

int kept_open(int root_fd, const struct layout *layout, struct kept **ret, struct fault *fault)
{
	struct kept *kept = calloc(1, sizeof(*kept));
	int r;

	if (!kept)
		return -ENOMEM;
	kept->layout = *layout;
	kept->meminfo_fd = -1;
	memset(kept->node_meminfo_fd, -1, sizeof(kept->node_meminfo_fd));
	for (unsigned int i = 0; i < HUGETLB_SIZES_MAX; i++) {
		kept->size[i].free_fd = kept->size[i].reserved_fd = -1;
		memset(kept->size[i].node_free_fd, -1, sizeof(kept->size[i].node_free_fd));
	}
	r = keep_all(root_fd, kept, fault);
	if (r < 0) {
		kept_close(kept);
		return r;
	}
	*ret = kept;
	return 0;
}

void kept_close(struct kept *kept)
{
	if (!kept)
		return;
	close_fd(kept->meminfo_fd);
	cgroup_limits_close(&kept->limits);
	for (unsigned int node = 0; node < NODES_MAX; node++)
		close_fd(kept->node_meminfo_fd[node]);
	for (unsigned int i = 0; i < HUGETLB_SIZES_MAX; i++) {
		close_fd(kept->size[i].free_fd);
		close_fd(kept->size[i].reserved_fd);
		cgroup_limits_close(&kept->size[i].limits);
		for (unsigned int node = 0; node < NODES_MAX; node++)
			close_fd(kept->size[i].node_free_fd[node]);
	}
	free(kept);
}

/* Memory */

struct memory {
	uint64_t total_bytes, free_bytes;
	uint64_t
		loose_bytes; /* free, page cache and reclaimable slab: available, were none needed */
};

/* A field that not every kernel has. */
static uint64_t optional_kb(const char *text, const char *name)
{
	uint64_t bytes = 0;

	return text_field_kb(text, name, &bytes) < 0 ? 0 : bytes;
}

static uint64_t add(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

static int read_meminfo(int fd, char text[TEXT_BYTES_MAX], struct memory *ret)
{
	struct memory memory;
	int r = fd < 0 ? -ENOENT : (int)pread_text(fd, text, TEXT_BYTES_MAX);
	uint64_t slab_bytes;

	if (r < 0)
		return r;
	if (text_field_kb(text, "MemTotal", &memory.total_bytes) < 0 ||
	    text_field_kb(text, "MemFree", &memory.free_bytes) < 0)
		return -EINVAL;
	slab_bytes = optional_kb(text, "KReclaimable");
	if (!slab_bytes)
		slab_bytes = optional_kb(text, "SReclaimable");
	memory.loose_bytes = add(memory.free_bytes, slab_bytes);
	memory.loose_bytes = add(memory.loose_bytes, optional_kb(text, "Active(file)"));
	memory.loose_bytes = add(memory.loose_bytes, optional_kb(text, "Inactive(file)"));
	*ret = memory;
	return 0;
}

/* The kernel says what is available for the host only. What it holds back there (watermarks, half of
 * the small caches) falls on the nodes in proportion to their memory. */
static int read_node(const struct kept *kept, unsigned int node, uint64_t held_back_bytes,
		     struct host_view *view, struct fault *fault)
{
	struct node_view *ret = &view->node[node];
	char text[TEXT_BYTES_MAX];
	struct memory memory;
	int r;

	if (layout_is_single(&kept->layout)) {
		ret->total_bytes = view->total_bytes;
		ret->available_bytes = view->available_bytes;
		return 0;
	}
	r = read_meminfo(kept->node_meminfo_fd[node], text, &memory);
	if (is_absent(r))
		return -ENODEV;
	if (r < 0)
		return fault_note(fault, r, "/" NODES_DIR "/node%u/meminfo", node);
	ret->total_bytes = memory.total_bytes;
	ret->free_bytes = memory.free_bytes;
	held_back_bytes = share_bytes(held_back_bytes, memory.total_bytes, view->total_bytes);
	ret->available_bytes =
		memory.loose_bytes > held_back_bytes ? memory.loose_bytes - held_back_bytes : 0;
	return 0;
}

int kept_read_memory(const struct kept *kept, int node, struct host_view *view, struct fault *fault)
{
	char text[TEXT_BYTES_MAX];
	uint64_t available_bytes, held_back_bytes;
	struct memory memory;
	int r = read_meminfo(kept->meminfo_fd, text, &memory);

	if (!r)
		r = text_field_kb(text, "MemAvailable", &available_bytes);
	if (r < 0)
		return fault_note(fault, r, "/proc/meminfo");
	view->total_bytes = memory.total_bytes;
	view->available_bytes = available_bytes;
	view->default_hugetlb_bytes = optional_kb(text, "Hugepagesize");
	held_back_bytes =
		memory.loose_bytes > available_bytes ? memory.loose_bytes - available_bytes : 0;
	for (unsigned int n = 0; n < NODES_MAX; n++) {
		if (!layout_has_memory(&kept->layout, n) ||
		    (node != NODE_ANY && n != (unsigned int)node))
			continue;
		view->node[n].free_bytes = memory.free_bytes;
		r = read_node(kept, n, held_back_bytes, view, fault);
		if (r == -ENODEV && node == NODE_ANY)
			view->node[n] = (struct node_view){};
		else if (r < 0)
			return r;
	}
	r = cgroup_limits_read(&kept->limits, &view->cgroup_headroom_bytes);
	return r < 0 ? fault_note(fault, r, "memory limits of the control group") : 0;
}

/* Hugetlb */

/* A file that is absent counts nothing. */
static int read_count(int fd, uint64_t *ret)
{
	char text[32];
	int r = fd < 0 ? -ENODEV : (int)pread_text(fd, text, sizeof(text));

	if (is_absent(r)) {
		*ret = 0;
		return 0;
	}
	return r < 0 ? r : parse_u64(text, ret);
}

int kept_read_hugetlb(const struct kept *kept, unsigned int i, struct host_view *view,
		      struct fault *fault)
{
	struct hugetlb_view *ret = &view->hugetlb[i];
	unsigned long long kb = ret->page_bytes / 1024;
	int r = read_count(kept->size[i].free_fd, &ret->free_pages);

	if (r < 0)
		return fault_note(fault, r, "/" HUGEPAGES_DIR "/hugepages-%llukB/free_hugepages",
				  kb);
	r = read_count(kept->size[i].reserved_fd, &ret->reserved_pages);
	if (r < 0)
		return fault_note(fault, r, "/" HUGEPAGES_DIR "/hugepages-%llukB/resv_hugepages",
				  kb);
	if (!kept->layout.has_nodes)
		ret->node[0].free_pages = ret->free_pages;
	for (unsigned int node = 0; kept->layout.has_nodes && node < NODES_MAX; node++) {
		if (!layout_has_memory(&kept->layout, node))
			continue;
		r = read_count(kept->size[i].node_free_fd[node], &ret->node[node].free_pages);
		if (r < 0)
			return fault_note(fault, r,
					  "/" NODES_DIR
					  "/node%u/hugepages/hugepages-%llukB/free_hugepages",
					  node, kb);
	}
	r = cgroup_limits_read(&kept->size[i].limits, &ret->cgroup_headroom_bytes);
	return r < 0 ? fault_note(fault, r, "hugetlb limits of the control group") : 0;
}
