/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: zeroable_hugepages to the letter of its specification.
 * Guarantees: every sentence of the specification is tested here; the design document's section on
 * the file is the order of these tests.
 */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#define FILE_NAME "zeroable_hugepages"
#define EVENT_GAP_MS 10.0
#define TRIES_MAX 10
#define SAMPLES_WANTED 20

static void read_format(const struct page_size *size)
{
	char text[64], expected[64];
	int fd = pool_open(size, 0, FILE_NAME, O_RDONLY);
	ssize_t length;

	require(fd >= 0, "open: %s", strerror(errno));
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	require(length > 0, "read: %s", strerror(errno));
	text[length] = '\0';
	snprintf(expected, sizeof(expected), "%ld\n", pool_count(size, 0).free);
	check(!strcmp(text, expected), "reads \"%s\", expected \"%s\"", text, expected);
}

static void write_number(const struct page_size *size)
{
	long all = pool_count(size, 0).free;

	check(zeroable(size, 0) == all, "zeroable at the start: %ld of %ld", zeroable(size, 0),
	      all);
	check(!pool_write(size, 0, FILE_NAME, "0"), "0 is refused");
	check(zeroable(size, 0) == all, "0 did something: %ld of %ld", zeroable(size, 0), all);
	check(!pool_write(size, 0, FILE_NAME, "1\n"), "1 with a newline is refused");
	check(zeroable(size, 0) == all - 1, "after 1: %ld of %ld", zeroable(size, 0), all);
	if (all > 4) {
		check(!pool_write(size, 0, FILE_NAME, "3"), "3 is refused");
		check(zeroable(size, 0) == all - 4, "after 1 and 3: %ld of %ld", zeroable(size, 0),
		      all);
	}
	check(!pool_write_number(size, 0, FILE_NAME, all + 1000), "more than there is: refused");
	check(!zeroable(size, 0), "after more than there is: %ld", zeroable(size, 0));
	check(!pool_write(size, 0, FILE_NAME, "5"), "5 of 0 is refused");
	dirty_pool(size);
	check(!pool_write(size, 0, FILE_NAME, "18446744073709551615"), "2^64 - 1 is refused");
	check(!zeroable(size, 0), "after 2^64 - 1: %ld", zeroable(size, 0));
	dirty_pool(size);
	check(!pool_write(size, 0, FILE_NAME, "max\n"), "max with a newline is refused");
	check(!zeroable(size, 0), "after max: %ld", zeroable(size, 0));
	check(!pool_write(size, 0, FILE_NAME, "max"), "max of nothing is refused");
	if (nodes > 1)
		check(zeroable(size, 1) == pool_count(size, 1).free, "node 1 changed: %ld",
		      zeroable(size, 1));
}

static void write_garbage(const struct page_size *size)
{
	static const char *const garbage[] = {
		"",
		"x",
		"-1",
		"+5",
		" 5",
		"maximum",
		"Max",
		"1x",
		"1 2",
		"0x",
		"1.5",
		"18446744073709551616",
		"99999999999999999999999",
		"\n",
		" ",
		"max 1",
		"m",
	};
	long all = zeroable(size, 0);

	for (size_t i = 0; i < ARRAY_SIZE(garbage); i++) {
		int result = pool_write(size, 0, FILE_NAME, garbage[i]);

		/* An empty write never reaches the file. */
		check(result == -EINVAL || !*garbage[i], "\"%s\": %d (%s), expected EINVAL",
		      garbage[i], result, strerror(-result));
	}
	check(zeroable(size, 0) == all, "garbage did something: %ld of %ld", zeroable(size, 0),
	      all);
}

static void file_mode(const struct page_size *size)
{
	int fd, pid;

	fd = pool_open(size, 0, FILE_NAME, O_RDWR);
	check(fd >= 0, "root cannot open it: %s", strerror(errno));
	close(fd);
	pid = fork();
	if (!pid) {
		if (setuid(65534))
			_exit(1);
		check(zeroable(size, 0) >= 0, "others cannot read it");
		check(pool_write(size, 0, FILE_NAME, "0") == -EACCES, "others can write it");
		_exit(0);
	}
	wait_child(pid, 0);
}

/* ---- signals ---- */

struct write_report {
	long result; /* bytes, or a negative errno */
	double ended_ms;
};

static struct write_report *report;

static void on_signal(int number)
{
	(void)number;
}

static void report_write(void *argument)
{
	const struct page_size *size = argument;
	struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART */
	int fd = pool_open(size, 0, FILE_NAME, O_WRONLY);

	sigaction(SIGINT, &action, NULL);
	report->result = write(fd, "max", 3) < 0 ? -errno : 3;
	report->ended_ms = now_ms();
}

static void share_report(void)
{
	report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	require(report != MAP_FAILED, "no memory");
}

