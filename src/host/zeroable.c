/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * host/zeroable.c - the kernel file that counts and zeroes dirty free pages.
 *
 * Guarantees: see host.h; keeps nothing, so that the file may come and go (it does with the module).
 */
#include "host/host.h"

#include <fcntl.h>

#include "base/io.h"
#include "base/parse.h"
#include "host/internal.h"

static int open_file(struct host *host, const char *dir, uint64_t page_bytes)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/hugepages-%llukB/zeroable_hugepages", dir,
		 (unsigned long long)page_bytes / 1024);
	fd = openat(host_root_fd(host), path, O_RDWR | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return is_absent(-errno) ? -ENOENT : -errno;
	return fd;
}

int host_open_zeroable(struct host *host, struct page_class page_class)
{
	char dir[64];
	int fd;

	snprintf(dir, sizeof(dir), NODES_DIR "/node%d/hugepages", page_class.node);
	fd = open_file(host, dir, page_class.page.bytes);
	/* A kernel without NUMA counts where the host's sizes are. */
	if (fd == -ENOENT && page_class.node == 0)
		fd = open_file(host, HUGEPAGES_DIR, page_class.page.bytes);
	return fd;
}

int host_read_zeroable(int fd, uint64_t *ret_pages)
{
	char text[32];
	ssize_t length = pread_text(fd, text, sizeof(text));

	return length < 0 ? (int)length : parse_u64(text, ret_pages);
}

int64_t host_zero(struct host *host, struct page_class page_class, uint64_t pages)
{
	AUTO_FD fd = host_open_zeroable(host, page_class);
	uint64_t zeroed_pages, left_pages;
	int r = fd < 0 ? fd : 0;

	for (zeroed_pages = 0; r == 0 && zeroed_pages < pages; zeroed_pages++) {
		r = host_read_zeroable(fd, &left_pages);
		if (r < 0 || !left_pages)
			break;
		/* By position, as a file in a test wants it. */
		if (pwrite(fd, "1", 1, 0) < 0) {
			r = -errno;
			break;
		}
	}
	return zeroed_pages ? (int64_t)zeroed_pages : r;
}
