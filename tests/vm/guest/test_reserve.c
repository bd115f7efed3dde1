/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: `prezero reserve` in a guest: its figures against the plain write, and splits over nodes.
 * Guarantees: what is compared is measured in turn on the same pages, on memory that the host has
 * backed before; the time of a run of prezero is what it says itself, without the program's start.
 */
#include "guest.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PREZERO "/bin/prezero"
#define ROUNDS 9
#define REPLY_SIZE 4096

static char reply[REPLY_SIZE];

/* Runs prezero with these arguments, after "reserve"; its JSON is left in `reply`. */
static void reserve(const char *const *arguments)
{
	const char *words[16] = {PREZERO,	 "reserve", "--json", "--runtime-dir",
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
		execv(PREZERO, (char **)(uintptr_t)words);
		_exit(127);
	}
	close(ends[1]);
	while ((got = read(ends[0], reply + used, sizeof(reply) - 1 - used)) > 0)
		used += (size_t)got;
	reply[used] = '\0';
	close(ends[0]);
	require(waitpid(pid, &status, 0) == pid && !status, "prezero ended with %#x: %s", status,
		reply);
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

static double grow_plainly(const struct page_size *size)
{
	double start_ms = now_ms();

	set_node(size, 0, figure_pages);
	return now_ms() - start_ms;
}

static double grow_by(const struct page_size *size, const char *method, const char *threads)
{
	char bytes[32];

	snprintf(bytes, sizeof(bytes), "%ldM", figure_pages * 2);
	reserve((const char *const[]){bytes, "--node", "0", "--method", method, "--threads",
				      threads, NULL});
	check(pool_count(size, 0).nr == figure_pages, "%ld pages", pool_count(size, 0).nr);
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

static void reserve_figures(const struct page_size *size)
{
	enum { PLAIN, AUTO, ONE, TWO, PLAIN_TOUCH_ONE, PLAIN_TOUCH_ALL, AUTO_TOUCH, KINDS };
	double time_ms[KINDS][ROUNDS];
	long before[NODES_MAX], dirty = 0;
	bool is_parallel;

	if (access(PREZERO, X_OK) < 0)
		skip("prezero was not built: see tests/vm/reserve");
	for (int node = 0; node < nodes; node++) {
		before[node] = pool_count(size, node).nr;
		set_node(size, node, 0);
	}
	grow_plainly(size);
	grow_by(size, "auto", "2");
	for (int i = 0; i < ROUNDS; i++) {
		set_node(size, 0, 0);
		time_ms[PLAIN][i] = grow_plainly(size);
		time_ms[PLAIN_TOUCH_ONE][i] = time_ms[PLAIN][i] + touch_with(size, 1);
		set_node(size, 0, 0);
		time_ms[AUTO][i] = grow_by(size, "auto", "2");
		if (has_zeroable(size))
			dirty += zeroable(size, 0);
		time_ms[AUTO_TOUCH][i] = time_ms[AUTO][i] + touch_with(size, 2);
		set_node(size, 0, 0);
		time_ms[PLAIN_TOUCH_ALL][i] = grow_plainly(size) + touch_with(size, 2);
		set_node(size, 0, 0);
		time_ms[ONE][i] = grow_by(size, "parallel", "1");
		set_node(size, 0, 0);
		time_ms[TWO][i] = grow_by(size, "parallel", "2");
		is_parallel = strstr(reply, "\"method\": \"parallel\"");
	}
	set_node(size, 0, 0);
	for (int node = 0; node < nodes; node++)
		set_node(size, node, before[node]);
	for (int kind = 0; kind < KINDS; kind++)
		time_ms[kind][0] = median(time_ms[kind]);
	figure("plain_write_ms", time_ms[PLAIN][0]);
	figure("reserve_ms", time_ms[AUTO][0]);
	figure("reserve_over_plain_write", time_ms[PLAIN][0] / time_ms[AUTO][0]);
	figure("ready_over_grow_and_touch", time_ms[PLAIN_TOUCH_ONE][0] / time_ms[AUTO_TOUCH][0]);
	figure("ready_over_grow_and_touch_all",
	       time_ms[PLAIN_TOUCH_ALL][0] / time_ms[AUTO_TOUCH][0]);
	if (is_parallel)
		figure("two_threads_speedup", time_ms[ONE][0] / time_ms[TWO][0]);
	if (has_zeroable(size))
		figure("dirty_after_reserve", (double)dirty / ROUNDS);
}

/* A quarter and three quarters, to the page; what another node has stays. */
static void reserve_split(const struct page_size *size)
{
	long before[NODES_MAX];

	if (access(PREZERO, X_OK) < 0)
		skip("prezero was not built: see tests/vm/reserve");
	for (int node = 0; node < nodes; node++) {
		before[node] = pool_count(size, node).nr;
		set_node(size, node, 0);
	}
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
	for (int node = 0; node < nodes; node++)
		set_node(size, node, before[node]);
}

static const struct test tests[] = {
	{.name = "reserve_figures",
	 .run = reserve_figures,
	 .sizes = SIZE_2M,
	 .no_file = true,
	 .only_by_name = true,
	 .limit_s = 300},
	{.name = "reserve_split",
	 .run = reserve_split,
	 .sizes = SIZE_2M,
	 .no_file = true,
	 .only_by_name = true,
	 .min_nodes = 2,
	 .limit_s = 120},
};

const struct test_group group_reserve = {tests, ARRAY_SIZE(tests)};
