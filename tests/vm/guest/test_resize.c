/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: pools that change size: dissolved, grown, demoted, overcommitted, shrunk under a writer.
 * Guarantees: a page that left the pool clean and comes back after others used its memory is never
 * taken for clean; one that the kernel has just zeroed is.
 */
#include "guest.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1UL << 20)
/* More than the pool held, so that its former memory is among what is dirtied... */
#define SPARE_BYTES (256 * MIB)
/* ...but not the last of a small node, for which somebody would be killed. */
#define LEAVE_BYTES (256 * MIB)
#define REGROW_TRIES 5

static long set_pool(const struct page_size *size, int node, long pages)
{
	pool_write_number(size, node, "nr_hugepages", pages);
	return pool_read(size, node, "nr_hugepages");
}

/*
 * A gigantic page needs a gigabyte in one piece, and a 2M page of the pool in the midst of one is
 * not moved out of the way by every kernel. So those make room until the gigantic ones are back.
 */
static void regrow(const struct page_size *size, int node, long pages)
{
	long got;

	if (size == &page_1g)
		set_pool(&page_2m, node, 0);
	got = set_pool(size, node, pages);
	for (int tries = 0; got < pages && tries < REGROW_TRIES; tries++) {
		file_write("/proc/sys/vm/drop_caches", "3");
		file_write("/proc/sys/vm/compact_memory", "1");
		got = set_pool(size, node, pages);
	}
	check(got == pages, "%s@%d: regrew to %ld of %ld", size->name, node, got, pages);
	if (size == &page_1g) {
		set_pool(&page_2m, node, pool_pages);
		dirty_pool(&page_2m);
	}
}

/* Fills a node's free memory with the pattern and frees it: what was a huge page is now dirty. */
static void dirty_memory(int node, size_t bytes)
{
	size_t free_bytes = node_free_bytes(node);
	uint64_t *words;

	require(free_bytes > LEAVE_BYTES, "node %d: only %zu bytes are free", node, free_bytes);
	if (bytes > free_bytes - LEAVE_BYTES)
		bytes = free_bytes - LEAVE_BYTES;
	numa_bind(node);
	words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	require(words != MAP_FAILED, "no memory to dirty");
	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		words[i] = ~0ULL;
	munmap(words, bytes);
	numa_bind(-1);
}

static bool fresh_pages_are_zeroed(void)
{
	char line[2048] = "";
	FILE *file = fopen("/proc/cmdline", "re");

	require(file && fgets(line, sizeof(line), file), "no /proc/cmdline");
	fclose(file);
	return strstr(line, "init_on_alloc=1");
}

static void dissolve_regrow(const struct page_size *size)
{
	for (int node = 0; node < nodes; node++) {
		long pages = pool_count(size, node).nr;

		if (!pages)
			continue;
		zero_pages(size);
		require(!set_pool(size, node, 0), "node %d did not give its pages up", node);
		dirty_memory(node, ((size_t)pages << size->shift) + SPARE_BYTES);
		regrow(size, node, pages);
		if (has_zeroable(size) && !fresh_pages_are_zeroed())
			check(zeroable(size, node) == pages, "zeroable: %ld of %ld regrown",
			      zeroable(size, node), pages);
		check_pool_zero(size, "regrown pages");
	}
}

/* With init_on_alloc=1 the kernel has zeroed a fresh page: zeroing it again would be waste. */
static void fresh_enter_clean(const struct page_size *size)
{
	long pages = pool_count(size, 0).nr, grown = pages + 8, before, after;

	if (!fresh_pages_are_zeroed())
		skip("fresh pages are not zeroed with init_on_alloc=0");
	dirty_memory(0, SPARE_BYTES);
	before = zeroable(size, 0);
	require(set_pool(size, 0, grown) == grown, "growing to %ld", grown);
	after = zeroable(size, 0);
	check(after == before, "%ld of 8 fresh pages entered dirty", after - before);
	check_pool_zero(size, "fresh pages");
	set_pool(size, 0, pages);
}

/* Without init_on_alloc a fresh page has whatever its memory held. */
static void fresh_enter_dirty(const struct page_size *size)
{
	long pages = pool_count(size, 0).nr, grown = pages + 8, before;

	if (fresh_pages_are_zeroed())
		skip("fresh pages are zeroed with init_on_alloc=1");
	dirty_memory(0, SPARE_BYTES);
	before = zeroable(size, 0);
	require(set_pool(size, 0, grown) == grown, "growing to %ld", grown);
	check(zeroable(size, 0) == before + 8, "zeroable: %ld, was %ld", zeroable(size, 0), before);
	check_pool_zero(size, "fresh pages");
	set_pool(size, 0, pages);
}

/* A clean 1G page becomes 512 small ones; whether they stay clean is the module's choice. */
static void demote(const struct page_size *size)
{
	long large = pool_count(size, 0).nr, small = pool_count(&page_2m, 0).nr, both;

	if (!pool_count(size, 0).free)
		skip("no free 1G page on node 0");
	zero_pages(size);
	require(!pool_write(size, 0, "demote", "1"), "demote");
	both = pool_count(&page_2m, 0).nr;
	check(both == small + 512, "2M pages: %ld, were %ld", both, small);
	check_pool_zero(&page_2m, "pages of a demoted clean page");
	regrow(size, 0, large);
}

