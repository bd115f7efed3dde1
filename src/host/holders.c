/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * host/holders.c - who has a file open or mapped, from a scan of /proc.
 *
 * Guarantees: at most four descriptors at a time; a process that goes meanwhile, or that is not this
 * one's to look at, is skipped; one that could not be looked at for want of descriptors or memory is
 * not taken for one that holds nothing; nothing that a file system could make wait (statx is told not
 * to ask a server).
 */
#include "host/host.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/io.h"
#include "base/parse.h"
#include "host/internal.h"
#include "host/text.h"

/* A process that is gone, or one that this process may not look at, and never could. */
static bool is_out_of_reach(int r)
{
	return r == -ENOENT || r == -ESRCH || r == -EACCES || r == -EPERM;
}

static int open_dir_at(int dir_fd, const char *path, DIR **ret)
{
	AUTO_FD fd = openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	*ret = fdopendir(fd);
	if (!*ret)
		return -errno;
	TAKE_FD(fd);
	return 0;
}

/* 1, 0, or why that is not known. */
static int has_open(int process_fd, dev_t dev, ino_t ino)
{
	AUTO_DIR dir = NULL;
	struct dirent *entry;
	int r = open_dir_at(process_fd, "fd", &dir);

	if (r < 0)
		return is_out_of_reach(r) ? 0 : r;
	while ((errno = 0, entry = readdir(dir))) {
		struct statx stx;

		if (entry->d_name[0] == '.')
			continue;
		if (statx(dirfd(dir), entry->d_name, AT_STATX_DONT_SYNC, STATX_INO, &stx) == 0 &&
		    (!ino || stx.stx_ino == ino) &&
		    makedev(stx.stx_dev_major, stx.stx_dev_minor) == dev)
			return 1;
	}
	return is_out_of_reach(-errno) ? 0 : -errno;
}

/* "7f00-7f80 rw-s 00000000 00:2a 1234   /path": the fourth and fifth words. */
static bool is_mapping_of(const char *line, dev_t dev, ino_t ino)
{
	unsigned long long inode;
	unsigned int major_number, minor_number;

	return sscanf(line, "%*s %*s %*s %x:%x %llu", &major_number, &minor_number, &inode) == 3 &&
	       (!ino || inode == ino) && makedev(major_number, minor_number) == dev;
}

static int has_mapped(int process_fd, dev_t dev, ino_t ino)
{
	AUTO_FD fd = openat(process_fd, "maps", O_RDONLY | O_CLOEXEC);
	AUTO_FILE file = NULL;
	AUTO_FREE char *line = NULL;
	size_t room = 0;

	if (fd < 0)
		return is_out_of_reach(-errno) ? 0 : -errno;
	file = fdopen(fd, "r");
	if (!file)
		return -errno;
	TAKE_FD(fd);
	while ((errno = 0, getline(&line, &room, file)) > 0) {
		if (is_mapping_of(line, dev, ino))
			return 1;
	}
	return is_out_of_reach(-errno) ? 0 : -errno;
}

static void describe(int process_fd, struct holder *holder)
{
	char text[TEXT_BYTES_MAX], uids[64];
	uint64_t uid;

	if (read_file_at(process_fd, "comm", text, sizeof(text)) >= 0)
		snprintf(holder->command, sizeof(holder->command), "%.15s", text);
	/* Its owner chose it: any bytes, and the kernel cuts it within a character. */
	for (char *c = holder->command; *c; c++) {
		if (*c < ' ' || *c > '~')
			*c = '?';
	}
	if (read_file_at(process_fd, "status", text, sizeof(text)) < 0 ||
	    text_field(text, "Uid", uids, sizeof(uids)) < 0)
		return;
	/* Real, effective, saved, file system. */
	uids[strcspn(uids, " \t")] = '\0';
	if (!parse_u64(uids, &uid) && uid <= UINT32_MAX)
		holder->uid = (uid_t)uid;
}

/* This process as that /proc numbers it; 0 where it does not say. */
static uint64_t self_pid(int proc_fd)
{
	char text[32];
	ssize_t n = readlinkat(proc_fd, "self", text, sizeof(text) - 1);
	uint64_t pid = 0;

	if (n <= 0)
		return 0;
	text[n] = '\0';
	return parse_u64(text, &pid) < 0 ? 0 : pid;
}

/* 1: it holds the file, 0: it does not, or why that is not known. */
static int look_at(int proc_fd, const char *process, dev_t dev, ino_t ino, struct holder *ret)
{
	AUTO_FD process_fd = openat(proc_fd, process, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int open, mapped;

	if (process_fd < 0)
		return is_out_of_reach(-errno) ? 0 : -errno;
	open = has_open(process_fd, dev, ino);
	mapped = has_mapped(process_fd, dev, ino);
	if (open <= 0 && mapped <= 0)
		return open < 0 ? open : mapped;
	ret->has_open = open > 0;
	ret->has_mapped = mapped > 0;
	describe(process_fd, ret);
	return 1;
}

int host_holders(struct host *host, dev_t dev, ino_t ino, struct holder *holders,
		 unsigned int holders_max)
{
	AUTO_DIR proc = NULL;
	int r = open_dir_at(host_root_fd(host), "proc", &proc), unknown = 0;
	struct dirent *entry;
	unsigned int n = 0;
	uint64_t self;

	if (r < 0)
		return r;
	self = self_pid(dirfd(proc));
	while ((errno = 0, entry = readdir(proc))) {
		struct holder holder = {};
		uint64_t pid;

		if (parse_u64(entry->d_name, &pid) < 0 || !pid || pid > INT32_MAX || pid == self)
			continue;
		holder.pid = (pid_t)pid;
		r = look_at(dirfd(proc), entry->d_name, dev, ino, &holder);
		if (r < 0)
			unknown = r;
		if (r > 0 && n++ < holders_max)
			holders[n - 1] = holder;
	}
	if (errno)
		unknown = -errno;
	return n ? (int)n : unknown;
}
