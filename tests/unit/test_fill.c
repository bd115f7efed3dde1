/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_fill.c - a team fills real memory of every kind: what is in it, who worked on it, when
 * it stops, and that nothing is left of it.
 */
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "fill/fill.h"
#include "fill/range.h"
#include "host_state.h"

#define MIB (1ULL << 20)
#define UNIT (16 * MIB)
#define MOUNT_LIMIT (512 * MIB)
#define MS_NS 1000000ULL

static struct fill_team *team;
static unsigned int n_pending;

/* One job as a test sees it. */
struct job {
	struct fill_job *job;
	int fd;
	unsigned int n_done;
	int result;
	struct fill_progress progress;
	/* from may_take, in team threads */
	atomic_uint n_asked, n_at_once, n_at_once_max;
	atomic_bool is_held; /* units do not begin */
	atomic_int refuse_with; /* at the second unit */
	unsigned int pause_us;
	void (*at_unit)(struct job *job, unsigned int index);
	_Atomic uint64_t first_ns, last_ns;
	atomic_int policy; /* of the thread that began last */
	atomic_uint tid; /* of the first one */
};

static void start_team(unsigned int n_threads, uint64_t rate)
{
	struct fill_config config = {.n_threads = n_threads, .rate_bytes_per_s = rate};

	assert_int_equal(fill_team_start(&config, &team), 0);
}

static void stop_team(void)
{
	team = fill_team_stop(team);
	assert_null(team);
	assert_int_equal(n_pending, 0);
}

static void reap_until(unsigned int n_left)
{
	while (n_pending > n_left) {
		struct pollfd poll_fd = {.fd = fill_team_fd(team), .events = POLLIN};

		assert_int_equal(poll(&poll_fd, 1, 60000), 1);
		fill_team_reap(team);
	}
}

static void wait_for(atomic_uint *counter, unsigned int at_least)
{
	while (atomic_load(counter) < at_least)
		usleep(200);
}

static int may_take(void *arg, uint64_t unit_bytes)
{
	struct job *job = arg;
	unsigned int index = atomic_fetch_add(&job->n_asked, 1);
	unsigned int now = atomic_fetch_add(&job->n_at_once, 1) + 1;
	unsigned int max = atomic_load(&job->n_at_once_max);

	(void)unit_bytes;
	if (!index) {
		atomic_store(&job->tid, (unsigned int)gettid());
		atomic_store(&job->first_ns, monotonic_ns());
	}
	atomic_store(&job->last_ns, monotonic_ns());
	while (max < now && !atomic_compare_exchange_weak(&job->n_at_once_max, &max, now))
		;
	atomic_store(&job->policy, sched_getscheduler(0));
	if (job->at_unit)
		job->at_unit(job, index);
	if (job->pause_us)
		usleep(job->pause_us);
	while (atomic_load(&job->is_held))
		usleep(200);
	atomic_fetch_sub(&job->n_at_once, 1);
	return index == 1 ? atomic_load(&job->refuse_with) : 0;
}

static void done(void *arg, struct fill_job *fill_job, int result)
{
	struct job *job = arg;

	assert_ptr_equal(fill_job, job->job);
	fill_job_progress(fill_job, &job->progress);
	job->result = result;
	job->n_done++;
	n_pending--;
}

static int new_file(int dir_fd, uint64_t bytes)
{
	int fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	return fd;
}

static struct fill_request request_of(struct job *job, int fd, struct page_size page,
				      uint64_t bytes)
{
	struct fill_request request = {
		.fd = fd,
		.length_bytes = bytes,
		.page_class = {.page = page, .node = 0},
		.priority = FILL_DEMAND,
		.bind = true,
		.may_take = may_take,
		.done = done,
		.arg = job,
	};

	return request;
}

static void submit_request(struct job *job, const struct fill_request *request)
{
	job->fd = request->fd;
	n_pending++;
	assert_int_equal(fill_team_submit(team, request, &job->job), 0);
}

static void submit(struct job *job, int fd, struct page_size page, uint64_t bytes)
{
	struct fill_request request = request_of(job, fd, page, bytes);

	submit_request(job, &request);
}

static void submit_stock(struct job *job, int fd, struct page_size page, uint64_t bytes)
{
	struct fill_request request = request_of(job, fd, page, bytes);

	request.priority = FILL_STOCK;
	submit_request(job, &request);
}

