/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: `prezero reserve` in a guest: its figures against the plain write, splits over nodes,
 * fragmented memory, gigantic pages.
 * Guarantees: what is compared is measured in turn on the same pages, on memory that the host has
 * backed before; the time of a run of prezero is what it says itself, without the program's start.
 */
#include "guest.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PREZERO "/bin/prezero"
#define ROUNDS 9
#define REPLY_SIZE 4096
#define BASE_BYTES 4096
/* A kernel that zeroes nothing grows the pool in no time: of more pages it can be measured. */
#define UNZEROED_FACTOR 8
/* What of a node is left alone as the rest is fragmented: twice its watermarks, below which the kernel
 * ends programs rather than fill the node. */
#define SPARE_BYTES (192UL << 20)
#define FRAGMENTED_BYTES (512UL << 20)
/* More than is in one piece or can be moved there, less than is free. */
#define ASKED_BYTES (SPARE_BYTES + FRAGMENTED_BYTES / 16 + (16UL << 20))
#define DRAIN_PASSES 64
#define MOVES_LOCKED "/proc/sys/vm/compact_unevictable_allowed"
#define REGROW_TRIES 20
#define STATUS_REFUSED 3
#define STATUS_PARTIAL 8

static char reply[REPLY_SIZE];

/* Runs prezero with these arguments, after "reserve"; what it says is left in `reply`: JSON, and why
 * not more. */
static int reserve_status(const char *const *arguments)
{
	const char *words[24] = {PREZERO,	 "reserve", "--json", "--runtime-dir",
				 "/run/prezero", "--floor", "64M"};
	size_t used = 0, n = 7;
	int ends[2], status;
	ssize_t got;
	pid_t pid;

	while (*arguments && n < ARRAY_SIZE(words) - 1)
		words[n++] = *arguments++;
	require(!pipe(ends), "no pipe");
	pid = fork();
	require(pid >= 0, "no process");
	if (!pid) {
		dup2(ends[1], STDOUT_FILENO);
		dup2(ends[1], STDERR_FILENO);
		execv(PREZERO, (char **)(uintptr_t)words);
		_exit(127);
	}
	close(ends[1]);
	while ((got = read(ends[0], reply + used, sizeof(reply) - 1 - used)) > 0)
		used += (size_t)got;
	reply[used] = '\0';
	close(ends[0]);
	require(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "prezero ended with %#x: %s",
		status, reply);
	return WEXITSTATUS(status);
}

static void reserve(const char *const *arguments)
{
	int status = reserve_status(arguments);

	require(!status, "prezero ended with %d: %s", status, reply);
}

static void require_prezero(void)
{
	if (access(PREZERO, X_OK) < 0)
		skip("prezero was not built: see tests/vm/reserve");
}

static double reply_ms(void)
{
	const char *seconds = strstr(reply, "\"seconds\": ");

	require(seconds, "no time in %s", reply);
	return strtod(seconds + strlen("\"seconds\": "), NULL) * 1e3;
}

static void set_node(const struct page_size *size, int node, long pages)
{
	require(!pool_write_number(size, node, "nr_hugepages", pages) &&
			pool_count(size, node).nr == pages,
		"node %d: %ld of %ld pages", node, pool_count(size, node).nr, pages);
}

static double grow_plainly(const struct page_size *size, long pages)
{
	double start_ms = now_ms();

	set_node(size, 0, pages);
	return now_ms() - start_ms;
}

static double grow_by(const struct page_size *size, long pages, const char *method,
		      const char *threads)
{
	char bytes[32];

	snprintf(bytes, sizeof(bytes), "%ldM", pages * 2);
	reserve((const char *const[]){bytes, "--node", "0", "--method", method, "--threads",
				      threads, NULL});
	check(pool_count(size, 0).nr == pages, "%ld pages", pool_count(size, 0).nr);
	check(!pool_count(size, 0).surplus, "%ld surplus pages", pool_count(size, 0).surplus);
	return reply_ms();
}

struct part {
	const struct page_size *size;
	char *address;
	long pages;
};

static void touch_part(void *argument)
{
	const struct part *part = argument;

	touch_pages(part->size, part->address, part->pages);
}

static double touch_with(const struct page_size *size, int n)
{
	char *address = map_pages(size, figure_pages, MAP_SHARED);
	double start_ms = now_ms();
	struct part part[2];
	int pid[2];

	for (int i = 0; i < n; i++) {
		long first = figure_pages * i / n, end = figure_pages * (i + 1) / n;

		part[i] =
			(struct part){size, address + ((size_t)first << size->shift), end - first};
		pid[i] = start_child(touch_part, &part[i]);
	}
	for (int i = 0; i < n; i++)
		wait_child(pid[i], 0);
	start_ms = now_ms() - start_ms;
	unmap_pages(size, address, figure_pages);
	return start_ms;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *value)
{
	qsort(value, ROUNDS, sizeof(*value), by_value);
	return value[ROUNDS / 2];
}

