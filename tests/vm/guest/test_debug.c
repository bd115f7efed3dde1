/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: what only a kernel built to find faults can show: memory that is lost, and allocations that
 * fail, one after the other. tests/vm/debug runs these; a stock kernel skips them.
 * Guarantees: every allocation of a load, a removal and the work in between has failed once, and
 * after each the module is either whole or gone; faults planted on purpose are found.
 */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEBUG "/sys/kernel/debug/"
#define HELPER "prezero_helper"
#define HELPER_PATH "/helper.ko"

/* ---- memory that nobody refers to any more ---- */

/* kmemleak reports nothing that is younger than 5 s, and nothing that changed since its last scan. */
#define LEAK_AGE_MS 5500
#define LEAK_SCANS 2

/* The number of lost objects; the first lines of each become notes. */
static int lost_objects(void)
{
	char line[160];
	int count = 0, shown = 0;
	FILE *report;

	for (int scan = 0; scan < LEAK_SCANS; scan++) {
		sleep_ms(LEAK_AGE_MS);
		require(!file_write(DEBUG "kmemleak", "scan"), "kmemleak does not scan");
	}
	report = fopen(DEBUG "kmemleak", "re");
	require(report, "kmemleak: %s", strerror(errno));
	while (fgets(line, sizeof(line), report)) {
		line[strcspn(line, "\n")] = '\0';
		if (strstr(line, "unreferenced object"))
			count++;
		if (shown++ < 10)
			note("%s", line);
	}
	fclose(report);
	return count;
}

static void need_kmemleak(void)
{
	if (access(DEBUG "kmemleak", F_OK))
		skip("this kernel has no kmemleak");
}

/* Nothing that the module or the tests before this one allocated is lost. */
static void nothing_lost(const struct page_size *size)
{
	need_kmemleak();
	zero_pages(size);
	require(!module_unload(), "unloading");
	check(!lost_objects(), "memory is lost");
	require(!module_load(), "loading");
}

/* Lockdep switches itself off at its first finding, and then is quiet about all others. */
static void lockdep_on(const struct page_size *size)
{
	char line[160];
	FILE *report = fopen("/proc/lockdep_stats", "re");
	bool on = false;

	(void)size;
	if (!report)
		skip("this kernel has no lockdep");
	while (fgets(line, sizeof(line), report))
		if (strstr(line, "debug_locks:"))
			on = strstr(line, " 1");
	fclose(report);
	check(on, "lockdep has switched itself off");
}

/* ---- allocations that fail ---- */

/* Set up so that what /proc/thread-self/fail-nth asks for is not filtered out, nor reported. */
static const char *const fault_settings[][2] = {
	{"failslab/ignore-gfp-wait", "N"},	  {"failslab/verbose", "0"},
	{"fail_page_alloc/ignore-gfp-wait", "N"}, {"fail_page_alloc/ignore-gfp-highmem", "N"},
	{"fail_page_alloc/min-order", "0"},	  {"fail_page_alloc/verbose", "0"},
};
static const char *const fault_kinds[] = {"failslab", "fail_page_alloc"};

static void set_fault(const char *kind, const char *file, const char *value)
{
	char path[96];

	snprintf(path, sizeof(path), DEBUG "%s/%s", kind, file);
	require(!file_write(path, value), "%s", path);
}

static void set_up_faults(void)
{
	if (access(DEBUG "failslab", F_OK))
		skip("this kernel has no fault injection");
	for (size_t i = 0; i < ARRAY_SIZE(fault_settings); i++) {
		char path[96];

		snprintf(path, sizeof(path), DEBUG "%s", fault_settings[i][0]);
		require(!file_write(path, fault_settings[i][1]), "%s", path);
	}
}

