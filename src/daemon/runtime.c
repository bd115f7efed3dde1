/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/runtime.c - the run-time directory and its lock; giving everything back.
 *
 * Guarantees: one daemon a directory, whatever becomes of the one before; nothing that was not made
 * here is removed.
 */
#include "daemon/runtime.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>

#include "base/io.h"
#include "base/parse.h"

/* 0600: a lock on a file that others may open could be held by them. */
static int take_lock(int dir_fd, int *ret_fd, pid_t *ret_pid)
{
	AUTO_FD fd = openat(dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct stat mine, named;
	char text[24];
	int r;

	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		uint64_t pid = 0;

		r = -errno;
		if (r != -EWOULDBLOCK)
			return r;
		if (read_u64_at(dir_fd, "lock", &pid) < 0)
			pid = 0;
		*ret_pid = pid;
		return -EBUSY;
	}
	/* --release may have unlinked it meanwhile: a lock on a file without a name keeps nobody out. */
	if (fstat(fd, &mine) < 0 || fstatat(dir_fd, "lock", &named, AT_SYMLINK_NOFOLLOW) < 0 ||
	    mine.st_ino != named.st_ino)
		return -EAGAIN;
	snprintf(text, sizeof(text), "%d\n", (int)getpid());
	if (ftruncate(fd, 0) < 0)
		return -errno;
	r = write_all(fd, text, strlen(text));
	if (r < 0)
		return r;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int runtime_open(const char *path, struct runtime *ret, pid_t *ret_pid)
{
	AUTO_FREE char *real_path = NULL;
	AUTO_FD dir_fd = -1;
	struct stat st;
	int lock_fd = -1, r;

	/* 0755 whatever the umask: consumers go through it to their segments. */
	if (mkdir(path, 0755) == 0) {
		if (chmod(path, 0755) < 0)
			return -errno;
	} else if (errno != EEXIST)
		return -errno;
	real_path = realpath(path, NULL);
	if (!real_path)
		return -errno;
	dir_fd = open(real_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0 || fstat(dir_fd, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return -EPERM;
	r = take_lock(dir_fd, &lock_fd, ret_pid);
	if (r < 0)
		return r;
	*ret = (struct runtime){
		.path = TAKE_PTR(real_path),
		.dir_fd = TAKE_FD(dir_fd),
		.lock_fd = lock_fd,
	};
	return 0;
}

void runtime_close(struct runtime *runtime)
{
	free(runtime->path);
	close_fd(runtime->dir_fd);
	close_fd(runtime->lock_fd);
	*runtime = (struct runtime){.dir_fd = -1, .lock_fd = -1};
}

/* A mount of one of our kinds under a name of ours, and nothing else. */
static bool is_our_mount(const struct runtime *runtime, const char *name, int fd)
{
	struct stat parent, here;
	struct page_size page;
	struct statfs fs;

	return page_size_parse(name, 0, 0, &page) == 0 && fstatfs(fd, &fs) == 0 &&
	       fs.f_type == (page.kind == PAGE_HUGETLB ? HUGETLBFS_MAGIC : TMPFS_MAGIC) &&
	       fstat(runtime->dir_fd, &parent) == 0 && fstat(fd, &here) == 0 &&
	       parent.st_dev != here.st_dev;
}

static bool is_held(int dir_fd, const char *name)
{
	AUTO_FD fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

static void release_directory(int mount_fd, const char *name, bool is_lent,
			      struct runtime_release *counts)
{
	AUTO_FD fd = openat(mount_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	AUTO_DIR dir = NULL;
	struct dirent *entry;

	if (fd < 0)
		return;
	dir = fdopendir(dup(fd));
	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		counts->n_segments++;
		if (is_lent && is_held(fd, entry->d_name))
			counts->n_held++;
		unlinkat(fd, entry->d_name, 0);
	}
	unlinkat(mount_fd, name, AT_REMOVEDIR);
}

static int release_mount(const struct runtime *runtime, const char *name,
			 struct runtime_release *counts)
{
	AUTO_FREE char *path = NULL;
	AUTO_FD fd = openat(runtime->dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0 || !is_our_mount(runtime, name, fd))
		return 0;
	release_directory(fd, "filling", false, counts);
	release_directory(fd, "ready", false, counts);
	release_directory(fd, "lent", true, counts);
	fd = close_fd(fd);
	if (asprintf(&path, "%s/%s", runtime->path, name) < 0)
		return -ENOMEM;
	/* Somebody may hold what was unlinked: the mount then lives, out of sight, as long as they do. */
	if (umount2(path, UMOUNT_NOFOLLOW) < 0 && umount2(path, UMOUNT_NOFOLLOW | MNT_DETACH) < 0)
		return -errno;
	counts->n_mounts++;
	if (unlinkat(runtime->dir_fd, name, AT_REMOVEDIR) < 0)
		return -errno;
	return 0;
}

/* A socket that nobody listens on is the last daemon's; a listening one is the service manager's. */
static void remove_dead_socket(const struct runtime *runtime)
{
	AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/socket",
		 runtime->dir_fd);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 &&
	    errno == ECONNREFUSED)
		unlinkat(runtime->dir_fd, "socket", 0);
}

int runtime_release_all(const struct runtime *runtime, struct runtime_release *ret)
{
	AUTO_DIR dir = fdopendir(openat(runtime->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct runtime_release counts = {0};
	struct dirent *entry;
	int r = 0;

	if (!dir)
		return -errno;
	while ((entry = readdir(dir))) {
		int error = entry->d_name[0] == '.' ?
				    0 :
				    release_mount(runtime, entry->d_name, &counts);

		if (error < 0 && r == 0)
			r = error;
	}
	if (r < 0)
		return r;
	remove_dead_socket(runtime);
	unlinkat(runtime->dir_fd, "lock", 0);
	rmdir(runtime->path); /* stays where something else stands in it */
	*ret = counts;
	return 0;
}
