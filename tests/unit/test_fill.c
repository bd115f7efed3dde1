/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_fill.c - a team fills real memory of every kind: what is in it, who worked on it, when
 * it stops, and that nothing is left of it.
 */
#include "fill_test.h"

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
		assert_int_equal(count_mappings(), 0);
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
	assert_int_equal(count_mappings(), 0);
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
	assert_int_equal(count_mappings(), 0);

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
	};

	/* One case: what a broken build must not pass, not even where it cannot run. */
	if (argc > 1 && geteuid() != 0)
		return 77;
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, host_enter, host_leave);
}