/* Only what `function` calls fails from now on; NULL: whatever this task does. */
static void fail_only_below(const char *function)
{
	char line[256], start[32] = "0x0", end[32] = "0xffffffffffffffff";
	FILE *symbols = function ? fopen("/proc/kallsyms", "re") : NULL;
	unsigned long long address = 0, above = ~0ULL, other;
	char name[128];

	while (symbols && fgets(line, sizeof(line), symbols))
		if (sscanf(line, "%llx %*c %127s", &other, name) == 2 && !strcmp(name, function))
			address = other;
	if (symbols) {
		rewind(symbols);
		while (fgets(line, sizeof(line), symbols))
			if (sscanf(line, "%llx", &other) == 1 && other > address && other < above)
				above = other;
		fclose(symbols);
	}
	if (function) {
		require(address, "this kernel has no %s", function);
		snprintf(start, sizeof(start), "%#llx", address);
		snprintf(end, sizeof(end), "%#llx", above);
	}
	for (size_t i = 0; i < ARRAY_SIZE(fault_kinds); i++) {
		set_fault(fault_kinds[i], "require-start", start);
		set_fault(fault_kinds[i], "require-end", end);
	}
}

/* Something that is done with its n-th allocation failing. */
struct attempt {
	const char *what;
	const char *below; /* as of fail_only_below() */
	int (*work)(const struct page_size *size);
	/* Called after each with what `work` returned. */
	void (*inspect)(const struct page_size *size, int result);
};

/* Returns whether there was an n-th allocation to fail. */
static bool fail_nth(int file, unsigned int n, int (*work)(const struct page_size *size),
		     const struct page_size *size, int *result)
{
	char text[16];
	int length = snprintf(text, sizeof(text), "%u", n);

	require(pwrite(file, text, (size_t)length, 0) == length, "fail-nth: %s", strerror(errno));
	*result = work(size);
	memset(text, 0, sizeof(text));
	require(pread(file, text, sizeof(text) - 1, 0) > 0, "fail-nth: %s", strerror(errno));
	require(pwrite(file, "0", 1, 0) == 1, "fail-nth: %s", strerror(errno));
	return !strtol(text, NULL, 10);
}

static void fail_each(const struct page_size *size, const struct attempt *attempt)
{
	int file = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	unsigned int n = 0, refused = 0;
	int result;
	bool failed;

	require(file >= 0, "fail-nth: %s", strerror(errno));
	fail_only_below(attempt->below);
	do {
		failed = fail_nth(file, ++n, attempt->work, size, &result);
		refused += !!result;
		attempt->inspect(size, result);
	} while (failed);
	close(file);
	fail_only_below(NULL);
	check(!result, "%s, with nothing failing: %s", attempt->what, strerror(-result));
	note("%s: %u allocations failed, %u times that was an error", attempt->what, n - 1,
	     refused);
}

/* Nothing of the module's is left where it was refused; where it was not, it works. */
static void inspect_load(const struct page_size *size, int result)
{
	if (result) {
		check(!module_loaded("prezero"), "loaded in spite of %s", strerror(-result));
		check(!has_zeroable(size), "a refused module left its file");
		check(result == -ENOMEM, "refused for want of memory, but says %s",
		      strerror(-result));
		return;
	}
	check(!pool_write(size, 0, "zeroable_hugepages", "1"), "zeroing after a load");
	require(!module_unload(), "unloading");
}

static int load(const struct page_size *size)
{
	(void)size;
	return module_load();
}

static void failing_load(const struct page_size *size)
{
	static const struct attempt attempt = {"a load", "do_init_module", load, inspect_load};
	long all = pool_free(size);

	set_up_faults();
	require(!module_unload(), "unloading");
	fail_each(size, &attempt);
	check(pool_free(size) == all, "free: %ld of %ld", pool_free(size), all);
	require(!module_load(), "loading");
}

static int unload(const struct page_size *size)
{
	(void)size;
	return module_unload();
}

/* A removal cannot fail half way. */
static void inspect_unload(const struct page_size *size, int result)
{
	check(!result, "unloading: %s", strerror(-result));
	check(!has_zeroable(size), "the file outlives the module");
	require(!module_load(), "loading");
	check(!pool_write(size, 0, "zeroable_hugepages", "1"), "zeroing after a load");
}

static int zero_all(const struct page_size *size)
{
	int result = 0;

	for (int node = 0; node < nodes && !result; node++)
		result = pool_write(size, node, "zeroable_hugepages", "max");
	return result;
}

