/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/host_state.c - see host_state.h.
 */
#include "unit.h"

#include "host_state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"

#define LOCK_FILE "/run/lock/prezero-tests.lock"
#define SETTINGS_MAX 1024
#define PAGE_SIZES_MAX 16
#define SETTING_PATH_MAX 160
#define SETTLE_TRIES 500
#define PATTERN 0xa5a5a5a5a5a5a5a5ULL
#define MOUNTS_MAX 16
#define STATES_TO_LIST 3

struct setting {
	char *path;
	char text[64];
};

/* What of a huge page size is in somebody's hands: may get less meanwhile, but not more. */
struct in_use {
	char *directory;
	uint64_t used_pages, reserved_pages;
};

static struct setting setting[SETTINGS_MAX];
static unsigned int n_settings;
static struct in_use in_use[PAGE_SIZES_MAX];
static unsigned int n_in_use;
static bool is_entered;
static int lock_fd = -1, keeper_fd = -1;
static pid_t keeper;
static char base_dir[] = "/tmp/prezero-unit-XXXXXX";
static unsigned int n_mounts;

static const char *const setting_globs[] = {
	"/sys/devices/system/node/node*/hugepages/*/nr_hugepages",
	"/sys/kernel/mm/hugepages/*/nr_overcommit_hugepages",
	"/sys/kernel/mm/transparent_hugepage/enabled",
	"/sys/kernel/mm/transparent_hugepage/shmem_enabled",
	"/sys/kernel/mm/transparent_hugepage/defrag",
};

/* One a size. */
static const char pages_glob[] = "/sys/kernel/mm/hugepages/*";

/* "always [madvise] never" is what is in brackets. */
static bool read_text(const char *path, char text[64])
{
	FILE *file = fopen(path, "re");
	char line[256], *open_bracket, *close_bracket;
	bool ok;

	if (!file)
		return false;
	ok = fgets(line, sizeof(line), file);
	fclose(file);
	if (!ok)
		return false;
	line[strcspn(line, "\n")] = '\0';
	open_bracket = strchr(line, '[');
	close_bracket = open_bracket ? strchr(open_bracket, ']') : NULL;
	if (close_bracket) {
		*close_bracket = '\0';
		memmove(line, open_bracket + 1, strlen(open_bracket + 1) + 1);
	}
	snprintf(text, 64, "%.63s", line);
	return true;
}

static uint64_t read_number(const char *directory, const char *file)
{
	char path[SETTING_PATH_MAX + 32], text[64];

	snprintf(path, sizeof(path), "%.*s/%s", SETTING_PATH_MAX, directory, file);
	return read_text(path, text) ? strtoull(text, NULL, 10) : 0;
}

/* What is configured: nr_hugepages less the surplus pages, which are somebody's for a while. */
static bool read_setting(const char *path, char text[64])
{
	const char *file = strrchr(path, '/') + 1;
	char directory[SETTING_PATH_MAX];

	if (strcmp(file, "nr_hugepages") != 0)
		return read_text(path, text);
	snprintf(directory, sizeof(directory), "%.*s", (int)(file - 1 - path), path);
	snprintf(text, 64, "%" PRIu64,
		 read_number(directory, file) - read_number(directory, "surplus_hugepages"));
	return true;
}

static bool write_setting(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");
	bool ok;

	if (!file)
		return false;
	ok = fputs(text, file) >= 0;
	return fclose(file) == 0 && ok;
}

static void add_setting(const char *path)
{
	if (n_settings < SETTINGS_MAX && read_setting(path, setting[n_settings].text))
		setting[n_settings++].path = strdup(path);
}

static void look_in_use(const char *directory, uint64_t *ret_used, uint64_t *ret_reserved)
{
	*ret_used = read_number(directory, "nr_hugepages") -
		    read_number(directory, "free_hugepages");
	*ret_reserved = read_number(directory, "resv_hugepages");
}

static void add_in_use(const char *directory)
{
	struct in_use *u = &in_use[n_in_use];

	if (n_in_use == PAGE_SIZES_MAX)
		return;
	u->directory = strdup(directory);
	look_in_use(directory, &u->used_pages, &u->reserved_pages);
	n_in_use++;
}

static void for_each_path(const char *pattern, void (*add)(const char *path))
{
	glob_t found = {0};

	if (glob(pattern, 0, NULL, &found) == 0)
		for (size_t i = 0; i < found.gl_pathc; i++)
			add(found.gl_pathv[i]);
	globfree(&found);
}

static void put_back(void)
{
	char now[64];

	for (unsigned int i = 0; i < n_settings; i++)
		if (read_setting(setting[i].path, now) && strcmp(now, setting[i].text) != 0)
			write_setting(setting[i].path, setting[i].text);
}

