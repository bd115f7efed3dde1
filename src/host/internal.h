/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * host/internal.h - what the files of this directory share: the layout of a host, and the descriptors
 * kept for it.
 *
 * The layout is which nodes, hugetlb sizes and control groups there are. The figures are what changes
 * by the moment; their files stay open, so that a look at a few of them is a few preads.
 */
#ifndef PREZERO_HOST_INTERNAL_H
#define PREZERO_HOST_INTERNAL_H

#include "host/cgroup.h"
#include "model/class.h"
#include "model/view.h"

#define NODES_DIR "sys/devices/system/node"
#define HUGEPAGES_DIR "sys/kernel/mm/hugepages"
#define THP_DIR "sys/kernel/mm/transparent_hugepage"
/* Status and meminfo are the longest texts read whole: 2 to 5 KiB. */
#define TEXT_BYTES_MAX 16384U

/* Which file could not be read or understood. */
struct fault {
	char text[160];
};

/* Names the file and returns what to fail with: -ENODATA, but being out of descriptors or memory is
 * no fault of the file. */
int fault_note(struct fault *fault, int r, const char *format, ...) PRINTF(3, 4);

/* Gone, or never there: as against not understood. */
static inline bool is_absent(int r)
{
	return r == -ENOENT || r == -ENODEV || r == -ENOTDIR;
}

struct layout {
	bool has_nodes; /* false: a kernel without NUMA; the host is node 0 */
	uint64_t memory_nodes; /* a bit each: nodes with memory */
	uint64_t usable_nodes; /* of these, the ones that this process may use */
	unsigned int n_sizes;
	uint64_t page_bytes[HUGETLB_SIZES_MAX]; /* ascending */
	struct cgroup_place place;
};

MUST_CHECK int layout_look(int root_fd, struct layout *ret, struct fault *fault);
bool layout_equal(const struct layout *a, const struct layout *b);

static inline bool layout_has_memory(const struct layout *layout, unsigned int node)
{
	return layout->memory_nodes >> node & 1;
}

/* With one node, its memory is the host's: nodes with late-added memory have been seen to count less. */
static inline bool layout_is_single(const struct layout *layout)
{
	return !layout->has_nodes || !(layout->memory_nodes & (layout->memory_nodes - 1));
}

struct host;

struct kept {
	struct layout layout;
	int meminfo_fd;
	int node_meminfo_fd[NODES_MAX];
	struct cgroup_limits limits;
	struct {
		int free_fd, reserved_fd;
		int node_free_fd[NODES_MAX];
		struct cgroup_limits limits;
	} size[HUGETLB_SIZES_MAX];
};

MUST_CHECK int kept_open(int root_fd, const struct layout *layout, struct kept **ret,
			 struct fault *fault);
void kept_close(struct kept *kept);

/* Memory of the host and of one node (NODE_ANY: of all), and the control group's headroom. */
MUST_CHECK int kept_read_memory(const struct kept *kept, int node, struct host_view *view,
				struct fault *fault);
/* Free and reserved pages of view->hugetlb[i] on the host and every node, and its headroom. */
MUST_CHECK int kept_read_hugetlb(const struct kept *kept, unsigned int i, struct host_view *view,
				 struct fault *fault);

int host_root_fd(const struct host *host);
bool host_is_imagined(const struct host *host);

/* A list of ids in a file. -ENOENT when it is absent. */
MUST_CHECK int look_id_set(int root_fd, const char *path, struct id_set *ret, struct fault *fault);
/* A list of ids in a line of /proc/self/status. -ENOENT when the line is absent. */
MUST_CHECK int look_allowed(int root_fd, const char *name, struct id_set *ret, struct fault *fault);

#endif
