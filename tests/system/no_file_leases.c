/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/system/no_file_leases.c - preloaded: F_SETLEASE is refused, as by hugetlbfs from Linux 7.2 on.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>

typedef int (*fcntl_function)(int fd, int command, ...);

int fcntl64(int fd, int command, ...)
{
	fcntl_function next = (fcntl_function)dlsym(RTLD_NEXT, "fcntl64");
	va_list arguments;
	void *argument;

	va_start(arguments, command);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (command == F_SETLEASE) {
		errno = EINVAL;
		return -1;
	}
	return next(fd, command, argument);
}
