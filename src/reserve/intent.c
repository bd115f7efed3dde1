// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * reserve/intent.c - see intent.h.
 *
 * Guarantees: at every instant the record is there whole or not at all.
 */
#include "reserve/intent.h"

#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/io.h"

#define LOCK_NAME "reserve.lock"
#define RECORD_NAME "reserve.intent"

static int open_dir(const char *runtime_dir)
{
	int fd = open(runtime_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int intent_lock(const char *runtime_dir)
{
	AUTO_FD dir_fd = -1;
	AUTO_FD fd = -1;

	if (mkdir(runtime_dir, 0755) < 0 && errno != EEXIST)
		return -errno;
	dir_fd = open_dir(runtime_dir);
	if (dir_fd < 0)
		return dir_fd;
	fd = openat(dir_fd, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	return TAKE_FD(fd);
}

int intent_write(const char *runtime_dir, const struct intent *intent)
{
	AUTO_FD dir_fd = open_dir(runtime_dir);
	AUTO_FREE char *text = NULL;
	json_t *record;

	if (dir_fd < 0)
		return dir_fd;
	record = json_pack("{s:I, s:I, s:I}", "page_bytes", (json_int_t)intent->page_bytes,
			   "before_pages", (json_int_t)intent->before_pages, "borrowed_pages",
			   (json_int_t)intent->borrowed_pages);
	text = json_dumps(record, JSON_INDENT(1));
	json_decref(record);
	return text ? replace_file_at(dir_fd, RECORD_NAME, text, 0600) : -ENOMEM;
}

int intent_read(const char *runtime_dir, struct intent *ret)
{
	AUTO_FD dir_fd = open_dir(runtime_dir);
	json_int_t page_bytes, before_pages, borrowed_pages;
	char text[512];
	json_t *record;
	int r;

	if (dir_fd < 0)
		return dir_fd;
	r = (int)read_file_at(dir_fd, RECORD_NAME, text, sizeof(text));
	if (r < 0)
		return r == -EFBIG ? -EBADMSG : r;
	record = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	r = json_unpack(record, "{s:I, s:I, s:I !}", "page_bytes", &page_bytes, "before_pages",
			&before_pages, "borrowed_pages", &borrowed_pages);
	json_decref(record);
	if (r < 0 || page_bytes <= 0 || before_pages < 0 || borrowed_pages < before_pages)
		return -EBADMSG;
	*ret = (struct intent){(uint64_t)page_bytes, (uint64_t)before_pages,
			       (uint64_t)borrowed_pages};
	return 0;
}

int intent_clear(const char *runtime_dir)
{
	AUTO_FD dir_fd = open_dir(runtime_dir);

	if (dir_fd < 0)
		return dir_fd;
	if (unlinkat(dir_fd, RECORD_NAME, 0) < 0 && errno != ENOENT)
		return -errno;
	return 0;
}
