/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_fill_work.c - a team does other work than populating: all of it and once, what ends it,
 * and that a cancel brings it back out of a system call. Needs neither privileges nor huge pages.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "fill/fill.h"

#define MIB (1ULL << 20)
#define PAGE (2 * MIB)
#define UNIT (16 * MIB)
#define PAGES_MAX 256
#define S_NS 1000000000ULL

static struct fill_team *team;

struct job {
	struct fill_job *job;
	bool is_done;
	int result;
	struct fill_progress progress;
	atomic_uint n_done[PAGES_MAX]; /* by page */
	uint64_t end_bytes; /* there is nothing to do behind it */
	int fail_with; /* behind that */
	int pipe_fd; /* full: a write sleeps */
	atomic_uint n_sleeping, n_eintr;
	unsigned int n_eintr_ignored; /* as if the signal had come before the call */
	atomic_int tid;
};

static void done(void *arg, struct fill_job *fill_job, int result)
{
	struct job *job = arg;

	assert_ptr_equal(fill_job, job->job);
	fill_job_progress(fill_job, &job->progress);
	job->result = result;
	job->is_done = true;
}

static void start_team(unsigned int n_threads)
{
	struct fill_config config = {.n_threads = n_threads};

	assert_int_equal(fill_team_start(&config, &team), 0);
}

static void submit(struct job *job, int64_t (*work)(void *, uint64_t, uint64_t), uint64_t bytes)
{
	struct fill_request request = {
		.fd = -1,
		.length_bytes = bytes,
		.page_class = {.page = {PAGE_HUGETLB, PAGE}, .node = 0},
		.priority = FILL_DEMAND,
		.work = work,
		.done = done,
		.arg = job,
	};

	/* Wherever the process may run. */
	for (unsigned int cpu = 0; cpu < ID_SET_MAX; cpu++)
		id_set_add(&request.node_cpus, cpu);
	assert_int_equal(fill_team_submit(team, &request, &job->job), 0);
}

static void reap(const struct job *job)
{
	while (!job->is_done) {
		struct pollfd poll_fd = {.fd = fill_team_fd(team), .events = POLLIN};

		assert_int_equal(poll(&poll_fd, 1, 60000), 1);
		fill_team_reap(team);
	}
}

/* Three pages at a time: units are not a multiple of it. */
static int64_t count_pages(void *arg, uint64_t offset_bytes, uint64_t unit_bytes)
{
	struct job *job = arg;
	uint64_t bytes = 0;

	if (offset_bytes >= job->end_bytes)
		return job->fail_with;
	while (bytes < unit_bytes && bytes < 3 * PAGE && offset_bytes + bytes < job->end_bytes) {
		atomic_fetch_add(&job->n_done[(offset_bytes + bytes) / PAGE], 1);
		bytes += PAGE;
	}
	usleep(100);
	return (int64_t)bytes;
}

static void all_is_done_once(void **state)
{
	struct job job = {.end_bytes = UINT64_MAX};

	(void)state;
	start_team(3);
	submit(&job, count_pages, 200 * PAGE);
	reap(&job);
	assert_int_equal(job.result, 0);
	assert_int_equal(job.progress.done_bytes, 200 * PAGE);
	assert_int_equal(job.progress.total_bytes, 200 * PAGE);
	for (unsigned int page = 0; page < PAGES_MAX; page++)
		assert_int_equal(job.n_done[page], page < 200);
	team = fill_team_stop(team);
}

static void nothing_left_ends_it_well(void **state)
{
	struct job job = {.end_bytes = 21 * PAGE};

	(void)state;
	start_team(1);
	submit(&job, count_pages, 200 * PAGE);
	reap(&job);
	assert_int_equal(job.result, 0);
	assert_int_equal(job.progress.done_bytes, 21 * PAGE);
	team = fill_team_stop(team);
}

static void an_error_ends_it(void **state)
{
	struct job job = {.end_bytes = 21 * PAGE, .fail_with = -EIO};

	(void)state;
	start_team(1);
	submit(&job, count_pages, 200 * PAGE);
	reap(&job);
	assert_int_equal(job.result, -EIO);
	assert_int_equal(job.progress.done_bytes, 21 * PAGE);
	team = fill_team_stop(team);
}

/* Each call does one byte's worth, when the pipe lets it. */
static int64_t write_to_pipe(void *arg, uint64_t offset_bytes, uint64_t unit_bytes)
{
	struct job *job = arg;

	(void)offset_bytes;
	(void)unit_bytes;
	atomic_store(&job->tid, gettid());
	for (;;) {
		ssize_t n;

		atomic_fetch_add(&job->n_sleeping, 1);
		n = write(job->pipe_fd, "1", 1);
		atomic_fetch_sub(&job->n_sleeping, 1);
		if (n == 1)
			return PAGE;
		assert_int_equal(errno, EINTR);
		if (atomic_fetch_add(&job->n_eintr, 1) >= job->n_eintr_ignored)
			return -EINTR;
	}
}

