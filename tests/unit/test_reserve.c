/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_reserve.c - the machine's own pool grows and shrinks to the page, by both methods;
 * stopped, overruled, short or killed, nothing borrowed stays.
 */
#include "unit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "host_state.h"
#include "kill_at.h"
#include "reserve/intent.h"
#include "reserve/reserve.h"
#include "reserve/surplus.h"

#define MIB (1ULL << 20)
#define PAGES 40 /* three units of 16 MiB */

static struct host *host;
static struct host_view view;
static struct reserve_goal goal;
static struct reserve_plan plan;
static struct reserve_result result;
static struct reserve_config config;
static char runtime_dir[] = "/tmp/prezero-reserve-XXXXXX";
static uint64_t before_pages, before_overcommit;

static uint64_t overcommit(void)
{
	uint64_t pages;

	assert_int_equal(host_read_overcommit(host, HUGE_2M, &pages), 0);
	return pages;
}

static int setup(void **state)
{
	(void)state;
	if (geteuid() != 0)
		return 0;
	strcpy(strrchr(runtime_dir, '-'), "-XXXXXX");
	if (!mkdtemp(runtime_dir) || host_open(NULL, &host) < 0 || host_look(host, &view) < 0)
		return -1;
	before_pages = host_count(HUGE_2M, "nr_hugepages");
	before_overcommit = overcommit();
	goal = (struct reserve_goal){
		.page_bytes = HUGE_2M,
		.n_shares = 1,
		.share = {{0, 0, PERCENT_ALL}},
		.n_threads = 2,
		.floor_bytes = MIB,
		.method = RESERVE_PARALLEL,
	};
	config = (struct reserve_config){.host = host, .seen = &view, .runtime_dir = runtime_dir};
	return 0;
}

static int teardown(void **state)
{
	char path[64];

	(void)state;
	if (geteuid() != 0)
		return 0;
	host_set_pages(HUGE_2M, before_pages);
	if (host_write_overcommit(host, HUGE_2M, before_overcommit) < 0)
		return -1;
	host = host_free(host);
	snprintf(path, sizeof(path), "%s/reserve.lock", runtime_dir);
	unlink(path);
	/* Fails where a record was left behind. */
	return rmdir(runtime_dir);
}

static void decide(uint64_t more_pages)
{
	enum shortage why;
	int node;

	host_required();
	goal.bytes = (before_pages + more_pages) * HUGE_2M;
	assert_int_equal(host_look(host, &view), 0);
	assert_int_equal(policy_reserve(&view, &goal, &plan, &why, &node), 0);
}

static void check_counts(uint64_t more_pages)
{
	assert_int_equal(host_count(HUGE_2M, "nr_hugepages"), before_pages + more_pages);
	assert_int_equal(host_count(HUGE_2M, "free_hugepages"), before_pages + more_pages);
	assert_int_equal(host_count(HUGE_2M, "surplus_hugepages"), 0);
	assert_int_equal(host_reserved_pages(HUGE_2M), 0);
	assert_int_equal(overcommit(), before_overcommit);
}

static void run(int expected)
{
	unsigned int n_fds = count_fds();

	assert_int_equal(reserve_run(&config, &goal, &plan, &result), expected);
	assert_int_equal(count_fds(), n_fds);
}

static void grows_and_shrinks(enum reserve_method method)
{
	goal.method = method;
	decide(PAGES);
	assert_int_equal(plan.method, method);
	run(0);
	check_counts(PAGES);
	assert_int_equal(result.why, SHORT_NONE);
	assert_int_equal(result.node[0].have_pages, before_pages + PAGES);
	assert_int_equal(result.node[0].from_pages, before_pages);
	/* From a pool that has free pages. */
	decide(PAGES + 20);
	run(0);
	check_counts(PAGES + 20);
	goal.shrink = true;
	decide(3);
	run(0);
	check_counts(3);
}

static void parallel(void **state)
{
	(void)state;
	grows_and_shrinks(RESERVE_PARALLEL);
}

static void plain(void **state)
{
	(void)state;
	grows_and_shrinks(RESERVE_PLAIN);
}

/* The team does allocate: each unit is there, untouched, before anything is adopted. */
static void surplus_is_allocated_untouched(void **state)
{
	int fd;

	(void)state;
	host_required();
	assert_int_equal(surplus_take(HUGE_2M, before_pages + 5, 0), -ENOMEM);
	assert_int_equal(host_write_overcommit(host, HUGE_2M, 5), 0);
	fd = surplus_take(HUGE_2M, before_pages + 5, 0);
	assert_true(fd >= 0);
	assert_int_equal(host_count(HUGE_2M, "nr_hugepages"), before_pages + 5);
	assert_int_equal(host_count(HUGE_2M, "free_hugepages"), before_pages + 5);
	assert_int_equal(host_count(HUGE_2M, "surplus_hugepages"), 5);
	close(fd);
	assert_int_equal(host_count(HUGE_2M, "nr_hugepages"), before_pages);
}

static unsigned int n_ticks;

static bool stop_at_once(void *arg, const struct reserve_progress *progress)
{
	(void)arg;
	assert_true(progress->done_bytes <= progress->total_bytes);
	n_ticks++;
	return false;
}

