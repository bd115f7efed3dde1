/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/runtime.h - the run-time directory: one daemon in it, and a mount per page size.
 *
 * The mounts stand in the host's mount namespace and outlive the daemon, with their pages. Their sizes
 * are explicit, so that statfs counts and nobody can grow them beyond the machine.
 */
#ifndef PREZERO_DAEMON_RUNTIME_H
#define PREZERO_DAEMON_RUNTIME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "model/class.h"

#define RUNTIME_DEFAULT_DIR "/run/prezero"

struct runtime {
	char *path; /* absolute, without links */
	int dir_fd;
	int lock_fd;
};

/* Makes the directory if it is not there and takes its lock. -EBUSY: another daemon has it, *ret_pid
 * says which (0: unknown). -EPERM: it is not root's alone. */
MUST_CHECK int runtime_open(const char *path, struct runtime *ret, pid_t *ret_pid);
/* Gives the lock back; the directory and the mounts stay. */
void runtime_close(struct runtime *runtime);

/* Mounts a page size's file system, or finds it mounted from an earlier run (*ret_adopted). Its name
 * in the run-time directory is page_size_format()'s. */
MUST_CHECK int runtime_mount(const struct runtime *runtime, struct page_size page,
			     uint64_t machine_bytes, int *ret_dir_fd, bool *ret_adopted);
/* Whether what was mounted still stands where it was. */
bool runtime_is_mounted(const struct runtime *runtime, struct page_size page, int dir_fd);

struct runtime_release {
	unsigned int n_mounts, n_segments;
	unsigned int n_held; /* leases somebody still holds: their pages go with the last holder */
};
/* Unlinks every segment, unmounts, and removes what the daemon made. */
MUST_CHECK int runtime_release_all(const struct runtime *runtime, struct runtime_release *ret);

#endif