/* A signal in the midst of many pages: the finished ones stay clean and the write succeeds. */
static void signal_success(const struct page_size *size)
{
	long all = pool_count(size, 0).free, left = 0;

	share_report();
	/* A busy machine may let the writer finish before we get to the signal. */
	for (int tries = 0; tries < TRIES_MAX && !left; tries++) {
		double sent_ms;
		int pid;

		dirty_pool(size);
		pid = start_child(report_write, (void *)(uintptr_t)size);
		while (zeroable(size, 0) > all - 3)
			;
		sent_ms = now_ms();
		kill(pid, SIGINT);
		wait_child(pid, 0);
		left = zeroable(size, 0);
		check(report->result == 3, "the write returned %ld", report->result);
		if (left)
			note("returned %.1f ms after the signal", report->ended_ms - sent_ms);
	}
	check(left > 0 && left < all, "zeroable: %ld of %ld", left, all);
	check(pool_count(size, 0).free == all, "free: %ld of %ld", pool_count(size, 0).free, all);
	/* Every page that is not counted has to be zero: a half-done one would show here. */
	check_pool_zero(size, "after a signal");
}

/* A signal before the first page is finished: EINTR, and the page is as dirty as it was. */
static void signal_eintr(const struct page_size *size)
{
	long all = pool_count(size, 0).free;
	int interrupted = 0, tries = size == &page_1g ? 2 : 60;

	share_report();
	for (int i = 0; i < tries && !interrupted; i++) {
		struct itimerval timer = {.it_value.tv_usec = size == &page_1g ? 200000 :
										 500 + i * 100};
		struct sigaction action = {.sa_handler = on_signal};
		int fd = pool_open(size, 0, FILE_NAME, O_WRONLY);
		long before = zeroable(size, 0);
		ssize_t result;

		sigaction(SIGALRM, &action, NULL);
		setitimer(ITIMER_REAL, &timer, NULL);
		result = write(fd, "1", 1);
		interrupted = result < 0 && errno == EINTR;
		check(result == 1 || interrupted, "the write returned %zd: %s", result,
		      strerror(errno));
		check(zeroable(size, 0) == before - (result == 1),
		      "zeroable %ld, was %ld, returned %zd", zeroable(size, 0), before, result);
		close(fd);
		setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
		if (!zeroable(size, 0))
			dirty_pool(size);
	}
	/* A 2M page's work may be finished before the signal is looked at. */
	check(interrupted || size == &page_2m, "never interrupted in %d tries", tries);
	check(pool_count(size, 0).free == all, "free: %ld of %ld", pool_count(size, 0).free, all);
	check_pool_zero(size, "after an interrupted page");
}

static void signal_kill(const struct page_size *size)
{
	long all = pool_count(size, 0).free;
	int pid;

	share_report();
	pid = start_child(report_write, (void *)(uintptr_t)size);
	sleep_ms(size == &page_1g ? 300 : 30);
	kill(pid, SIGKILL);
	wait_child(pid, SIGKILL);
	check(pool_count(size, 0).free == all, "free: %ld of %ld", pool_count(size, 0).free, all);
	check_pool_zero(size, "after the writer was killed");
}

/* ---- many writers ---- */

static void write_max(void *argument)
{
	const struct page_size *size = argument;
	int result = pool_write(size, 0, FILE_NAME, "max");

	check(!result, "a writer among many: %s", strerror(-result));
}

static void write_elsewhere(void *argument)
{
	const struct page_size *size = argument;
	int result = pool_write(size, nodes - 1, FILE_NAME, "max");

	check(!result, "a writer elsewhere: %s", strerror(-result));
}

static void many_writers(const struct page_size *size)
{
	const struct page_size *other = size == &page_2m ? &page_1g : &page_2m;
	int pids[8], count = 0;

	for (int round = 0; round < (size == &page_1g ? 1 : 5); round++) {
		count = 0;
		for (int i = 0; i < 5; i++)
			pids[count++] = start_child(write_max, (void *)(uintptr_t)size);
		pids[count++] = start_child(write_elsewhere, (void *)(uintptr_t)size);
		if (has_zeroable(other))
			pids[count++] = start_child(write_max, (void *)(uintptr_t)other);
		while (count)
			wait_child(pids[--count], 0);
		check(!zeroable(size, 0), "zeroable after five writers: %ld", zeroable(size, 0));
		check_pool_zero(size, "after many writers");
	}
}

/* Pages in a writer's hands still count as free, at every instant. */
static void free_count_stays(const struct page_size *size)
{
	struct pool_count before = pool_count(size, 0);
	long samples = 0, lowest = before.free;

	for (int tries = 0; tries < TRIES_MAX && samples < SAMPLES_WANTED; tries++) {
		int pid;

		dirty_pool(size);
		pid = start_child(write_max, (void *)(uintptr_t)size);
		while (zeroable(size, 0)) {
			struct pool_count now = pool_count(size, 0);

			samples++;
			if (now.free < lowest)
				lowest = now.free;
			check(now.nr == before.nr && now.surplus == before.surplus,
			      "nr %ld, surplus %ld", now.nr, now.surplus);
		}
		wait_child(pid, 0);
	}
	check(lowest == before.free, "free went from %ld down to %ld", before.free, lowest);
	check(samples >= SAMPLES_WANTED, "only %ld samples while zeroing", samples);
}

