// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * host/pages.c - the size of the kernel's own pool of huge pages, and what decides what it costs.
 *
 * Guarantees: one write(2) for each change, to one file; nothing is kept.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "base/io.h"
#include "base/parse.h"
#include "host/host.h"
#include "host/internal.h"

#define DRAIN_PASSES 64 /* of an eighth each, or 8 MiB */
#define PATH_BYTES 160

static void size_path(char path[PATH_BYTES], uint64_t page_bytes, const char *file)
{
	snprintf(path, PATH_BYTES, HUGEPAGES_DIR "/hugepages-%" PRIu64 "kB/%s", page_bytes / 1024,
		 file);
}

/* NODE_ANY: of the whole host. A kernel without NUMA has only that. */
static void node_path(const struct host *host, char path[PATH_BYTES], struct page_class page_class,
		      const char *file)
{
	snprintf(path, PATH_BYTES, NODES_DIR "/node%d/hugepages/hugepages-%" PRIu64 "kB/%s",
		 page_class.node, page_class.page.bytes / 1024, file);
	if (page_class.node == NODE_ANY ||
	    (page_class.node == 0 && faccessat(host_root_fd(host), NODES_DIR, F_OK, 0) < 0))
		size_path(path, page_class.page.bytes, file);
}

static int write_number(const struct host *host, const char *path, uint64_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, number);
	return write_file_at(host_root_fd(host), path, text);
}

int host_read_pages(struct host *host, struct page_class page_class, uint64_t *ret_pages,
		    uint64_t *ret_surplus_pages)
{
	char path[PATH_BYTES];
	uint64_t total_pages, surplus_pages;
	int r;

	node_path(host, path, page_class, "nr_hugepages");
	r = read_u64_at(host_root_fd(host), path, &total_pages);
	if (r < 0)
		return r;
	node_path(host, path, page_class, "surplus_hugepages");
	r = read_u64_at(host_root_fd(host), path, &surplus_pages);
	if (r < 0)
		return r;
	*ret_pages = total_pages > surplus_pages ? total_pages - surplus_pages : 0;
	*ret_surplus_pages = surplus_pages;
	return 0;
}

int host_write_pages(struct host *host, struct page_class page_class, uint64_t pages)
{
	char path[PATH_BYTES];

	node_path(host, path, page_class, "nr_hugepages");
	return write_number(host, path, pages);
}

int host_read_free_pages(struct host *host, uint64_t page_bytes, uint64_t *ret_pages)
{
	uint64_t free_pages, reserved_pages;
	char path[PATH_BYTES];
	int r;

	size_path(path, page_bytes, "free_hugepages");
	r = read_u64_at(host_root_fd(host), path, &free_pages);
	if (r < 0)
		return r;
	size_path(path, page_bytes, "resv_hugepages");
	r = read_u64_at(host_root_fd(host), path, &reserved_pages);
	if (r < 0)
		return r;
	*ret_pages = free_pages > reserved_pages ? free_pages - reserved_pages : 0;
	return 0;
}

int host_read_overcommit(struct host *host, uint64_t page_bytes, uint64_t *ret_pages)
{
	char path[PATH_BYTES];

	size_path(path, page_bytes, "nr_overcommit_hugepages");
	return read_u64_at(host_root_fd(host), path, ret_pages);
}

int host_write_overcommit(struct host *host, uint64_t page_bytes, uint64_t pages)
{
	char path[PATH_BYTES];

	size_path(path, page_bytes, "nr_overcommit_hugepages");
	return write_number(host, path, pages);
}

int host_compact(struct host *host, int node)
{
	char path[PATH_BYTES];
	int r;

	snprintf(path, sizeof(path), NODES_DIR "/node%d/compact", node);
	r = write_file_at(host_root_fd(host), path, "1");
	return is_absent(r) ? write_file_at(host_root_fd(host), "proc/sys/vm/compact_memory", "1") :
			      r;
}

/* The kernel shortens a CPU's lists by a little whenever it refreshes its statistics. */
int host_drain_lists(struct host *host)
{
	int r = 0;

	for (unsigned int i = 0; i < DRAIN_PASSES && !r; i++)
		r = write_file_at(host_root_fd(host), "proc/sys/vm/stat_refresh", "1");
	return r;
}

/* The last one on the command line counts. */
static int read_command_line(const struct host *host, bool *ret)
{
	static const char name[] = "init_on_alloc=";
	char text[TEXT_BYTES_MAX];
	int found = -ENOENT, r;

	r = (int)read_file_at(host_root_fd(host), "proc/cmdline", text, sizeof(text));
	if (r < 0)
		return r;
	for (char *save, *word = strtok_r(text, " ", &save); word;
	     word = strtok_r(NULL, " ", &save)) {
		if (strncmp(word, name, strlen(name)))
			continue;
		word += strlen(name);
		*ret = !strcmp(word, "1") || !strcmp(word, "on") || *word == 'y' || *word == 'Y';
		found = 0;
	}
	return found;
}

/* What the kernel was built with, where the distribution says it. */
static int read_build(const struct host *host, bool *ret)
{
	char release[128], path[PATH_BYTES + 16], line[256];
	AUTO_FILE f = NULL;
	int fd, r;

	r = (int)read_file_at(host_root_fd(host), "proc/sys/kernel/osrelease", release,
			      sizeof(release));
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "boot/config-%s", release);
	fd = openat(host_root_fd(host), path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0) {
		snprintf(path, sizeof(path), "lib/modules/%s/config", release);
		fd = openat(host_root_fd(host), path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	}
	if (fd < 0)
		return -errno;
	f = fdopen(fd, "r");
	if (!f) {
		close_fd(fd);
		return -ENOMEM;
	}
	*ret = false;
	while (!*ret && fgets(line, sizeof(line), f))
		*ret = !strcmp(line, "CONFIG_INIT_ON_ALLOC_DEFAULT_ON=y\n");
	return 0;
}

/* What it said as it started, while the log still has that: "mem auto-init: stack:off, heap alloc:on,
 * heap free:off". */
static int read_boot_words(const struct host *host, bool *ret)
{
	AUTO_FREE char *text = NULL;
	int r = host_read_log(host, &text);
	const char *line = r < 0 ? NULL : strstr(text, "mem auto-init: ");
	const char *word = line ? strstr(line, "heap alloc:") : NULL;

	if (!word)
		return r < 0 ? r : -ENODATA;
	*ret = !strncmp(word, "heap alloc:on", strlen("heap alloc:on"));
	return 0;
}

int host_zeroes_on_alloc(struct host *host, bool *ret)
{
	bool zeroes;
	int r = read_command_line(host, &zeroes);

	if (r < 0)
		r = read_build(host, &zeroes);
	if (r < 0)
		r = read_boot_words(host, &zeroes);
	if (r < 0)
		return -ENODATA;
	*ret = zeroes;
	return 0;
}

bool host_optimizes_vmemmap(struct host *host)
{
	uint64_t value;

	return !read_u64_at(host_root_fd(host), "proc/sys/vm/hugetlb_optimize_vmemmap", &value) &&
	       value;
}
