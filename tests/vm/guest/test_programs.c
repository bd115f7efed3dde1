/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: prezero and prezerod on the real kernel file.
 * Guarantees: what the programs say of the pages is compared with what the kernel says.
 */
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PREZERO "/bin/prezero"
#define PREZEROD "/bin/prezerod"
#define OUTPUT "/tmp/output"
#define CONFIG "/tmp/prezerod.conf"
#define RUNTIME "/run/prezero"
#define PATIENCE_MS 20000.0
#define QUIET_MS 1500.0

static void need_programs(void)
{
	if (access(PREZERO, X_OK) || access(PREZEROD, X_OK))
		skip("prezero and prezerod were not built when the guest was packed");
}

/* Starts a program with its output in a file of its own. */
static int start(const char *const *arguments)
{
	int pid = fork();

	require(pid >= 0, "fork: %s", strerror(errno));
	if (!pid) {
		int fd = open(OUTPUT, O_WRONLY | O_CREAT | O_TRUNC, 0600);

		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
		execv(arguments[0], (char *const *)arguments);
		_exit(127);
	}
	return pid;
}

static const char *output(void)
{
	static char text[8192];
	int fd = open(OUTPUT, O_RDONLY | O_CLOEXEC);
	ssize_t length = read(fd, text, sizeof(text) - 1);

	close(fd);
	text[length > 0 ? length : 0] = '\0';
	return text;
}

static int run(const char *const *arguments)
{
	int pid = start(arguments), status = 0;

	require(waitpid(pid, &status, 0) == pid, "waitpid: %s", strerror(errno));
	return status;
}

/* A number in the program's JSON. */
static long member(const char *name)
{
	char key[32];
	const char *at;

	snprintf(key, sizeof(key), "\"%s\": ", name);
	at = strstr(output(), key);
	return at ? strtol(at + strlen(key), NULL, 10) : -1;
}

/* ---- prezero zero ---- */

static void zero_command(const struct page_size *size)
{
	const char *const all[] = {PREZERO, "zero",	 "max", "--page", size->name, "--node",
				   "0",	    "--threads", "2",	"--json", NULL};
	const char *const two[] = {PREZERO, "zero", "2", "--page", size->name, "--json", NULL};
	long dirty = zeroable(size, 0), others = zeroable_all(size) - dirty;
	int status;

	need_programs();
	status = run(all);
	check(!status, "prezero zero ended with %#x: %s", status, output());
	check(!zeroable(size, 0), "zeroable on node 0: %ld of %ld", zeroable(size, 0), dirty);
	check(zeroable_all(size) == others, "other nodes: %ld dirty, were %ld", zeroable_all(size),
	      others);
	check(member("pages") == dirty, "it says %ld pages of %ld: %s", member("pages"), dirty,
	      output());
	note("%s", output());

	status = run(all);
	check(!status && member("pages") == 0, "nothing to do ended with %#x: %s", status,
	      output());
	check_pool_zero(size, "zeroed by prezero zero"); /* leaves all of them dirty */

	status = run(two);
	check(!status && member("pages") == 2, "two pages: %#x: %s", status, output());
	check(zeroable_all(size) == dirty + others - 2, "zeroable: %ld of %ld", zeroable_all(size),
	      dirty + others);
}

/* In the middle of a page that takes long, as Ctrl-C does: the second one, of whatever node. */
static void zero_command_stop(const struct page_size *size)
{
	const char *const all[] = {PREZERO,	"zero", "max",	  "--page", size->name,
				   "--threads", "1",	"--json", NULL};
	long dirty = zeroable_all(size), left;
	double began = now_ms(), first_ms;
	int pid, status = 0;

	need_programs();
	if (dirty < 2)
		skip("it takes two pages, there are %ld", dirty);
	pid = start(all);
	while (zeroable_all(size) == dirty && now_ms() - began < PATIENCE_MS)
		sleep_ms(1);
	first_ms = now_ms() - began;
	left = zeroable_all(size);
	sleep_ms(5);
	began = now_ms();
	kill(pid, SIGINT);
	waitpid(pid, &status, 0);
	note("first page after %.0f ms, ended %.1f ms after SIGINT: %s", first_ms, now_ms() - began,
	     output());
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT, "it ended with %#x: %s", status,
	      output());
	check(left > 0 && zeroable_all(size) == left,
	      "the page under way: %ld dirty at SIGINT, %ld after", left, zeroable_all(size));
	check(member("pages") == dirty - left, "it says %ld pages of %ld", member("pages"),
	      dirty - left);
	check(strstr(output(), "\"stopped\": true"), "it does not say so: %s", output());
}

/* ---- prezerod with [clean] ---- */

