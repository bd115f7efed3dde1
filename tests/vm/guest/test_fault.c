/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: pages that reach a process by a fault or by a copy.
 * Guarantees: clean pages read as zero however they are faulted in, and a clean page that was
 * filled by a copy, never by the zeroing function, is dirty once it is free again.
 */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HUGETLBFS "/dev/hugepages"

/* All of the pool's pages but one where the test needs a second set of the same number. */
static long half_pool(const struct page_size *size)
{
	long pages = pool_free(size) / 2;

	return pages ? pages : 1;
}

static void fault_all(const struct page_size *size, int flags)
{
	long pages = pool_free(size);
	void *address;

	zero_pages(size);
	check(!zeroable_all(size), "zeroable after zeroing all: %ld", zeroable_all(size));
	address = map_pages(size, pages, flags);
	check_zero(size, address, pages, "clean pages");
	dirty_pages(size, address, pages);
	check_dirty(size, address, pages, "pages in use");
	unmap_pages(size, address, pages);
	check(zeroable_all(size) == pages, "zeroable after giving %ld back dirty: %ld", pages,
	      zeroable_all(size));
	address = map_pages(size, pages, flags);
	check_zero(size, address, pages, "dirty pages");
	unmap_pages(size, address, pages);
}

static void fault_private(const struct page_size *size)
{
	fault_all(size, MAP_PRIVATE);
}

static void fault_shared(const struct page_size *size)
{
	fault_all(size, MAP_SHARED);
}

/* The first access is a write, and to the last word: nothing but it may be non-zero. */
static void fault_write(const struct page_size *size)
{
	long pages = pool_free(size);
	size_t last = size_bytes(size) / sizeof(uint64_t) - 1;
	uint64_t *address;

	zero_pages(size);
	address = map_pages(size, pages, MAP_PRIVATE);
	for (long page = 0; page < pages; page++) {
		uint64_t *word = address + (size_t)page * (last + 1) + last;

		*word = 1;
		*word = 0;
	}
	check_zero(size, address, pages, "pages written first");
	dirty_pages(size, address, pages);
	unmap_pages(size, address, pages);
}

static void clean_first(const struct page_size *size)
{
	int node = 0;
	long all = pool_count(size, node).free, clean = all / 2, dirty;
	void *address;

	if (!clean)
		skip("one page is not enough");
	numa_bind(node);
	require(!pool_write_number(size, node, "zeroable_hugepages", clean), "zeroing %ld", clean);
	dirty = zeroable(size, node);
	check(dirty == all - clean, "zeroable: %ld, expected %ld", dirty, all - clean);
	address = map_pages(size, clean, MAP_PRIVATE);
	touch_pages(size, address, clean);
	check(zeroable(size, node) == dirty,
	      "dirty pages went out before clean ones: %ld left of %ld", zeroable(size, node),
	      dirty);
	check_zero(size, address, clean, "clean pages");
	dirty_pages(size, address, clean);
	unmap_pages(size, address, clean);
	numa_bind(-1);
}

struct area {
	const struct page_size *size;
	void *address;
	long pages;
};

static void write_a_byte_of_each(void *argument)
{
	struct area *area = argument;

	for (long page = 0; page < area->pages; page++)
		((volatile char *)area->address)[((size_t)page << area->size->shift) + 1] ^= 1;
}

/* The copies of copy-on-write fill clean pages without the zeroing function seeing them. */
static void fork_cow(const struct page_size *size)
{
	struct area area = {size, NULL, half_pool(size)};

	if (pool_free(size) < 2)
		skip("a copy needs a second page");
	zero_pages(size);
	area.address = map_pages(size, area.pages, MAP_PRIVATE);
	dirty_pages(size, area.address, area.pages);
	wait_child(start_child(write_a_byte_of_each, &area), 0);
	check_dirty(size, area.address, area.pages, "the parent's pages");
	unmap_pages(size, area.address, area.pages);
	check_pool_zero(size, "after copy-on-write");
}

static void file_cow(const struct page_size *size)
{
	long pages = half_pool(size);
	int fd = huge_memfd(size, pages, 0);
	struct area copy = {size, NULL, pages};
	void *shared;

	if (pool_free(size) < 2)
		skip("a copy needs a second page");
	zero_pages(size);
	shared = map_file(size, pages, fd, MAP_SHARED);
	dirty_pages(size, shared, pages);
	copy.address = map_file(size, pages, fd, MAP_PRIVATE);
	write_a_byte_of_each(&copy);
	check_dirty(size, shared, pages, "the file's pages");
	unmap_pages(size, copy.address, pages);
	unmap_pages(size, shared, pages);
	close(fd);
	check_pool_zero(size, "after private writes to a file");
}

static int userfault_open(uint64_t features)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	struct uffdio_api api = {.api = UFFD_API, .features = features};

	require(fd >= 0, "userfaultfd: %s", strerror(errno));
	require(!ioctl(fd, UFFDIO_API, &api), "UFFDIO_API: %s", strerror(errno));
	return fd;
}

