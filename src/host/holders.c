/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * host/holders.c - who has a file open or mapped, from a scan of /proc.
 *
 * Guarantees: at most four descriptors at a time; a process that goes meanwhile is skipped; nothing
 * that a file system could make wait (statx is told not to ask a server).
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

static DIR *open_dir_at(int dir_fd, const char *path)
{
	AUTO_FD fd = openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (dir)
		TAKE_FD(fd);
	return dir;
}

static bool has_open(int process_fd, dev_t dev, ino_t ino)
{
	AUTO_DIR dir = open_dir_at(process_fd, "fd");
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		struct statx stx;

		if (entry->d_name[0] == '.')
			continue;
		if (statx(dirfd(dir), entry->d_name, AT_STATX_DONT_SYNC, STATX_INO, &stx) == 0 &&
		    (!ino || stx.stx_ino == ino) &&
		    makedev(stx.stx_dev_major, stx.stx_dev_minor) == dev)
			return true;
	}
	return false;
}

/* "7f00-7f80 rw-s 00000000 00:2a 1234   /path": the fourth and fifth words. */
static bool is_mapping_of(const char *line, dev_t dev, ino_t ino)
{
	unsigned long long inode;
	unsigned int major_number, minor_number;

	return sscanf(line, "%*s %*s %*s %x:%x %llu", &major_number, &minor_number, &inode) == 3 &&
	       (!ino || inode == ino) && makedev(major_number, minor_number) == dev;
}

static bool has_mapped(int process_fd, dev_t dev, ino_t ino)
{
	AUTO_FD fd = openat(process_fd, "maps", O_RDONLY | O_CLOEXEC);
	AUTO_FILE file = fd < 0 ? NULL : fdopen(fd, "r");
	AUTO_FREE char *line = NULL;
	size_t room = 0;

	if (!file)
		return false;
	TAKE_FD(fd);
	while (getline(&line, &room, file) > 0) {
		if (is_mapping_of(line, dev, ino))
			return true;
	}
	return false;
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

int host_holders(struct host *host, dev_t dev, ino_t ino, struct holder *holders,
		 unsigned int holders_max)
{
	AUTO_DIR proc = open_dir_at(host_root_fd(host), "proc");
	struct dirent *entry;
	unsigned int n = 0;
	uint64_t self;

	if (!proc)
		return -errno;
	self = self_pid(dirfd(proc));
	while ((entry = readdir(proc))) {
		struct holder holder = {};
		AUTO_FD process_fd = -1;
		uint64_t pid;

		if (parse_u64(entry->d_name, &pid) < 0 || !pid || pid > INT32_MAX || pid == self)
			continue;
		process_fd = openat(dirfd(proc), entry->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (process_fd < 0)
			continue;
		holder.pid = (pid_t)pid;
		holder.has_open = has_open(process_fd, dev, ino);
		holder.has_mapped = has_mapped(process_fd, dev, ino);
		if (!holder.has_open && !holder.has_mapped)
			continue;
		if (n < holders_max) {
			describe(process_fd, &holder);
			holders[n] = holder;
		}
		n++;
	}
	return (int)n;
}
