/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: the figures that the documentation quotes.
 * Guarantees: what is compared is measured in turn, page by page or round by round, in one guest,
 * on memory that the host has backed before; medians are reported, and ratios, for a guest under
 * emulation has no absolute times worth quoting.
 */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAMPLES_MAX 1024
#define HELPER "prezero_helper"
#define HELPER_PATH "/helper.ko"

struct samples {
	double value[SAMPLES_MAX];
	int count;
};

static void add(struct samples *samples, double value)
{
	if (samples->count < SAMPLES_MAX)
		samples->value[samples->count++] = value;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double quantile(struct samples *samples, double q)
{
	qsort(samples->value, (size_t)samples->count, sizeof(double), by_value);
	return samples->value[(int)(q * (samples->count - 1))];
}

static double median(struct samples *samples)
{
	return quantile(samples, 0.5);
}

static void figure_of(const char *name, const struct page_size *size, double value)
{
	char text[48];

	snprintf(text, sizeof(text), "%s_%s", name, size->name);
	figure(text, value);
}

/* Node 0's pages, faulted in one by one; the pool is as dirty or clean as it was found. */
static void time_faults(const struct page_size *size, struct samples *samples, int limit)
{
	long pages = pool_count(size, 0).free;
	char *address;

	numa_bind(0);
	if (samples->count + pages > limit)
		pages = limit - samples->count;
	address = map_pages(size, pages, MAP_PRIVATE);
	for (long page = 0; page < pages; page++) {
		volatile char *byte = address + ((size_t)page << size->shift);
		double start_ms = now_ms();

		*byte = 0;
		add(samples, now_ms() - start_ms);
	}
	unmap_pages(size, address, pages);
	numa_bind(-1);
}

/* figure_pages faults of each kind, round by round over the pages that the node has. */
static void fault_ratio(const struct page_size *size)
{
	struct samples dirty = {0}, clean = {0};

	/* The oracle does not pause for figures: a ratio is worth nothing if the pages leak. */
	while (clean.count < figure_pages) {
		time_faults(size, &dirty, (int)figure_pages);
		require(!pool_write(size, 0, "zeroable_hugepages", "max"), "zeroing");
		time_faults(size, &clean, (int)figure_pages);
	}
	figure_of("fault_dirty_ms", size, median(&dirty));
	figure_of("fault_clean_ms", size, median(&clean));
	figure_of("fault_dirty_over_clean", size, median(&dirty) / median(&clean));
	note("%d dirty and %d clean faults", dirty.count, clean.count);
}

/* An ordinary fault on a dirty page, with the module and without, in turn. */
static void loaded_over_unloaded(const struct page_size *size)
{
	struct samples ratio = {0}, noise = {0}, medians[2][2] = {0};

	for (int round = 0; round < 12; round++) {
		double time_ms[4];

		/* loaded, unloaded, unloaded, loaded: a drift of the machine cancels itself. */
		for (int i = 0; i < 4; i++) {
			struct samples faults = {0};
			bool loaded = i == 0 || i == 3;

			if (loaded && !module_loaded("prezero"))
				require(!module_load(), "loading");
			if (!loaded && module_loaded("prezero"))
				require(!module_unload(), "unloading");
			time_faults(size, &faults, (int)figure_pages);
			time_ms[i] = median(&faults);
			add(&medians[loaded][0], time_ms[i]);
		}
		add(&ratio, (time_ms[0] + time_ms[3]) / (time_ms[1] + time_ms[2]));
		add(&noise, time_ms[1] / time_ms[2]);
	}
	figure("dirty_fault_loaded_over_unloaded", median(&ratio));
	/* How far apart two measurements without the module are: half of them lie within this. */
	figure("dirty_fault_noise", (quantile(&noise, 0.75) - quantile(&noise, 0.25)) / 2);
	figure("dirty_fault_loaded_ms", median(&medians[1][0]));
}

static void hook_cost(const struct page_size *size)
{
	struct samples hook = {0}, noise = {0};
	const char *file = "/sys/module/" HELPER "/parameters/call_ps";

	(void)size;
	require(!module_load_file(HELPER_PATH, ""), "loading the helper");
	for (int round = 0; round < 15; round++) {
		double loaded, unloaded, again;

		loaded = (double)file_read_number(file);
		require(!module_unload(), "unloading");
		unloaded = (double)file_read_number(file);
		again = (double)file_read_number(file);
		require(!module_load(), "loading");
		require(loaded > 0 && unloaded > 0, "the helper cannot find the zeroing function");
		add(&hook, (loaded - unloaded) / 1e3);
		add(&noise, (again - unloaded) / 1e3);
	}
	figure("hook_ns", median(&hook));
	figure("hook_noise_ns", (quantile(&noise, 0.75) - quantile(&noise, 0.25)) / 2);
	require(!module_remove(HELPER), "removing the helper");
}

static void use_cpu(int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	require(!sched_setaffinity(0, sizeof(cpus), &cpus), "affinity: %s", strerror(errno));
}

static void write_max(void *argument)
{
	const struct page_size *size = argument;

	pool_write(size, 0, "zeroable_hugepages", "max");
}

static void write_max_on_cpu_0(void *argument)
{
	use_cpu(0);
	write_max(argument);
}

static void write_max_on_cpu_1(void *argument)
{
	use_cpu(1);
	write_max(argument);
}

/* One writer and two on two CPUs, in turn, over the same pages. */
static void two_writers(const struct page_size *size)
{
	struct samples speedup = {0};

	for (int round = 0; round < 9; round++) {
		double start_ms, one_ms;
		int pids[2];

		dirty_pool(size);
		start_ms = now_ms();
		wait_child(start_child(write_max_on_cpu_0, (void *)(uintptr_t)size), 0);
		one_ms = now_ms() - start_ms;
		dirty_pool(size);
		start_ms = now_ms();
		pids[0] = start_child(write_max_on_cpu_0, (void *)(uintptr_t)size);
		pids[1] = start_child(write_max_on_cpu_1, (void *)(uintptr_t)size);
		for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
			wait_child(pids[i], 0);
		add(&speedup, one_ms / (now_ms() - start_ms));
	}
	figure("two_writers_speedup", median(&speedup));
}

static double *ended_ms;

static void on_signal(int number)
{
	(void)number;
}

static void report_end(void *argument)
{
	const struct page_size *size = argument;
	struct sigaction action = {.sa_handler = on_signal};
	int fd = pool_open(size, 0, "zeroable_hugepages", O_WRONLY);
	ssize_t ignored;

	sigaction(SIGINT, &action, NULL);
	*ended_ms = -1;
	ignored = write(fd, "max", 3);
	(void)ignored;
	*ended_ms = now_ms();
}

/* From SIGINT to the writer's return, wherever in a page it strikes. */
static void stop_time(const struct page_size *size)
{
	struct samples stop = {0};
	int rounds = size == &page_1g ? 15 : 40;

	ended_ms = mmap(NULL, sizeof(*ended_ms), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	require(ended_ms != MAP_FAILED, "no memory");
	for (int round = 0; round < rounds; round++) {
		double sent_ms;
		int pid;

		if (zeroable(size, 0) < pool_count(size, 0).free)
			dirty_pool(size);
		pid = start_child(report_end, (void *)(uintptr_t)size);
		sleep_ms(size == &page_1g ? 150 + round * 17 : 40 + round);
		sent_ms = now_ms();
		check(*ended_ms < 0, "the writer was done before the signal");
		kill(pid, SIGINT);
		wait_child(pid, 0);
		add(&stop, *ended_ms - sent_ms);
	}
	figure_of("stop_ms", size, median(&stop));
	figure_of("stop_ms_max", size, quantile(&stop, 1));
}

/* How late a real-time task gets the CPU that a writer is busy on: the bound on preemption. */
static void preempt_latency(const struct page_size *size)
{
	struct sched_param priority = {.sched_priority = 50}, none = {0};
	struct samples late = {0};
	int pid = start_child(write_max_on_cpu_0, (void *)(uintptr_t)size);

	use_cpu(0);
	require(!sched_setscheduler(0, SCHED_FIFO, &priority), "SCHED_FIFO: %s", strerror(errno));
	while (late.count < 200 && zeroable(size, 0) > 0) {
		double start_ms = now_ms();

		sleep_ms(1);
		add(&late, now_ms() - start_ms - 1);
	}
	sched_setscheduler(0, SCHED_OTHER, &none);
	kill(pid, SIGKILL);
	wait_child(pid, SIGKILL);
	require(late.count > 20, "only %d samples", late.count);
	figure_of("preempt_ms_median", size, median(&late));
	figure_of("preempt_ms_max", size, quantile(&late, 1));
}

static double time_reads(const struct page_size *size)
{
	struct samples reads = {0};

	while (reads.count < 200) {
		double start_ms = now_ms();

		zeroable(size, 0);
		add(&reads, (now_ms() - start_ms) * 1e3);
	}
	return median(&reads);
}

/* Reading the file has to cost the same however many free pages there are. */
static void read_cost(const struct page_size *size)
{
	long few = pool_count(size, 0).nr, many = few * 16;

	figure("read_us_few", time_reads(size));
	pool_write_number(size, 0, "nr_hugepages", many);
	require(pool_count(size, 0).nr == many, "only %ld of %ld pages", pool_count(size, 0).nr,
		many);
	figure("read_us_16_times_as_many", time_reads(size));
	pool_write_number(size, 0, "nr_hugepages", few);
}

#define FIGURE .only_by_name = true, .limit_s = 1500

static const struct test tests[] = {
	{.name = "fault_ratio", .run = fault_ratio, .sizes = SIZE_BOTH, FIGURE},
	{.name = "loaded_over_unloaded",
	 .run = loaded_over_unloaded,
	 .sizes = SIZE_2M,
	 .unloaded = true,
	 FIGURE},
	{.name = "hook_cost", .run = hook_cost, .sizes = SIZE_2M, .unloaded = true, FIGURE},
	{.name = "two_writers", .run = two_writers, .sizes = SIZE_2M, FIGURE},
	{.name = "stop_time", .run = stop_time, .sizes = SIZE_BOTH, FIGURE},
	{.name = "read_cost", .run = read_cost, .sizes = SIZE_2M, FIGURE},
	{.name = "preempt_latency", .run = preempt_latency, .sizes = SIZE_BOTH, FIGURE},
};

const struct test_group group_figures = {tests, ARRAY_SIZE(tests)};
