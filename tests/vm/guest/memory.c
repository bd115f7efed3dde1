/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: maps, dirties and reads back huge pages: the oracle of every leak test.
 * Guarantees: a single non-zero byte in a page that should be zero fails the test, and the note
 * says which test left it there.
 */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PATTERN 0xd1d1000000000000ULL
#define WORDS_PER_STEP 8

double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

void sleep_ms(double ms)
{
	struct timespec span = {(time_t)(ms / 1e3), 0};

	span.tv_nsec = (long)((ms - (double)span.tv_sec * 1e3) * 1e6);
	while (nanosleep(&span, &span) && errno == EINTR)
		;
}

void *try_map_pages(const struct page_size *size, long pages, int flags)
{
	void *address = mmap(NULL, (size_t)pages << size->shift, PROT_READ | PROT_WRITE,
			     MAP_ANONYMOUS | size->mmap_flags | flags, -1, 0);

	return address == MAP_FAILED ? NULL : address;
}

void *map_pages(const struct page_size *size, long pages, int flags)
{
	void *address = try_map_pages(size, pages, flags);

	require(address, "mmap of %ld x %s: %s", pages, size->name, strerror(errno));
	return address;
}

void *map_file(const struct page_size *size, long pages, int fd, int flags)
{
	void *address =
		mmap(NULL, (size_t)pages << size->shift, PROT_READ | PROT_WRITE, flags, fd, 0);

	require(address != MAP_FAILED, "mmap of a file of %ld x %s: %s", pages, size->name,
		strerror(errno));
	return address;
}

void unmap_pages(const struct page_size *size, void *address, long pages)
{
	munmap(address, (size_t)pages << size->shift);
}

int huge_memfd(const struct page_size *size, long pages, unsigned int flags)
{
	int fd = memfd_create("prezero", MFD_HUGETLB | size->shift << 26 | flags);

	require(fd >= 0, "memfd of %s: %s", size->name, strerror(errno));
	require(!ftruncate(fd, pages << size->shift), "ftruncate: %s", strerror(errno));
	return fd;
}

void touch_pages(const struct page_size *size, void *address, long pages)
{
	for (long page = 0; page < pages; page++)
		*((volatile char *)address + ((size_t)page << size->shift)) = 0;
}

uint32_t pattern_owner;

/*
 * The pattern is a page's own: who wrote it and the page's number in its mapping, so that a leak
 * tells whose data came through.
 */
static uint64_t page_pattern(long page)
{
	return PATTERN | (uint64_t)(pattern_owner & 0xffffff) << 24 | (uint64_t)(page & 0xffffff);
}

void dirty_pages(const struct page_size *size, void *address, long pages)
{
	size_t words = size_bytes(size) / sizeof(uint64_t);

	for (long page = 0; page < pages; page++) {
		uint64_t *word = (uint64_t *)address + (size_t)page * words;
		uint64_t pattern = page_pattern(page);

		for (size_t i = 0; i < words; i++)
			word[i] = pattern;
	}
}

bool is_zero(const void *address, size_t bytes)
{
	const uint64_t *word = address;
	const uint64_t *end = word + bytes / sizeof(uint64_t);

	for (; word < end; word += WORDS_PER_STEP)
		if (word[0] | word[1] | word[2] | word[3] | word[4] | word[5] | word[6] | word[7])
			return false;
	return true;
}

bool check_zero(const struct page_size *size, const void *address, long pages, const char *what)
{
	size_t words = size_bytes(size) / sizeof(uint64_t);
	long bad_pages = 0;

	for (long page = 0; page < pages; page++) {
		const uint64_t *word = (const uint64_t *)address + (size_t)page * words;
		size_t i = 0;

		if (is_zero(word, size_bytes(size)))
			continue;
		while (!word[i])
			i++;
		if (!bad_pages++)
			check(false, "LEAK: %s: page %ld of %ld, offset %#zx holds %#llx", what,
			      page, pages, i * sizeof(uint64_t), (unsigned long long)word[i]);
	}
	if (bad_pages > 1)
		note("LEAK: %s: %ld of %ld pages", what, bad_pages, pages);
	return !bad_pages;
}

bool check_dirty(const struct page_size *size, const void *address, long pages, const char *what)
{
	size_t words = size_bytes(size) / sizeof(uint64_t);

	for (long page = 0; page < pages; page++) {
		const uint64_t *word = (const uint64_t *)address + (size_t)page * words;
		uint64_t pattern = page_pattern(page);

		for (size_t i = 0; i < words; i++)
			if (word[i] != pattern)
				return check(false, "%s: page %ld, offset %#zx: %#llx, not %#llx",
					     what, page, i * sizeof(uint64_t),
					     (unsigned long long)word[i],
					     (unsigned long long)pattern);
	}
	return true;
}

void dirty_pool(const struct page_size *size)
{
	long pages = pool_free(size);
	void *address;

	if (!pages)
		return;
	address = map_pages(size, pages, MAP_PRIVATE);
	dirty_pages(size, address, pages);
	unmap_pages(size, address, pages);
}

void check_pool_zero(const struct page_size *size, const char *what)
{
	long pages = pool_free(size);
	void *address;

	if (!pages)
		return;
	address = map_pages(size, pages, MAP_PRIVATE);
	check_zero(size, address, pages, what);
	dirty_pages(size, address, pages);
	unmap_pages(size, address, pages);
}

int numa_bind(int node)
{
	unsigned long mask = node < 0 ? 0 : 1UL << node;

	return (int)syscall(SYS_set_mempolicy, node < 0 ? MPOL_DEFAULT : MPOL_BIND,
			    node < 0 ? NULL : &mask, sizeof(mask) * 8);
}

int page_node(const void *address)
{
	void *page = (void *)(uintptr_t)address;
	int status = -1;

	syscall(SYS_move_pages, 0, 1UL, &page, NULL, &status, 0);
	return status;
}

uint64_t page_frame(const void *address)
{
	uint64_t entry = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	require(fd >= 0, "pagemap: %s", strerror(errno));
	require(pread(fd, &entry, sizeof(entry),
		      (off_t)((uintptr_t)address / 4096 * sizeof(entry))) == sizeof(entry),
		"pagemap: %s", strerror(errno));
	close(fd);
	return entry & ((1ULL << 55) - 1);
}
