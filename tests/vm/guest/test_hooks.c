/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: hooks that are switched off, taken or traced, and the module going and coming back.
 * Guarantees: whatever becomes of the hooks, no dirty page is taken for a clean one; the module
 * leaves the kernel as it found it.
 */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define KPROBES "/sys/kernel/debug/kprobes/enabled"
#define FTRACE "/proc/sys/kernel/ftrace_enabled"
#define TRACING "/sys/kernel/tracing/"
#define HELPER "prezero_helper"
#define HELPER_PATH "/helper.ko"

/* The functions that a hugetlb page passes on its way in and out, old names and new. */
static const char *const functions[] = {
	"clear_huge_page",   "folio_zero_user",	      "free_huge_page",
	"free_huge_folio",   "alloc_huge_page",	      "alloc_hugetlb_folio",
	"enqueue_huge_page", "enqueue_hugetlb_folio", "dequeue_hugetlb_folio_nodemask",
};

/* Functions that the module stands in front of where it can, and does without where not. */
static const char *const dispensable[] = {"alloc_pool_huge_page", "alloc_pool_huge_folio"};

/* Fills clean pages behind the zeroing function's back, and gives them back dirty. */
static void fill_by_copy(const struct page_size *size)
{
	long pages = pool_free(size) / 2;
	char *address = map_pages(size, pages, MAP_PRIVATE);
	int pid;

	dirty_pages(size, address, pages);
	pid = fork();
	if (!pid) {
		for (long page = 0; page < pages; page++)
			address[(size_t)page << size->shift] ^= 1;
		_exit(0);
	}
	wait_child(pid, 0);
	unmap_pages(size, address, pages);
}

static void exercise(const struct page_size *size, const char *when)
{
	zero_pages(size);
	fill_by_copy(size);
	check_pool_zero(size, when);
	zero_pages(size);
	check_pool_zero(size, when);
}

/* Switches `file` off while clean pages are filled and freed, then on again. */
static void with_switch_off(const struct page_size *size, const char *file, const char *what)
{
	int result;

	zero_pages(size);
	result = file_write(file, "0");
	if (result)
		note("%s cannot be switched off: %s", what, strerror(-result));
	fill_by_copy(size);
	file_write(file, "1");
	check_pool_zero(size, what);
	zero_pages(size);
	file_write(file, "0");
	check_pool_zero(size, what);
	zero_pages(size);
	file_write(file, "1");
	check_pool_zero(size, what);
}

static void kprobes_off(const struct page_size *size)
{
	with_switch_off(size, KPROBES, "kprobes");
}

static void ftrace_off(const struct page_size *size)
{
	with_switch_off(size, FTRACE, "ftrace");
}

static int steal(const char *function)
{
	char parameters[64];

	snprintf(parameters, sizeof(parameters), "steal=%s", function);
	return module_load_file(HELPER_PATH, parameters);
}

static void load_without(const struct page_size *size, const char *function, bool must_load)
{
	int result;

	if (steal(function))
		return;
	result = module_load();
	note("%s taken: the module %s", function, result ? strerror(-result) : "loads");
	if (result) {
		check(!must_load, "%s is dispensable", function);
		check(!has_zeroable(size), "a refused module left its file");
	} else {
		exercise(size, function);
		check(!module_unload(), "unloading");
	}
	check(!module_remove(HELPER), "removing the thief");
	check_pool_zero(size, function);
}

/* Another user, such as a live patch, has a function before the module comes. */
static void stolen_before(const struct page_size *size)
{
	require(!module_unload(), "unloading");
	for (size_t i = 0; i < ARRAY_SIZE(functions); i++)
		load_without(size, functions[i], false);
	for (size_t i = 0; i < ARRAY_SIZE(dispensable); i++)
		load_without(size, dispensable[i], true);
	require(!module_load(), "loading again");
}

/* Another user asks for a function that the module has. */
static void stolen_after(const struct page_size *size)
{
	for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
		int result;

		zero_pages(size);
		result = steal(functions[i]);
		if (result == -ENOENT || result == -EINVAL)
			continue;
		note("%s: the thief %s", functions[i], result ? strerror(-result) : "loads");
		fill_by_copy(size);
		check_pool_zero(size, functions[i]);
		if (!result)
			check(!module_remove(HELPER), "removing the thief");
		exercise(size, functions[i]);
	}
}

/* An administrator traces the very functions that are hooked. */
static void traced(const struct page_size *size)
{
	static const char *const tracers[] = {"function", "function_graph"};

	for (size_t i = 0; i < ARRAY_SIZE(functions); i++)
		file_write(TRACING "set_ftrace_filter", functions[i]);
	for (size_t i = 0; i < ARRAY_SIZE(tracers); i++) {
		check(!file_write(TRACING "current_tracer", tracers[i]), "tracer %s", tracers[i]);
		exercise(size, tracers[i]);
		file_write(TRACING "current_tracer", "nop");
		exercise(size, "after tracing");
	}
	file_write(TRACING "set_ftrace_filter", " ");
	file_write(TRACING "trace", " ");
}

