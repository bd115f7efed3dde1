/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: loads and removes kernel modules.
 * Guarantees: says why the kernel refused: a negative errno.
 */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MODULE_NAME "prezero"

const char *module_path, *module_parameters = "";

bool module_loaded(const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/module/%s/refcnt", name);
	return !access(path, F_OK);
}

int module_load_file(const char *path, const char *parameters)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int result = 0;

	if (fd < 0)
		return -errno;
	if (syscall(SYS_finit_module, fd, parameters, 0))
		result = -errno;
	close(fd);
	return result;
}

int module_remove(const char *name)
{
	return syscall(SYS_delete_module, name, O_NONBLOCK) ? -errno : 0;
}

int module_load(void)
{
	return module_load_file(module_path, module_parameters);
}

int module_unload(void)
{
	return module_remove(MODULE_NAME);
}
