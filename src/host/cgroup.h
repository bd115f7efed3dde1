/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * host/cgroup.h - how much more this process may take before a control group's limit bites.
 *
 * Both hierarchies count, and both at once where both are mounted: version 1 (a hierarchy for
 * `memory`, one for `hugetlb`) and version 2. The limits stand on every level of the process's path.
 */
#ifndef PREZERO_HOST_CGROUP_H
#define PREZERO_HOST_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"

enum cgroup_hierarchy { CGROUP_V2, CGROUP_V1_MEMORY, CGROUP_V1_HUGETLB, CGROUP_HIERARCHIES };

/* The process's directory in each hierarchy, relative to the root directory; "" where there is none. */
struct cgroup_place {
	struct {
		char path[PATH_MAX];
		size_t mount_length; /* of the mount point, where the way up ends */
	} dir[CGROUP_HIERARCHIES];
	bool memory_counts_hugetlb; /* mounted with memory_hugetlb_accounting */
};

#define CGROUP_LEVELS_MAX 64
struct cgroup_limits {
	unsigned int n_levels;
	struct {
		int limit_fd, usage_fd;
	} level[CGROUP_LEVELS_MAX];
};

/* -ENODATA: /proc/self/cgroup or mountinfo does not parse. Absent files: no place at all. */
MUST_CHECK int cgroup_find(int root_fd, struct cgroup_place *ret);
bool cgroup_place_equal(const struct cgroup_place *a, const struct cgroup_place *b);

/* Opens the limits on memory (page_bytes 0) or on hugetlb pages of a size. */
MUST_CHECK int cgroup_limits_open(int root_fd, const struct cgroup_place *place,
				  uint64_t page_bytes, struct cgroup_limits *ret);
void cgroup_limits_close(struct cgroup_limits *limits);
/* The least of limit - usage; UNLIMITED. -ENODATA: a limit does not parse. */
MUST_CHECK int cgroup_limits_read(const struct cgroup_limits *limits, uint64_t *ret_bytes);

#endif