static unsigned int count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[1024];
	unsigned int n = 0;

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "prezero-unit-") != NULL;
	fclose(maps);
	return n;
}

/* The end is told first, and the mapping goes next. */
static void wait_unmapped(void)
{
	for (int i = 0; i < 5000 && count_mappings(); i++)
		usleep(1000);
	assert_int_equal(count_mappings(), 0);
}

static void need(struct page_size page, uint64_t bytes)
{
	host_required();
	if (page.kind == PAGE_HUGETLB)
		host_need_pages(page.bytes, (unsigned int)(bytes / page.bytes));
}

/* Filled, dirtied, given back and filled again: always zero, always whole, and all of it comes back. */
static void fill_every_time(struct page_size page, uint64_t bytes)
{
	int dir_fd;
	unsigned int n_fds;

	need(page, bytes);
	dir_fd = host_mount(page, bytes);
	n_fds = count_fds();
	start_team(2, 0);
	for (int round = 0; round < 3; round++) {
		struct job job = {.pause_us = 1000};
		int fd = new_file(dir_fd, bytes);

		submit(&job, fd, page, bytes);
		reap_until(0);
		assert_int_equal(job.result, 0);
		assert_int_equal(job.n_done, 1);
		assert_int_equal(job.progress.done_bytes, bytes);
		assert_int_equal(job.progress.total_bytes, bytes);
		assert_true(job.progress.elapsed_ns > 0);
		assert_int_equal(job.progress.threads_used,
				 bytes > page_size_unit_bytes(page) ? 2 : 1);
		assert_int_equal(job.n_asked, (bytes + page_size_unit_bytes(page) - 1) /
						      page_size_unit_bytes(page));
		wait_unmapped();
		assert_true(oracle_is_zero(fd, bytes));
		oracle_dirty(fd, bytes);
		close(fd);
		assert_int_equal(host_used_bytes(dir_fd), 0);
	}
	stop_team();
	assert_int_equal(count_fds(), n_fds);
	host_unmount(dir_fd);
}

static void test_hugetlb(void **state)
{
	(void)state;
	/* The last unit is a short one. */
	fill_every_time(host_page(PAGE_HUGETLB), 5 * UNIT + 6 * MIB);
}

static void test_gigantic(void **state)
{
	struct page_size page = {.kind = PAGE_HUGETLB, .bytes = 1ULL << 30};

	(void)state;
	fill_every_time(page, 2 * page.bytes);
}

static void test_thp(void **state)
{
	(void)state;
	fill_every_time(host_page(PAGE_THP), 5 * UNIT + 6 * MIB);
}

static void test_base(void **state)
{
	(void)state;
	fill_every_time(host_page(PAGE_BASE), 5 * UNIT + 12288);
}

/* A part of a file, and only that. */
static void test_range(void **state)
{
	struct page_size page = host_page(PAGE_HUGETLB);
	struct job job = {0};
	struct fill_request request;
	struct stat st;
	int dir_fd, fd;

	(void)state;
	need(page, 3 * UNIT);
	dir_fd = host_mount(page, MOUNT_LIMIT);
	fd = new_file(dir_fd, 3 * UNIT);
	start_team(2, 0);
	request = request_of(&job, fd, page, UNIT);
	request.offset_bytes = UNIT;
	submit_request(&job, &request);
	reap_until(0);
	assert_int_equal(job.result, 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_blocks * 512, UNIT);
	assert_int_equal(lseek(fd, 0, SEEK_CUR), 0);
	close(fd);
	stop_team();
	host_unmount(dir_fd);
}

static void refused_request(struct fill_request request, int expected)
{
	struct fill_job *job = NULL;

	assert_int_equal(fill_team_submit(team, &request, &job), expected);
	assert_null(job);
}

