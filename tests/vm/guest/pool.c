/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: reads and writes what the kernel shows of its huge page pools.
 * Guarantees: a file that is not there reads as -1; nothing is cached.
 */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHIFT_2M 21
#define SHIFT_1G 30

const struct page_size page_2m = {"2M", SHIFT_2M, MAP_HUGETLB | SHIFT_2M << 26};
const struct page_size page_1g = {"1G", SHIFT_1G, MAP_HUGETLB | SHIFT_1G << 26};

int nodes;

static void class_path(char *path, size_t path_bytes, const struct page_size *size, int node,
		       const char *file)
{
	snprintf(path, path_bytes, "/sys/devices/system/node/node%d/hugepages/hugepages-%zukB/%s",
		 node, size_bytes(size) >> 10, file);
}

int file_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int result = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		result = -errno;
	close(fd);
	return result;
}

long file_read_number(const char *path)
{
	char text[64];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length;

	if (fd < 0)
		return -1;
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (length <= 0)
		return -1;
	text[length] = '\0';
	return strtol(text, NULL, 10);
}

int pool_open(const struct page_size *size, int node, const char *file, int flags)
{
	char path[160];

	class_path(path, sizeof(path), size, node, file);
	return open(path, flags | O_CLOEXEC);
}

long pool_read(const struct page_size *size, int node, const char *file)
{
	char path[160];

	class_path(path, sizeof(path), size, node, file);
	return file_read_number(path);
}

int pool_write(const struct page_size *size, int node, const char *file, const char *text)
{
	char path[160];

	class_path(path, sizeof(path), size, node, file);
	return file_write(path, text);
}

int pool_write_number(const struct page_size *size, int node, const char *file, long number)
{
	char text[32];

	snprintf(text, sizeof(text), "%ld", number);
	return pool_write(size, node, file, text);
}

struct pool_count pool_count(const struct page_size *size, int node)
{
	return (struct pool_count){
		.nr = pool_read(size, node, "nr_hugepages"),
		.free = pool_read(size, node, "free_hugepages"),
		.surplus = pool_read(size, node, "surplus_hugepages"),
	};
}

long pool_free(const struct page_size *size)
{
	long pages = 0;

	for (int node = 0; node < nodes; node++)
		pages += pool_read(size, node, "free_hugepages");
	return pages;
}

long pool_total(const struct page_size *size)
{
	long pages = 0;

	for (int node = 0; node < nodes; node++)
		pages += pool_read(size, node, "nr_hugepages");
	return pages;
}

bool has_zeroable(const struct page_size *size)
{
	return zeroable(size, 0) >= 0;
}

long zeroable(const struct page_size *size, int node)
{
	return pool_read(size, node, "zeroable_hugepages");
}

long zeroable_all(const struct page_size *size)
{
	long pages = 0;

	for (int node = 0; node < nodes; node++)
		pages += zeroable(size, node);
	return pages;
}

void zero_pages(const struct page_size *size)
{
	/* A control run, without the module, shows what the kernel does by itself. */
	if (!module_path && !has_zeroable(size))
		return;
	for (int node = 0; node < nodes; node++) {
		int result = pool_write(size, node, "zeroable_hugepages", "max");

		require(!result, "zeroing %s@%d: %s", size->name, node, strerror(-result));
	}
}

size_t node_free_bytes(int node)
{
	unsigned long kib = 0;
	char path[64], line[128];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/meminfo", node);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file) &&
	       sscanf(line, "Node %*d MemFree: %lu", &kib) != 1)
		;
	require(file && kib, "%s says nothing of free memory", path);
	fclose(file);
	return kib << 10;
}
