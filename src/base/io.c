/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * base/io.c - small files, sockets that carry descriptors, and the clock.
 *
 * Guarantees: every descriptor is close-on-exec, an interrupted call is resumed, and a descriptor
 * that arrives is either returned or closed.
 */
#include "base/io.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/parse.h"

ssize_t read_file_at(int dir_fd, const char *path, char *buf, size_t buf_bytes)
{
	AUTO_FD fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	size_t used = 0;

	if (fd < 0)
		return -errno;
	for (;;) {
		ssize_t n = read(fd, buf + used, buf_bytes - used);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0 && used < buf_bytes)
			break;
		used += (size_t)n;
		/* The last byte of buf is for the NUL: text in it is text too many. */
		if (used >= buf_bytes)
			return -EFBIG;
	}
	if (used && buf[used - 1] == '\n')
		used--;
	buf[used] = '\0';
	return (ssize_t)used;
}

ssize_t pread_text(int fd, char *buf, size_t buf_bytes)
{
	ssize_t n;

	do {
		n = pread(fd, buf, buf_bytes, 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if ((size_t)n == buf_bytes)
		return -EFBIG;
	if (n && buf[n - 1] == '\n')
		n--;
	buf[n] = '\0';
	return n;
}

int read_u64_at(int dir_fd, const char *path, uint64_t *ret)
{
	char text[32];
	ssize_t n = read_file_at(dir_fd, path, text, sizeof(text));

	return n < 0 ? (int)n : parse_u64(text, ret);
}

int write_file_at(int dir_fd, const char *path, const char *text)
{
	/* sysfs ignores O_TRUNC; in a tree of plain files nothing of the old text may stay. */
	AUTO_FD fd = openat(dir_fd, path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_TRUNC);
	size_t text_bytes = strlen(text);
	ssize_t n;

	if (fd < 0)
		return -errno;
	do {
		n = write(fd, text, text_bytes);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return (size_t)n == text_bytes ? 0 : -EIO;
}

int write_all(int fd, const void *data, size_t data_bytes)
{
	const char *p = data;

	while (data_bytes) {
		ssize_t n = write(fd, p, data_bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		data_bytes -= (size_t)n;
	}
	return 0;
}

static int write_durably(int dir_fd, const char *path, const char *text, mode_t mode)
{
	AUTO_FD fd =
		openat(dir_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
	int r = fd < 0 ? -errno : write_all(fd, text, strlen(text));

	return !r && fsync(fd) < 0 ? -errno : r;
}

int replace_file_at(int dir_fd, const char *path, const char *text, mode_t mode)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char parent[PATH_MAX], fresh[NAME_MAX + 1];
	AUTO_FD parent_fd = -1;
	int r;

	if (snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - path) : 1,
		     slash ? path : ".") >= (int)sizeof(parent) ||
	    snprintf(fresh, sizeof(fresh), "%s.new", name) >= (int)sizeof(fresh))
		return -ENAMETOOLONG;
	parent_fd = openat(dir_fd, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent_fd < 0)
		return -errno;
	r = write_durably(parent_fd, fresh, text, mode);
	if (!r && renameat(parent_fd, fresh, parent_fd, name) < 0)
		r = -errno;
	if (r < 0)
		(void)unlinkat(parent_fd, fresh, 0);
	else if (fsync(parent_fd) < 0)
		r = -errno;
	return r;
}

/* Room for two descriptors: one is welcome, and a second one shows that there were too many (the
 * kernel drops what does not fit). */
union fd_control {
	char buf[CMSG_SPACE(2 * sizeof(int))];
	struct cmsghdr align;
};

ssize_t send_with_fd(int socket_fd, const void *data, size_t data_bytes, int fd)
{
	struct iovec iov = {.iov_base = (void *)data, .iov_len = data_bytes};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	union fd_control control = {};
	ssize_t n;

	if (fd >= 0) {
		struct cmsghdr *cmsg;

		if (!data_bytes)
			return -EINVAL;
		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(sizeof(int));
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cmsg), &fd, sizeof(int));
	}
	do {
		n = sendmsg(socket_fd, &msg, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

ssize_t recv_with_fd(int socket_fd, void *buf, size_t buf_bytes, int *ret_fd)
{
	struct iovec iov = {.iov_base = buf, .iov_len = buf_bytes};
	union fd_control control = {};
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf),
	};
	AUTO_FD fd = -1;
	bool too_many = false;
	ssize_t n;

	do {
		n = recvmsg(socket_fd, &msg, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;

	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg); cmsg; cmsg = CMSG_NXTHDR(&msg, cmsg)) {
		size_t n_fds;

		if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		n_fds = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n_fds; i++) {
			int one;

			memcpy(&one, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
			if (fd >= 0) {
				too_many = true;
				close_fd(one);
			} else {
				fd = one;
			}
		}
	}
	if (too_many || (msg.msg_flags & MSG_CTRUNC))
		return -EPROTO;
	*ret_fd = TAKE_FD(fd);
	return n;
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

uint64_t monotonic_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

uint64_t thread_cpu_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}
