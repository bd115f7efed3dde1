/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: runs the planned tests one after the other and reports each on the result channel.
 * Guarantees: every planned test gets exactly one record; a test that hangs or crashes takes
 * nobody with it; pages that a test lost or left dirty fail that test, whatever it said itself.
 */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define CHANNEL "/dev/ttyS1"
#define PLAN "/plan"
#define NOTES_MAX 12
#define NOTE_BYTES 240
#define FIGURES_MAX 24
#define PLANNED_MAX 512
#define LIMIT_2M_S 90
#define LIMIT_1G_S 240
#define KILL_WAIT_MS 10000
#define SETTLE_MS 2000
#define EXIT_REQUIRE 99

/* Resizing comes late: should it lose gigantic pages, no other test fails for want of them. */
static const struct test_group *const groups[] = {
	&group_fault,	  &group_file,	   &group_move,	  &group_memory,   &group_hooks,
	&group_semantics, &group_pressure, &group_stress, &group_resize,   &group_figures,
	&group_reserve,	  &group_programs, &group_debug,  &group_selftest,
};

/* Shared by a test's processes. */
static struct verdict {
	int failed, skipped;
	int note_count, figure_count;
	char notes[NOTES_MAX][NOTE_BYTES];
	struct {
		char name[48];
		double value;
	} figures[FIGURES_MAX];
} * verdict;

double stress_s = 10;
static double patience = 1; /* by how much a kernel is slower than a stock one */
long pool_pages = 64, figure_pages = 64;

static int channel = STDOUT_FILENO;
static int sequence;

/* ---- the verdict ---- */

static void add_note(const char *format, va_list arguments)
{
	int slot = __atomic_fetch_add(&verdict->note_count, 1, __ATOMIC_RELAXED);

	if (slot < NOTES_MAX)
		vsnprintf(verdict->notes[slot], NOTE_BYTES, format, arguments);
}

void note(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	add_note(format, arguments);
	va_end(arguments);
}

bool check_at(bool ok, const char *file, int line, const char *format, ...)
{
	char place[NOTE_BYTES];
	va_list arguments;

	if (ok)
		return true;
	snprintf(place, sizeof(place), "%s:%d: %s",
		 strrchr(file, '/') ? strrchr(file, '/') + 1 : file, line, format);
	__atomic_store_n(&verdict->failed, 1, __ATOMIC_RELAXED);
	va_start(arguments, format);
	add_note(place, arguments);
	va_end(arguments);
	return false;
}

void test_exit(void)
{
	_exit(EXIT_REQUIRE);
}

void skip(const char *format, ...)
{
	va_list arguments;

	verdict->skipped = 1;
	va_start(arguments, format);
	add_note(format, arguments);
	va_end(arguments);
	_exit(0);
}

void figure(const char *name, double value)
{
	int slot = __atomic_fetch_add(&verdict->figure_count, 1, __ATOMIC_RELAXED);

	if (slot >= FIGURES_MAX)
		return;
	snprintf(verdict->figures[slot].name, sizeof(verdict->figures[slot].name), "%s", name);
	verdict->figures[slot].value = value;
}

int start_child(void (*work)(void *), void *argument)
{
	int pid = fork();

	require(pid >= 0, "fork: %s", strerror(errno));
	if (!pid) {
		work(argument);
		_exit(0);
	}
	return pid;
}

void wait_child(int pid, int expected_signal)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && (!WEXITSTATUS(status) || WEXITSTATUS(status) == EXIT_REQUIRE))
		return;
	if (WIFSIGNALED(status) && WTERMSIG(status) == expected_signal)
		return;
	check(false, "child %d ended with %s %d", pid, WIFSIGNALED(status) ? "signal" : "status",
	      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* ---- records ---- */

static void put_string(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c < 0x20 || c >= 0x7f)
			fprintf(out, "\\u%04x", c);
		else
			fputc(c, out);
	}
	fputc('"', out);
}

/* Writes one record: {"seq":n,"record":kind, then what the caller wrote to `body`}. */
static void emit(const char *kind, const char *body)
{
	char *line = NULL;
	int length = asprintf(&line, "{\"seq\":%d,\"record\":\"%s\"%s}\n", sequence++, kind, body);

	for (int done = 0; done < length;) {
		ssize_t written = write(channel, line + done, (size_t)(length - done));

		if (written <= 0)
			break;
		done += (int)written;
	}
	free(line);
	tcdrain(channel);
}