static void test_bad_requests(void **state)
{
	struct page_size page = host_page(PAGE_BASE);
	struct job job = {0};
	struct fill_request good, bad;
	struct fill_config config = {.n_threads = 0};
	struct fill_team *none = NULL;
	int dir_fd, fd;

	(void)state;
	host_required();
	assert_int_equal(fill_team_start(&config, &none), -EINVAL);
	config.n_threads = FILL_THREADS_MAX + 1;
	assert_int_equal(fill_team_start(&config, &none), -EINVAL);
	assert_null(none);

	dir_fd = host_mount(page, MOUNT_LIMIT);
	fd = new_file(dir_fd, MIB);
	start_team(1, 0);
	good = request_of(&job, fd, page, MIB);
	bad = good, bad.length_bytes = 0;
	refused_request(bad, -EINVAL);
	bad = good, bad.length_bytes = MIB - 1;
	refused_request(bad, -EINVAL);
	bad = good, bad.length_bytes = 2 * MIB;
	refused_request(bad, -EINVAL);
	bad = good, bad.offset_bytes = 1;
	refused_request(bad, -EINVAL);
	bad = good, bad.offset_bytes = UINT64_MAX - 4095;
	refused_request(bad, -EINVAL);
	bad = good, bad.page_class.node = NODE_ANY;
	refused_request(bad, -EINVAL);
	bad = good, bad.page_class.node = NODES_MAX;
	refused_request(bad, -EINVAL);
	bad = good, bad.fd = -1;
	refused_request(bad, -EBADF);
	stop_team();
	close(fd);
	host_unmount(dir_fd);
}

/* Two threads, and neither idles while there is a unit for it. */
static void test_units_are_shared(void **state)
{
	struct page_size page = host_page(PAGE_THP);
	struct job job = {.pause_us = 5000};
	int dir_fd, fd;

	(void)state;
	host_required();
	dir_fd = host_mount(page, MOUNT_LIMIT);
	fd = new_file(dir_fd, 9 * UNIT);
	start_team(2, 0);
	submit(&job, fd, page, 9 * UNIT);
	reap_until(0);
	assert_int_equal(job.result, 0);
	assert_int_equal(job.n_asked, 9);
	assert_int_equal(job.n_at_once_max, 2);
	stop_team();
	close(fd);
	host_unmount(dir_fd);
}

/* Base pages: a file a thread first, and help for the one that is left. */
static void test_base_files_in_parallel(void **state)
{
	struct page_size page = host_page(PAGE_BASE);
	struct job gate = {.is_held = true}, first = {.is_held = true}, second = {.is_held = true};
	int dir_fd, fd_1, fd_2;

	(void)state;
	host_required();
	dir_fd = host_mount(page, MOUNT_LIMIT);
	fd_1 = new_file(dir_fd, 4 * UNIT);
	fd_2 = new_file(dir_fd, 2 * UNIT);
	start_team(2, 0);
	submit(&gate, fd_2, page, 2 * UNIT);
	wait_for(&gate.n_asked, 2);
	submit(&first, fd_1, page, 4 * UNIT);
	submit(&second, fd_2, page, 2 * UNIT);
	atomic_store(&gate.is_held, false);
	wait_for(&first.n_asked, 1);
	wait_for(&second.n_asked, 1);
	reap_until(2);

	atomic_store(&second.is_held, false);
	reap_until(1);
	assert_int_equal(second.n_done, 1);
	assert_int_equal(second.progress.threads_used, 1);
	wait_for(&first.n_asked, 2);
	atomic_store(&first.is_held, false);
	reap_until(0);
	assert_int_equal(first.progress.threads_used, 2);
	stop_team();
	close(fd_1);
	close(fd_2);
	host_unmount(dir_fd);
}

/* At most one unit a thread is done after the cancel, and what was filled comes back. */
static void test_cancel(void **state)
{
	struct page_size page = host_page(PAGE_HUGETLB);
	struct job job = {.is_held = true}, unmapped = {0};
	int dir_fd, fd;

	(void)state;
	need(page, 10 * UNIT);
	dir_fd = host_mount(page, MOUNT_LIMIT);
	fd = new_file(dir_fd, 10 * UNIT);
	start_team(2, 0);
	submit(&job, fd, page, 10 * UNIT);
	wait_for(&job.n_asked, 2);
	submit(&unmapped, fd, page, 10 * UNIT); /* nobody is on this one */
	fill_job_cancel(unmapped.job);
	fill_job_cancel(job.job);
	fill_job_cancel(job.job);
	atomic_store(&job.is_held, false);
	reap_until(0);
	assert_int_equal(job.result, -ECANCELED);
	assert_int_equal(job.n_done, 1);
	assert_int_equal(job.n_asked, 2);
	assert_int_equal(job.progress.done_bytes, 2 * UNIT);
	assert_int_equal(unmapped.result, -ECANCELED);
	assert_int_equal(unmapped.n_asked, 0);
	wait_unmapped();
	close(fd);
	stop_team();
	assert_int_equal(host_reserved_pages(page.bytes), 0);
	host_unmount(dir_fd);
}

