/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_pool_lease.c - how long a lease lasts, whatever its holder does with it, and what a
 * lessee can do to others: nothing.
 */
#include "pool_test.h"

#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define BYTES (4 * MIB)

static struct page_size page;
static int dir_fd = -1;
static struct pool *pool;

static int setup(void **state)
{
	(void)state;
	if (geteuid() != 0)
		return 0;
	page = host_page(PAGE_BASE);
	dir_fd = host_mount(page, MOUNT_LIMIT);
	pool = open_pool(dir_fd, page, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	if (dir_fd < 0)
		return 0;
	pool = drain_pool(pool);
	host_unmount(dir_fd);
	return 0;
}

/* A consumer, an unprivileged process that says when it is ready and waits to be told to end. */
struct consumer {
	pid_t pid;
	int socket_fd;
};

static struct consumer start_consumer(int fd, void (*body)(int fd, int socket_fd))
{
	struct consumer consumer;
	int fds[2];
	char ready;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	consumer.pid = fork();
	assert_true(consumer.pid >= 0);
	if (consumer.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[1]);
		if (setgid(CONSUMER) < 0 || setuid(CONSUMER) < 0)
			_exit(1);
		body(fd, fds[0]);
		_exit(0);
	}
	close(fds[0]);
	close(fd);
	consumer.socket_fd = fds[1];
	assert_int_equal(read(consumer.socket_fd, &ready, 1), 1);
	return consumer;
}

static void ready_and_wait(int socket_fd)
{
	char word = 0;

	(void)!write(socket_fd, &word, 1);
	(void)!read(socket_fd, &word, 1);
}

static void end_consumer(struct consumer *consumer, int signal)
{
	int status;

	if (signal)
		kill(consumer->pid, signal);
	close(consumer->socket_fd);
	assert_int_equal(waitpid(consumer->pid, &status, 0), consumer->pid);
	if (!signal)
		assert_int_equal(status, 0);
}

static struct segment *held_by(struct consumer *consumer, void (*body)(int fd, int socket_fd))
{
	struct segment *segment = make_ready(pool, BYTES);

	*consumer = start_consumer(lend(pool, segment, CONSUMER, NULL), body);
	end_closed(pool);
	assert_int_equal(pool_lease_is_held(pool, segment), 1);
	return segment;
}

static void ends_with(struct consumer *consumer, int signal)
{
	assert_int_equal(end_closed(pool), 0);
	end_consumer(consumer, signal);
	assert_int_equal(end_closed(pool), 1);
	assert_null(pool_next(pool, NULL));
	assert_int_equal(host_used_bytes(dir_fd), 0);
}

static void keep_open(int fd, int socket_fd)
{
	(void)fd;
	ready_and_wait(socket_fd);
}

static void test_open(void **state)
{
	struct consumer consumer;

	(void)state;
	host_required();
	held_by(&consumer, keep_open);
	ends_with(&consumer, 0);
	held_by(&consumer, keep_open);
	ends_with(&consumer, SIGKILL);
}

static void keep_mapped(int fd, int socket_fd)
{
	volatile char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	close(fd);
	memory[0] = 1;
	ready_and_wait(socket_fd);
	memory[BYTES - 1] = 1;
}

static void test_mapping_only(void **state)
{
	struct consumer consumer;

	(void)state;
	host_required();
	held_by(&consumer, keep_mapped);
	ends_with(&consumer, 0);
	held_by(&consumer, keep_mapped);
	ends_with(&consumer, SIGKILL);
}

static void keep_duplicate(int fd, int socket_fd)
{
	(void)!dup(fd);
	close(fd);
	ready_and_wait(socket_fd);
}

static void test_duplicate(void **state)
{
	struct consumer consumer;

	(void)state;
	host_required();
	held_by(&consumer, keep_duplicate);
	ends_with(&consumer, SIGKILL);
}

/* A grandchild keeps it, the consumer is gone. The grandchild ends when the test closes the socket. */
static void leave_to_child(int fd, int socket_fd)
{
	if (fork() == 0)
		ready_and_wait(socket_fd);
	else
		close(fd);
}

