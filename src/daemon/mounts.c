/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/mounts.c - one mount per page size under the run-time directory.
 *
 * Guarantees: what stands there from an earlier run is found, never mounted over; nothing is mounted
 * without a size, and no global setting is touched.
 */
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "daemon/runtime.h"

#define SEGMENTS_MAX (1U << 20) /* files a mount may have: a bound on kernel memory */

static int mount_hugetlb(const char *path, struct page_size page, uint64_t machine_bytes,
			 unsigned long flags)
{
	uint64_t bytes = machine_bytes / page.bytes * page.bytes;
	char options[160];

	snprintf(options, sizeof(options),
		 "pagesize=%lu,size=%lu,nr_inodes=%u,mode=0711,uid=0,gid=0",
		 (unsigned long)page.bytes, (unsigned long)(bytes ? bytes : page.bytes),
		 SEGMENTS_MAX);
	return mount("prezero", path, "hugetlbfs", flags, options) < 0 ? -errno : 0;
}

static int mount_tmpfs(const char *path, struct page_size page, uint64_t machine_bytes,
		       unsigned long flags)
{
	const char *huge = page.kind == PAGE_THP ? ",huge=always" : ",huge=never";
	char options[160];
	int length;

	length = snprintf(options, sizeof(options), "size=%lu,nr_inodes=%u,mode=0711,uid=0,gid=0%s",
			  (unsigned long)machine_bytes, SEGMENTS_MAX, huge);
	/* Since 6.4: pages that were promised to be there must not be on a disk. */
	strcpy(options + length, ",noswap");
	if (mount("prezero", path, "tmpfs", flags, options) == 0)
		return 0;
	options[length] = '\0';
	if (errno == EINVAL && mount("prezero", path, "tmpfs", flags, options) == 0)
		return 0;
	/* A kernel without transparent huge pages knows no huge=, and needs none for base pages. */
	if (errno != EINVAL || page.kind != PAGE_BASE)
		return -errno;
	options[length - strlen(huge)] = '\0';
	return mount("prezero", path, "tmpfs", flags, options) < 0 ? -errno : 0;
}

/* 1: the right kind stands there already; 0: nothing is mounted; -EEXIST: something else is. */
static int find_mounted(const struct runtime *runtime, struct page_size page, int fd)
{
	struct stat parent, here;
	struct statfs fs;

	if (fstat(runtime->dir_fd, &parent) < 0 || fstat(fd, &here) < 0 || fstatfs(fd, &fs) < 0)
		return -errno;
	if (parent.st_dev == here.st_dev)
		return 0;
	if (page.kind == PAGE_HUGETLB)
		return fs.f_type == HUGETLBFS_MAGIC && (uint64_t)fs.f_bsize == page.bytes ? 1 :
											    -EEXIST;
	return fs.f_type == TMPFS_MAGIC ? 1 : -EEXIST;
}

static int open_mount_point(const struct runtime *runtime, const char *name)
{
	int fd = openat(runtime->dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? -errno : fd;
}

int runtime_mount(const struct runtime *runtime, struct page_size page, uint64_t machine_bytes,
		  int *ret_dir_fd, bool *ret_adopted)
{
	const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
	AUTO_FREE char *path = NULL;
	char name[PAGE_TEXT_MAX];
	AUTO_FD fd = -1;
	int r;

	page_size_format(page, name);
	if (mkdirat(runtime->dir_fd, name, 0711) < 0 && errno != EEXIST)
		return -errno;
	fd = open_mount_point(runtime, name);
	if (fd < 0)
		return fd;
	r = find_mounted(runtime, page, fd);
	if (r < 0)
		return r;
	if (r > 0) {
		*ret_adopted = true;
		*ret_dir_fd = TAKE_FD(fd);
		return 0;
	}
	if (asprintf(&path, "%s/%s", runtime->path, name) < 0)
		return -ENOMEM;
	r = page.kind == PAGE_HUGETLB ? mount_hugetlb(path, page, machine_bytes, flags) :
					mount_tmpfs(path, page, machine_bytes, flags);
	if (r < 0) {
		unlinkat(runtime->dir_fd, name, AT_REMOVEDIR);
		return r;
	}
	close_fd(fd);
	fd = open_mount_point(runtime, name);
	if (fd < 0)
		return fd;
	*ret_adopted = false;
	*ret_dir_fd = TAKE_FD(fd);
	return 0;
}

bool runtime_is_mounted(const struct runtime *runtime, struct page_size page, int dir_fd)
{
	char name[PAGE_TEXT_MAX];
	struct stat path, here;

	page_size_format(page, name);
	return fstat(dir_fd, &here) == 0 &&
	       fstatat(runtime->dir_fd, name, &path, AT_SYMLINK_NOFOLLOW) == 0 &&
	       path.st_dev == here.st_dev && path.st_ino == here.st_ino;
}