/* init_on_alloc as the guest was started. */
static bool kernel_zeroes(void)
{
	char text[1024];
	int fd = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	close(fd);
	require(length > 0, "no /proc/cmdline");
	text[length] = '\0';
	return strstr(text, "init_on_alloc=1");
}

/* Has the host back all of the guest's memory: the first touch of a page costs more than anything that is
 * measured here, and which pages a pool gets is not for a test to say. */
static void back_memory(void)
{
	size_t bytes = node_free_bytes(0) - SPARE_BYTES;
	char *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	require(address != MAP_FAILED, "no address space");
	for (size_t at = 0; at < bytes; at += BASE_BYTES)
		address[at] = 1;
	munmap(address, bytes);
}

static void empty_pools(const struct page_size *size, long before[NODES_MAX])
{
	require_prezero();
	for (int node = 0; node < nodes; node++) {
		before[node] = pool_count(size, node).nr;
		set_node(size, node, 0);
	}
}

static void restore_pools(const struct page_size *size, const long before[NODES_MAX])
{
	set_node(size, 0, 0);
	for (int node = 0; node < nodes; node++)
		set_node(size, node, before[node]);
}

/* Against the write of nr_hugepages. Where that zeroes nothing, nobody touches the pages here. */
static void reserve_write(const struct page_size *size)
{
	double plain_ms[ROUNDS], auto_ms[ROUNDS];
	long pages = figure_pages * (kernel_zeroes() ? 1 : UNZEROED_FACTOR);
	long before[NODES_MAX];

	empty_pools(size, before);
	if (kernel_zeroes())
		back_memory();
	grow_plainly(size, pages);
	for (int i = 0; i < ROUNDS; i++) {
		set_node(size, 0, 0);
		plain_ms[i] = grow_plainly(size, pages);
		set_node(size, 0, 0);
		auto_ms[i] = grow_by(size, pages, "auto", "2");
	}
	restore_pools(size, before);
	figure("auto_is_parallel", !!strstr(reply, "\"method\": \"parallel\""));
	figure("plain_write_ms", median(plain_ms));
	figure("reserve_ms", median(auto_ms));
	figure("reserve_over_plain_write", median(plain_ms) / median(auto_ms));
}

/* Until the pages can be used at full speed, and what a second thread gains. */
static void reserve_ready(const struct page_size *size)
{
	enum { ONE, TWO, PLAIN_TOUCH_ONE, PLAIN_TOUCH_ALL, AUTO_TOUCH, KINDS };
	double time_ms[KINDS][ROUNDS];
	long before[NODES_MAX], dirty = 0;

	empty_pools(size, before);
	back_memory();
	for (int i = 0; i < ROUNDS; i++) {
		set_node(size, 0, 0);
		time_ms[PLAIN_TOUCH_ONE][i] = grow_plainly(size, figure_pages) +
					      touch_with(size, 1);
		set_node(size, 0, 0);
		time_ms[AUTO_TOUCH][i] = grow_by(size, figure_pages, "auto", "2");
		if (has_zeroable(size))
			dirty += zeroable(size, 0);
		time_ms[AUTO_TOUCH][i] += touch_with(size, 2);
		set_node(size, 0, 0);
		time_ms[PLAIN_TOUCH_ALL][i] = grow_plainly(size, figure_pages) +
					      touch_with(size, 2);
		set_node(size, 0, 0);
		time_ms[ONE][i] = grow_by(size, figure_pages, "parallel", "1");
		set_node(size, 0, 0);
		time_ms[TWO][i] = grow_by(size, figure_pages, "parallel", "2");
	}
	restore_pools(size, before);
	for (int kind = 0; kind < KINDS; kind++)
		time_ms[kind][0] = median(time_ms[kind]);
	figure("one_thread_ms", time_ms[ONE][0]);
	figure("two_threads_ms", time_ms[TWO][0]);
	figure("ready_over_grow_and_touch", time_ms[PLAIN_TOUCH_ONE][0] / time_ms[AUTO_TOUCH][0]);
	figure("ready_over_grow_and_touch_all",
	       time_ms[PLAIN_TOUCH_ALL][0] / time_ms[AUTO_TOUCH][0]);
	/* Not where the kernel has the plain write made whatever is asked for. */
	if (strstr(reply, "\"method\": \"parallel\""))
		figure("two_threads_speedup", time_ms[ONE][0] / time_ms[TWO][0]);
	if (has_zeroable(size))
		figure("dirty_after_reserve", (double)dirty / ROUNDS);
}

