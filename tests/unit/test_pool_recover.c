/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_pool_recover.c - what a restart makes of the three directories, whatever stands in
 * them, and after a kill -9 at every system call of a segment's life.
 */
#include "pool_test.h"

#include <poll.h>
#include <sys/file.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "fill/fill.h"
#include "kill_at.h"

#define BYTES (4 * MIB)

static struct page_size page;
static int dir_fd = -1;

static int setup_kind(enum page_kind kind)
{
	if (geteuid() != 0)
		return 0;
	page = host_page(kind);
	dir_fd = host_mount(page, MOUNT_LIMIT);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	return setup_kind(PAGE_BASE);
}

static int setup_hugetlb(void **state)
{
	(void)state;
	return setup_kind(PAGE_HUGETLB);
}

static int teardown(void **state)
{
	(void)state;
	if (geteuid() != 0)
		return 0;
	drain_pool(open_pool(dir_fd, page, NULL));
	host_unmount(dir_fd);
	return 0;
}

/* Everything in its place, with its times. */
static void test_restart(void **state)
{
	struct segment *ready, *named, *held, *ended, *filling = NULL;
	struct pool *pool;
	struct pool_recovery recovery;
	uint64_t ready_id, named_id, held_id;
	int named_fd, held_fd, filling_fd;
	time_t start_s = time(NULL);

	(void)state;
	host_required();
	pool = open_pool(dir_fd, page, &recovery);
	ready = make_ready(pool, BYTES);
	ready_id = ready->id;
	named = make_ready(pool, BYTES);
	named_id = named->id;
	named_fd = lend(pool, named, CONSUMER, "vm7");
	oracle_dirty(named_fd, BYTES);
	close(named_fd);
	held = make_ready(pool, BYTES);
	held_id = held->id;
	held_fd = lend(pool, held, CONSUMER + 1, NULL);
	oracle_dirty(held_fd, BYTES);
	ended = make_ready(pool, BYTES);
	close(lend(pool, ended, CONSUMER, NULL));
	assert_int_equal(pool_create(pool, 0, BYTES, &filling, &filling_fd), 0);
	assert_int_equal(populate_file(filling_fd, BYTES / 2), 0);
	close(filling_fd);
	pool_close(pool);

	pool = open_pool(dir_fd, page, &recovery);
	assert_int_equal(recovery.n_ready_adopted, 1);
	assert_int_equal(recovery.n_ready_refused, 0);
	assert_int_equal(recovery.n_filling_dropped, 1);
	assert_int_equal(recovery.n_lent_kept, 2);
	assert_int_equal(recovery.n_lent_ended, 1);
	assert_int_equal(host_used_bytes(dir_fd), 3 * BYTES);
	ready = pool_find_ready(pool, 0, BYTES);
	assert_non_null(ready);
	assert_int_equal(ready->id, ready_id);
	assert_in_range(ready->since_s, start_s, time(NULL));
	named = pool_find_lease_by_name(pool, "vm7");
	assert_non_null(named);
	assert_int_equal(named->id, named_id);
	assert_int_equal(named->uid, CONSUMER);
	assert_int_equal(named->bytes, BYTES);
	held = pool_find_lease(pool, held_id);
	assert_non_null(held);
	assert_int_equal(held->uid, CONSUMER + 1);
	assert_int_equal(pool_lease_is_held(pool, held), 1);
	assert_true(oracle_is_dirty(held_fd, BYTES));
	held_fd = close_fd(held_fd);
	assert_int_equal(end_closed(pool), 1);

	/* What was ready is lent, zero. */
	held_fd = lend(pool, ready, CONSUMER, NULL);
	assert_true(oracle_is_zero(held_fd, BYTES));
	close(held_fd);
	pool_close(pool);
}

