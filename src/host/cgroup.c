/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * host/cgroup.c - how much more this process may take before a control group's limit bites.
 *
 * Guarantees: every level from the process's group up to the mount point is looked at; a limit that
 * is there but cannot be understood is an error, never "unlimited".
 */
#include "host/cgroup.h"

#include <fcntl.h>
#include <string.h>

#include "base/io.h"
#include "base/parse.h"
#include "host/text.h"
#include "model/view.h"

/* Version 1 writes "no limit" as the largest multiple of a page that a long holds. */
#define LIMIT_NONE_BYTES (1ULL << 62)

static FILE *open_text(int root_fd, const char *path)
{
	AUTO_FD fd = openat(root_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");

	if (file)
		fd = -1;
	return file;
}

/* Whether a comma separated list has a word. */
static bool list_has(const char *list, const char *word)
{
	size_t length = strlen(word);

	while (*list) {
		size_t n = strcspn(list, ",");

		if (n == length && !strncmp(list, word, n))
			return true;
		list += n;
		list += *list == ',';
	}
	return false;
}

/* The groups of the process, as /proc/self/cgroup says: "4:memory:/a/b", "0::/a/b". */
static int read_groups(int root_fd, char *group[CGROUP_HIERARCHIES])
{
	AUTO_FILE file = open_text(root_fd, "proc/self/cgroup");
	AUTO_FREE char *line = NULL;
	size_t room = 0;

	if (!file)
		return errno == ENOENT ? 0 : -errno;
	while (getline(&line, &room, file) > 0) {
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(controllers + 1, ':') : NULL;
		bool is_in[CGROUP_HIERARCHIES] = {};

		if (!path)
			return -ENODATA;
		controllers++;
		*path++ = '\0';
		path[strcspn(path, "\n")] = '\0';
		is_in[CGROUP_V2] = !*controllers;
		is_in[CGROUP_V1_MEMORY] = list_has(controllers, "memory");
		is_in[CGROUP_V1_HUGETLB] = list_has(controllers, "hugetlb");
		for (unsigned int h = 0; h < CGROUP_HIERARCHIES; h++) {
			if (!is_in[h] || group[h])
				continue;
			group[h] = strdup(path);
			if (!group[h])
				return -ENOMEM;
		}
	}
	return 0;
}

/* What of a group's path lies below a mount that shows the hierarchy from mount_root on; NULL: the
 * group is not below it. */
static const char *below_mount(const char *group, const char *mount_root)
{
	size_t n = strlen(mount_root);

	if (!strcmp(mount_root, "/"))
		return group;
	if (strncmp(group, mount_root, n) || (group[n] && group[n] != '/'))
		return NULL;
	return group + n;
}

struct mount_line {
	char *root, *point, *type, *options;
};

/* "36 35 98:0 /root /point rw,noatime [optional...] - type source options" */
static bool parse_mount_line(char *line, struct mount_line *ret)
{
	struct mount_line mount = {};
	char *rest = line, *word;
	unsigned int n = 0;

	line[strcspn(line, "\n")] = '\0';
	while ((word = strsep(&rest, " "))) {
		n++;
		if (n == 4)
			mount.root = word;
		else if (n == 5)
			mount.point = word;
		else if (n > 6 && !strcmp(word, "-"))
			break;
	}
	mount.type = strsep(&rest, " ");
	strsep(&rest, " ");
	mount.options = strsep(&rest, " ");
	if (!mount.options)
		return false;
	text_unescape(mount.root);
	text_unescape(mount.point);
	*ret = mount;
	return true;
}

static void note_place(struct cgroup_place *place, enum cgroup_hierarchy h, const char *group,
		       const struct mount_line *mount)
{
	const char *below = below_mount(group, mount->root);
	/* Relative to the root directory: without the first slash. */
	const char *point = mount->point + strspn(mount->point, "/");
	int n;

	if (!below || *place->dir[h].path)
		return;
	if (!strcmp(below, "/"))
		below = "";
	n = snprintf(place->dir[h].path, PATH_MAX, "%s%s", *point ? point : ".", below);
	/* Names that long cannot be opened either. */
	if (n < 0 || n >= PATH_MAX) {
		place->dir[h].path[0] = '\0';
		return;
	}
	place->dir[h].mount_length = *point ? strlen(point) : 1;
}

int cgroup_find(int root_fd, struct cgroup_place *ret)
{
	static const char *const controllers[] = {
		[CGROUP_V1_MEMORY] = "memory",
		[CGROUP_V1_HUGETLB] = "hugetlb",
	};
	char *group[CGROUP_HIERARCHIES] = {};
	AUTO_FILE file = NULL;
	AUTO_FREE char *line = NULL;
	size_t room = 0;
	int r;

	memset(ret, 0, sizeof(*ret));
	r = read_groups(root_fd, group);
	if (r < 0)
		goto out;
	file = open_text(root_fd, "proc/self/mountinfo");
	if (!file) {
		r = errno == ENOENT ? 0 : -errno;
		goto out;
	}
	while (getline(&line, &room, file) > 0) {
		struct mount_line mount;

		if (!parse_mount_line(line, &mount)) {
			r = -ENODATA;
			goto out;
		}
		if (!strcmp(mount.type, "cgroup2") && group[CGROUP_V2]) {
			note_place(ret, CGROUP_V2, group[CGROUP_V2], &mount);
			ret->memory_counts_hugetlb |=
				list_has(mount.options, "memory_hugetlb_accounting");
		}
		if (strcmp(mount.type, "cgroup"))
			continue;
		for (unsigned int h = CGROUP_V1_MEMORY; h <= CGROUP_V1_HUGETLB; h++) {
			if (group[h] && list_has(mount.options, controllers[h]))
				note_place(ret, h, group[h], &mount);
		}
	}
out:
	for (unsigned int h = 0; h < CGROUP_HIERARCHIES; h++)
		free(group[h]);
	return r;
}

bool cgroup_place_equal(const struct cgroup_place *a, const struct cgroup_place *b)
{
	for (unsigned int h = 0; h < CGROUP_HIERARCHIES; h++) {
		if (strcmp(a->dir[h].path, b->dir[h].path))
			return false;
	}
	return a->memory_counts_hugetlb == b->memory_counts_hugetlb;
}

/* Adds the pair of files where both are there. */
static int add_level(int dir_fd, const char *prefix, const char *limit_name, const char *usage_name,
		     struct cgroup_limits *limits)
{
	char name[64];
	AUTO_FD limit_fd = -1;
	AUTO_FD usage_fd = -1;

	snprintf(name, sizeof(name), "%s.%s", prefix, limit_name);
	limit_fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (limit_fd < 0)
		return errno == ENOENT ? 0 : -errno;
	snprintf(name, sizeof(name), "%s.%s", prefix, usage_name);
	usage_fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (usage_fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (limits->n_levels == CGROUP_LEVELS_MAX)
		return -ENODATA;
	limits->level[limits->n_levels].limit_fd = TAKE_FD(limit_fd);
	limits->level[limits->n_levels].usage_fd = TAKE_FD(usage_fd);
	limits->n_levels++;
	return 0;
}

/* Every level of one hierarchy, from the process's own group up to the mount point. */
static int add_hierarchy(int root_fd, const struct cgroup_place *place, enum cgroup_hierarchy h,
			 const char *prefix, struct cgroup_limits *limits)
{
	size_t mount_length = place->dir[h].mount_length;
	size_t length = strlen(place->dir[h].path);
	char path[PATH_MAX];

	if (!length)
		return 0;
	memcpy(path, place->dir[h].path, length + 1);
	for (;;) {
		AUTO_FD dir_fd = openat(root_fd, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		int r = 0;

		if (dir_fd < 0)
			return errno == ENOENT ? 0 : -errno;
		if (h == CGROUP_V2) {
			r = add_level(dir_fd, prefix, "max", "current", limits);
			/* Above `high` the kernel slows a process down instead of failing it. */
			if (!r)
				r = add_level(dir_fd, prefix, "high", "current", limits);
		} else {
			r = add_level(dir_fd, prefix, "limit_in_bytes", "usage_in_bytes", limits);
		}
		if (r < 0)
			return r;
		while (length > mount_length && path[length - 1] != '/')
			length--;
		if (length <= mount_length)
			return 0;
		path[--length] = '\0';
	}
}

/* As the kernel names its files: "2MB", "1GB", "64KB". */
static void format_prefix(uint64_t page_bytes, char buf[32])
{
	if (!page_bytes)
		snprintf(buf, 32, "memory");
	else if (page_bytes >= 1ULL << 30)
		snprintf(buf, 32, "hugetlb.%lluGB", (unsigned long long)page_bytes >> 30);
	else if (page_bytes >= 1ULL << 20)
		snprintf(buf, 32, "hugetlb.%lluMB", (unsigned long long)page_bytes >> 20);
	else
		snprintf(buf, 32, "hugetlb.%lluKB", (unsigned long long)page_bytes >> 10);
}

int cgroup_limits_open(int root_fd, const struct cgroup_place *place, uint64_t page_bytes,
		       struct cgroup_limits *ret)
{
	char prefix[32];
	int r;

	ret->n_levels = 0;
	format_prefix(page_bytes, prefix);
	r = add_hierarchy(root_fd, place, CGROUP_V2, prefix, ret);
	if (!r)
		r = add_hierarchy(root_fd, place, page_bytes ? CGROUP_V1_HUGETLB : CGROUP_V1_MEMORY,
				  prefix, ret);
	if (!r && page_bytes && place->memory_counts_hugetlb)
		r = add_hierarchy(root_fd, place, CGROUP_V2, "memory", ret);
	if (r < 0)
		cgroup_limits_close(ret);
	return r;
}

void cgroup_limits_close(struct cgroup_limits *limits)
{
	for (unsigned int i = 0; i < limits->n_levels; i++) {
		close_fd(limits->level[i].limit_fd);
		close_fd(limits->level[i].usage_fd);
	}
	limits->n_levels = 0;
}

int cgroup_limits_read(const struct cgroup_limits *limits, uint64_t *ret_bytes)
{
	uint64_t headroom_bytes = UNLIMITED;

	for (unsigned int i = 0; i < limits->n_levels; i++) {
		uint64_t limit_bytes, usage_bytes, left_bytes;
		char text[32];
		ssize_t n = pread_text(limits->level[i].limit_fd, text, sizeof(text));

		if (n < 0)
			return (int)n;
		if (!strcmp(text, "max"))
			continue;
		if (parse_u64(text, &limit_bytes) < 0)
			return -ENODATA;
		if (limit_bytes >= LIMIT_NONE_BYTES)
			continue;
		n = pread_text(limits->level[i].usage_fd, text, sizeof(text));
		if (n < 0)
			return (int)n;
		if (parse_u64(text, &usage_bytes) < 0)
			return -ENODATA;
		left_bytes = limit_bytes > usage_bytes ? limit_bytes - usage_bytes : 0;
		if (left_bytes < headroom_bytes)
			headroom_bytes = left_bytes;
	}
	*ret_bytes = headroom_bytes;
	return 0;
}