static int start_daemon(const char *config)
{
	const char *const arguments[] = {PREZEROD,	  "--config", CONFIG,
					 "--runtime-dir", RUNTIME,    NULL};
	int fd = open(CONFIG, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	require(write(fd, config, strlen(config)) == (ssize_t)strlen(config), "configuration: %s",
		strerror(errno));
	close(fd);
	return start(arguments);
}

static void reload_daemon(int pid, const char *config)
{
	int fd = open(CONFIG, O_WRONLY | O_TRUNC | O_CLOEXEC);

	require(write(fd, config, strlen(config)) == (ssize_t)strlen(config), "configuration: %s",
		strerror(errno));
	close(fd);
	kill(pid, SIGHUP);
}

static void stop_daemon(int pid)
{
	const char *const release[] = {PREZEROD, "--runtime-dir", RUNTIME, "--release", NULL};
	int status = 0;

	note("%.230s", output());
	kill(pid, SIGTERM);
	waitpid(pid, &status, 0);
	check(!status, "prezerod ended with %#x: %s", status, output());
	status = run(release);
	check(!status, "--release ended with %#x: %s", status, output());
}

static bool wait_dirty(const struct page_size *size, long least, long most, const char *when)
{
	double began = now_ms();

	while ((zeroable_all(size) < least || zeroable_all(size) > most) &&
	       now_ms() - began < PATIENCE_MS)
		sleep_ms(5);
	note("%s: after %.0f ms", when, now_ms() - began);
	return check(zeroable_all(size) >= least && zeroable_all(size) <= most,
		     "%s: %ld dirty, wanted %ld to %ld: %s", when, zeroable_all(size), least, most,
		     output());
}

/* How often the threads of a process went to sleep by themselves. */
static long count_wakeups(int pid)
{
	static const char field[] = "voluntary_ctxt_switches:";
	char path[32], line[128];
	struct dirent *entry;
	long count = 0;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	require(tasks != NULL, "%s: %s", path, strerror(errno));
	while ((entry = readdir(tasks))) {
		char name[sizeof(path) + sizeof(entry->d_name) + 8];
		FILE *status;

		snprintf(name, sizeof(name), "%s/%s/status", path, entry->d_name);
		status = entry->d_name[0] == '.' ? NULL : fopen(name, "re");
		while (status && fgets(line, sizeof(line), status))
			if (!strncmp(line, field, strlen(field)))
				count += strtol(line + strlen(field), NULL, 10);
		if (status)
			fclose(status);
	}
	closedir(tasks);
	return count;
}

static void clean_daemon(const struct page_size *size)
{
	long wakeups;
	int pid;

	need_programs();
	pid = start_daemon("[clean]\n2M = max\n");
	wait_dirty(size, 0, 0, "at the start");
	sleep_ms(500);
	wakeups = count_wakeups(pid);
	sleep_ms(QUIET_MS);
	check(count_wakeups(pid) == wakeups, "it woke up %ld times with nothing to do",
	      count_wakeups(pid) - wakeups);

	for (int round = 0; round < 3; round++) {
		dirty_pool(size);
		if (!wait_dirty(size, 0, 0, "made dirty again"))
			break;
	}

	/* A target of less: pages that were taken and came back are dirty, and stay so. */
	reload_daemon(pid, "[clean]\n2M@0 = 20M\n");
	sleep_ms(200);
	dirty_pool(size);
	wait_dirty(size, pool_free(size) - 10, pool_free(size) - 10, "with a target of 10 pages");
	stop_daemon(pid);
}

/* Nobody tells the daemon that the module came or went but the kernel. */
static void clean_daemon_module(const struct page_size *size)
{
	const char *const all[] = {PREZERO, "zero", "max", "--page", size->name, NULL};
	double began;
	int pid, result, status;

	need_programs();
	require(!module_unload(), "removing the module");
	status = run(all);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 3 && strstr(output(), "modprobe prezero"),
	      "prezero zero without the file: %#x: %s", status, output());
	pid = start_daemon("[clean]\n2M = max\n");
	for (began = now_ms(); !strstr(output(), "waits") && now_ms() - began < PATIENCE_MS;)
		sleep_ms(10);
	check(strstr(output(), "[clean] 2M@0 waits") != NULL, "it does not tell: %s", output());
	for (int round = 0; round < 3; round++) {
		result = module_load();
		require(!result, "loading the module: %s", strerror(-result));
		wait_dirty(size, 0, 0, "module loaded");
		dirty_pool(size);
		wait_dirty(size, 0, 0, "made dirty again");
		if (round)
			dirty_pool(size); /* removed while it zeroes */
		result = module_unload();
		require(!result, "removing the module: %s: %s", strerror(-result), output());
	}
	check(kill(pid, 0) == 0, "prezerod is gone: %s", output());
	result = module_load();
	require(!result, "loading the module: %s", strerror(-result));
	wait_dirty(size, 0, 0, "module loaded for good");
	stop_daemon(pid);
}

static const struct test tests[] = {
	{.name = "zero_command", .run = zero_command, .sizes = SIZE_BOTH},
	{.name = "zero_command_stop", .run = zero_command_stop, .sizes = SIZE_1G},
	{.name = "clean_daemon", .run = clean_daemon, .sizes = SIZE_2M},
	{.name = "clean_daemon_module",
	 .run = clean_daemon_module,
	 .sizes = SIZE_2M,
	 .unloaded = true},
};

const struct test_group group_programs = {tests, ARRAY_SIZE(tests)};