/* A pipe that is full; returns the end to read from. */
static int fill_pipe(struct job *job)
{
	char data[4096] = {0};
	int fd[2];

	assert_int_equal(pipe2(fd, O_CLOEXEC | O_NONBLOCK), 0);
	while (write(fd[1], data, sizeof(data)) > 0)
		;
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(fcntl(fd[1], F_SETFL, 0), 0);
	job->pipe_fd = fd[1];
	return fd[0];
}

static void wait_for(atomic_uint *counter, unsigned int value)
{
	for (unsigned int i = 0; atomic_load(counter) != value && i < 100000; i++)
		usleep(200);
	assert_int_equal(atomic_load(counter), value);
}

/* The pipe stays full: only a signal can bring the threads back. */
static void cancelled_after(unsigned int n_eintr_ignored)
{
	struct job job = {.n_eintr_ignored = n_eintr_ignored}, next = {.end_bytes = UINT64_MAX};
	int fd = fill_pipe(&job);
	uint64_t began_ns;

	start_team(1);
	submit(&job, write_to_pipe, 200 * PAGE);
	wait_for(&job.n_sleeping, 1);
	began_ns = monotonic_ns();
	fill_job_cancel(job.job);
	fill_job_cancel(job.job);
	reap(&job);
	assert_int_equal(job.result, -ECANCELED);
	assert_int_equal(job.progress.done_bytes, 0);
	assert_int_equal(job.n_eintr, n_eintr_ignored + 1);
	assert_true(monotonic_ns() - began_ns < 30 * S_NS);

	/* And the thread is good for more. */
	submit(&next, count_pages, 20 * PAGE);
	reap(&next);
	assert_int_equal(next.result, 0);
	assert_int_equal(next.progress.done_bytes, 20 * PAGE);
	team = fill_team_stop(team);
	close(fd);
	close(job.pipe_fd);
}

static void cancel_interrupts_a_write(void **state)
{
	(void)state;
	cancelled_after(0);
}

static void a_signal_that_comes_too_early_is_followed_by_more(void **state)
{
	(void)state;
	cancelled_after(20);
}

static void cancel_interrupts_every_thread(void **state)
{
	struct job job = {0};
	int fd = fill_pipe(&job);
	cpu_set_t cpus;
	unsigned int n;

	(void)state;
	/* No more threads work on a node than it has CPUs. */
	assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	n = CPU_COUNT(&cpus) > 4 ? 4 : (unsigned int)CPU_COUNT(&cpus);
	start_team(n);
	submit(&job, write_to_pipe, 200 * PAGE);
	wait_for(&job.n_sleeping, n);
	fill_job_cancel(job.job);
	reap(&job);
	assert_int_equal(job.result, -ECANCELED);
	assert_int_equal(job.n_eintr, n);
	team = fill_team_stop(team);
	close(fd);
	close(job.pipe_fd);
}

/* Job control and debuggers interrupt system calls too. */
static void the_signal_of_another_stops_nothing(void **state)
{
	struct job job = {0};
	int fd = fill_pipe(&job);
	char data[8192];

	(void)state;
	start_team(1);
	submit(&job, write_to_pipe, 2 * PAGE);
	wait_for(&job.n_sleeping, 1);
	while (!atomic_load(&job.n_eintr)) {
		assert_int_equal(syscall(SYS_tgkill, getpid(), job.tid, FILL_SIGNAL), 0);
		usleep(1000);
	}
	wait_for(&job.n_sleeping, 1);
	while (read(fd, data, sizeof(data)) > 0)
		;
	reap(&job);
	assert_int_equal(job.result, 0);
	assert_int_equal(job.progress.done_bytes, 2 * PAGE);
	team = fill_team_stop(team);
	close(fd);
	close(job.pipe_fd);
}

/* One unit, so that the job is in no queue any more. */
static void stop_interrupts_the_last_unit(void **state)
{
	struct job job = {0};
	int fd = fill_pipe(&job);

	(void)state;
	start_team(1);
	submit(&job, write_to_pipe, PAGE);
	wait_for(&job.n_sleeping, 1);
	team = fill_team_stop(team);
	assert_true(job.is_done);
	assert_int_equal(job.result, -ECANCELED);
	close(fd);
	close(job.pipe_fd);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_is_done_once),
		cmocka_unit_test(nothing_left_ends_it_well),
		cmocka_unit_test(an_error_ends_it),
		cmocka_unit_test(cancel_interrupts_a_write),
		cmocka_unit_test(a_signal_that_comes_too_early_is_followed_by_more),
		cmocka_unit_test(cancel_interrupts_every_thread),
		cmocka_unit_test(the_signal_of_another_stops_nothing),
		cmocka_unit_test(stop_interrupts_the_last_unit),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