static void inspect_zeroing(const struct page_size *size, int result)
{
	long all = pool_free(size);
	char *address;

	check(!result, "zeroing: %s", strerror(-result));
	check(!zeroable_all(size), "%ld of %ld pages are left dirty", zeroable_all(size), all);
	address = map_pages(size, 4, MAP_PRIVATE);
	check_zero(size, address, 4, "zeroed with an allocation failing");
	dirty_pages(size, address, 4);
	unmap_pages(size, address, 4);
}

/* What a consumer does: map, fault in, leave. A fault that finds no memory is retried. */
static int consume(const struct page_size *size)
{
	char *address = try_map_pages(size, 4, MAP_PRIVATE);

	if (!address)
		return -ENOMEM;
	touch_pages(size, address, 4);
	check_zero(size, address, 4, "faulted in with an allocation failing");
	if (!munmap(address, 4 * size_bytes(size)))
		return 0;
	/* That was the allocation that failed. */
	require(!munmap(address, 4 * size_bytes(size)), "unmapping: %s", strerror(errno));
	return -ENOMEM;
}

static int regrow(const struct page_size *size)
{
	int result = pool_write_number(size, 0, "nr_hugepages", pool_pages - 2);

	return result ? result : pool_write_number(size, 0, "nr_hugepages", pool_pages);
}

static void inspect_consumer(const struct page_size *size, int result)
{
	if (result)
		check(result == -ENOMEM, "a consumer gets %s", strerror(-result));
	if (pool_count(size, 0).nr != pool_pages)
		pool_write_number(size, 0, "nr_hugepages", pool_pages);
	check(zeroable_all(size) >= 0, "the file is gone");
}

static void failing_work(const struct page_size *size)
{
	static const struct attempt attempts[] = {
		{"zeroing", "zeroable_store", zero_all, inspect_zeroing},
		{"a consumer", NULL, consume, inspect_consumer},
		{"shrinking and growing", NULL, regrow, inspect_consumer},
		{"a removal", NULL, unload, inspect_unload},
	};

	set_up_faults();
	for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
		zero_pages(size);
		fail_each(size, &attempts[i]);
	}
	check_pool_zero(size, "after allocations failed");
}

/* ---- would it be found? ---- */

static void plant(const char *fault)
{
	char parameters[64];

	snprintf(parameters, sizeof(parameters), "plant=%s", fault);
	require(!module_load_file(HELPER_PATH, parameters), "planting %s", fault);
	require(!module_remove(HELPER), "removing the helper");
}

static void planted_leak(const struct page_size *size)
{
	(void)size;
	need_kmemleak();
	plant("leak");
	check(lost_objects(), "a planted leak is not found");
	file_write(DEBUG "kmemleak", "clear");
}

static void planted_overflow(const struct page_size *size)
{
	(void)size;
	plant("overflow");
}

static void planted_sleep(const struct page_size *size)
{
	(void)size;
	plant("sleep");
}

static void planted_locks(const struct page_size *size)
{
	(void)size;
	plant("locks");
}

#define DEBUGGED .sizes = SIZE_2M, .only_by_name = true
#define PLANTED DEBUGGED, .no_file = true

static const struct test tests[] = {
	{.name = "failing_load", .run = failing_load, .limit_s = 1800, .unloaded = true, DEBUGGED},
	{.name = "failing_work", .run = failing_work, .limit_s = 1800, .unloaded = true, DEBUGGED},
	{.name = "nothing_lost", .run = nothing_lost, .limit_s = 300, .unloaded = true, DEBUGGED},
	{.name = "lockdep_on", .run = lockdep_on, PLANTED},
	{.name = "planted_leak", .run = planted_leak, .limit_s = 300, PLANTED},
	{.name = "planted_overflow", .run = planted_overflow, PLANTED},
	{.name = "planted_sleep", .run = planted_sleep, PLANTED},
	{.name = "planted_locks", .run = planted_locks, PLANTED},
};

const struct test_group group_debug = {tests, ARRAY_SIZE(tests)};