static void demote_dirty(const struct page_size *size)
{
	long large = pool_count(size, 0).nr, before = zeroable(&page_2m, 0);

	if (!pool_count(size, 0).free)
		skip("no free 1G page on node 0");
	require(!pool_write(size, 0, "demote", "1"), "demote");
	check(zeroable(&page_2m, 0) == before + 512, "zeroable: %ld, was %ld",
	      zeroable(&page_2m, 0), before);
	check_pool_zero(&page_2m, "pages of a demoted dirty page");
	regrow(size, 0, large);
}

static void overcommit(long pages)
{
	char text[32];

	snprintf(text, sizeof(text), "%ld", pages);
	require(!file_write("/proc/sys/vm/nr_overcommit_hugepages", text), "overcommit");
}

/* Surplus pages come fresh and go back to the kernel when they are freed. */
static void surplus(const struct page_size *size)
{
	long pages = pool_free(size), more = 16;
	void *address;

	zero_pages(size);
	dirty_memory(0, SPARE_BYTES);
	overcommit(more);
	address = map_pages(size, pages + more, MAP_PRIVATE);
	check_zero(size, address, pages + more, "pool and surplus pages");
	dirty_pages(size, address, pages + more);
	unmap_pages(size, address, pages + more);
	overcommit(0);
	check_pool_zero(size, "after surplus");
}

/* Pages in use become surplus when the pool shrinks, and pages again when it grows. */
static void surplus_adopted(const struct page_size *size)
{
	long pages = pool_count(size, 0).nr;
	void *address;

	zero_pages(size);
	numa_bind(0);
	address = map_pages(size, pages, MAP_PRIVATE);
	dirty_pages(size, address, pages);
	set_pool(size, 0, 0);
	check(pool_count(size, 0).surplus == pages, "surplus: %ld of %ld",
	      pool_count(size, 0).surplus, pages);
	set_pool(size, 0, pages);
	check(!pool_count(size, 0).surplus, "surplus: %ld", pool_count(size, 0).surplus);
	unmap_pages(size, address, pages);
	numa_bind(-1);
	check(zeroable(size, 0) == pages, "zeroable: %ld of %ld", zeroable(size, 0), pages);
	check_pool_zero(size, "adopted surplus pages");
}

static void write_max_for_ever(void *argument)
{
	const struct page_size *size = argument;

	while (has_zeroable(size))
		for (int node = 0; node < nodes; node++)
			pool_write(size, node, "zeroable_hugepages", "max");
	pause(); /* no such file: a run without the module */
}

/* The pool shrinks to nothing and grows again while writers hold pages of it. */
static void shrink_while_held(const struct page_size *size)
{
	long before[NODES_MAX];
	int writers[2], rounds = size == &page_1g ? 3 : 20;

	for (int node = 0; node < nodes; node++)
		before[node] = pool_count(size, node).nr;
	for (size_t i = 0; i < ARRAY_SIZE(writers); i++)
		writers[i] = start_child(write_max_for_ever, (void *)(uintptr_t)size);
	for (int round = 0; round < rounds; round++) {
		sleep_ms(size == &page_1g ? 300 : round % 10);
		for (int node = 0; node < nodes; node++)
			set_pool(size, node, 0);
		for (int node = 0; node < nodes; node++)
			set_pool(size, node, before[node]);
		if (round % 10 == 9)
			dirty_pool(size);
	}
	for (size_t i = 0; i < ARRAY_SIZE(writers); i++) {
		kill(writers[i], SIGKILL);
		wait_child(writers[i], SIGKILL);
	}
	for (int node = 0; node < nodes; node++) {
		regrow(size, node, before[node]);
		check(!pool_count(size, node).surplus, "node %d: surplus %ld", node,
		      pool_count(size, node).surplus);
	}
	check_pool_zero(size, "after shrinking under writers");
}

static const struct test tests[] = {
	{.name = "fresh_enter_clean", .run = fresh_enter_clean, .sizes = SIZE_2M},
	{.name = "fresh_enter_dirty", .run = fresh_enter_dirty, .sizes = SIZE_2M},
	{.name = "surplus", .run = surplus, .sizes = SIZE_2M},
	{.name = "surplus_adopted", .run = surplus_adopted, .sizes = SIZE_2M},
	{.name = "demote", .run = demote, .sizes = SIZE_1G, .no_file = true},
	{.name = "demote_dirty", .run = demote_dirty, .sizes = SIZE_1G},
	{.name = "shrink_while_held",
	 .run = shrink_while_held,
	 .sizes = SIZE_BOTH,
	 .no_file = true},
	{.name = "dissolve_regrow", .run = dissolve_regrow, .sizes = SIZE_BOTH, .no_file = true},
};

const struct test_group group_resize = {tests, ARRAY_SIZE(tests)};