static void emit_start(const char *name)
{
	char body[160];

	snprintf(body, sizeof(body), ",\"test\":\"%s\"", name);
	emit("start", body);
}

static void emit_test(const char *name, const char *ending, double ms, char **log, int log_lines)
{
	char *body = NULL;
	size_t body_bytes;
	FILE *out = open_memstream(&body, &body_bytes);
	int count = verdict->note_count < NOTES_MAX ? verdict->note_count : NOTES_MAX;

	fprintf(out, ",\"test\":\"%s\",\"ending\":\"%s\",\"ms\":%.0f,\"notes\":[", name, ending,
		ms);
	for (int i = 0; i < count; i++) {
		fputs(i ? "," : "", out);
		put_string(out, verdict->notes[i]);
	}
	fputs("],\"kernel\":[", out);
	for (int i = 0; i < log_lines; i++) {
		fputs(i ? "," : "", out);
		put_string(out, log[i]);
	}
	fputs("]", out);
	fclose(out);
	emit("test", body);
	free(body);
	for (int i = 0; i < verdict->figure_count && i < FIGURES_MAX; i++) {
		char text[160];

		snprintf(text, sizeof(text), ",\"name\":\"%s\",\"value\":%.6g",
			 verdict->figures[i].name, verdict->figures[i].value);
		emit("figure", text);
	}
}

/* ---- the kernel's log ---- */

#define LOG_LINES_MAX 8

static const char *const log_alarms[] = {
	"WARNING:",
	"BUG:",
	"kernel BUG",
	"Oops",
	"general protection",
	"Bad page",
	"rcu: INFO",
	"INFO: task",
	"list_add corruption",
	"list_del corruption",
	"refcount_t:",
	"possible recursive",
	"suspected memory leaks",
	"INFO: trying to register",
	"sleeping function",
	"Bad rss-counter",
	"stuck for",
};

/* Takes what the kernel has logged since the last call; keeps the lines that mean trouble. */
static int read_alarms(int kmsg, char **lines)
{
	char record[4096];
	int count = 0;

	for (;;) {
		ssize_t length = read(kmsg, record, sizeof(record) - 1);
		char *text;

		if (length < 0 && errno == EPIPE)
			continue;
		if (length <= 0) {
			check(errno == EAGAIN, "the kernel's log: %s", strerror(errno));
			return count;
		}
		record[length] = '\0';
		text = strchr(record, ';');
		text = text ? text + 1 : record;
		text[strcspn(text, "\n")] = '\0';
		for (size_t i = 0; i < ARRAY_SIZE(log_alarms) && count < LOG_LINES_MAX; i++)
			if (strstr(text, log_alarms[i])) {
				lines[count++] = strdup(text);
				break;
			}
	}
}

/* ---- one test ---- */

struct snapshot {
	struct pool_count count[2][NODES_MAX];
	long reserved[2];
};

static const struct page_size *const sizes[] = {&page_2m, &page_1g};

static struct snapshot take_snapshot(void)
{
	struct snapshot now = {0};

	for (size_t s = 0; s < ARRAY_SIZE(sizes); s++) {
		char path[96];

		for (int node = 0; node < nodes; node++)
			now.count[s][node] = pool_count(sizes[s], node);
		snprintf(path, sizeof(path),
			 "/sys/kernel/mm/hugepages/hugepages-%zukB/resv_hugepages",
			 size_bytes(sizes[s]) >> 10);
		now.reserved[s] = file_read_number(path);
	}
	return now;
}