/* A quarter and three quarters, to the page; what another node has stays. */
static void reserve_split(const struct page_size *size)
{
	long before[NODES_MAX];

	empty_pools(size, before);
	for (int i = 0; i < 2; i++) {
		const char *method = i ? "parallel" : "plain";

		reserve((const char *const[]){"402M", "--split", "0=25%,1=75%", "--method", method,
					      "--threads", "2", NULL});
		/* 201 pages: 50.25 and 150.75 */
		check(pool_count(size, 0).nr == 50 && pool_count(size, 1).nr == 151,
		      "%s: %ld and %ld pages", method, pool_count(size, 0).nr,
		      pool_count(size, 1).nr);
		check(pool_free(size) == 201 && pool_total(size) == 201, "%s: not all free",
		      method);
		check(!pool_count(size, 0).surplus && !pool_count(size, 1).surplus,
		      "%s: surplus pages left", method);
		check(file_read_number("/sys/kernel/mm/hugepages/hugepages-2048kB/"
				       "nr_overcommit_hugepages") == 0,
		      "%s: nr_overcommit_hugepages", method);
		reserve((const char *const[]){"0", "--shrink", NULL});
		check(pool_total(size) == 0, "%ld pages left", pool_total(size));
	}
	restore_pools(size, before);
}

/* The recipe: base pages fill FRAGMENTED_BYTES of node 0, and every other one of them is given back. Half
 * of it is free then, and no huge page fits there before pages have been moved; most of it is
 * locked, which this kernel is told not to move. All of it on one CPU, on whose lists a part of what is
 * given back then stands: not counted as free, and of no use to a holder on another CPU. */
static void hold_fragments(void *argument)
{
	const int *ready_fd = argument;
	cpu_set_t cpu;
	char *address;

	CPU_ZERO(&cpu);
	CPU_SET(0, &cpu);
	require(!sched_setaffinity(0, sizeof(cpu), &cpu), "CPU 0 is not there");
	require(!numa_bind(0), "no memory policy");
	address = mmap(NULL, FRAGMENTED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);
	require(address != MAP_FAILED, "no address space");
	require(!madvise(address, FRAGMENTED_BYTES, MADV_NOHUGEPAGE), "no base pages");
	for (size_t at = 0; at < FRAGMENTED_BYTES; at += BASE_BYTES)
		address[at] = 1;
	for (size_t at = 0; at < FRAGMENTED_BYTES; at += 2 * BASE_BYTES)
		require(!madvise(address + at, BASE_BYTES, MADV_DONTNEED), "nothing given back");
	require(!mlock2(address, FRAGMENTED_BYTES / 16 * 15, MLOCK_ONFAULT),
		"nothing can be locked");
	require(write(*ready_fd, "", 1) == 1, "nobody waits");
	for (;;)
		pause();
}

/* Fragments node 0 afresh; returns who holds it so. */
static int fragment(void)
{
	int ends[2], pid;
	char byte;

	/* Whole again first, whatever was there, and nothing on the CPUs' lists. */
	for (int i = 0; i < DRAIN_PASSES; i++)
		file_write("/proc/sys/vm/stat_refresh", "1");
	file_write("/proc/sys/vm/compact_memory", "1");
	require(!pipe(ends), "no pipe");
	pid = start_child(hold_fragments, &ends[1]);
	close(ends[1]);
	if (read(ends[0], &byte, 1) != 1) {
		wait_child(pid, 0);
		require(false, "memory was not fragmented, %zu MiB are free",
			node_free_bytes(0) >> 20);
	}
	close(ends[0]);
	return pid;
}

static void end_fragments(int pid)
{
	kill(pid, SIGKILL);
	wait_child(pid, SIGKILL);
}

/* What is short is told to the page, to programs and to people, and with an exit status of its own. */
static void check_told(int status, long have, long wanted)
{
	char text[64];

	check(status == STATUS_PARTIAL, "%d: %s", status, reply);
	check(strstr(reply, "\"full\": false") && strstr(reply, "\"short\": \"pages\""),
	      "no reason: %s", reply);
	snprintf(text, sizeof(text), "\"have_pages\": %ld,", have);
	check(strstr(reply, text), "not told: %s: %s", text, reply);
	snprintf(text, sizeof(text), "\"wanted_pages\": %ld,", wanted);
	check(strstr(reply, text), "not told: %s: %s", text, reply);
	snprintf(text, sizeof(text), "node 0 has %ld of %ld pages", have, wanted);
	check(strstr(reply, text), "not told: %s: %s", text, reply);
	check(strstr(reply, "contiguous"), "no reason for people: %s", reply);
}

/* Of memory that was fragmented on purpose, afresh for each: more pages than the plain write gets, which
 * is measured first and last. */
