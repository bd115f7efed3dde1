/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bench/guard.c - whatever the benchmark borrows from the host goes back. */
#include "bench/guard.h"

#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/io.h"
#include "bench/process.h"

#define LOCK_FILE GUARD_DIR "/lock"
#define RECORD_FILE \
	GUARD_DIR "/borrowed" /* a line a loan: node page_bytes before_pages most_pages */
#define PATH_TEXT_MAX 160

static void say(const char *format, ...) PRINTF(1, 2);
static void say(const char *format, ...)
{
	va_list args;

	fputs("prezero bench: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

static const char *pages_path(char buf[PATH_TEXT_MAX], int node, uint64_t page_bytes,
			      const char *file)
{
	snprintf(buf, PATH_TEXT_MAX,
		 "/sys/devices/system/node/node%d/hugepages/hugepages-%" PRIu64 "kB/%s", node,
		 page_bytes >> 10, file);
	return buf;
}

static int write_pages(int node, uint64_t page_bytes, uint64_t pages)
{
	char path[PATH_TEXT_MAX], text[24];

	snprintf(text, sizeof(text), "%" PRIu64, pages);
	return write_file_at(AT_FDCWD, pages_path(path, node, page_bytes, "nr_hugepages"), text);
}

static int note_loan(int node, uint64_t page_bytes, uint64_t before_pages, uint64_t most_pages)
{
	AUTO_FILE record = fopen(RECORD_FILE, "ae");

	if (!record)
		return -errno;
	if (fprintf(record, "%d %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", node, page_bytes,
		    before_pages, most_pages) < 0 ||
	    fflush(record) == EOF)
		return -EIO;
	return 0;
}

int guard_reserve(int node, uint64_t page_bytes, uint64_t free_pages, uint64_t *ret_grown)
{
	char path[PATH_TEXT_MAX];
	uint64_t total, now_free, grown_total;
	int r;

	r = read_u64_at(AT_FDCWD, pages_path(path, node, page_bytes, "nr_hugepages"), &total);
	if (r == 0)
		r = read_u64_at(AT_FDCWD, pages_path(path, node, page_bytes, "free_hugepages"),
				&now_free);
	if (r < 0)
		return r;
	*ret_grown = 0;
	if (now_free >= free_pages)
		return 0;

	r = note_loan(node, page_bytes, total, total + free_pages - now_free);
	if (r == 0)
		r = write_pages(node, page_bytes, total + free_pages - now_free);
	if (r == 0)
		r = read_u64_at(AT_FDCWD, pages_path(path, node, page_bytes, "nr_hugepages"),
				&grown_total);
	if (r < 0)
		return r;
	*ret_grown = grown_total > total ? grown_total - total : 0;
	return grown_total < total + free_pages - now_free ? -ENOMEM : 0;
}

static void put_pages_back(int node, uint64_t page_bytes, uint64_t before_pages,
			   uint64_t most_pages)
{
	char path[PATH_TEXT_MAX];
	uint64_t pages;
	int r;

	pages_path(path, node, page_bytes, "nr_hugepages");
	r = read_u64_at(AT_FDCWD, path, &pages);
	if (r == 0 && pages > before_pages && pages <= most_pages)
		r = write_pages(node, page_bytes, before_pages);
	else if (r == 0 && pages != before_pages)
		say("somebody else changed %s to %" PRIu64 " meanwhile: left alone", path, pages);
	if (r < 0)
		say("cannot put %s back to %" PRIu64 ": %s", path, before_pages, strerror(-r));
}

static void put_loans_back(void)
{
	AUTO_FILE record = fopen(RECORD_FILE, "re");
	uint64_t page_bytes, before_pages, most_pages;
	int node;

	while (record && fscanf(record, "%d %" SCNu64 " %" SCNu64 " %" SCNu64, &node, &page_bytes,
				&before_pages, &most_pages) == 4)
		put_pages_back(node, page_bytes, before_pages, most_pages);
}

/* The private daemon is dead by now; its mounts and segments stand. */
static void release_segments(const char *prezerod)
{
	const char *const argv[] = {
		prezerod,    "--config", (char *)GUARD_CONFIG, "--runtime-dir", GUARD_RUNTIME_DIR,
		"--release", NULL};
	struct process release;
	char message[256];
	int status;

	if (access(GUARD_RUNTIME_DIR, F_OK) < 0 || process_start(argv, &release) < 0)
		return;
	status = process_wait(&release);
	process_messages(&release, message, sizeof(message));
	process_done(&release);
	if (status != 0)
		say("%s --release ended with status %d: %s", prezerod, status, message);
}

/* What --release could not unmount, one at a time since unmounting changes the list. */
static bool unmount_one(void)
{
	AUTO_FILE mounts = fopen("/proc/self/mounts", "re");
	char line[1024], where[512];

	while (mounts && fgets(line, sizeof(line), mounts))
		if (sscanf(line, "%*s %511s", where) == 1 &&
		    strncmp(where, GUARD_DIR "/", strlen(GUARD_DIR "/")) == 0)
			return umount2(where, MNT_DETACH) == 0;
	return false;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
	(void)info, (void)walk;
	if (remove(path) < 0)
		say("cannot remove %s%s: %s", path, type == FTW_DP ? "/" : "", strerror(errno));
	return 0;
}

static void put_back(const char *prezerod)
{
	release_segments(prezerod);
	while (unmount_one())
		;
	put_loans_back();
	unlink(RECORD_FILE);
}

/* The lock file goes with the directory, so what was locked must still be what stands there. */
static int take_lock(void)
{
	struct stat ours, theirs;

	for (;;) {
		AUTO_FD fd = -1;

		if (mkdir(GUARD_DIR, 0700) < 0 && errno != EEXIST)
			return -errno;
		fd = open(LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0 && errno == ENOENT)
			continue;
		if (fd < 0)
			return -errno;
		if (flock(fd, LOCK_EX | LOCK_NB) < 0)
			return errno == EWOULDBLOCK ? -EBUSY : -errno;
		if (fstat(fd, &ours) == 0 && stat(LOCK_FILE, &theirs) == 0 &&
		    ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev)
			return TAKE_FD(fd);
	}
}

static _Noreturn void run_body(int (*body)(void *arg), void *arg, const sigset_t *signals,
			       pid_t parent)
{
	int status;

	/* A default disposition is all the clean-up that the child needs: the parent does it. */
	sigprocmask(SIG_SETMASK, signals, NULL);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
		_exit(1);
	status = body(arg);
	fflush(NULL);
	_exit(status);
}

/* Until the child, and whatever it left behind, has ended. */
static int wait_for_all(pid_t child, const sigset_t *watched)
{
	int status = 0, child_status = 1, received = 0;
	pid_t pid;

	for (;;) {
		int signal_number;

		while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
			if (pid == child)
				child_status = WIFEXITED(status) ? WEXITSTATUS(status) :
								   128 + WTERMSIG(status);
		if (pid < 0)
			return received ? 128 + received : child_status;
		signal_number = sigwaitinfo(watched, NULL);
		if (signal_number > 0 && signal_number != SIGCHLD) {
			received = signal_number;
			kill(child, SIGKILL);
		}
	}
}

int guard_run(const char *prezerod, int (*body)(void *arg), void *arg)
{
	AUTO_FD lock_fd = take_lock();
	sigset_t watched, before;
	pid_t parent = getpid(), child;
	int status;

	if (lock_fd < 0)
		return lock_fd;

	/* From here on, signals wait until the host is as it was. */
	sigemptyset(&watched);
	sigaddset(&watched, SIGINT);
	sigaddset(&watched, SIGTERM);
	sigaddset(&watched, SIGHUP);
	sigaddset(&watched, SIGQUIT);
	sigaddset(&watched, SIGCHLD);
	sigprocmask(SIG_BLOCK, &watched, &before);

	if (access(RECORD_FILE, F_OK) == 0) {
		say("an earlier run was killed: putting back what it had borrowed");
		put_back(prezerod);
	}

	/* Whatever the child leaves behind when it dies becomes ours to wait for. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	fflush(NULL);
	child = fork();
	if (child == 0)
		run_body(body, arg, &before, parent);
	status = child < 0 ? -errno : wait_for_all(child, &watched);
	put_back(prezerod);
	nftw(GUARD_DIR, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return status;
}
