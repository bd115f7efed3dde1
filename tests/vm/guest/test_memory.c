/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: memory that fails or leaves: hardware poison, and memory blocks going offline.
 * Guarantees: clean pages neither keep a page in service that has failed nor a block from leaving.
 */
#include "guest.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_HWPOISON
#define MADV_HWPOISON 100
#endif
#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif
#define SMALL_PAGE_BYTES 4096
#define BLOCKS_MAX 256

/* All of node 0: a block of memory with a poisoned page may not come back, and node 1's are to. */
static char *map_for_poison(const struct page_size *size)
{
	char *address;

	numa_bind(0);
	address = map_pages(size, 1, MAP_PRIVATE);
	touch_pages(size, address, 1);
	numa_bind(-1);
	return address;
}

static void poison_and_exit(void *argument)
{
	const struct page_size *size = argument;
	char *address = map_for_poison(size);

	if (madvise(address + SMALL_PAGE_BYTES, SMALL_PAGE_BYTES, MADV_HWPOISON))
		_exit(1);
}

static void hwpoison_used(const struct page_size *size)
{
	long pages = pool_total(size);

	zero_pages(size);
	/* Whether the kernel kills the process or waits for its next access is the kernel's matter. */
	wait_child(start_child(poison_and_exit, (void *)(uintptr_t)size), SIGBUS);
	zero_pages(size);
	check_pool_zero(size, "pages beside a poisoned one");
	note("pages: %ld, were %ld", pool_total(size), pages);
}

/* Poison strikes a clean page that lies free, and a writer runs just then. */
static void hwpoison_free(const struct page_size *size)
{
	char *address = map_for_poison(size);
	char physical[32];
	uint64_t frame;

	frame = page_frame(address);
	unmap_pages(size, address, 1);
	zero_pages(size);
	snprintf(physical, sizeof(physical), "%#llx", (unsigned long long)frame * SMALL_PAGE_BYTES);
	require(!file_write("/sys/devices/system/memory/hard_offline_page", physical),
		"hard_offline_page");
	zero_pages(size);
	check_pool_zero(size, "pages beside a poisoned one");
}

/* The kernel moves the data to another page, a clean one, and retires the first. */
static void soft_offline(const struct page_size *size)
{
	char *address;

	if (pool_free(size) < 2)
		skip("needs a second page");
	zero_pages(size);
	address = map_for_poison(size);
	dirty_pages(size, address, 1);
	if (madvise(address, SMALL_PAGE_BYTES, MADV_SOFT_OFFLINE))
		note("MADV_SOFT_OFFLINE: %s", strerror(errno));
	check_dirty(size, address, 1, "data moved off a retired page");
	unmap_pages(size, address, 1);
	check_pool_zero(size, "after a page was retired");
}

static int set_block(int block, const char *state)
{
	char path[96];

	snprintf(path, sizeof(path), "/sys/devices/system/memory/memory%d/state", block);
	return file_write(path, state);
}

static bool block_of_node(int block, int node)
{
	char path[96];

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/memory%d", node, block);
	return !access(path, F_OK);
}

/* The memory blocks that the node's 1G pages lie in, which are none of the test's business. */
static void spare_1g_pages(int node, bool *spare)
{
	char text[32] = "";
	FILE *file = fopen("/sys/devices/system/memory/block_size_bytes", "re");
	long pages = pool_count(&page_1g, node).nr;
	uint64_t block_bytes;
	char *address;

	require(file && fgets(text, sizeof(text), file), "no memory blocks");
	fclose(file);
	block_bytes = strtoull(text, NULL, 16);
	if (!pages)
		return;
	numa_bind(node);
	address = map_pages(&page_1g, pages, MAP_PRIVATE);
	touch_pages(&page_1g, address, pages);
	for (long page = 0; page < pages; page++) {
		uint64_t start = page_frame(address + (page << page_1g.shift)) * SMALL_PAGE_BYTES;

		for (uint64_t at = start; at < start + size_bytes(&page_1g); at += block_bytes)
			if (at / block_bytes < BLOCKS_MAX)
				spare[at / block_bytes] = true;
	}
	unmap_pages(&page_1g, address, pages);
	numa_bind(-1);
}

/*
 * Every block of node 1 that can leave does, with clean free pages in it, and comes back. The
 * runner's time limit is what catches an offline that never ends.
 */
static void offline_node_1(const struct page_size *size)
{
	bool gone[BLOCKS_MAX] = {0}, spare[BLOCKS_MAX] = {0};
	int left = 0, tried = 0;

	spare_1g_pages(1, spare);
	zero_pages(size);
	for (int block = 0; block < BLOCKS_MAX; block++) {
		if (!block_of_node(block, 1) || spare[block])
			continue;
		tried++;
		gone[block] = !set_block(block, "offline");
		left += gone[block];
	}
	check(left, "none of node 1's %d blocks went offline", tried);
	note("%d of %d blocks went offline, %ld pages stayed", left, tried, pool_count(size, 1).nr);
	for (int block = 0; block < BLOCKS_MAX; block++) {
		int result;

		if (!gone[block])
			continue;
		/* Not as movable, which it was not before and where no page may be pinned. */
		result = set_block(block, "online_kernel");
		check(!result, "block %d does not come back: %s", block, strerror(-result));
	}
}

/* The kernel may have moved pages to the other node; what was where is set right. */
static void restore_pool(const struct page_size *size, const long *pages)
{
	for (int node = 0; node < nodes; node++)
		pool_write_number(size, node, "nr_hugepages", pages[node]);
	check_pool_zero(size, "pages of blocks that left and came back");
}

static void memory_offline(const struct page_size *size)
{
	long pages[] = {pool_count(size, 0).nr, pool_count(size, 1).nr};

	offline_node_1(size);
	check_pool_zero(size, "pages that stayed");
	restore_pool(size, pages);
}

static void write_max_for_ever(void *argument)
{
	const struct page_size *size = argument;

	for (;;) {
		void *address = try_map_pages(size, 8, MAP_PRIVATE);

		/* The pool shrinks meanwhile. */
		if (address) {
			dirty_pages(size, address, 8);
			unmap_pages(size, address, 8);
		}
		pool_write(size, 1, "zeroable_hugepages", "max");
	}
}

static void memory_offline_writer(const struct page_size *size)
{
	long pages[] = {pool_count(size, 0).nr, pool_count(size, 1).nr};
	int writer = start_child(write_max_for_ever, (void *)(uintptr_t)size);

	offline_node_1(size);
	kill(writer, SIGKILL);
	wait_child(writer, SIGKILL);
	restore_pool(size, pages);
}

#define MEMORY .sizes = SIZE_2M, .no_file = true

static const struct test tests[] = {
	{.name = "hwpoison_used", .run = hwpoison_used, .lost_pages = 1, MEMORY},
	{.name = "hwpoison_free", .run = hwpoison_free, .lost_pages = 1, MEMORY},
	{.name = "soft_offline", .run = soft_offline, .lost_pages = 1, MEMORY},
	{.name = "memory_offline", .run = memory_offline, .min_nodes = 2, MEMORY},
	{.name = "memory_offline_writer",
	 .run = memory_offline_writer,
	 .min_nodes = 2,
	 .limit_s = 180,
	 MEMORY},
};

const struct test_group group_memory = {tests, ARRAY_SIZE(tests)};
