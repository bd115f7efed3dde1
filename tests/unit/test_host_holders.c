/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_host_holders.c - real processes that hold a file in every way are found.
 */
#include "unit.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/host.h"
#include "tree.h"

static struct tree tree;
static struct host *host;
static struct stat file;

static int setup(void **state)
{
	(void)state;
	tree_init(&tree);
	tree_put(&tree, "segment", "some pages");
	if (fstatat(tree.fd, "segment", &file, 0) < 0)
		return -1;
	return host_open(NULL, &host);
}

static int teardown(void **state)
{
	(void)state;
	host = host_free(host);
	tree_done(&tree);
	return 0;
}

/* A child that holds the file until it is killed; it has done so when this returns. */
static pid_t start_holder(bool open_it, bool map_it)
{
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		int fd = openat(tree.fd, "segment", O_RDWR | O_CLOEXEC);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "holder (a) b");
		if (map_it && mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED)
			_exit(1);
		if (!open_it)
			close(fd);
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

static void stop_holder(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

static const struct holder *find(const struct holder *holders, int n, pid_t pid)
{
	for (int i = 0; i < n; i++) {
		if (holders[i].pid == pid)
			return &holders[i];
	}
	fail_msg("process %d is not among %d", (int)pid, n);
	return NULL;
}

static void nobody(void **state)
{
	struct holder holders[4];

	(void)state;
	assert_int_equal(host_holders(host, file.st_dev, file.st_ino, holders, 4), 0);
}

static void finds_each(void **state)
{
	pid_t opener, mapper, both;
	struct holder holders[8] = {};
	const struct holder *holder;
	int n;

	(void)state;
	opener = start_holder(true, false);
	mapper = start_holder(false, true);
	both = start_holder(true, true);
	n = host_holders(host, file.st_dev, file.st_ino, holders, ARRAY_LEN(holders));
	assert_int_equal(n, 3);
	holder = find(holders, n, opener);
	assert_true(holder->has_open && !holder->has_mapped);
	assert_string_equal(holder->command, "holder (a) b");
	assert_int_equal(holder->uid, getuid());
	holder = find(holders, n, mapper);
	assert_true(!holder->has_open && holder->has_mapped);
	holder = find(holders, n, both);
	assert_true(holder->has_open && holder->has_mapped);

	/* Room for one: it is filled, the rest counted, and nothing behind it touched. */
	memset(holders, 0x5a, sizeof(holders));
	assert_int_equal(host_holders(host, file.st_dev, file.st_ino, holders, 1), 3);
	assert_true(holders[0].pid == opener || holders[0].pid == mapper || holders[0].pid == both);
	assert_int_equal(holders[1].pid, 0x5a5a5a5a);
	assert_int_equal(host_holders(host, file.st_dev, file.st_ino, NULL, 0), 3);

	/* The inode alone is not enough. */
	assert_int_equal(host_holders(host, file.st_dev + 1, file.st_ino, NULL, 0), 0);

	stop_holder(opener);
	stop_holder(mapper);
	assert_int_equal(host_holders(host, file.st_dev, file.st_ino, holders, 8), 1);
	assert_int_equal(holders[0].pid, both);
	stop_holder(both);
	assert_int_equal(host_holders(host, file.st_dev, file.st_ino, holders, 8), 0);
}

static void leaves_itself_out(void **state)
{
	int fd = openat(tree.fd, "segment", O_RDWR | O_CLOEXEC);
	struct holder holders[4];

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(host_holders(host, file.st_dev, file.st_ino, holders, 4), 0);
	close(fd);
}

/* With too few descriptors to look, it is not said that nobody holds it. */
static void out_of_descriptors(void **state)
{
	pid_t holder = start_holder(true, true);
	struct rlimit limit, few;
	unsigned int n_failed = 0;
	struct holder found;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = limit;
	for (few.rlim_cur = 3; few.rlim_cur < 40; few.rlim_cur++) {
		int n;

		assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
		n = host_holders(host, file.st_dev, file.st_ino, &found, 1);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
		assert_true(n < 0 || (n == 1 && found.pid == holder));
		n_failed += n < 0;
	}
	assert_in_range(n_failed, 1, 36);
	stop_holder(holder);
}

/* Processes that are born and die during the scan do not disturb it. */
static void while_processes_come_and_go(void **state)
{
	pid_t holder = start_holder(true, true), breeder = fork();
	struct holder found;

	(void)state;
	if (!breeder) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			pid_t pid = vfork();

			if (!pid)
				_exit(0);
			waitpid(pid, NULL, 0);
		}
	}
	for (unsigned int i = 0; i < 20; i++) {
		assert_int_equal(host_holders(host, file.st_dev, file.st_ino, &found, 1), 1);
		assert_int_equal(found.pid, holder);
	}
	stop_holder(breeder);
	stop_holder(holder);
}

/* A captured /proc, with what does not belong there. */
static void imagined(void **state)
{
	struct holder holders[4];
	char maps[512];

	(void)state;
	host_free(host);
	assert_int_equal(host_open(tree.path, &host), 0);
	assert_int_equal(host_holders(host, 0x2a, 77, holders, 4), -ENOENT);
	snprintf(maps, sizeof(maps),
		 "7f0000000000-7f0000200000 rw-s 00000000 00:2a 77 /pool/lent/0-1\n"
		 "not a line\n\n");
	tree_put(&tree, "proc/100/maps", maps);
	tree_put(&tree, "proc/100/comm", "a-name-that-is-too-long-for-any-kernel\n");
	tree_put(&tree, "proc/100/status", "Name:\tx\nUid:\t1000\t0\t0\t0\n");
	tree_put(&tree, "proc/200/maps", "7f00-7f01 rw-s 0 00:2a 78 /pool/lent/0-2\n");
	tree_put(&tree, "proc/300/comm", "no maps\n");
	tree_put(&tree, "proc/0/maps", maps);
	tree_put(&tree, "proc/99999999999/maps", maps);
	tree_put(&tree, "proc/x1/maps", maps);
	assert_int_equal(host_holders(host, 0x2a, 77, holders, 4), 1);
	assert_int_equal(holders[0].pid, 100);
	assert_int_equal(holders[0].uid, 1000);
	assert_string_equal(holders[0].command, "a-name-that-is-");
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nobody),
		TEST(finds_each),
		TEST(leaves_itself_out),
		TEST(out_of_descriptors),
		TEST(while_processes_come_and_go),
		TEST(imagined),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