static void reserve_fragmented(const struct page_size *size)
{
	static const char *const method[] = {NULL, "plain", "parallel", NULL}; /* NULL: a write */
	long before = pool_count(size, 0).nr, most_written = 0;
	long got[ARRAY_SIZE(method)], fill, asked;
	size_t free_bytes;
	char need[32];

	require_prezero();
	/* The rest of the node need not be fragmented: it is in the pool. */
	fill = before +
	       (long)((node_free_bytes(0) - FRAGMENTED_BYTES - SPARE_BYTES) >> size->shift);
	asked = (long)(ASKED_BYTES >> size->shift);
	snprintf(need, sizeof(need), "%ldM", (fill + asked) * 2);
	file_write(MOVES_LOCKED, "0");
	for (size_t i = 0; i < ARRAY_SIZE(method); i++) {
		int holder, status = 0;

		set_node(size, 0, fill);
		holder = fragment();
		free_bytes = node_free_bytes(0);
		if (method[i])
			status = reserve_status((const char *const[]){
				need, "--node", "0", "--floor", "16M", "--method", method[i],
				"--deadline", "20s", NULL});
		else
			pool_write_number(size, 0, "nr_hugepages", fill + asked);
		got[i] = pool_count(size, 0).nr - fill;
		note("%s: %ld of %ld pages, %zu MiB counted as free before",
		     method[i] ? method[i] : "write", got[i], asked, free_bytes >> 20);
		if (method[i])
			check_told(status, fill + got[i], fill + asked);
		else if (got[i] > most_written)
			most_written = got[i];
		end_fragments(holder);
	}
	file_write(MOVES_LOCKED, "1");
	set_node(size, 0, before);
	for (size_t i = 0; i < ARRAY_SIZE(method); i++)
		check(!method[i] || (got[i] > most_written && got[i] < asked),
		      "%s: %ld of %ld pages, the plain write %ld", method[i], got[i], asked,
		      most_written);
}

/* A gigantic page that was given back is had again at run time, or it is said that only boot can; more
 * than there is room for is refused with the same words. */
static void reserve_gigantic(const struct page_size *size)
{
	long before = pool_count(size, 0).nr, small = pool_count(&page_2m, 0).nr;
	char need[32];
	int status;

	require_prezero();
	/* Pages of the other pool are not moved out of the way by every kernel. */
	set_node(&page_2m, 0, 0);
	snprintf(need, sizeof(need), "%ldG", before - 1);
	reserve((const char *const[]){need, "--page", "1G", "--node", "0", "--shrink", NULL});
	check(pool_count(size, 0).nr == before - 1, "%ld pages", pool_count(size, 0).nr);
	snprintf(need, sizeof(need), "%ldG", before);
	status = reserve_status((const char *const[]){need, "--page", "1G", "--node", "0", NULL});
	note("regrown: %d, %.0f ms", status, reply_ms());
	check(strstr(reply, "\"method\": \"plain\""), "%s", reply);
	check(status == STATUS_REFUSED ? pool_count(size, 0).nr == before - 1 :
					 !status && pool_count(size, 0).nr == before,
	      "%d: %ld pages: %s", status, pool_count(size, 0).nr, reply);
	check(!status || strstr(reply, "boot"), "%s", reply);
	for (int tries = 0; status && tries < REGROW_TRIES; tries++) {
		file_write("/proc/sys/vm/drop_caches", "3");
		file_write("/proc/sys/vm/compact_memory", "1");
		pool_write_number(size, 0, "nr_hugepages", before);
		status = pool_count(size, 0).nr != before;
	}
	snprintf(need, sizeof(need), "%ldG", before + 2);
	status = reserve_status((const char *const[]){need, "--page", "1G", "--node", "0", NULL});
	check(status == STATUS_REFUSED || status == STATUS_PARTIAL, "%d: %s", status, reply);
	check(pool_count(size, 0).nr < before + 2, "%ld pages", pool_count(size, 0).nr);
	check(strstr(reply, "boot") || strstr(reply, "floor"), "%s", reply);
	set_node(size, 0, before);
	set_node(&page_2m, 0, small);
	dirty_pool(&page_2m);
}

#define MEASURED .sizes = SIZE_2M, .no_file = true, .only_by_name = true

static const struct test tests[] = {
	{.name = "reserve_write", .run = reserve_write, .limit_s = 300, MEASURED},
	{.name = "reserve_ready", .run = reserve_ready, .limit_s = 300, MEASURED},
	{.name = "reserve_split",
	 .run = reserve_split,
	 .sizes = SIZE_2M,
	 .no_file = true,
	 .min_nodes = 2,
	 .limit_s = 120},
	{.name = "reserve_fragmented", .run = reserve_fragmented, .limit_s = 120, MEASURED},
	{.name = "reserve_gigantic",
	 .run = reserve_gigantic,
	 .sizes = SIZE_1G,
	 .no_file = true,
	 .limit_s = 120},
};

const struct test_group group_reserve = {tests, ARRAY_SIZE(tests)};