/* ---- the module going and coming back ---- */

static void reload_marked(const struct page_size *size)
{
	long all = pool_free(size);

	zero_pages(size);
	require(!module_unload(), "unloading");
	check(!has_zeroable(size), "the file outlives the module");
	check_pool_zero(size, "pages marked by a module that is gone");
	require(!module_load(), "loading");
	check(zeroable_all(size) == all, "zeroable: %ld of %ld", zeroable_all(size), all);
	check_pool_zero(size, "pages of the time without the module");
	zero_pages(size);
	require(!module_unload(), "unloading");
	fill_by_copy(size);
	require(!module_load(), "loading");
	check_pool_zero(size, "pages marked, then filled without the module");
}

static char *slurp(const char *path)
{
	static char text[1 << 16];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t got;

	while (fd >= 0 && (got = read(fd, text + length, sizeof(text) - 1 - length)) > 0)
		length += (size_t)got;
	if (fd >= 0)
		close(fd);
	text[length] = '\0';
	return strdup(text);
}

/* Nothing of the module's is left in the kernel, and it comes back any number of times. */
static void reload_often(const struct page_size *size)
{
	static const char *const traces[] = {TRACING "enabled_functions",
					     "/sys/kernel/debug/kprobes/list"};
	char *first[ARRAY_SIZE(traces)];

	check(module_load() == -EEXIST, "the module loads twice");
	require(!module_unload(), "unloading");
	for (size_t i = 0; i < ARRAY_SIZE(traces); i++)
		first[i] = slurp(traces[i]);
	for (int round = 0; round < 10; round++) {
		require(!module_load(), "loading, round %d", round);
		if (round % 2)
			zero_pages(size);
		require(!module_unload(), "unloading, round %d", round);
		for (size_t i = 0; i < ARRAY_SIZE(traces); i++) {
			char *now = slurp(traces[i]);

			check(!strcmp(now, first[i]), "%s: \"%.60s\", was \"%.60s\"", traces[i],
			      now, first[i]);
			free(now);
		}
		check(!module_loaded("prezero"), "still loaded");
	}
	require(!module_load(), "loading");
}

static void write_for_ever(void *argument)
{
	const struct page_size *size = argument;

	for (;;) {
		if (pool_write(size, 0, "zeroable_hugepages", "max"))
			sleep_ms(1);
		dirty_pool(size);
	}
}

/* rmmod while somebody is in the midst of zeroing: the writer stops, and no page is lost. */
static void unload_under_writer(const struct page_size *size)
{
	long all = pool_count(size, 0).free;
	int rounds = size == &page_1g ? 2 : 10;
	double slowest_ms = 0;

	for (int round = 0; round < rounds; round++) {
		int pid = start_child(write_for_ever, (void *)(uintptr_t)size);
		double start_ms;
		int result;

		sleep_ms(size == &page_1g ? 500 : 20 + round * 3);
		start_ms = now_ms();
		result = module_unload();
		if (now_ms() - start_ms > slowest_ms)
			slowest_ms = now_ms() - start_ms;
		kill(pid, SIGKILL);
		wait_child(pid, SIGKILL);
		check(!result, "unloading under a writer: %s", strerror(-result));
		check(pool_count(size, 0).free == all, "free: %ld of %ld", pool_count(size, 0).free,
		      all);
		if (!result)
			require(!module_load(), "loading");
	}
	note("slowest unload: %.0f ms", slowest_ms);
	check_pool_zero(size, "after unloading under a writer");
}

/* A descriptor that outlives the module gets an error, and nothing worse. */
static void stale_descriptor(const struct page_size *size)
{
	int fd = pool_open(size, 0, "zeroable_hugepages", O_RDWR);
	char text[8];

	require(fd >= 0, "open: %s", strerror(errno));
	require(!module_unload(), "unloading with the file open");
	check(pread(fd, text, sizeof(text), 0) < 0 && errno == ENODEV, "read: %s", strerror(errno));
	check(pwrite(fd, "max", 3, 0) < 0 && errno == ENODEV, "write: %s", strerror(errno));
	require(!module_load(), "loading");
	close(fd);
}

#define UNLOADS .unloaded = true, .sizes = SIZE_2M

static const struct test tests[] = {
	{.name = "kprobes_off", .run = kprobes_off, .sizes = SIZE_2M},
	{.name = "ftrace_off", .run = ftrace_off, .sizes = SIZE_2M},
	{.name = "stolen_before", .run = stolen_before, UNLOADS},
	{.name = "stolen_after", .run = stolen_after, .sizes = SIZE_2M},
	{.name = "traced", .run = traced, .sizes = SIZE_2M},
	{.name = "reload_marked", .run = reload_marked, UNLOADS},
	{.name = "reload_often", .run = reload_often, UNLOADS},
	{.name = "unload_under_writer",
	 .run = unload_under_writer,
	 .unloaded = true,
	 .sizes = SIZE_BOTH},
	{.name = "stale_descriptor", .run = stale_descriptor, UNLOADS},
};

const struct test_group group_hooks = {tests, ARRAY_SIZE(tests)};
