/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_fill_team.c - who works when and where: priorities, CPUs, the rate cap, changes, chores.
 */
#include "fill_test.h"

/* Somebody waits: ahead of stock, in the normal scheduling class; stock in the idle class. */
static void test_priority(void **state)
{
	struct page_size page = host_page(PAGE_BASE);
	struct job stock = {.pause_us = 1000}, demand = {0};
	int dir_fd, fd, fd_2;

	(void)state;
	host_required();
	dir_fd = host_mount(page, MOUNT_LIMIT);
	fd = new_file(dir_fd, 8 * UNIT);
	fd_2 = new_file(dir_fd, 2 * UNIT);
	start_team(1, 0);
	submit_stock(&stock, fd, page, 8 * UNIT);
	wait_for(&stock.n_asked, 1);
	submit(&demand, fd_2, page, 2 * UNIT);
	reap_until(1);
	assert_int_equal(demand.n_done, 1);
	assert_int_equal(demand.policy, SCHED_OTHER);
	reap_until(0);
	assert_true(stock.last_ns > demand.last_ns);
	assert_int_equal(stock.policy, SCHED_IDLE);

	/* Raised while a thread is on a unit, and back to stock. */
	stock = (struct job){.is_held = true};
	submit_stock(&stock, fd, page, 8 * UNIT);
	wait_for(&stock.tid, 1);
	assert_int_equal(sched_getscheduler((pid_t)stock.tid), SCHED_IDLE);
	fill_job_raise(stock.job, FILL_DEMAND);
	assert_int_equal(sched_getscheduler((pid_t)stock.tid), SCHED_OTHER);
	atomic_store(&stock.is_held, false);
	reap_until(0);
	assert_int_equal(stock.policy, SCHED_OTHER);
	stock = (struct job){0};
	submit_stock(&stock, fd, page, UNIT);
	reap_until(0);
	assert_int_equal(stock.policy, SCHED_IDLE);

	stop_team();
	close(fd);
	close(fd_2);
	host_unmount(dir_fd);
}

static atomic_uint n_elsewhere;

static void look_at_cpus(struct job *job, unsigned int index)
{
	cpu_set_t cpus;

	(void)job;
	(void)index;
	if (sched_getaffinity(0, sizeof(cpus), &cpus) < 0 || CPU_COUNT(&cpus) != 1 ||
	    !CPU_ISSET(0, &cpus))
		atomic_fetch_add(&n_elsewhere, 1);
}

/* On the CPUs of the node, and no more threads than there are of them. */
static void test_cpus(void **state)
{
	struct page_size page = host_page(PAGE_THP);
	struct job job = {.pause_us = 1000, .at_unit = look_at_cpus}, anywhere = {0};
	struct fill_request request;
	int dir_fd, fd;

	(void)state;
	host_required();
	dir_fd = host_mount(page, MOUNT_LIMIT);
	fd = new_file(dir_fd, 8 * UNIT);
	start_team(3, 0);
	request = request_of(&job, fd, page, 8 * UNIT);
	id_set_add(&request.node_cpus, 0);
	submit_request(&job, &request);
	reap_until(0);
	assert_int_equal(job.result, 0);
	assert_int_equal(job.n_at_once_max, 1);
	assert_int_equal(n_elsewhere, 0);

	/* A node whose CPUs may not be used is filled all the same. */
	request = request_of(&anywhere, fd, page, 8 * UNIT);
	id_set_add(&request.node_cpus, ID_SET_MAX - 1);
	submit_request(&anywhere, &request);
	reap_until(0);
	assert_int_equal(anywhere.result, 0);
	stop_team();
	close(fd);
	host_unmount(dir_fd);
}

static void test_rate(void **state)
{
	struct page_size page = host_page(PAGE_THP);
	struct job stock = {0}, demand = {0};
	struct fill_config config = {.n_threads = 2};
	uint64_t start_ns;
	int dir_fd, fd, fd_2;

	(void)state;
	host_required();
	dir_fd = host_mount(page, MOUNT_LIMIT);
	fd = new_file(dir_fd, 8 * UNIT);
	fd_2 = new_file(dir_fd, 8 * UNIT);
	start_team(2, 160 * MIB); /* a unit in 100 ms; at first, two */
	start_ns = monotonic_ns();
	submit_stock(&stock, fd, page, 8 * UNIT);
	reap_until(0);
	assert_int_equal(stock.result, 0);
	assert_true(monotonic_ns() - start_ns >= 590 * MS_NS);

	/* The cap is not for somebody who waits, and ends at once when it is taken off. */
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(ftruncate(fd, 8 * UNIT), 0);
	config.rate_bytes_per_s = MIB;
	assert_int_equal(fill_team_configure(team, &config), 0);
	stock = (struct job){0};
	submit_stock(&stock, fd, page, 8 * UNIT);
	start_ns = monotonic_ns();
	submit(&demand, fd_2, page, 8 * UNIT);
	reap_until(1);
	assert_int_equal(demand.n_done, 1);
	config.rate_bytes_per_s = 0;
	assert_int_equal(fill_team_configure(team, &config), 0);
	reap_until(0);
	assert_int_equal(stock.result, 0);
	assert_true(monotonic_ns() - start_ns < 10000 * MS_NS);
	stop_team();
	close(fd);
	close(fd_2);
	host_unmount(dir_fd);
}