static void test_fork(void **state)
{
	struct consumer consumer;
	struct segment *segment;

	(void)state;
	host_required();
	segment = held_by(&consumer, leave_to_child);
	assert_int_equal(waitpid(consumer.pid, NULL, 0), consumer.pid);
	end_closed(pool);
	assert_int_equal(pool_lease_is_held(pool, segment), 1);
	close(consumer.socket_fd);
	for (int i = 0; i < 1000 && !end_closed(pool); i++)
		;
	assert_null(pool_next(pool, NULL));
}

static void fork_happily(int fd, int socket_fd)
{
	for (unsigned int i = 0; i < 200; i++) {
		pid_t child = fork();

		if (child == 0) {
			close(fd);
			_exit(0);
		}
		waitpid(child, NULL, 0);
	}
	ready_and_wait(socket_fd);
}

/* Forking and closing copies is no close of the lease: no wake-up, even. */
static void test_fork_happy(void **state)
{
	struct pollfd poll_fd = {.fd = pool_watch_fd(pool), .events = POLLIN};
	struct consumer consumer;

	(void)state;
	host_required();
	held_by(&consumer, fork_happily);
	assert_int_equal(poll(&poll_fd, 1, 0), 0);
	ends_with(&consumer, 0);
}

/* On its way through a socket that nobody reads, all others are gone. */
static void test_in_flight(void **state)
{
	struct segment *segment;
	int fds[2], fd;
	char byte;

	(void)state;
	host_required();
	segment = make_ready(pool, BYTES);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	fd = lend(pool, segment, CONSUMER, NULL);
	assert_int_equal(send_with_fd(fds[0], "", 1, fd), 1);
	close(fd);
	assert_int_equal(end_closed(pool), 0);
	assert_int_equal(pool_lease_is_held(pool, segment), 1);
	assert_int_equal(recv_with_fd(fds[1], &byte, 1, &fd), 1);
	assert_int_equal(pool_lease_is_held(pool, segment), 1);
	assert_true(oracle_is_zero(fd, BYTES));
	assert_int_equal(send_with_fd(fds[0], "", 1, fd), 1);
	close(fd);
	/* never read */
	close(fds[0]);
	close(fds[1]);
	assert_int_equal(end_closed(pool), 1);
	assert_int_equal(host_used_bytes(dir_fd), 0);
}

/* Given to another process by the consumer, which dies. */
static void test_passed_on(void **state)
{
	struct segment *segment;
	struct consumer first, second;
	int fd, copy;

	(void)state;
	host_required();
	segment = make_ready(pool, BYTES);
	fd = lend(pool, segment, CONSUMER, NULL);
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	first = start_consumer(fd, keep_open);
	second = start_consumer(copy, keep_mapped);
	end_consumer(&first, SIGKILL);
	end_closed(pool);
	assert_int_equal(pool_lease_is_held(pool, segment), 1);
	ends_with(&second, SIGKILL);
}

/* The pool looks, and is not woken by its own looking. */
static void test_looking_is_silent(void **state)
{
	struct pollfd poll_fd = {.fd = pool_watch_fd(pool), .events = POLLIN};
	struct segment *segment;
	int fd;

	(void)state;
	host_required();
	segment = make_ready(pool, BYTES);
	fd = lend(pool, segment, CONSUMER, NULL);
	for (int i = 0; i < 10; i++)
		assert_int_equal(pool_lease_is_held(pool, segment), 1);
	assert_int_equal(poll(&poll_fd, 1, 0), 0);
	close(fd);
	assert_int_equal(poll(&poll_fd, 1, 0), 1);
	assert_int_equal(end_closed(pool), 1);
	assert_int_equal(poll(&poll_fd, 1, 0), 0);
}

