/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_base_io.c - small files, descriptors over sockets, and that none leaks.
 */
#include "unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"

static char directory[] = "/tmp/prezero-test-io-XXXXXX";
static int directory_fd = -1;

static unsigned int count_fds(void)
{
	DIR *fds = opendir("/proc/self/fd");
	unsigned int n = 0;

	assert_non_null(fds);
	while (readdir(fds))
		n++;
	closedir(fds);
	return n;
}

static int setup(void **state)
{
	(void)state;
	if (!mkdtemp(directory))
		return -1;
	directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return directory_fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	unlinkat(directory_fd, "file", 0);
	close(directory_fd);
	return rmdir(directory);
}

static void put(const char *text)
{
	int fd = openat(directory_fd, "file", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write_all(fd, text, strlen(text)), 0);
	close(fd);
}

static void reads(void **state)
{
	char buf[8] = "kept";

	(void)state;
	assert_int_equal(read_file_at(directory_fd, "absent", buf, sizeof(buf)), -ENOENT);
	put("");
	assert_int_equal(read_file_at(directory_fd, "file", buf, sizeof(buf)), 0);
	assert_string_equal(buf, "");
	put("\n");
	assert_int_equal(read_file_at(directory_fd, "file", buf, sizeof(buf)), 0);
	put("one\n");
	assert_int_equal(read_file_at(directory_fd, "file", buf, sizeof(buf)), 3);
	assert_string_equal(buf, "one");
	put("one\n\n");
	assert_int_equal(read_file_at(directory_fd, "file", buf, sizeof(buf)), 4);
	assert_string_equal(buf, "one\n");
	put("seven77");
	assert_int_equal(read_file_at(directory_fd, "file", buf, sizeof(buf)), 7);
	assert_string_equal(buf, "seven77");
	put("eight888");
	assert_int_equal(read_file_at(directory_fd, "file", buf, sizeof(buf)), -EFBIG);
	assert_int_equal(read_file_at(directory_fd, ".", buf, sizeof(buf)), -EISDIR);
	assert_int_equal(read_file_at(directory_fd, "file", buf, 0), -EFBIG);
}

static void numbers(void **state)
{
	uint64_t value = 7;

	(void)state;
	put("18446744073709551615\n");
	assert_int_equal(read_u64_at(directory_fd, "file", &value), 0);
	assert_true(value == UINT64_MAX);
	put("12 34\n");
	assert_int_equal(read_u64_at(directory_fd, "file", &value), -EINVAL);
	put("");
	assert_int_equal(read_u64_at(directory_fd, "file", &value), -EINVAL);
	put("00000000000000000000000000000000000000000000000000001\n");
	assert_int_equal(read_u64_at(directory_fd, "file", &value), -EFBIG);
	assert_true(value == UINT64_MAX);
}

static void writes(void **state)
{
	char buf[32];

	(void)state;
	put("a long text that was there");
	assert_int_equal(write_file_at(directory_fd, "file", "20"), 0);
	assert_int_equal(read_file_at(directory_fd, "file", buf, sizeof(buf)), 2);
	assert_string_equal(buf, "20");
	assert_int_equal(write_file_at(directory_fd, "absent", "20"), -ENOENT);
	assert_int_equal(faccessat(directory_fd, "absent", F_OK, 0), -1);
	assert_int_equal(write_file_at(AT_FDCWD, "/dev/full", "20"), -ENOSPC);
}

static void holds(const char *path, const char *text)
{
	char buf[8];

	assert_int_equal(read_file_at(directory_fd, path, buf, sizeof(buf)), strlen(text));
	assert_string_equal(buf, text);
}