static unsigned long count_switches(void)
{
	DIR *tasks = opendir("/proc/self/task");
	unsigned long n = 0, of_thread;
	struct dirent *task;

	assert_non_null(tasks);
	while ((task = readdir(tasks))) {
		char path[300], line[128] = "";
		FILE *file;
		bool is_ours;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
		file = fopen(path, "re");
		if (!file)
			continue;
		is_ours = fgets(line, sizeof(line), file) && strstr(line, "prezero-fill");
		while (is_ours && fgets(line, sizeof(line), file))
			if (sscanf(line, "voluntary_ctxt_switches: %lu", &of_thread) == 1)
				n += of_thread;
		fclose(file);
	}
	closedir(tasks);
	return n;
}

/* Nothing to do: no wake-up at all. */
static void test_quiet(void **state)
{
	struct page_size page = host_page(PAGE_BASE);
	struct job job = {0};
	unsigned long before = 0;
	int dir_fd, fd;

	(void)state;
	host_required();
	dir_fd = host_mount(page, MOUNT_LIMIT);
	fd = new_file(dir_fd, UNIT);
	start_team(4, MIB);
	submit_stock(&job, fd, page, UNIT);
	reap_until(0);
	/* On a busy host a thread of the idle class may need a while until it sleeps; a thread that wakes
	 * up by itself never lets half a second pass. */
	for (unsigned int i = 0; i < 20 && count_switches() != before; i++) {
		before = count_switches();
		usleep(500000);
	}
	assert_true(before > 0);
	assert_int_equal(count_switches(), before);
	stop_team();
	close(fd);
	host_unmount(dir_fd);
}

/* The number of threads changes under load, down and up. */
static void test_configure(void **state)
{
	struct page_size page = host_page(PAGE_THP);
	struct fill_config config = {.n_threads = 1};
	int dir_fd, fd;

	(void)state;
	host_required();
	dir_fd = host_mount(page, MOUNT_LIMIT);
	fd = new_file(dir_fd, 8 * UNIT);
	start_team(3, 0);
	for (unsigned int round = 0; round < 20; round++) {
		struct job job = {0};

		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(ftruncate(fd, 8 * UNIT), 0);
		submit(&job, fd, page, 8 * UNIT);
		config.n_threads = 1 + round * 3 % 7;
		assert_int_equal(fill_team_configure(team, &config), 0);
		reap_until(0);
		assert_int_equal(job.result, 0);
	}
	stop_team();
	close(fd);
	host_unmount(dir_fd);
}

static atomic_uint n_chores_run;
static unsigned int n_chores_done, n_chores_canceled;
static struct fill_team *resubmit_to;

static int chore(void *arg)
{
	atomic_fetch_add(&n_chores_run, 1);
	usleep(*(unsigned int *)arg);
	return 42;
}

static void chore_done(void *arg, int result)
{
	if (result == -ECANCELED)
		n_chores_canceled++;
	else
		assert_int_equal(result, 42);
	n_chores_done++;
	if (resubmit_to) {
		struct fill_team *once = resubmit_to;

		resubmit_to = NULL;
		assert_int_equal(fill_team_submit_chore(once, chore, chore_done, arg), 0);
	}
}

static void test_chores(void **state)
{
	unsigned int short_us = 0, long_us = 100000;

	(void)state;
	start_team(2, 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(fill_team_submit_chore(team, chore, chore_done, &short_us), 0);
	while (n_chores_done < 100) {
		struct pollfd poll_fd = {.fd = fill_team_fd(team), .events = POLLIN};

		assert_int_equal(poll(&poll_fd, 1, 60000), 1);
		fill_team_reap(team);
	}
	assert_int_equal(n_chores_run, 100);
	assert_int_equal(n_chores_canceled, 0);

	/* A stop runs what has begun, and the rest is told, also what done() adds then. */
	for (int i = 0; i < 10; i++)
		assert_int_equal(fill_team_submit_chore(team, chore, chore_done, &long_us), 0);
	wait_for(&n_chores_run, 102);
	resubmit_to = team;
	stop_team();
	assert_int_equal(n_chores_done, 111);
	assert_int_equal(n_chores_run + n_chores_canceled, 111);
	assert_true(n_chores_canceled >= 8);
}

static void test_many_jobs(void **state)
{
	enum { N_JOBS = 200 };
	static struct job job[N_JOBS];
	struct page_size page = host_page(PAGE_BASE);
	unsigned int n_fds;
	int dir_fd, fd;

	(void)state;
	host_required();
	dir_fd = host_mount(page, MOUNT_LIMIT);
	fd = new_file(dir_fd, N_JOBS * MIB);
	n_fds = count_fds();
	start_team(2, 0);
	for (unsigned int i = 0; i < N_JOBS; i++) {
		struct fill_request request = request_of(&job[i], fd, page, MIB);

		request.offset_bytes = i * MIB;
		request.priority = i % 3 ? FILL_STOCK : FILL_DEMAND;
		submit_request(&job[i], &request);
		if (i % 5 == 4)
			fill_job_cancel(job[i].job);
		if (i % 7 == 6)
			fill_job_raise(job[i].job, FILL_DEMAND);
	}
	reap_until(0);
	for (unsigned int i = 0; i < N_JOBS; i++) {
		assert_int_equal(job[i].n_done, 1);
		assert_true(job[i].result == 0 || (job[i].result == -ECANCELED && i % 5 == 4));
	}
	stop_team();
	assert_int_equal(count_fds(), n_fds);
	close(fd);
	host_unmount(dir_fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_priority),  cmocka_unit_test(test_cpus),
		cmocka_unit_test(test_rate),	  cmocka_unit_test(test_quiet),
		cmocka_unit_test(test_configure), cmocka_unit_test(test_chores),
		cmocka_unit_test(test_many_jobs),
	};

	return cmocka_run_group_tests(tests, host_enter, host_leave);
}