/* More closes than the kernel remembers: then all leases are looked at, and none is missed. */
static void test_overflow(void **state)
{
	struct segment *segment[2], *kept;
	char path[2][128];
	FILE *file = fopen("/proc/sys/fs/inotify/max_queued_events", "re");
	unsigned int max = 16384, n = 0;
	int kept_fd, named_fd;

	(void)state;
	host_required();
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%u", &max), 1);
	fclose(file);
	kept = make_ready(pool, BYTES);
	kept_fd = lend(pool, kept, CONSUMER, NULL);
	segment[0] = make_ready(pool, BYTES);
	segment[1] = make_ready(pool, BYTES);
	named_fd = lend(pool, segment[1], CONSUMER, "named");
	close(lend(pool, segment[0], CONSUMER, NULL));
	for (int i = 0; i < 2; i++)
		assert_true(pool_segment_path(pool, segment[i], path[i], sizeof(path[i])) > 0);
	for (unsigned int i = 0; i < max + 100; i++)
		close(openat(dir_fd, path[i % 2], O_RDWR | O_CLOEXEC));
	close(kept_fd); /* this one is lost */
	while (pool_next(pool, NULL) != segment[1] && n++ < 100000)
		end_closed(pool);
	assert_ptr_equal(pool_next(pool, NULL), segment[1]);
	assert_null(pool_next(pool, segment[1]));
	close(named_fd);
}

/* One read a call: who closes in a loop cannot keep the caller. */
static void test_a_read_is_bounded(void **state)
{
	struct pollfd poll_fd = {.fd = pool_watch_fd(pool), .events = POLLIN};
	struct segment *segment[2];
	char path[2][128];

	(void)state;
	host_required();
	for (int i = 0; i < 2; i++) {
		segment[i] = make_ready(pool, MIB);
		close(lend(pool, segment[i], CONSUMER, i ? "a" : "b"));
		assert_true(pool_segment_path(pool, segment[i], path[i], sizeof(path[i])) > 0);
	}
	for (unsigned int i = 0; i < 1000; i++)
		close(openat(dir_fd, path[i % 2], O_RDWR | O_CLOEXEC));
	assert_int_equal(pool_read_closed(pool), 1);
	assert_int_equal(poll(&poll_fd, 1, 0), 1);
	assert_non_null(pool_next_closed(pool));
	assert_non_null(pool_next_closed(pool));
	assert_null(pool_next_closed(pool)); /* each once */
	end_closed(pool);
}

/* What it may do with its own file, and what it may not do with the directory. */
static void misbehave(int fd, int socket_fd)
{
	char self[64], path[256], *name;
	ssize_t n;
	int bad = 0;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	n = readlink(self, path, sizeof(path) - 1);
	path[n < 0 ? 0 : n] = '\0';
	name = strrchr(path, '/');
	/* Its own, by path too: QEMU opens it so. */
	bad += open(path, O_RDWR | O_CLOEXEC) < 0;
	bad += ftruncate(fd, BYTES / 2) < 0;
	bad += ftruncate(fd, 2 * BYTES) < 0;
	bad += fallocate(fd, 0, 0, 2 * BYTES) < 0;
	bad += fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, MIB) < 0;
	bad += fchmod(fd, 0666) < 0;
	bad += flock(fd, LOCK_UN) < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0;
	/* The directory's. */
	bad += unlink(path) == 0 || errno != EACCES;
	bad += rename(path, "/tmp/x") == 0;
	bad += link(path, "/tmp/x") == 0;
	bad += fchown(fd, 0, 0) == 0;
	*name = '\0';
	bad += open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) >= 0; /* nor see who else is there */
	bad += chmod(path, 0777) == 0;
	n = snprintf(self, sizeof(self), "%.*s/../ready", 40, path);
	bad += chdir(self) == 0;
	if (bad)
		_exit(3);
	ready_and_wait(socket_fd);
}

static void test_hostile_lessee(void **state)
{
	struct pool_recovery recovery;
	struct consumer consumer;
	struct segment *segment;
	uint64_t allocated_bytes, pinned;
	dev_t dev;
	ino_t ino;

	(void)state;
	host_required();
	segment = held_by(&consumer, misbehave);
	assert_int_equal(pool_segment_stat(pool, segment, &dev, &ino, &allocated_bytes), 0);
	assert_int_equal(allocated_bytes, 2 * BYTES - MIB);
	assert_int_equal(segment->bytes, BYTES);
	assert_int_equal(pool_pinned_bytes(pool, &pinned), 0);
	assert_int_equal(pinned, BYTES - MIB);

	/* A restart counts what is there. */
	pool_close(pool);
	pool = open_pool(dir_fd, page, &recovery);
	assert_int_equal(recovery.n_lent_kept, 1);
	segment = pool_next(pool, NULL);
	assert_int_equal(segment->bytes, 2 * BYTES - MIB);
	assert_int_equal(segment->uid, CONSUMER);
	ends_with(&consumer, SIGKILL);
}