static void stopped(void **state)
{
	(void)state;
	config.tick = stop_at_once;
	n_ticks = 0;
	decide(PAGES);
	run(0);
	assert_true(n_ticks > 0);
	assert_int_equal(result.why, SHORT_NONE);
	/* What was there at that moment stays, to the page as it is told. */
	check_counts(result.node[0].have_pages - before_pages);
	host_set_pages(HUGE_2M, before_pages);

	config.all_or_nothing = true;
	decide(PAGES);
	run(0);
	check_counts(result.node[0].have_pages == before_pages + PAGES ? PAGES : 0);

	goal.method = RESERVE_PLAIN;
	host_set_pages(HUGE_2M, before_pages);
	decide(PAGES);
	run(0);
	assert_true(result.is_stopped);
	check_counts(0);
}

static void floor_holds(void **state)
{
	(void)state;
	decide(PAGES);
	/* The plan was made before the floor rose, to where no memory that others free can reach it. */
	goal.floor_bytes = view.total_bytes;
	for (int method = RESERVE_PLAIN; method <= RESERVE_PARALLEL; method++) {
		plan.method = (enum reserve_method)method;
		run(0);
		assert_int_equal(result.why, SHORT_FLOOR);
		check_counts(0);
	}
	decide(PAGES);
	assert_int_equal(plan.why, SHORT_FLOOR);
}

static bool administrator(void *arg, const struct reserve_progress *progress)
{
	(void)arg;
	(void)progress;
	if (!n_ticks++) {
		host_set_pages(HUGE_2M, before_pages + 7);
		assert_int_equal(host_write_overcommit(host, HUGE_2M, 3), 0);
	}
	return true;
}

/* A later write of somebody else wins, for the pages as for the setting. */
static void overruled(void **state)
{
	(void)state;
	config.tick = administrator;
	for (int method = RESERVE_PLAIN; method <= RESERVE_PARALLEL; method++) {
		n_ticks = 0;
		decide(PAGES);
		plan.method = (enum reserve_method)method;
		run(0);
		if (!n_ticks)
			continue; /* the team was done before the first tick */
		assert_true(result.node[0].is_overruled);
		assert_int_equal(result.node[0].have_pages, before_pages + 7);
		assert_int_equal(result.overcommit_overruled, method == RESERVE_PARALLEL);
		assert_int_equal(overcommit(), 3);
		assert_int_equal(host_write_overcommit(host, HUGE_2M, before_overcommit), 0);
		check_counts(7);
		host_set_pages(HUGE_2M, before_pages);
	}
}

static void one_at_a_time(void **state)
{
	int lock_fd;

	(void)state;
	decide(PAGES);
	lock_fd = intent_lock(runtime_dir);
	assert_true(lock_fd >= 0);
	run(-EBUSY);
	close(lock_fd);
	check_counts(0);
}

static void strange_records_are_refused(void **state)
{
	static const char *const records[] = {"",
					      "{}",
					      "[]",
					      "{\"page_bytes\": 1",
					      "{\"page_bytes\": 2097152, \"before_pages\": 9, "
					      "\"borrowed_pages\": 3}",
					      "{\"page_bytes\": 2097152, \"before_pages\": 1, "
					      "\"borrowed_pages\": 3, \"more\": 1}"};
	char path[64];

	(void)state;
	decide(PAGES);
	snprintf(path, sizeof(path), "%s/reserve.intent", runtime_dir);
	for (size_t i = 0; i < ARRAY_LEN(records); i++) {
		int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

		assert_int_equal(write_all(fd, records[i], strlen(records[i])), 0);
		close(fd);
		run(-EBADMSG);
	}
	unlink(path);
	check_counts(0);
}

static int run_again(void *arg)
{
	(void)arg;
	return reserve_run(&config, &goal, &plan, &result);
}

/* Killed before and after every system call: the pool is as it was or as it was to be, and the next run
 * puts the setting back. */
static void killed_anywhere(void **state)
{
	enum kill_result killed = KILL_DONE;
	unsigned int n_mended = 0, n_grown = 0, step = getenv("PREZERO_TEST_LONG") ? 1 : 3;

	(void)state;
	goal.n_threads = 1; /* stops are counted over all threads: with one they come in order */
	decide(PAGES);
	for (unsigned int n = 1; killed == KILL_DONE; n += step) {
		uint64_t have_pages;
		int r;

		killed = run_killed_at(run_again, NULL, n);
		assert_int_not_equal(killed, KILL_FAILED);
		r = reserve_mend(host, runtime_dir);
		assert_true(r >= 0);
		n_mended += r > 0;
		have_pages = host_count(HUGE_2M, "nr_hugepages");
		n_grown += have_pages != before_pages;
		if (have_pages != before_pages)
			assert_int_equal(have_pages, before_pages + PAGES);
		check_counts(have_pages - before_pages);
		host_set_pages(HUGE_2M, before_pages);
	}
	/* Of both kinds there were some. */
	assert_true(n_mended > 2);
	assert_true(n_grown > 2);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(parallel),
		TEST(plain),
		TEST(surplus_is_allocated_untouched),
		TEST(stopped),
		TEST(floor_holds),
		TEST(overruled),
		TEST(one_at_a_time),
		TEST(strange_records_are_refused),
		TEST(killed_anywhere),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, host_enter, host_leave);
}