static unsigned int count_differences(bool say)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < n_settings; i++) {
		char now[64];

		if (!read_setting(setting[i].path, now) || !strcmp(now, setting[i].text))
			continue;
		n++;
		if (say)
			print_error("# %s: %s -> %s\n", setting[i].path, setting[i].text, now);
	}
	for (unsigned int i = 0; i < n_in_use; i++) {
		const struct in_use *was = &in_use[i];
		uint64_t used_pages, reserved_pages;

		look_in_use(was->directory, &used_pages, &reserved_pages);
		if (used_pages <= was->used_pages && reserved_pages <= was->reserved_pages)
			continue;
		n++;
		if (say)
			print_error("# %s: used %" PRIu64 " -> %" PRIu64 ", reserved %" PRIu64
				    " -> %" PRIu64 "\n",
				    was->directory, was->used_pages, used_pages,
				    was->reserved_pages, reserved_pages);
	}
	return n;
}

static void mount_path(char path[64], unsigned int index)
{
	snprintf(path, 64, "%s/%u", base_dir, index);
}

/* The mounts are gone with their namespace. */
static void remove_base_dir(void)
{
	char path[64];

	for (unsigned int i = 0; i < MOUNTS_MAX; i++) {
		mount_path(path, i);
		rmdir(path);
	}
	rmdir(base_dir);
}

/* Puts the host back when the test dies; it holds the lock until then. */
static int start_keeper(void)
{
	int fds[2];
	char done;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -1;
	keeper = fork();
	if (keeper < 0)
		return -1;
	if (keeper == 0) {
		setsid();
		close(fds[1]);
		if (read(fds[0], &done, 1) != 1) {
			put_back();
			remove_base_dir();
		}
		_exit(0);
	}
	close(fds[0]);
	keeper_fd = fds[1];
	return 0;
}