/* Without a descriptor to look with, a lease is not taken for ended. */
static void test_out_of_descriptors(void **state)
{
	struct rlimit limit, none;
	struct segment *segment, *ready;
	const struct lessee lessee = {.uid = CONSUMER, .gid = CONSUMER};
	int fd, refused_fd = -1, drop_fd = 7;

	(void)state;
	host_required();
	segment = make_ready(pool, BYTES);
	ready = make_ready(pool, BYTES);
	fd = lend(pool, segment, CONSUMER, NULL);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = 3;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(pool_lease_is_held(pool, segment), -EMFILE);
	assert_int_equal(pool_lend(pool, ready, &lessee, &refused_fd), -EMFILE);
	assert_int_equal(pool_drop(pool, ready, &drop_fd), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(drop_fd, -1);
	assert_int_equal(pool_lease_is_held(pool, segment), 1);
	assert_int_equal(pool_find_ready(pool, 0, BYTES) == NULL, 1);
	close(fd);
	assert_int_equal(end_closed(pool), 1);
}

/* The path is its user's to open: such a holder has no lock, and keeps the lease all the same. */
static void test_open_without_the_lock(void **state)
{
	struct pool_recovery recovery;
	struct segment *segment;
	char path[128];
	int fd, second;

	(void)state;
	host_required();
	for (int restart = 0; restart < 2; restart++) {
		segment = make_ready(pool, BYTES);
		fd = lend(pool, segment, CONSUMER, NULL);
		assert_true(pool_segment_path(pool, segment, path, sizeof(path)) > 0);
		second = openat(dir_fd, path, O_RDWR | O_CLOEXEC);
		assert_true(second >= 0);
		close(fd);
		assert_int_equal(end_closed(pool), 0);
		assert_int_equal(pool_lease_is_held(pool, segment), 0);
		assert_int_equal(pool_try_end_lease(pool, segment, NULL), -EBUSY);
		if (restart) {
			pool_close(pool);
			pool = open_pool(dir_fd, page, &recovery);
			assert_int_equal(recovery.n_lent_kept, 1);
			/* to be looked at, for nobody will tell */
			assert_ptr_equal(pool_next_closed(pool), pool_next(pool, NULL));
		}
		close(second);
		assert_int_equal(end_closed(pool), 1);
	}
}

/* A write() from memory that nobody serves yet: it keeps the lock of the file's inode until it is. */
struct writer {
	pthread_t thread;
	int fd, fault_fd;
	char *memory;
};

static void *write_on(void *arg)
{
	const struct writer *writer = arg;

	(void)!write(writer->fd, writer->memory, 1);
	return NULL;
}

static int start_writer(struct writer *writer, int fd)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register range = {.range.len = page.bytes,
					.mode = UFFDIO_REGISTER_MODE_MISSING};
	struct pollfd poll_fd = {.events = POLLIN};

	writer->fault_fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (writer->fault_fd < 0)
		return -errno;
	writer->fd = fd;
	writer->memory =
		mmap(NULL, page.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(writer->memory, MAP_FAILED);
	range.range.start = (uintptr_t)writer->memory;
	assert_int_equal(ioctl(writer->fault_fd, UFFDIO_API, &api), 0);
	assert_int_equal(ioctl(writer->fault_fd, UFFDIO_REGISTER, &range), 0);
	assert_int_equal(pthread_create(&writer->thread, NULL, write_on, writer), 0);
	poll_fd.fd = writer->fault_fd;
	assert_int_equal(poll(&poll_fd, 1, 10000), 1);
	return 0;
}

static void end_writer(struct writer *writer)
{
	struct uffdio_zeropage zero = {
		.range = {.start = (uintptr_t)writer->memory, .len = page.bytes}};

	assert_int_equal(ioctl(writer->fault_fd, UFFDIO_ZEROPAGE, &zero), 0);
	pthread_join(writer->thread, NULL);
	close(writer->fault_fd);
	munmap(writer->memory, page.bytes);
	close(writer->fd);
}

/* Nothing that the pool does with a lent file waits for its lessee, be the lock on the lease gone or not. */
static void test_a_lessee_that_holds_the_inode(void **state)
{
	struct pool_recovery recovery;
	struct segment *segment;
	struct writer writer;
	char path[128];
	int fd, r;

	(void)state;
	host_required();
	segment = make_ready(pool, BYTES);
	fd = lend(pool, segment, CONSUMER, "vm7");
	assert_true(pool_segment_path(pool, segment, path, sizeof(path)) > 0);
	r = start_writer(&writer, openat(dir_fd, path, O_RDWR | O_CLOEXEC));
	if (r < 0) {
		close(fd);
		print_message("# userfaultfd: %s\n", strerror(-r));
		skip();
	}
	alarm(30); /* rather than wait for ever */
	assert_int_equal(pool_give_lease(pool, segment), 0);
	assert_int_equal(pool_mark_given(pool, segment), 0);
	assert_int_equal(pool_lease_is_held(pool, segment), 1);
	close(fd);
	assert_int_equal(end_closed(pool), 0);
	assert_int_equal(pool_try_end_lease(pool, segment, NULL), -EBUSY);
	pool_close(pool);
	pool = open_pool(dir_fd, page, &recovery);
	assert_int_equal(recovery.n_lent_kept, 1);
	alarm(0);
	end_writer(&writer);
	assert_int_equal(end_closed(pool), 1);
}

/* An administrator removed the file: the lease is over. */
static void test_file_removed(void **state)
{
	struct segment *segment;
	char path[128];
	int fd;

	(void)state;
	host_required();
	segment = make_ready(pool, BYTES);
	fd = lend(pool, segment, CONSUMER, NULL);
	assert_true(pool_segment_path(pool, segment, path, sizeof(path)) > 0);
	assert_int_equal(unlinkat(dir_fd, path, 0), 0);
	assert_int_equal(pool_lease_is_held(pool, segment), 0);
	assert_int_equal(pool_end_lease(pool, segment, NULL), 0);
	close(fd);
}

/* The oracle over the whole way: nothing that was lent is ever ready again. */
static void test_never_lent_again(void **state)
{
	struct segment *segment;

	(void)state;
	host_required();
	for (int round = 0; round < 3; round++) {
		int fd;

		segment = pool_find_ready(pool, 0, BYTES);
		if (!segment)
			segment = make_ready(pool, BYTES);
		fd = lend(pool, segment, CONSUMER, NULL);
		assert_true(oracle_is_zero(fd, BYTES));
		oracle_dirty(fd, BYTES);
		close(fd);
		assert_int_equal(end_closed(pool), 1);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_open, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mapping_only, setup, teardown),
		cmocka_unit_test_setup_teardown(test_duplicate, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fork, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fork_happy, setup, teardown),
		cmocka_unit_test_setup_teardown(test_in_flight, setup, teardown),
		cmocka_unit_test_setup_teardown(test_passed_on, setup, teardown),
		cmocka_unit_test_setup_teardown(test_looking_is_silent, setup, teardown),
		cmocka_unit_test_setup_teardown(test_overflow, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_read_is_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hostile_lessee, setup, teardown),
		cmocka_unit_test_setup_teardown(test_out_of_descriptors, setup, teardown),
		cmocka_unit_test_setup_teardown(test_open_without_the_lock, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_lessee_that_holds_the_inode, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_file_removed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_never_lent_again, setup, teardown),
	};

	/* One case: what a broken build must not pass, not even where it cannot run. */
	if (argc > 1 && geteuid() != 0)
		return 77;
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, host_enter, host_leave);
}