static bool same_snapshot(const struct snapshot *a, const struct snapshot *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static void check_conserved(const struct test *test, const struct snapshot *before)
{
	double deadline = now_ms() + SETTLE_MS;
	struct snapshot after = take_snapshot();

	/* The kernel gives some pages back from a work item of its own. */
	while (!same_snapshot(before, &after) && now_ms() < deadline) {
		sleep_ms(20);
		after = take_snapshot();
	}
	for (size_t s = 0; s < ARRAY_SIZE(sizes); s++) {
		check(before->reserved[s] == after.reserved[s], "%s reserved: %ld, was %ld",
		      sizes[s]->name, after.reserved[s], before->reserved[s]);
		for (int node = 0; node < nodes; node++) {
			const struct pool_count *was = &before->count[s][node];
			const struct pool_count *is = &after.count[s][node];
			long lost = was->nr - is->nr;
			long allowed = sizes[s] == &page_2m ? test->lost_pages : 0;

			check(lost >= 0 && lost <= allowed && was->free - is->free == lost &&
				      was->surplus == is->surplus,
			      "%s@%d not conserved: nr %ld -> %ld, free %ld -> %ld, "
			      "surplus %ld -> %ld",
			      sizes[s]->name, node, was->nr, is->nr, was->free, is->free,
			      was->surplus, is->surplus);
		}
	}
}

static void reset_pool(void)
{
	file_write("/proc/sys/vm/nr_overcommit_hugepages", "0");
	for (int node = 0; node < nodes; node++) {
		if (pool_read(&page_2m, node, "nr_hugepages") == pool_pages)
			continue;
		pool_write_number(&page_2m, node, "nr_hugepages", pool_pages);
		require(pool_read(&page_2m, node, "nr_hugepages") == pool_pages,
			"node %d: no memory for a pool of %ld pages", node, pool_pages);
		dirty_pool(&page_2m);
	}
}

struct job {
	const struct test *test;
	const struct page_size *size;
};

static void run_job(void *argument)
{
	const struct job *job = argument;

	pattern_owner = (uint32_t)getpid();
	job->test->run(job->size);
}

/* A test's supervisor: prepares, runs, and looks what the test left behind. */
static void supervise(const struct job *job)
{
	const struct test *test = job->test;
	struct snapshot before;

	setsid();
	if (test->min_nodes > nodes)
		skip("needs %d NUMA nodes", test->min_nodes);
	if (!pool_total(job->size) && job->size == &page_1g)
		skip("no 1G page in the pool");
	if (!test->no_file && !test->unloaded && !has_zeroable(job->size))
		skip("no zeroable_hugepages");
	if (test->unloaded && !module_path)
		skip("no module was given");
	reset_pool();
	before = take_snapshot();
	wait_child(start_child(run_job, (void *)job), 0);
	check_conserved(test, &before);
	check_pool_zero(job->size, "read back after the test");
	_exit(0);
}

/* Waits for the supervisor; kills the whole session of a test that takes too long. */
static const char *await(int pid, unsigned int limit_s)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd ended = {.fd = pidfd, .events = POLLIN};
	bool hung = !poll(&ended, 1, (int)limit_s * 1000);
	int status = 0;

	if (hung) {
		note("no end within %u s; the console has the stacks", limit_s);
		file_write("/proc/sysrq-trigger", "l"); /* of the CPUs, */
		file_write("/proc/sysrq-trigger", "w"); /* and of tasks that cannot go on */
		kill(-pid, SIGKILL);
		kill(pid, SIGKILL);
		if (!poll(&ended, 1, KILL_WAIT_MS)) {
			note("cannot be killed");
			close(pidfd);
			return "hang";
		}
	}
	close(pidfd);
	waitpid(pid, &status, 0);
	kill(-pid, SIGKILL);
	if (hung)
		return "hang";
	if (!WIFEXITED(status) || (WEXITSTATUS(status) && WEXITSTATUS(status) != EXIT_REQUIRE))
		check(false, "the test's supervisor ended with status %#x", status);
	if (verdict->failed)
		return "fail";
	return verdict->skipped ? "skip" : "pass";
}

static void run_test(const struct job *job, const char *name, int kmsg)
{
	char *log[LOG_LINES_MAX];
	unsigned int limit_s = job->test->limit_s;
	double start = now_ms();
	const char *ending;
	int log_lines, pid;

	memset(verdict, 0, sizeof(*verdict));
	emit_start(name);
	if (!limit_s)
		limit_s = job->size == &page_1g ? LIMIT_1G_S : LIMIT_2M_S;
	limit_s = (unsigned int)(limit_s * patience + stress_s);
	pid = fork();
	if (!pid)
		supervise(job);
	ending = await(pid, limit_s);
	log_lines = read_alarms(kmsg, log);
	emit_test(name, ending, now_ms() - start, log, log_lines);
	for (int i = 0; i < log_lines; i++)
		free(log[i]);
}

/* ---- the plan ---- */

static struct job planned[PLANNED_MAX];
static char *planned_names[PLANNED_MAX];
static int planned_count;

static const struct page_size *find_size(const struct test *test, const char *name)
{
	for (size_t s = 0; s < ARRAY_SIZE(sizes); s++)
		if (!strcmp(sizes[s]->name, name) && test->sizes & (1u << s))
			return sizes[s];
	return NULL;
}

