/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: what a guest test is and what it can use.
 * Guarantees: every test starts from a full pool of dirty pages; after it the pool's counters are
 * where they were, and every page of the pool has been read back as zero.
 */
#ifndef GUEST_H
#define GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define PRINTF(f, a) __attribute__((format(printf, f, a)))

/* ---- page sizes and what the kernel says about them (pool.c) ---- */

struct page_size {
	const char *name; /* as in 2M@0 */
	unsigned int shift;
	int mmap_flags; /* MAP_HUGETLB and the size */
};

extern const struct page_size page_2m, page_1g;

static inline size_t size_bytes(const struct page_size *size)
{
	return (size_t)1 << size->shift;
}

struct pool_count {
	long nr, free, surplus;
};

#define NODES_MAX 8
extern int nodes; /* NUMA nodes with memory, numbered from 0 */

/* One file of a class; -1 or a negative errno where there is none, or the write was refused. */
long pool_read(const struct page_size *size, int node, const char *file);
int pool_write(const struct page_size *size, int node, const char *file, const char *text);
int pool_write_number(const struct page_size *size, int node, const char *file, long number);
int pool_open(const struct page_size *size, int node, const char *file, int flags);

struct pool_count pool_count(const struct page_size *size, int node);
long pool_free(const struct page_size *size); /* over all nodes */
long pool_total(const struct page_size *size);
size_t node_free_bytes(int node); /* of any kind */

/* zeroable_hugepages. zero_pages writes "max" everywhere and requires success. */
bool has_zeroable(const struct page_size *size);
long zeroable(const struct page_size *size, int node);
long zeroable_all(const struct page_size *size);
void zero_pages(const struct page_size *size);

int file_write(const char *path, const char *text); /* 0 or a negative errno */
long file_read_number(const char *path);

/* ---- memory (memory.c) ---- */

/* A mapping of whole huge pages; requires success. flags: MAP_PRIVATE or MAP_SHARED, and more. */
void *map_pages(const struct page_size *size, long pages, int flags);
void *map_file(const struct page_size *size, long pages, int fd, int flags);
void *try_map_pages(const struct page_size *size, long pages, int flags);
void unmap_pages(const struct page_size *size, void *address, long pages);
int huge_memfd(const struct page_size *size, long pages, unsigned int flags);

void touch_pages(const struct page_size *size, void *address, long pages);

/* Fills every word with a pattern that is never zero and tells writer and page apart. */
extern uint32_t pattern_owner;
void dirty_pages(const struct page_size *size, void *address, long pages);

/* Checks that every byte is zero, or that every word is dirty_pages' own. Records failures. */
bool check_zero(const struct page_size *size, const void *address, long pages, const char *what);
bool check_dirty(const struct page_size *size, const void *address, long pages, const char *what);
bool is_zero(const void *address, size_t bytes);

/* Dirties every free page of the class and gives it back, so that all of them are dirty. */
void dirty_pool(const struct page_size *size);
/* Faults every free page in, checks that all of them are zero, and gives them back dirty. */
void check_pool_zero(const struct page_size *size, const char *what);

int numa_bind(int node); /* this process' memory policy; -1: back to the default */
int page_node(const void *address);
uint64_t page_frame(const void *address);

double now_ms(void);
void sleep_ms(double ms);

/* ---- the verdict (runner.c) ---- */

/* Records a failure and goes on; `require` ends the test. Both return `ok`. */
bool check_at(bool ok, const char *file, int line, const char *format, ...) PRINTF(4, 5);
#define check(ok, ...) check_at(ok, __FILE__, __LINE__, __VA_ARGS__)
#define require(ok, ...)                     \
	do {                                 \
		if (!check(ok, __VA_ARGS__)) \
			test_exit();         \
	} while (0)

__attribute__((noreturn)) void test_exit(void);
__attribute__((noreturn)) void skip(const char *format, ...) PRINTF(1, 2);
void note(const char *format, ...) PRINTF(1, 2);
void figure(const char *name, double value);

/* Runs `work` in a child process, which inherits the verdict; the pid. */
int start_child(void (*work)(void *), void *argument);
/* Waits for a child; requires that it ended by itself with 0, unless a signal of ours ended it. */
void wait_child(int pid, int expected_signal);

/* ---- kernel modules (kmod.c) ---- */

extern const char *module_path, *module_parameters;
extern double stress_s;
extern long pool_pages, figure_pages;

bool module_loaded(const char *name);
int module_load_file(const char *path, const char *parameters);
int module_remove(const char *name);
int module_load(void); /* the module under test */
int module_unload(void);

/* ---- tests ---- */

#define SIZE_2M 1u
#define SIZE_1G 2u
#define SIZE_BOTH (SIZE_2M | SIZE_1G)

struct test {
	const char *name;
	void (*run)(const struct page_size *size);
	unsigned int sizes;
	unsigned int limit_s; /* before it counts as a hang */
	int min_nodes;
	bool no_file; /* means something without zeroable_hugepages too */
	bool unloaded; /* loads and removes the module by itself */
	bool only_by_name; /* not part of a full run */
	int lost_pages; /* 2M pages that the test takes out of service for good */
};

struct test_group {
	const struct test *tests;
	size_t count;
};

extern const struct test_group group_fault, group_file, group_move, group_resize, group_memory,
	group_hooks, group_semantics, group_reserve, group_pressure, group_stress, group_figures,
	group_programs, group_debug, group_selftest;

#endif