/* ---- poll ---- */

static void read_all(int fd)
{
	char text[32];

	require(pread(fd, text, sizeof(text), 0) > 0, "read: %s", strerror(errno));
}

static bool wait_event(int fd, int limit_ms)
{
	struct pollfd event = {.fd = fd, .events = POLLPRI};
	int result = poll(&event, 1, limit_ms);

	return result == 1 && event.revents & POLLPRI;
}

static void dirty_later(void *argument)
{
	sleep_ms(100);
	dirty_pool(argument);
}

static void poll_event(const struct page_size *size)
{
	int fd = pool_open(size, 0, FILE_NAME, O_RDONLY);
	int pid;

	require(fd >= 0, "open: %s", strerror(errno));
	sleep_ms(50);
	read_all(fd);
	check(!wait_event(fd, 200), "an event though nothing happened");
	zero_pages(size);
	check(!wait_event(fd, 200), "an event because pages became clean");
	read_all(fd);
	pid = start_child(dirty_later, (void *)(uintptr_t)size);
	check(wait_event(fd, 20000), "no event when pages became dirty");
	wait_child(pid, 0);
	check(zeroable(size, 0) > 0, "an event and nothing to zero");
	sleep_ms(50);
	read_all(fd);
	check(!wait_event(fd, 200), "events go on though nothing happens");
	close(fd);
}

static void dirty_for_ever(void *argument)
{
	const struct page_size *size = argument;

	numa_bind(0);
	for (;;) {
		void *address = map_pages(size, 1, MAP_PRIVATE);

		touch_pages(size, address, 1);
		unmap_pages(size, address, 1);
	}
}

static void poll_rate(const struct page_size *size)
{
	int fd = pool_open(size, 0, FILE_NAME, O_RDONLY), pid;
	double start, end;
	long events = 0;

	require(fd >= 0, "open: %s", strerror(errno));
	zero_pages(size);
	sleep_ms(50);
	read_all(fd);
	pid = start_child(dirty_for_ever, (void *)(uintptr_t)size);
	start = now_ms();
	end = start + 1500;
	while (now_ms() < end)
		if (wait_event(fd, 100)) {
			events++;
			read_all(fd);
		}
	kill(pid, SIGKILL);
	wait_child(pid, SIGKILL);
	check(events > 3, "%ld events in 1.5 s of pages becoming dirty", events);
	check((double)events <= (now_ms() - start) / EVENT_GAP_MS + 1, "%ld events in %.0f ms",
	      events, now_ms() - start);
	close(fd);
}

/* Nobody misses the last pages: whoever polls after an event finds them or gets another event. */
static void poll_last(const struct page_size *size)
{
	int fd = pool_open(size, 0, FILE_NAME, O_RDONLY);

	numa_bind(0);
	require(fd >= 0, "open: %s", strerror(errno));
	for (int round = 0; round < 20; round++) {
		void *address = map_pages(size, 1, MAP_PRIVATE);

		touch_pages(size, address, 1);
		zero_pages(size);
		sleep_ms(round % 5 * 5);
		read_all(fd);
		unmap_pages(size, address, 1);
		check(wait_event(fd, 2000), "round %d: no event for the page just freed", round);
	}
	close(fd);
}

static const struct test tests[] = {
	{.name = "read_format", .run = read_format, .sizes = SIZE_BOTH},
	{.name = "write_number", .run = write_number, .sizes = SIZE_BOTH},
	{.name = "write_garbage", .run = write_garbage, .sizes = SIZE_2M},
	{.name = "file_mode", .run = file_mode, .sizes = SIZE_2M},
	{.name = "signal_success", .run = signal_success, .sizes = SIZE_2M},
	{.name = "signal_eintr", .run = signal_eintr, .sizes = SIZE_BOTH},
	{.name = "signal_kill", .run = signal_kill, .sizes = SIZE_BOTH},
	{.name = "many_writers", .run = many_writers, .sizes = SIZE_BOTH},
	{.name = "free_count_stays", .run = free_count_stays, .sizes = SIZE_BOTH},
	{.name = "poll_event", .run = poll_event, .sizes = SIZE_2M},
	{.name = "poll_rate", .run = poll_rate, .sizes = SIZE_2M},
	{.name = "poll_last", .run = poll_last, .sizes = SIZE_2M},
};

const struct test_group group_semantics = {tests, ARRAY_SIZE(tests)};
