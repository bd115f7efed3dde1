/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: pages that change places: migration and memory policies.
 * Guarantees: a clean page that a migration filled keeps the moved data and is dirty afterwards;
 * the pages left behind are dirty too.
 */
#include "guest.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGES_MAX 64

static long pages_to_move(const struct page_size *size)
{
	long pages = pool_count(size, 0).free, room = pool_count(size, 1).free;

	if (room < pages)
		pages = room;
	if (!pages)
		skip("no free page on one of the nodes");
	return pages < PAGES_MAX ? pages : PAGES_MAX;
}

/* Dirty data on node 0 while every free page is clean. */
static char *fill_node_0(const struct page_size *size, long pages)
{
	char *address;

	zero_pages(size);
	numa_bind(0);
	address = map_pages(size, pages, MAP_PRIVATE);
	dirty_pages(size, address, pages);
	numa_bind(-1);
	check(!page_node(address), "the page is on node %d", page_node(address));
	return address;
}

static void check_moved(const struct page_size *size, char *address, long pages, const char *how)
{
	long moved = 0;

	for (long page = 0; page < pages; page++)
		moved += page_node(address + ((size_t)page << size->shift)) == 1;
	check(moved == pages, "%s moved %ld of %ld", how, moved, pages);
	check_dirty(size, address, pages, how);
	unmap_pages(size, address, pages);
	check(zeroable_all(size) >= 2 * pages, "%s: zeroable %ld, expected %ld at least", how,
	      zeroable_all(size), 2 * pages);
	check_pool_zero(size, how);
}

static void move_pages_test(const struct page_size *size)
{
	long pages = pages_to_move(size);
	char *address = fill_node_0(size, pages);
	void *targets[PAGES_MAX];
	int target_nodes[PAGES_MAX], status[PAGES_MAX];

	for (long page = 0; page < pages; page++) {
		targets[page] = address + ((size_t)page << size->shift);
		target_nodes[page] = 1;
	}
	require(!syscall(SYS_move_pages, 0, (unsigned long)pages, targets, target_nodes, status,
			 MPOL_MF_MOVE),
		"move_pages: %s", strerror(errno));
	check_moved(size, address, pages, "move_pages");
}

static void mbind_move(const struct page_size *size)
{
	long pages = pages_to_move(size);
	char *address = fill_node_0(size, pages);
	unsigned long mask = 1UL << 1;

	require(!syscall(SYS_mbind, address, (size_t)pages << size->shift, MPOL_BIND, &mask,
			 sizeof(mask) * 8, MPOL_MF_MOVE | MPOL_MF_STRICT),
		"mbind: %s", strerror(errno));
	check_moved(size, address, pages, "mbind");
}

static void migrate_pages_test(const struct page_size *size)
{
	long pages = pages_to_move(size);
	char *address = fill_node_0(size, pages);
	unsigned long from = 1UL << 0, to = 1UL << 1;
	long left = syscall(SYS_migrate_pages, 0, sizeof(from) * 8, &from, &to);

	/* The program's own small pages may stay behind; its huge ones are looked at one by one. */
	check(left >= 0, "migrate_pages: %s", strerror(errno));
	check_moved(size, address, pages, "migrate_pages");
}

static void policy_faults(const struct page_size *size)
{
	zero_pages(size);
	for (int node = 0; node < 2; node++) {
		long pages = pool_count(size, node).free;
		char *address;

		numa_bind(node);
		address = map_pages(size, pages, MAP_PRIVATE);
		check_zero(size, address, pages, "pages of a bound node");
		for (long page = 0; page < pages; page++)
			check(page_node(address + ((size_t)page << size->shift)) == node,
			      "page %ld is not on node %d", page, node);
		check(!pool_count(size, node).free, "node %d has free pages", node);
		dirty_pages(size, address, pages);
		unmap_pages(size, address, pages);
		check(zeroable(size, node) == pages, "zeroable on node %d: %ld of %ld", node,
		      zeroable(size, node), pages);
		zero_pages(size);
	}
	numa_bind(-1);
}

static const struct test tests[] = {
	{.name = "move_pages", .run = move_pages_test, .sizes = SIZE_BOTH, .min_nodes = 2},
	{.name = "mbind_move", .run = mbind_move, .sizes = SIZE_2M, .min_nodes = 2},
	{.name = "migrate_pages", .run = migrate_pages_test, .sizes = SIZE_2M, .min_nodes = 2},
	{.name = "policy_faults", .run = policy_faults, .sizes = SIZE_BOTH, .min_nodes = 2},
};

const struct test_group group_move = {tests, ARRAY_SIZE(tests)};
