/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: every free page wanted at once while writers hold some of them.
 * Guarantees: nobody gets an error from a mmap, a fault, an allocation or a migration that would
 * have succeeded without a writer. Run without a module these tests show that it would have.
 */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <linux/udmabuf.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WRITERS 3
#define PAGES_MAX 256

static int writers[WRITERS];

struct writer {
	const struct page_size *size;
	int number;
};

/* One writes all it can get, the others a page at a time, so that some page is always held. */
static void write_for_ever(void *argument)
{
	const struct writer *writer = argument;

	for (;;) {
		bool any = false;

		for (int node = 0; node < nodes; node++)
			any |= !pool_write(writer->size, node, "zeroable_hugepages",
					   writer->number ? "1" : "max");
		if (!any)
			pause(); /* no such file: a run without the module */
	}
}

static void start_writers(const struct page_size *size)
{
	for (int i = 0; i < WRITERS; i++)
		writers[i] = start_child(write_for_ever, &(struct writer){size, i});
}

static void stop_writers(void)
{
	for (int i = 0; i < WRITERS; i++)
		kill(writers[i], SIGKILL);
	for (int i = 0; i < WRITERS; i++)
		wait_child(writers[i], SIGKILL);
}

static int rounds_of(const struct page_size *size)
{
	return size == &page_1g ? 2 : 10;
}

static void note_slowest(double ms)
{
	note("slowest round: %.0f ms", ms);
}

struct want {
	const struct page_size *size;
	long pages;
	int flags;
};

static void map_and_fault(void *argument)
{
	struct want *want = argument;
	void *address = map_pages(want->size, want->pages, want->flags);

	touch_pages(want->size, address, want->pages);
	check_zero(want->size, address, want->pages, "a page taken under writers");
	dirty_pages(want->size, address, want->pages);
}

static void all_wanted(const struct page_size *size, void (*take)(void *), int flags)
{
	struct want want = {size, pool_free(size), flags};
	double slowest_ms = 0;

	start_writers(size);
	for (int round = 0; round < rounds_of(size); round++) {
		double start_ms = now_ms();

		/* A SIGBUS ends the child, which wait_child reports. */
		wait_child(start_child(take, &want), 0);
		if (now_ms() - start_ms > slowest_ms)
			slowest_ms = now_ms() - start_ms;
	}
	stop_writers();
	note_slowest(slowest_ms);
}

static void all_by_fault(const struct page_size *size)
{
	all_wanted(size, map_and_fault, MAP_PRIVATE);
}

/* Without a reservation each fault takes its chance; there is a page for every one of them. */
static void all_unreserved(const struct page_size *size)
{
	all_wanted(size, map_and_fault, MAP_PRIVATE | MAP_NORESERVE);
}

static void all_by_populate(const struct page_size *size)
{
	all_wanted(size, map_and_fault, MAP_SHARED | MAP_POPULATE);
}

static void fallocate_all(void *argument)
{
	struct want *want = argument;
	int fd = huge_memfd(want->size, want->pages, 0);
	void *address;

	require(!fallocate(fd, 0, 0, (off_t)want->pages << want->size->shift), "fallocate: %s",
		strerror(errno));
	address = map_file(want->size, want->pages, fd, MAP_SHARED);
	check_zero(want->size, address, want->pages, "a page allocated under writers");
	dirty_pages(want->size, address, want->pages);
}

static void all_by_fallocate(const struct page_size *size)
{
	all_wanted(size, fallocate_all, 0);
}

static void udmabuf_all(void *argument)
{
	struct want *want = argument;
	struct udmabuf_create create = {.size = (uint64_t)want->pages << want->size->shift};
	int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), buffer;
	int fd = huge_memfd(want->size, want->pages, MFD_ALLOW_SEALING);
	void *address;

	require(!fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), "sealing: %s", strerror(errno));
	create.memfd = (uint32_t)fd;
	buffer = ioctl(device, UDMABUF_CREATE, &create);
	require(buffer >= 0, "UDMABUF_CREATE: %s", strerror(errno));
	/* Not through the file: some kernels would want to reserve its pages a second time. */
	address = map_file(want->size, want->pages, buffer, MAP_SHARED);
	check_zero(want->size, address, want->pages, "a page pinned under writers");
	dirty_pages(want->size, address, want->pages);
}

static void all_by_udmabuf(const struct page_size *size)
{
	if (access("/dev/udmabuf", F_OK))
		skip("this kernel has no /dev/udmabuf");
	file_write("/sys/module/udmabuf/parameters/size_limit_mb", "16384");
	all_wanted(size, udmabuf_all, 0);
}

/* Each node's pages by a policy that allows no other node. */
static void bind_and_fault(void *argument)
{
	struct want *want = argument;

	for (int node = 0; node < nodes; node++) {
		struct want here = {want->size, pool_count(want->size, node).nr, want->flags};

		require(!numa_bind(node), "set_mempolicy: %s", strerror(errno));
		map_and_fault(&here);
	}
}

static void all_by_policy(const struct page_size *size)
{
	all_wanted(size, bind_and_fault, MAP_PRIVATE);
}

/* All of node 1's pages are the target of a migration while writers hold some of them. */
static void migrate_all(void *argument)
{
	struct want *want = argument;
	long pages = pool_count(want->size, 0).nr, room = pool_count(want->size, 1).nr, moved = 0;
	void *targets[PAGES_MAX];
	int target_nodes[PAGES_MAX], status[PAGES_MAX];
	char *address;

	if (room < pages)
		pages = room;
	numa_bind(0);
	address = map_pages(want->size, pages, MAP_PRIVATE);
	dirty_pages(want->size, address, pages);
	for (long page = 0; page < pages; page++) {
		targets[page] = address + ((size_t)page << want->size->shift);
		target_nodes[page] = 1;
	}
	require(!syscall(SYS_move_pages, 0, (unsigned long)pages, targets, target_nodes, status,
			 MPOL_MF_MOVE),
		"move_pages: %s", strerror(errno));
	for (long page = 0; page < pages; page++)
		moved += status[page] == 1;
	check(moved == pages, "%ld of %ld pages moved", moved, pages);
	check_dirty(want->size, address, pages, "pages moved under writers");
}

static void all_by_migration(const struct page_size *size)
{
	if (pool_total(size) > PAGES_MAX || !pool_count(size, 0).nr || !pool_count(size, 1).nr)
		skip("needs 1 to %d pages on both nodes", PAGES_MAX);
	all_wanted(size, migrate_all, 0);
}

#define PRESSURE .sizes = SIZE_BOTH, .no_file = true

static const struct test tests[] = {
	{.name = "all_by_fault", .run = all_by_fault, PRESSURE},
	{.name = "all_unreserved", .run = all_unreserved, PRESSURE},
	{.name = "all_by_populate", .run = all_by_populate, PRESSURE},
	{.name = "all_by_fallocate", .run = all_by_fallocate, PRESSURE},
	{.name = "all_by_udmabuf", .run = all_by_udmabuf, PRESSURE},
	{.name = "all_by_policy", .run = all_by_policy, PRESSURE},
	{.name = "all_by_migration", .run = all_by_migration, .min_nodes = 2, PRESSURE},
};

const struct test_group group_pressure = {tests, ARRAY_SIZE(tests)};