static void replaces(void **state)
{
	unsigned int fds = count_fds();
	struct stat st;

	(void)state;
	assert_int_equal(replace_file_at(directory_fd, "file", "old", 0600), 0);
	holds("file", "old");
	assert_int_equal(mkdirat(directory_fd, "sub", 0700), 0);
	assert_int_equal(replace_file_at(directory_fd, "sub/file", "new", 0640), 0);
	holds("sub/file", "new");
	assert_int_equal(fstatat(directory_fd, "sub/file", &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0640);
	assert_int_equal(unlinkat(directory_fd, "sub/file", 0), 0);

	/* What cannot be replaced, here a folder, stays, and nothing beside it. */
	assert_int_equal(replace_file_at(directory_fd, "sub", "new", 0600), -EISDIR);
	assert_int_equal(faccessat(directory_fd, "sub.new", F_OK, 0), -1);
	assert_int_equal(unlinkat(directory_fd, "sub", AT_REMOVEDIR), 0);
	assert_int_equal(replace_file_at(directory_fd, "absent/file", "new", 0600), -ENOENT);
	assert_int_equal(count_fds(), fds);
}

static void passes_a_descriptor(void **state)
{
	struct stat sent, got;
	char buf[16] = "";
	int pair[2], fd = -2;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(send_with_fd(pair[0], "hello", 5, directory_fd), 5);
	assert_int_equal(recv_with_fd(pair[1], buf, sizeof(buf), &fd), 5);
	assert_string_equal(buf, "hello");
	assert_true(fd >= 0);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(fstat(directory_fd, &sent), 0);
	assert_int_equal(fstat(fd, &got), 0);
	assert_true(sent.st_ino == got.st_ino && sent.st_dev == got.st_dev);
	close(fd);

	assert_int_equal(send_with_fd(pair[0], "x", 1, -1), 1);
	assert_int_equal(recv_with_fd(pair[1], buf, sizeof(buf), &fd), 1);
	assert_int_equal(fd, -1);

	assert_int_equal(send_with_fd(pair[0], "", 0, directory_fd), -EINVAL);
	close(pair[0]);
	assert_int_equal(recv_with_fd(pair[1], buf, sizeof(buf), &fd), 0);
	/* No SIGPIPE. */
	assert_int_equal(send_with_fd(pair[1], "x", 1, -1), -EPIPE);
	close(pair[1]);
}

/* Any number of descriptors above one is refused, and every one of them is closed. */
static void refuses_many_descriptors(void **state)
{
	(void)state;
	for (unsigned int n = 2; n <= 20; n += 3) {
		union {
			char buf[CMSG_SPACE(20 * sizeof(int))];
			struct cmsghdr align;
		} control = {};
		char byte = 'y';
		struct iovec iov = {.iov_base = &byte, .iov_len = 1};
		struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
		unsigned int before = count_fds();
		struct cmsghdr *cmsg;
		int pair[2], fd = -2;
		char buf[4];

		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(n * sizeof(int));
		for (unsigned int i = 0; i < n; i++)
			memcpy(CMSG_DATA(cmsg) + i * sizeof(int), &directory_fd, sizeof(int));
		assert_int_equal(sendmsg(pair[0], &msg, 0), 1);
		assert_int_equal(recv_with_fd(pair[1], buf, sizeof(buf), &fd), -EPROTO);
		assert_int_equal(fd, -2);
		close(pair[0]);
		close(pair[1]);
		assert_int_equal(count_fds(), before);
	}
}

static int guarded(int *seen)
{
	AUTO_FD fd = dup(directory_fd);
	AUTO_FREE char *text = strdup("freed");
	AUTO_DIR dir = opendir("/proc/self/fd");
	AUTO_FILE file = fopen("/proc/self/status", "re");

	assert_non_null(text);
	assert_non_null(dir);
	assert_non_null(file);
	*seen = fd;
	return TAKE_FD(fd);
}

static void scopes_clean_up(void **state)
{
	unsigned int before = count_fds();
	int seen, fd;

	(void)state;
	fd = guarded(&seen);
	assert_int_equal(fd, seen);
	assert_int_equal(count_fds(), before + 1);
	errno = EXDEV;
	fd = close_fd(fd);
	assert_int_equal(fd, -1);
	assert_int_equal(close_fd(fd), -1);
	assert_int_equal(errno, EXDEV);
	assert_int_equal(count_fds(), before);
}

static void clock_goes_on(void **state)
{
	uint64_t first = monotonic_ns();

	(void)state;
	usleep(2000);
	assert_true(monotonic_ns() - first >= 2000000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads),
		cmocka_unit_test(numbers),
		cmocka_unit_test(writes),
		cmocka_unit_test(replaces),
		cmocka_unit_test(passes_a_descriptor),
		cmocka_unit_test(refuses_many_descriptors),
		cmocka_unit_test(scopes_clean_up),
		cmocka_unit_test(clock_goes_on),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