/* Cancelled while it is mapped and no thread is on it. */
static void test_cancel_between_units(void **state)
{
	struct page_size page = host_page(PAGE_BASE);
	struct job stock = {0}, demand = {.is_held = true};
	struct fill_request request;
	int dir_fd, fd;

	(void)state;
	host_required();
	dir_fd = host_mount(page, MOUNT_LIMIT);
	fd = new_file(dir_fd, 4 * UNIT);
	start_team(1, MIB); /* the second unit is 16 s away */
	request = request_of(&stock, fd, page, 4 * UNIT);
	request.priority = FILL_STOCK;
	submit_request(&stock, &request);
	do
		fill_job_progress(stock.job, &stock.progress);
	while (stock.progress.done_bytes < UNIT);
	assert_int_equal(count_mappings(), 1);
	fill_job_cancel(stock.job);
	reap_until(0);
	assert_int_equal(stock.result, -ECANCELED);
	assert_int_equal(stock.progress.done_bytes, UNIT);
	wait_unmapped();

	/* A stop cancels what is running and what waits. */
	stock = (struct job){0};
	submit(&demand, fd, page, 4 * UNIT);
	wait_for(&demand.n_asked, 1);
	submit_stock(&stock, fd, page, 4 * UNIT);
	atomic_store(&demand.is_held, false);
	stop_team();
	assert_int_equal(demand.n_done, 1);
	assert_int_equal(stock.result, -ECANCELED);
	close(fd);
	host_unmount(dir_fd);
}

static void test_may_take_refuses(void **state)
{
	struct page_size page = host_page(PAGE_BASE);
	struct job job = {.refuse_with = -EDQUOT};
	int dir_fd, fd;

	(void)state;
	host_required();
	dir_fd = host_mount(page, MOUNT_LIMIT);
	fd = new_file(dir_fd, 4 * UNIT);
	start_team(1, 0);
	submit(&job, fd, page, 4 * UNIT);
	reap_until(0);
	assert_int_equal(job.result, -EDQUOT);
	assert_int_equal(job.n_asked, 2);
	assert_int_equal(job.progress.done_bytes, UNIT);
	stop_team();
	close(fd);
	host_unmount(dir_fd);
}

static void take_pages_away(struct job *job, unsigned int index)
{
	(void)job;
	if (index == 1)
		host_set_pages(HUGE_2M, 0);
}

/* Somebody lowers nr_hugepages between two units. */
static void test_pages_vanish(void **state)
{
	struct page_size page = host_page(PAGE_HUGETLB);
	struct job job = {.at_unit = take_pages_away};
	int dir_fd, fd;

	(void)state;
	need(page, 4 * UNIT);
	dir_fd = host_mount(page, MOUNT_LIMIT);
	fd = new_file(dir_fd, 4 * UNIT);
	start_team(1, 0);
	submit(&job, fd, page, 4 * UNIT);
	reap_until(0);
	assert_int_equal(job.result, -ENOMEM);
	assert_int_equal(job.progress.done_bytes, UNIT);
	close(fd);
	stop_team();
	assert_int_equal(host_count(page.bytes, "free_hugepages"),
			 host_count(page.bytes, "nr_hugepages"));
	host_unmount_short_of(dir_fd, page);
}

static void cut_file(struct job *job, unsigned int index)
{
	if (index == 1)
		(void)!ftruncate(job->fd, 0);
}

