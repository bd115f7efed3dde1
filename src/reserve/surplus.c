// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * reserve/surplus.c - see surplus.h.
 */
#include "reserve/surplus.h"

#include <inttypes.h>
#include <linux/mempolicy.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include "model/class.h"

/* Where the kernel refuses, pages may come out on another node: whoever counts them sees that. */
static void bind_thread(int node)
{
	unsigned long nodes[NODES_MAX / (8 * sizeof(unsigned long))] = {0};
	const unsigned long bits = 8 * sizeof(unsigned long);

	if (node < 0) {
		(void)syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0UL);
		return;
	}
	nodes[(unsigned long)node / bits] |= 1UL << ((unsigned long)node % bits);
	(void)syscall(SYS_set_mempolicy, MPOL_BIND, nodes, NODES_MAX + 1UL);
}

static int set_bytes(int fd, const char *name, uint64_t bytes)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, bytes);
	return fsconfig(fd, FSCONFIG_SET_STRING, name, text, 0) < 0 ? -errno : 0;
}

int surplus_take(uint64_t page_bytes, uint64_t pages, int node)
{
	AUTO_FD fd = fsopen("hugetlbfs", FSOPEN_CLOEXEC);
	int r;

	if (fd < 0)
		return -errno;
	r = set_bytes(fd, "pagesize", page_bytes);
	if (!r)
		r = set_bytes(fd, "min_size", pages * page_bytes);
	if (r < 0)
		return r;
	bind_thread(node);
	if (fsconfig(fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		r = -errno;
	bind_thread(-1);
	return r < 0 ? r : TAKE_FD(fd);
}
