/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/sysroots/tree.c - a directory that stands for the root of some machine.
 *
 * Guarantees: writes below its own directory only, and leaves nothing behind.
 */
#include "tree.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"

static void need(bool so, const char *what)
{
	if (!so) {
		perror(what);
		abort();
	}
}

void tree_init(struct tree *tree)
{
	/* Memory where there is some to write to: trees are small and many. */
	const char *top = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";

	snprintf(tree->path, sizeof(tree->path), "%s/prezero-tree-XXXXXX", top);
	need(mkdtemp(tree->path), tree->path);
	tree->fd = open(tree->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	need(tree->fd >= 0, tree->path);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void remove_all(const char *path)
{
	need(!nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS), path);
}

void tree_done(struct tree *tree)
{
	close(tree->fd);
	remove_all(tree->path);
}

void tree_drop(struct tree *tree, const char *path)
{
	char full[PATH_MAX];

	snprintf(full, sizeof(full), "%s/%s", tree->path, path);
	remove_all(full);
}

/* Whether every component has a name and none is "..". */
static bool stays_below(const char *path)
{
	for (;;) {
		size_t n = strcspn(path, "/");

		if (!n || (n == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		path += n;
		if (!*path++)
			return true;
	}
}

static int put(struct tree *tree, const char *path, const char *content, size_t content_bytes)
{
	char directory[PATH_MAX];
	AUTO_FD fd = -1;

	if (!stays_below(path) || strlen(path) >= sizeof(directory))
		return -EINVAL;
	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		memcpy(directory, path, (size_t)(slash - path));
		directory[slash - path] = '\0';
		if (mkdirat(tree->fd, directory, 0700) < 0 && errno != EEXIST)
			return -errno;
	}
	fd = openat(tree->fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? -errno : write_all(fd, content, content_bytes);
}

void tree_put(struct tree *tree, const char *path, const char *content)
{
	int r = put(tree, path, content, strlen(content));

	errno = -r;
	need(!r, path);
}

void tree_unpack(struct tree *tree, const char *text, size_t text_bytes)
{
	const char *end = text + text_bytes;
	char path[PATH_MAX] = "";
	const char *content = NULL;

	for (const char *line = text; line < end;) {
		const char *newline = memchr(line, '\n', (size_t)(end - line));
		const char *next = newline ? newline + 1 : end;
		size_t length = (size_t)((newline ? newline : end) - line);

		if (length > 4 && !memcmp(line, "--- ", 4)) {
			if (content)
				(void)!put(tree, path, content, (size_t)(line - content));
			content = next;
			length -= 4;
			if (length >= sizeof(path))
				length = 0;
			memcpy(path, line + 4, length);
			path[length] = '\0';
		}
		line = next;
	}
	if (content)
		(void)!put(tree, path, content, (size_t)(end - content));
}

void tree_imagine(struct tree *tree, const char *name)
{
	static char text[65536];
	char path[PATH_MAX];
	ssize_t n;

	snprintf(path, sizeof(path), "%s/%s.tree", IMAGINED, name);
	n = read_file_at(AT_FDCWD, path, text, sizeof(text));
	errno = (int)-n;
	need(n > 0, path);
	text[n++] = '\n'; /* over the NUL: the last file has its newline again */
	tree_unpack(tree, text, (size_t)n);
}