/* No page, no room, or no file any more: an error, and never SIGBUS. */
static void short_of_memory(struct page_size page)
{
	struct job full = {0}, cut = {.at_unit = cut_file};
	int dir_fd, fd;

	need(page, 4 * UNIT);
	dir_fd = host_mount(page, 2 * UNIT);
	fd = new_file(dir_fd, 4 * UNIT);
	start_team(1, 0);
	submit(&full, fd, page, 4 * UNIT);
	reap_until(0);
	assert_int_equal(full.result, -ENOMEM);
	assert_int_equal(full.progress.done_bytes, 2 * UNIT);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(ftruncate(fd, 2 * UNIT), 0);
	submit(&cut, fd, page, 2 * UNIT);
	reap_until(0);
	assert_int_equal(cut.result, -ENOMEM);
	close(fd);
	stop_team();
	host_unmount(dir_fd);
}

static void test_short_hugetlb(void **state)
{
	(void)state;
	short_of_memory(host_page(PAGE_HUGETLB));
}

static void test_short_thp(void **state)
{
	(void)state;
	short_of_memory(host_page(PAGE_THP));
}

static void test_short_base(void **state)
{
	(void)state;
	short_of_memory(host_page(PAGE_BASE));
}

/* A mount that gives base pages only: full, but not what was asked for. */
static void test_thp_not_to_be_had(void **state)
{
	struct page_size page = host_page(PAGE_THP);
	struct job job = {0};
	int dir_fd, fd;

	(void)state;
	host_required();
	dir_fd = host_mount(host_page(PAGE_BASE), MOUNT_LIMIT);
	fd = new_file(dir_fd, 2 * UNIT);
	start_team(2, 0);
	submit(&job, fd, page, 2 * UNIT);
	reap_until(0);
	assert_int_equal(job.result, -ENOTSUP);
	stop_team();
	close(fd);
	host_unmount(dir_fd);
}

/* The pages are where the kernel says, on node 0: who wanted them on node 1 hears of it. */
static void wrong_node(struct page_size page)
{
	struct fill_range range = {.bytes = UNIT, .page_class = {.page = page, .node = 0}};
	int dir_fd, fd, found = -1;

	need(page, UNIT);
	dir_fd = host_mount(page, MOUNT_LIMIT);
	fd = new_file(dir_fd, UNIT);
	assert_int_equal(fill_range_map(&range, fd, 0), 0);
	range.bind = true;
	assert_int_equal(fill_range_populate(&range, 0, UNIT, &found), 0);
	assert_int_equal(found, -1);
	range.page_class.node = 1;
	assert_int_equal(fill_range_populate(&range, 0, UNIT, &found), -EXDEV);
	assert_int_equal(found, 0);
	fill_range_unmap(&range);
	close(fd);
	host_unmount(dir_fd);
}

static void test_wrong_node(void **state)
{
	(void)state;
	wrong_node(host_page(PAGE_HUGETLB));
	wrong_node(host_page(PAGE_THP));
	wrong_node(host_page(PAGE_BASE));
}

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
	unsigned long before;
	int dir_fd, fd;

	(void)state;
	host_required();
	dir_fd = host_mount(page, MOUNT_LIMIT);
	fd = new_file(dir_fd, UNIT);
	start_team(4, MIB);
	submit_stock(&job, fd, page, UNIT);
	reap_until(0);
	usleep(50000);
	before = count_switches();
	assert_true(before > 0);
	usleep(500000);
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

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hugetlb),
		cmocka_unit_test(test_gigantic),
		cmocka_unit_test(test_thp),
		cmocka_unit_test(test_base),
		cmocka_unit_test(test_range),
		cmocka_unit_test(test_bad_requests),
		cmocka_unit_test(test_units_are_shared),
		cmocka_unit_test(test_base_files_in_parallel),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_cancel_between_units),
		cmocka_unit_test(test_may_take_refuses),
		cmocka_unit_test(test_pages_vanish),
		cmocka_unit_test(test_short_hugetlb),
		cmocka_unit_test(test_short_thp),
		cmocka_unit_test(test_short_base),
		cmocka_unit_test(test_thp_not_to_be_had),
		cmocka_unit_test(test_wrong_node),
		cmocka_unit_test(test_priority),
		cmocka_unit_test(test_cpus),
		cmocka_unit_test(test_rate),
		cmocka_unit_test(test_quiet),
		cmocka_unit_test(test_configure),
		cmocka_unit_test(test_chores),
		cmocka_unit_test(test_many_jobs),
	};

	/* One case: what a broken build must not pass, not even where it cannot run. */
	if (argc > 1 && geteuid() != 0)
		return 77;
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, host_enter, host_leave);
}
