/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * base/io.h - small files, sockets that carry descriptors, and the clock.
 *
 * All functions return 0 or a count, or a negative errno; outputs are written only on success.
 * Every descriptor made here is close-on-exec.
 */
#ifndef PREZERO_BASE_IO_H
#define PREZERO_BASE_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"

/* Reads a whole small file (sysfs, procfs) into buf and ends it with NUL, without the final newline.
 * Returns the length, -EFBIG when it does not fit. */
MUST_CHECK ssize_t read_file_at(int dir_fd, const char *path, char *buf, size_t buf_bytes);
MUST_CHECK int read_u64_at(int dir_fd, const char *path, uint64_t *ret);
/* The same, afresh from the start of a file that is kept open. One read: a kernel text up to 4095
 * bytes comes whole. */
MUST_CHECK ssize_t pread_text(int fd, char *buf, size_t buf_bytes);
/* One write(2), as sysfs wants it; a short write is -EIO. */
MUST_CHECK int write_file_at(int dir_fd, const char *path, const char *text);

/* Writes everything to an fd that may be short on room; -EAGAIN is not retried. */
MUST_CHECK int write_all(int fd, const void *data, size_t data_bytes);

/* At every instant the file has the old text or the new one, also after a crash of the machine; when it
 * fails, what was there stays, and nothing beside it. Makes "PATH.new" on the way. */
MUST_CHECK int replace_file_at(int dir_fd, const char *path, const char *text, mode_t mode);

/* Sends bytes with at most one descriptor (fd < 0: none) on a UNIX stream socket; returns what was
 * sent, the descriptor goes with the first byte. Never raises SIGPIPE. */
MUST_CHECK ssize_t send_with_fd(int socket_fd, const void *data, size_t data_bytes, int fd);
/* Receives bytes and at most one descriptor; *ret_fd is -1 when none came. More than one: all are
 * closed and -EPROTO. 0 is end of file. */
MUST_CHECK ssize_t recv_with_fd(int socket_fd, void *buf, size_t buf_bytes, int *ret_fd);

uint64_t monotonic_ns(void);
/* What the calling thread has computed. */
uint64_t thread_cpu_ns(void);

#endif