int host_enter(void **state)
{
	(void)state;
	if (geteuid() != 0)
		return 0;
	lock_fd = open(LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (lock_fd < 0 || flock(lock_fd, LOCK_EX) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(setting_globs); i++)
		for_each_path(setting_globs[i], add_setting);
	for_each_path(pages_glob, add_in_use);
	if (!mkdtemp(base_dir) || start_keeper() < 0)
		return -1;
	if (chmod(base_dir, 0755) < 0 || unshare(CLONE_NEWNS) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	is_entered = true;
	return 0;
}

int host_leave(void **state)
{
	unsigned int n;

	(void)state;
	if (!is_entered)
		return 0;
	put_back();
	/* Some pages come back a little later, from a process that is just dying. */
	for (int i = 0; i < SETTLE_TRIES && count_differences(false); i++)
		usleep(10000);
	n = count_differences(true);
	/* Of a test that failed midway. */
	while (n_mounts > 0) {
		char path[64];

		mount_path(path, --n_mounts);
		umount2(path, MNT_DETACH);
		rmdir(path);
	}
	rmdir(base_dir);
	(void)!write(keeper_fd, "", 1);
	waitpid(keeper, NULL, 0);
	close(keeper_fd);
	close(lock_fd);
	for (unsigned int i = 0; i < n_settings; i++)
		free(setting[i].path);
	for (unsigned int i = 0; i < n_in_use; i++)
		free(in_use[i].directory);
	n_settings = n_in_use = 0;
	is_entered = false;
	return n ? -1 : 0;
}

void host_required(void)
{
	if (is_entered)
		return;
	print_message("# needs root: it mounts and changes nr_hugepages\n");
	skip();
}

static void page_file(char path[SETTING_PATH_MAX], uint64_t page_bytes, const char *what)
{
	snprintf(path, SETTING_PATH_MAX,
		 "/sys/devices/system/node/node0/hugepages/hugepages-%" PRIu64 "kB/%s",
		 page_bytes >> 10, what);
}

uint64_t host_count(uint64_t page_bytes, const char *what)
{
	char path[SETTING_PATH_MAX], text[64];

	page_file(path, page_bytes, what);
	return read_text(path, text) ? strtoull(text, NULL, 10) : 0;
}

uint64_t host_reserved_pages(uint64_t page_bytes)
{
	char path[SETTING_PATH_MAX], text[64];

	snprintf(path, sizeof(path),
		 "/sys/kernel/mm/hugepages/hugepages-%" PRIu64 "kB/resv_hugepages",
		 page_bytes >> 10);
	return read_text(path, text) ? strtoull(text, NULL, 10) : 0;
}

void host_set_pages(uint64_t page_bytes, uint64_t n_pages)
{
	char path[SETTING_PATH_MAX], text[64];

	page_file(path, page_bytes, "nr_hugepages");
	snprintf(text, sizeof(text), "%" PRIu64, n_pages);
	assert_true(write_setting(path, text));
}

void host_need_pages(uint64_t page_bytes, unsigned int n_pages)
{
	uint64_t free_pages = host_count(page_bytes, "free_hugepages");
	char path[SETTING_PATH_MAX];

	host_required();
	page_file(path, page_bytes, "nr_hugepages");
	if (access(path, F_OK) < 0) {
		if (page_bytes == 1ULL << 30)
			print_message("# no 1G pages on this machine\n");
		else
			print_message("# no %" PRIu64 "K pages on this machine\n",
				      page_bytes >> 10);
		skip();
	}
	if (free_pages < n_pages)
		host_set_pages(page_bytes,
			       host_count(page_bytes, "nr_hugepages") + n_pages - free_pages);
	if (host_count(page_bytes, "free_hugepages") < n_pages) {
		print_message("# the host has no %u free huge pages to give\n", n_pages);
		skip();
	}
}

struct page_size host_page(enum page_kind kind)
{
	struct page_size page = {.kind = kind, .bytes = HUGE_2M};
	char text[64];

	if (kind == PAGE_BASE)
		page.bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	if (kind == PAGE_THP &&
	    read_text("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", text))
		page.bytes = strtoull(text, NULL, 10);
	return page;
}

int host_mount(struct page_size page, uint64_t limit_bytes)
{
	char path[64], options[128];
	int fd;

	assert_true(n_mounts < MOUNTS_MAX);
	mount_path(path, n_mounts);
	assert_int_equal(mkdir(path, 0755), 0);
	if (page.kind == PAGE_HUGETLB)
		snprintf(options, sizeof(options),
			 "pagesize=%" PRIu64 "K,size=%" PRIu64 ",mode=0755", page.bytes >> 10,
			 limit_bytes);
	else
		snprintf(options, sizeof(options), "huge=%s,size=%" PRIu64 ",mode=0755",
			 page.kind == PAGE_THP ? "always" : "never", limit_bytes);
	assert_int_equal(mount("prezero-test", path,
			       page.kind == PAGE_HUGETLB ? "hugetlbfs" : "tmpfs",
			       MS_NOSUID | MS_NODEV | MS_NOEXEC, options),
			 0);
	n_mounts++;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static bool is_empty(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *item;
	bool empty = true;

	if (!dir)
		return true; /* there is no such directory */
	while ((item = readdir(dir)))
		if (item->d_name[0] != '.') {
			print_error("# left behind: %s\n", item->d_name);
			empty = false;
		}
	closedir(dir);
	return empty;
}

static void unmount(int dir_fd, uint64_t lost_bytes)
{
	static const char *const states[STATES_TO_LIST] = {"filling", "ready", "lent"};
	char path[64];
	bool empty = true;

	for (int i = 0; i < STATES_TO_LIST; i++) {
		int fd = openat(dir_fd, states[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		empty = (fd < 0 || is_empty(fd)) && empty;
		if (fd >= 0)
			close(fd);
	}
	assert_true(empty);
	for (int i = 0; i < SETTLE_TRIES && host_used_bytes(dir_fd) > lost_bytes; i++)
		usleep(10000);
	assert_in_range(host_used_bytes(dir_fd), 0, lost_bytes);
	close(dir_fd);
	mount_path(path, --n_mounts);
	assert_int_equal(umount(path), 0);
	assert_int_equal(rmdir(path), 0);
}

void host_unmount(int dir_fd)
{
	unmount(dir_fd, 0);
}

void host_unmount_short_of(int dir_fd, struct page_size page)
{
	unmount(dir_fd, page.kind == PAGE_HUGETLB ? page.bytes : 0);
}

uint64_t host_used_bytes(int dir_fd)
{
	struct statfs fs;

	assert_int_equal(fstatfs(dir_fd, &fs), 0);
	return (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
}

unsigned int count_fds(void)
{
	DIR *fds = opendir("/proc/self/fd");
	unsigned int n = 0;

	assert_non_null(fds);
	while (readdir(fds))
		n++;
	closedir(fds);
	return n;
}

bool oracle_is_full(int fd, uint64_t bytes)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (uint64_t)st.st_size == bytes &&
	       (uint64_t)st.st_blocks * 512 >= bytes;
}

static bool is_all(int fd, uint64_t bytes, uint64_t value)
{
	uint64_t *word = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	bool same = true;

	if (word == MAP_FAILED)
		return false;
	for (uint64_t i = 0; i < bytes / sizeof(*word) && same; i++)
		same = word[i] == value;
	munmap(word, bytes);
	return same;
}

bool oracle_is_zero(int fd, uint64_t bytes)
{
	return oracle_is_full(fd, bytes) && is_all(fd, bytes, 0);
}

bool oracle_is_dirty(int fd, uint64_t bytes)
{
	return is_all(fd, bytes, PATTERN);
}

void oracle_dirty(int fd, uint64_t bytes)
{
	uint64_t *word = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (word == MAP_FAILED)
		abort();
	for (uint64_t i = 0; i < bytes / sizeof(*word); i++)
		word[i] = PATTERN;
	munmap(word, bytes);
}