/* Given while in use: it still is after a restart, and ends with its holder, its mark with it. */
static void test_restart_given(void **state)
{
	struct pool_recovery recovery;
	struct segment *segment;
	struct pool *pool;
	char mark[64];
	int fd;

	(void)state;
	host_required();
	pool = open_pool(dir_fd, page, NULL);
	for (int is_held = 0; is_held < 2; is_held++) {
		segment = make_ready(pool, BYTES);
		fd = lend(pool, segment, CONSUMER, "vm7");
		assert_int_equal(pool_give_lease(pool, segment), 0);
		assert_int_equal(pool_mark_given(pool, segment), 0);
		snprintf(mark, sizeof(mark), "lent/0-%016llx.given",
			 (unsigned long long)segment->id);
		assert_int_equal(faccessat(dir_fd, mark, F_OK, 0), 0);
		if (!is_held)
			close(fd);
		pool_close(pool);
		pool = open_pool(dir_fd, page, &recovery);
		assert_int_equal(recovery.n_lent_kept, 1);
		segment = pool_find_lease_by_name(pool, "vm7");
		assert_non_null(segment);
		assert_true(segment->is_given);
		if (is_held) {
			assert_int_equal(end_closed(pool), 0);
			assert_true(oracle_is_zero(fd, BYTES));
			close(fd);
		}
		assert_int_equal(end_closed(pool), 1);
		assert_int_equal(faccessat(dir_fd, mark, F_OK, 0), -1);
	}
	pool_close(pool);
}

