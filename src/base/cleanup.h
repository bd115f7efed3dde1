/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * base/cleanup.h - ownership written in the type.
 *
 * A variable declared with one of the scope guards gives its resource back on every way out of the
 * scope; TAKE_FD() and TAKE_PTR() hand it on instead. Nothing here can fail.
 */
#ifndef PREZERO_BASE_CLEANUP_H
#define PREZERO_BASE_CLEANUP_H

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF(format_arg, first_arg) __attribute__((format(printf, format_arg, first_arg)))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* close_fd: closes when there is something to close, keeps errno, returns -1 to store. */
static inline int close_fd(int fd)
{
	if (fd >= 0) {
		int saved = errno;

		close(fd);
		errno = saved;
	}
	return -1;
}

static inline void cleanup_fd(int *fd)
{
	close_fd(*fd);
}

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_file(FILE **f)
{
	if (*f)
		fclose(*f);
}

static inline void cleanup_dir(DIR **d)
{
	if (*d)
		closedir(*d);
}

#define AUTO_FD __attribute__((cleanup(cleanup_fd))) int
#define AUTO_FREE __attribute__((cleanup(cleanup_free)))
#define AUTO_FILE __attribute__((cleanup(cleanup_file))) FILE *
#define AUTO_DIR __attribute__((cleanup(cleanup_dir))) DIR *

#define TAKE_FD(fd)                \
	({                         \
		int taken_ = (fd); \
		(fd) = -1;         \
		taken_;            \
	})

#define TAKE_PTR(ptr)                           \
	({                                      \
		__typeof__(ptr) taken_ = (ptr); \
		(ptr) = NULL;                   \
		taken_;                         \
	})

#endif
