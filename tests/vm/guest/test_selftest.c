/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: tests that end in every way a test can, so that the harness can be tested on them.
 * Guarantees: none of them runs unless it is asked for by name.
 */
#include "guest.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <unistd.h>

static void self_pass(const struct page_size *size)
{
	(void)size;
}

static void self_fail(const struct page_size *size)
{
	check(false, "failing on purpose, with %s pages", size->name);
}

static void self_crash(const struct page_size *size)
{
	(void)size;
	raise(SIGSEGV);
}

static void self_skip(const struct page_size *size)
{
	skip("skipping on purpose, with %s pages", size->name);
}

static void self_hang(const struct page_size *size)
{
	(void)size;
	for (;;)
		pause();
}

/* Stops every process but init: only the harness' own time limit can end this. */
static void self_freeze(const struct page_size *size)
{
	(void)size;
	kill(-1, SIGSTOP);
	for (;;)
		pause();
}

static void self_panic(const struct page_size *size)
{
	(void)size;
	file_write("/proc/sysrq-trigger", "c");
	pause();
}

/* A taint of W is what a kernel warning leaves. */
static void self_warn(const struct page_size *size)
{
	(void)size;
	require(!file_write("/proc/sys/kernel/tainted", "512"), "cannot taint the kernel");
}

/* A line in the kernel's log is enough too. */
static void self_log(const struct page_size *size)
{
	(void)size;
	require(!file_write("/dev/kmsg", "<4>BUG: planted by the harness' own test\n"),
		"/dev/kmsg");
}

static void self_lost(const struct page_size *size)
{
	(void)size;
	reboot(RB_POWER_OFF);
}

/* What a leak would look like: a page that should be zero and is not. */
static void self_leak(const struct page_size *size)
{
	char *address = map_pages(size, 1, MAP_PRIVATE);

	address[size_bytes(size) - 1] = 1;
	check_zero(size, address, 1, "a planted leak");
	unmap_pages(size, address, 1);
}

/* A page that does not come back. */
static void self_unconserved(const struct page_size *size)
{
	require(!pool_write_number(size, 0, "nr_hugepages", pool_pages - 1), "shrinking");
}

#define SELF .sizes = SIZE_2M, .no_file = true, .only_by_name = true

static const struct test tests[] = {
	{.name = "self_pass", .run = self_pass, SELF},
	{.name = "self_fail", .run = self_fail, SELF},
	{.name = "self_crash", .run = self_crash, SELF},
	{.name = "self_skip", .run = self_skip, SELF},
	{.name = "self_hang", .run = self_hang, .limit_s = 3, SELF},
	{.name = "self_freeze", .run = self_freeze, SELF},
	{.name = "self_panic", .run = self_panic, SELF},
	{.name = "self_warn", .run = self_warn, SELF},
	{.name = "self_log", .run = self_log, SELF},
	{.name = "self_lost", .run = self_lost, SELF},
	{.name = "self_leak", .run = self_leak, SELF},
	{.name = "self_unconserved", .run = self_unconserved, SELF},
};

const struct test_group group_selftest = {tests, ARRAY_SIZE(tests)};