static bool plan_test(char *name)
{
	char *colon = strchr(name, ':');

	for (size_t g = 0; colon && g < ARRAY_SIZE(groups); g++)
		for (size_t t = 0; t < groups[g]->count; t++) {
			const struct test *test = &groups[g]->tests[t];

			if (strlen(test->name) != (size_t)(colon - name) ||
			    strncmp(test->name, name, (size_t)(colon - name)) ||
			    !find_size(test, colon + 1) || planned_count == PLANNED_MAX)
				continue;
			planned[planned_count].test = test;
			planned[planned_count].size = find_size(test, colon + 1);
			planned_names[planned_count++] = name;
			return true;
		}
	return false;
}

static void list_tests(void)
{
	for (size_t g = 0; g < ARRAY_SIZE(groups); g++)
		for (size_t t = 0; t < groups[g]->count; t++) {
			const struct test *test = &groups[g]->tests[t];

			for (size_t s = 0; s < ARRAY_SIZE(sizes); s++)
				if (test->sizes & (1u << s))
					printf("%s:%s %s %s\n", test->name, sizes[s]->name,
					       test->only_by_name ? "named" : "full",
					       test->no_file ? "control" : "module");
		}
}

static bool plan_line(char *line)
{
	char *value = strchr(line, '=');

	if (!value)
		return false;
	*value++ = '\0';
	if (!strcmp(line, "test"))
		return plan_test(value);
	if (!strcmp(line, "module"))
		module_path = value;
	else if (!strcmp(line, "parameters"))
		module_parameters = value;
	else if (!strcmp(line, "seconds"))
		stress_s = strtod(value, NULL);
	else if (!strcmp(line, "patience"))
		patience = strtod(value, NULL);
	else if (!strcmp(line, "pages"))
		pool_pages = strtol(value, NULL, 10);
	else if (!strcmp(line, "figure_pages"))
		figure_pages = strtol(value, NULL, 10);
	else
		return false;
	return true;
}

static void read_plan(void)
{
	FILE *plan = fopen(PLAN, "re");
	char line[512];

	while (plan && fgets(line, sizeof(line), plan)) {
		line[strcspn(line, "\n")] = '\0';
		if (!plan_line(strdup(line)))
			fprintf(stderr, "guest: not understood in the plan: %s\n", line);
	}
	if (plan)
		fclose(plan);
}

static void open_channel(void)
{
	struct termios raw;

	channel = open(CHANNEL, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (channel < 0 || tcgetattr(channel, &raw))
		return;
	cfmakeraw(&raw);
	cfsetspeed(&raw, B115200);
	tcsetattr(channel, TCSANOW, &raw);
}

static void count_nodes(void)
{
	char path[64];

	do
		snprintf(path, sizeof(path), "/sys/devices/system/node/node%d", nodes);
	while (!access(path, F_OK) && ++nodes < NODES_MAX);
}

static void load_planned_module(int kmsg)
{
	char *log[LOG_LINES_MAX];
	double start = now_ms();
	int result, log_lines;

	emit_start("module_load");
	result = module_load();
	check(!result, "loading the module: %s", strerror(-result));
	log_lines = read_alarms(kmsg, log);
	emit_test("module_load", result ? "fail" : "pass", now_ms() - start, log, log_lines);
}

/* Boot leaves the pools' memory as the host gave it, which is zero: no test could fail on it. */
static void dirty_pools(void)
{
	int pid = fork();

	if (!pid) {
		pattern_owner = (uint32_t)getpid();
		reset_pool();
		for (size_t s = 0; s < ARRAY_SIZE(sizes); s++)
			for (int i = 0; i < planned_count; i++)
				if (planned[i].size == sizes[s]) {
					dirty_pool(sizes[s]);
					break;
				}
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
	struct utsname host;
	char body[256];
	int kmsg;

	if (argc == 2 && !strcmp(argv[1], "list")) {
		list_tests();
		return 0;
	}
	if (getpid() != 1 && getppid() != 1) {
		fprintf(stderr, "usage: %s list (anything else happens in a guest)\n", argv[0]);
		return 2;
	}
	verdict = mmap(NULL, sizeof(*verdict), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	open_channel();
	kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	count_nodes();
	read_plan();
	uname(&host);
	snprintf(body, sizeof(body), ",\"kernel\":\"%s\",\"tests\":%d", host.release,
		 planned_count + !!module_path);
	emit("begin", body);
	dirty_pools();
	if (module_path)
		load_planned_module(kmsg);
	for (int i = 0; i < planned_count; i++)
		run_test(&planned[i], planned_names[i], kmsg);
	snprintf(body, sizeof(body), ",\"taint\":%ld",
		 file_read_number("/proc/sys/kernel/tainted"));
	emit("end", body);
	return 0;
}