static void make_file(const char *path, mode_t mode, uint64_t bytes, uint64_t full_bytes)
{
	int fd = openat(dir_fd, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	if (full_bytes)
		assert_int_equal(populate_file(fd, full_bytes), 0);
	close(fd);
}

/* What is not beyond doubt a segment of ours never gets into ready, and is removed. */
static void test_hostile_ready(void **state)
{
	struct pool_recovery recovery;
	struct pool *pool;
	int locked_fd;

	(void)state;
	host_required();
	pool_close(open_pool(dir_fd, page, NULL));
	make_file("ready/0-0123456789abcdef", 0600, BYTES, BYTES); /* this one is good */
	make_file("ready/0-0123456789abcde0", 0600, BYTES, BYTES / 2); /* not full */
	make_file("ready/0-0123456789abcde1", 0600, 0, 0);
	make_file("ready/0-0123456789abcde2", 0600, BYTES, BYTES); /* somebody's */
	assert_int_equal(fchownat(dir_fd, "ready/0-0123456789abcde2", CONSUMER, CONSUMER, 0), 0);
	make_file("ready/0-0123456789abcde3", 0600, BYTES, BYTES); /* linked from elsewhere */
	assert_int_equal(linkat(dir_fd, "ready/0-0123456789abcde3", dir_fd, "elsewhere", 0), 0);
	make_file("ready/0-0123456789abcde4", 0600, BYTES, BYTES); /* held */
	locked_fd = openat(dir_fd, "ready/0-0123456789abcde4", O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(locked_fd, LOCK_SH), 0);
	make_file("ready/0-0123456789abcde5=name", 0600, BYTES, BYTES); /* was lent */
	make_file("ready/0-0123456789abcde", 0600, BYTES, BYTES); /* no names of ours */
	make_file("ready/0-0123456789abcdef0", 0600, BYTES, BYTES);
	make_file("ready/00-0123456789abcdee", 0600, BYTES, BYTES);
	make_file("ready/64-0123456789abcded", 0600, BYTES, BYTES);
	make_file("ready/0-0123456789ABCDEF", 0600, BYTES, BYTES);
	make_file("ready/0-0000000000000000", 0600, BYTES, BYTES);
	make_file("ready/-1-0123456789abcdec", 0600, BYTES, BYTES);
	make_file("ready/.hidden", 0600, BYTES, BYTES);
	make_file("ready/0-0123456789abcdeb", 0600, BYTES + 1, BYTES); /* no whole pages */
	assert_int_equal(symlinkat("/etc/passwd", dir_fd, "ready/0-0123456789abcdea"), 0);
	assert_int_equal(mkfifoat(dir_fd, "ready/0-0123456789abcde9", 0600), 0);
	assert_int_equal(mknodat(dir_fd, "ready/0-0123456789abcde8", S_IFCHR | 0600, makedev(1, 5)),
			 0);
	assert_int_equal(mkdirat(dir_fd, "ready/0-0123456789abcde7", 0700), 0);

	pool = open_pool(dir_fd, page, &recovery);
	assert_int_equal(recovery.n_ready_adopted, 1);
	assert_int_equal(recovery.n_ready_refused, 19);
	assert_int_equal(pool_next(pool, NULL)->id, 0x0123456789abcdef);
	assert_null(pool_next(pool, pool_next(pool, NULL)));
	close(locked_fd);
	assert_int_equal(unlinkat(dir_fd, "elsewhere", 0), 0);
	assert_int_equal(host_used_bytes(dir_fd), BYTES);
	assert_int_equal(access("/etc/passwd", F_OK), 0);
	pool_close(pool);
}

static void test_hostile_lent(void **state)
{
	struct pool_recovery recovery;
	struct segment *segment;
	struct pool *pool;
	int grown_fd;

	(void)state;
	host_required();
	pool_close(open_pool(dir_fd, page, NULL));
	/* Held, and its length is a lie. */
	make_file("lent/0-0123456789abcdef", 0600, 1ULL << 50, page.bytes);
	assert_int_equal(fchownat(dir_fd, "lent/0-0123456789abcdef", CONSUMER, CONSUMER, 0), 0);
	grown_fd = openat(dir_fd, "lent/0-0123456789abcdef", O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(grown_fd, LOCK_SH), 0);
	/* Named, cut to nothing, closed to everyone. */
	make_file("lent/0-0123456789abcde0=name", 0000, 0, 0);
	make_file("lent/0-0123456789abcde1=name", 0600, BYTES, BYTES); /* the name twice */
	make_file("lent/0-0123456789abcdef=again", 0600, BYTES, BYTES); /* the id twice */
	make_file("lent/0-0123456789abcde2=.bad", 0600, BYTES, BYTES);
	make_file("lent/0-0123456789abcde3=", 0600, BYTES, BYTES);
	assert_int_equal(mkfifoat(dir_fd, "lent/0-0123456789abcde4=fifo", 0600), 0);
	make_file("lent/0-0123456789abcde5", 0600, BYTES, BYTES); /* nobody's */
	/* Marks of no lease, and of one without a name. */
	make_file("lent/0-0123456789abcde9.given", 0600, 0, 0);
	make_file("lent/0-0123456789abcdef.given", 0600, 0, 0);
	make_file("lent/.given", 0600, 0, 0);
	/* In filling/, nothing stays. */
	make_file("filling/0-0123456789abcde6", 0600, BYTES, BYTES);
	make_file("filling/anything", 0600, BYTES, BYTES);
	assert_int_equal(mkdirat(dir_fd, "filling/directory", 0700), 0);

	pool = open_pool(dir_fd, page, &recovery);
	assert_int_equal(recovery.n_filling_dropped, 3);
	assert_int_equal(recovery.n_lent_kept + recovery.n_lent_ended, 9);
	assert_int_equal(faccessat(dir_fd, "lent/0-0123456789abcde9.given", F_OK, 0), -1);
	/* Which of two with one name or one id stays is chance. */
	assert_in_range(recovery.n_lent_kept, 2, 2);
	for (segment = NULL; (segment = pool_next(pool, segment));)
		assert_in_range(segment->bytes, page.bytes, BYTES);
	close(grown_fd);
	drain_pool(pool);
	assert_int_equal(host_used_bytes(dir_fd), 0);
}

/* Directories that are not as they must be. */
static void test_directories(void **state)
{
	struct pool_recovery recovery;
	struct pool *pool = NULL;
	struct stat st;

	(void)state;
	host_required();
	assert_int_equal(mkdirat(dir_fd, "ready", 0777), 0);
	assert_int_equal(symlinkat("/tmp", dir_fd, "lent"), 0);
	assert_int_equal(pool_open(dir_fd, page, &pool, &recovery), -ENOTDIR);
	assert_null(pool);
	assert_int_equal(unlinkat(dir_fd, "lent", 0), 0);
	assert_int_equal(mkdirat(dir_fd, "lent", 0777), 0);
	assert_int_equal(fchownat(dir_fd, "lent", CONSUMER, CONSUMER, 0), 0);
	assert_int_equal(pool_open(dir_fd, page, &pool, &recovery), -EPERM);
	assert_int_equal(fchownat(dir_fd, "lent", 0, 0, 0), 0);
	pool = open_pool(dir_fd, page, NULL);
	assert_int_equal(fstatat(dir_fd, "ready", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(fstatat(dir_fd, "lent", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0711);
	assert_int_equal(fstatat(dir_fd, "filling", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	pool_close(pool);
}

/*
 * The daemon's part in a segment's life, run under kill -9. It has no assertions: whatever goes wrong
 * there is seen from outside.
 */
struct life {
	int socket_fd; /* consumers get their descriptors here, as from the daemon */
	uint64_t bytes; /* of a segment: little, for there are very many lives */
};

static int fill_with_team(int fd, uint64_t bytes);

static int make_segment(struct pool *pool, uint64_t bytes, struct segment **ret)
{
	AUTO_FD fd = -1;

	if (pool_create(pool, 0, bytes, ret, &fd) < 0 || fill_with_team(fd, bytes) < 0)
		return -1;
	return pool_set_ready(pool, *ret);
}

static int hand_over(struct pool *pool, struct segment *segment, const char *name, int socket_fd)
{
	const struct lessee lessee = {.uid = CONSUMER, .gid = CONSUMER, .name = name};
	AUTO_FD fd = -1;

	if (pool_lend(pool, segment, &lessee, &fd) < 0)
		return -1;
	return send_with_fd(socket_fd, "", 1, fd) == 1 ? 0 : -1;
}

/* The consumer's part: it writes at once, and lets go. */
static int use_up(struct pool *pool, struct segment *segment, const char *name)
{
	const struct lessee lessee = {.uid = CONSUMER, .gid = CONSUMER, .name = name};
	AUTO_FD fd = -1;

	if (pool_lend(pool, segment, &lessee, &fd) < 0)
		return -1;
	oracle_dirty(fd, segment->bytes);
	if (name && (pool_give_lease(pool, segment) < 0 || pool_mark_given(pool, segment) < 0))
		return -1;
	fd = close_fd(fd);
	if (pool_read_closed(pool) < 0)
		return -1;
	return try_end(pool, segment) ? 0 : -1;
}

static int live(void *arg)
{
	const struct life *life = arg;
	struct pool_recovery recovery;
	struct segment *segment, *lent;
	struct pool *pool = NULL;
	AUTO_FD cut_fd = -1;

	if (pool_open(dir_fd, page, &pool, &recovery) < 0)
		return -1;
	/* One that stays ready, one that is used up, one that is cut and lent, one with a name. */
	if (make_segment(pool, life->bytes, &segment) < 0 ||
	    make_segment(pool, life->bytes, &lent) < 0 || use_up(pool, lent, NULL) < 0)
		return -1;
	if (make_segment(pool, life->bytes, &lent) < 0 || pool_begin_cut(pool, lent, &cut_fd) < 0 ||
	    ftruncate(cut_fd, life->bytes / 2) < 0 || pool_end_cut(pool, lent, life->bytes / 2) < 0)
		return -1;
	cut_fd = close_fd(cut_fd);
	if (hand_over(pool, lent, NULL, life->socket_fd) < 0)
		return -1;
	if (make_segment(pool, life->bytes / 2, &lent) < 0 || use_up(pool, lent, "vm7") < 0)
		return -1;
	if (make_segment(pool, life->bytes / 2, &lent) < 0 || pool_drop(pool, lent, NULL) < 0)
		return -1;
	pool_close(pool);
	return 0;
}

static int fill_result;
static bool is_filled;

static void filled(void *arg, struct fill_job *job, int result)
{
	(void)arg;
	(void)job;
	fill_result = result;
	is_filled = true;
}

static int fill_with_team(int fd, uint64_t bytes)
{
	struct fill_config config = {.n_threads = 2};
	struct fill_request request = {
		.fd = fd,
		.length_bytes = bytes,
		.page_class = {.page = page, .node = 0},
		.bind = true,
		.done = filled,
	};
	struct fill_team *team;
	struct fill_job *job;

	if (fill_team_start(&config, &team) < 0)
		return -1;
	is_filled = false;
	if (fill_team_submit(team, &request, &job) < 0)
		return -1;
	while (!is_filled) {
		struct pollfd poll_fd = {.fd = fill_team_fd(team), .events = POLLIN};

		poll(&poll_fd, 1, -1);
		fill_team_reap(team);
	}
	fill_team_stop(team);
	return fill_result;
}

/* The promises, after a kill at that stop. consumer_fd is what arrived of the hand-over, or -1. */
static void check_promises(const struct life *life, int consumer_fd)
{
	struct pool_recovery recovery;
	struct pool *pool = open_pool(dir_fd, page, &recovery);
	struct segment *segment;
	unsigned int n_ready = 0, n_held = 0;

	for (segment = NULL; (segment = pool_next(pool, segment));) {
		char path[128];
		int fd;

		assert_true(pool_segment_path(pool, segment, path, sizeof(path)) > 0);
		fd = openat(dir_fd, path, O_RDWR | O_CLOEXEC);
		assert_true(fd >= 0);
		if (segment->state == SEGMENT_READY) {
			n_ready++;
			assert_true(oracle_is_zero(fd, segment->bytes)); /* I1 */
		} else {
			n_held++;
			assert_int_equal(segment->state, SEGMENT_LENT);
			assert_true(segment->name || pool_lease_is_held(pool, segment) == 1);
		}
		close(fd);
	}
	assert_in_range(n_ready, 0, 2);
	assert_in_range(n_held, 0, 2); /* with the named one */
	if (consumer_fd >= 0) {
		/* The consumer noticed nothing: its pages are there, zero, and its lease was found. */
		assert_true(n_held >= 1);
		assert_true(oracle_is_zero(consumer_fd, life->bytes / 2));
		oracle_dirty(consumer_fd, life->bytes / 2);
		close(consumer_fd);
		end_closed(pool);
	}
	drain_pool(pool);
	assert_int_equal(host_used_bytes(dir_fd), 0); /* I2 */
}

/* At every second stop: what the world looks like after a system call is how it looks before the next. */
static unsigned int kill_everywhere(unsigned int first)
{
	unsigned int n = first;
	enum kill_result result;

	do {
		struct life life = {.bytes = page.kind == PAGE_HUGETLB ? 2 * page.bytes : 64 << 10};
		int fds[2], consumer_fd = -1;
		char byte;

		assert_int_equal(
			socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
		life.socket_fd = fds[0];
		result = run_killed_at(live, &life, n);
		n += 2;
		assert_int_not_equal(result, KILL_FAILED);
		close(fds[0]);
		if (recv_with_fd(fds[1], &byte, 1, &consumer_fd) <= 0)
			consumer_fd = -1;
		close(fds[1]);
		check_promises(&life, consumer_fd);
	} while (result == KILL_DONE);
	return n;
}

static void test_kill_anywhere(void **state)
{
	unsigned int n;

	(void)state;
	host_required();
	n = kill_everywhere(1);
	print_message("# killed at every second of %u stops\n", n);
	assert_true(n > 200);
}

static void test_kill_anywhere_hugetlb(void **state)
{
	uint64_t free_pages;

	(void)state;
	host_need_pages(HUGE_2M, (unsigned int)(4 * BYTES / HUGE_2M));
	free_pages = host_count(HUGE_2M, "free_hugepages");
	kill_everywhere(2);
	assert_int_equal(host_count(HUGE_2M, "free_hugepages"), free_pages);
	assert_int_equal(host_reserved_pages(HUGE_2M), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_restart, setup, teardown),
		cmocka_unit_test_setup_teardown(test_restart_given, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hostile_ready, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hostile_lent, setup, teardown),
		cmocka_unit_test_setup_teardown(test_directories, setup, teardown),
		cmocka_unit_test_setup_teardown(test_kill_anywhere, setup, teardown),
		cmocka_unit_test_setup_teardown(test_kill_anywhere_hugetlb, setup_hugetlb,
						teardown),
	};

	/* One case: what a broken build must not pass, not even where it cannot run. */
	if (argc > 1 && geteuid() != 0)
		return 77;
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, host_enter, host_leave);
}