static void userfault_register(int fd, const struct page_size *size, void *address, long pages,
			       uint64_t mode)
{
	struct uffdio_register range = {
		.range = {(uintptr_t)address, (uint64_t)pages << size->shift},
		.mode = mode,
	};

	require(!ioctl(fd, UFFDIO_REGISTER, &range), "UFFDIO_REGISTER: %s", strerror(errno));
}

static void uffdio_copy(const struct page_size *size)
{
	long pages = half_pool(size);
	int fd = userfault_open(0);
	void *source = mmap(NULL, size_bytes(size), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *target;

	require(source != MAP_FAILED, "no memory for the source");
	memset(source, 0xa5, size_bytes(size));
	zero_pages(size);
	target = map_pages(size, pages, MAP_PRIVATE);
	userfault_register(fd, size, target, pages, UFFDIO_REGISTER_MODE_MISSING);
	for (long page = 0; page < pages; page++) {
		struct uffdio_copy copy = {
			.dst = (uintptr_t)target + ((size_t)page << size->shift),
			.src = (uintptr_t)source,
			.len = size_bytes(size),
		};

		require(!ioctl(fd, UFFDIO_COPY, &copy), "UFFDIO_COPY: %s", strerror(errno));
		check(!memcmp(target + ((size_t)page << size->shift), source, size_bytes(size)),
		      "page %ld is not what was copied", page);
	}
	close(fd);
	unmap_pages(size, target, pages);
	munmap(source, size_bytes(size));
	check(zeroable_all(size) >= pages, "copied pages count as clean");
	check_pool_zero(size, "after UFFDIO_COPY");
}

/* hugetlb has no UFFDIO_ZEROPAGE today; if a kernel grows it, its pages have to be zero. */
static void uffdio_zeropage(const struct page_size *size)
{
	int fd = userfault_open(0);
	void *target;
	struct uffdio_zeropage zero = {.range.len = size_bytes(size)};

	zero_pages(size);
	target = map_pages(size, 1, MAP_PRIVATE);
	userfault_register(fd, size, target, 1, UFFDIO_REGISTER_MODE_MISSING);
	zero.range.start = (uintptr_t)target;
	if (!ioctl(fd, UFFDIO_ZEROPAGE, &zero))
		check_zero(size, target, 1, "UFFDIO_ZEROPAGE");
	else
		check(errno == EINVAL, "UFFDIO_ZEROPAGE: %s", strerror(errno));
	close(fd);
	unmap_pages(size, target, 1);
}

/* Pages that a file has and a mapping has not: faulted in through the file, then continued. */
static void uffdio_continue(const struct page_size *size)
{
	long pages = half_pool(size);
	int file = huge_memfd(size, pages, 0);
	int fd = userfault_open(UFFD_FEATURE_MINOR_HUGETLBFS);
	void *through, *target;

	zero_pages(size);
	through = map_file(size, pages, file, MAP_SHARED);
	target = map_file(size, pages, file, MAP_SHARED);
	userfault_register(fd, size, target, pages, UFFDIO_REGISTER_MODE_MINOR);
	touch_pages(size, through, pages);
	for (long page = 0; page < pages; page++) {
		struct uffdio_continue minor = {
			.range = {(uintptr_t)target + ((size_t)page << size->shift),
				  size_bytes(size)},
		};

		require(!ioctl(fd, UFFDIO_CONTINUE, &minor), "UFFDIO_CONTINUE: %s",
			strerror(errno));
	}
	check_zero(size, target, pages, "UFFDIO_CONTINUE");
	dirty_pages(size, target, pages);
	close(fd);
	unmap_pages(size, target, pages);
	unmap_pages(size, through, pages);
	close(file);
	check_pool_zero(size, "after UFFDIO_CONTINUE");
}

static const struct test tests[] = {
	{.name = "fault_private", .run = fault_private, .sizes = SIZE_BOTH},
	{.name = "fault_shared", .run = fault_shared, .sizes = SIZE_BOTH},
	{.name = "fault_write", .run = fault_write, .sizes = SIZE_BOTH},
	{.name = "clean_first", .run = clean_first, .sizes = SIZE_BOTH},
	{.name = "fork_cow", .run = fork_cow, .sizes = SIZE_BOTH},
	{.name = "file_cow", .run = file_cow, .sizes = SIZE_BOTH},
	{.name = "uffdio_copy", .run = uffdio_copy, .sizes = SIZE_2M},
	{.name = "uffdio_zeropage", .run = uffdio_zeropage, .sizes = SIZE_2M},
	{.name = "uffdio_continue", .run = uffdio_continue, .sizes = SIZE_BOTH},
};

const struct test_group group_fault = {tests, ARRAY_SIZE(tests)};
