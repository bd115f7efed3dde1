/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_client_faults.c - libprezero against daemons that lie, babble, die, dawdle and return.
 *
 * After each test no descriptor and no mapping is left.
 */
#include "client_test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "base/io.h"

/* A Take's reply, with a descriptor of the test's making. */
struct offer {
	struct wire_take_reply take;
	int fd, second_fd;
};

static enum fake_verdict serve_offer(struct fake_daemon *daemon, int fd, const char *message)
{
	const struct offer *offer = daemon->arg;
	struct wire_reply reply = {.method = WIRE_TAKE, .take = offer->take};
	char *text;
	size_t n;

	(void)message;
	if (offer->second_fd >= 0) {
		if (wire_encode_reply(&reply, &text, &n) < 0)
			abort();
		text[n - 1] = '\n';
		if (send_with_fd(fd, text, n, offer->fd) < 0 ||
		    send_with_fd(fd, "", 1, offer->second_fd) < 0)
			abort();
		free(text);
	} else {
		fake_reply(fd, &reply, offer->fd);
	}
	return FAKE_KEEP;
}

static void bad_descriptors(void **state)
{
	struct prezero *connection = start(serve_offer, NULL);
	const struct wire_take_reply good = {.id = "00112233445566aa",
					     .path = "/x",
					     .page = "base",
					     .page_bytes = PAGE,
					     .bytes = PAGE};
	struct wire_take_reply longer = good, huge = good, elsewhere = good, filling = good,
			       odd = good;
	int segment = fake_segment(PAGE), long_segment = fake_segment(2 * PAGE), pipe_fds[2];
	int read_only, path_only, directory = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int device = open("/dev/zero", O_RDWR | O_CLOEXEC);
	int proc = open("/proc/self/comm", O_RDWR | O_CLOEXEC);
	struct prezero_request request = PREZERO_REQUEST_INIT;
	struct prezero_lease *lease = NULL;
	char link[64];

	(void)state;
	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", segment);
	read_only = open(link, O_RDONLY | O_CLOEXEC);
	path_only = open(link, O_PATH | O_CLOEXEC);
	assert_true(read_only >= 0 && path_only >= 0 && device >= 0 && proc >= 0 && directory >= 0);
	longer.bytes = 2 * PAGE;
	huge.page = "2M";
	elsewhere.node = 1;
	filling.filling = true;
	odd.page_bytes = 2 * PAGE;

	const struct {
		struct offer offer;
		const char *text;
	} bad[] = {
		{{good, -1, -1}, "no descriptor came"},
		{{good, long_segment, -1}, "another length"},
		{{longer, long_segment, -1}, "another length"},
		{{longer, segment, -1}, "another length"},
		{{good, read_only, -1}, "reading and writing"},
		{{good, path_only, -1}, "reading and writing"},
		{{good, directory, -1}, "reading and writing"},
		{{good, device, -1}, "regular file"},
		{{good, pipe_fds[1], -1}, "reading and writing"},
		{{good, proc, -1}, "another length"},
		{{huge, segment, -1}, "file system"},
		{{elsewhere, segment, -1}, "another node"},
		{{filling, segment, -1}, "still being filled"},
		{{odd, segment, -1}, "multiple of its page"},
		{{good, segment, segment}, "does not speak"},
	};

	request.bytes = PAGE;
	request.node = 0;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		unsigned int n_before = count_segment_fds();

		fake_set(&fake, serve_offer, (void *)&bad[i].offer);
		assert_int_equal(take_request(connection, &request, sizeof(request), &lease),
				 -EPROTO);
		if (!strstr(prezero_error(connection), bad[i].text))
			fail_msg("%zu: %s", i, prezero_error(connection));
		assert_int_equal(count_segment_fds(), n_before);
	}
	assert_null(lease);
	fake_set(&fake, serve_offer, &(struct offer){good, segment, -1});
	assert_int_equal(take_request(connection, &request, sizeof(request), &lease), 0);
	prezero_lease_free(lease);
	stop(connection);

	const int fds[] = {segment, long_segment, read_only,   path_only,  directory,
			   device,  proc,	  pipe_fds[0], pipe_fds[1]};

	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		close(fds[i]);
}

/* Each is -EPROTO, and the next call is on a new connection and fine. */
static enum fake_verdict serve_garbage(struct fake_daemon *daemon, int fd, const char *message)
{
	const char *text = daemon->arg;

	if (!text) {
		fake_lend(fd, message);
	} else if (strcmp(text, "endless") == 0) {
		static char much[1U << 20];

		memset(much, ' ', sizeof(much) - 1);
		for (int i = 0; i < 5; i++)
			if (send(fd, much, sizeof(much) - 1, MSG_NOSIGNAL) < 0)
				break;
	} else {
		fake_send(fd, text, -1);
	}
	return FAKE_KEEP;
}

static void garbage(void **state)
{
	static const char *const texts[] = {
		"",
		"hello",
		"[]",
		"{}",
		"{\"parameters\":{\"id\":1}}",
		"{\"parameters\":{},\"parameters\":{}}",
		"{\"error\":\"io.prezero.Pool.NameTaken\",\"parameters\":{}}",
		"endless",
	};
	struct prezero *connection = start(serve_garbage, NULL);
	struct prezero_lease *lease;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		fake_set(&fake, serve_garbage, (void *)texts[i]);
		assert_int_equal(take(connection, PAGE, &lease), -EPROTO);
		assert_non_null(
			strstr(prezero_error(connection), "does not speak io.prezero.Pool"));
		fake_set(&fake, serve_garbage, NULL);
		assert_int_equal(take(connection, PAGE, &lease), 0);
		prezero_lease_free(lease);
	}
	assert_int_equal(fake.n_connections, 1 + ARRAY_LEN(texts));
	stop(connection);
}

/* A descriptor where none belongs, and more replies than were asked for. */
static enum fake_verdict serve_surplus(struct fake_daemon *daemon, int fd, const char *message)
{
	struct wire_reply reply = {
		.method = WIRE_STATUS,
		.status = {.version = "0"},
		.continues = daemon->arg != NULL,
	};
	int segment = fake_segment(PAGE);

	(void)message;
	fake_reply(fd, &reply, daemon->arg ? -1 : segment);
	close(segment);
	return FAKE_KEEP;
}

static void surplus(void **state)
{
	struct prezero *connection = start(serve_surplus, NULL);
	char *json = NULL;

	(void)state;
	assert_int_equal(prezero_status_json(connection, &json), -EPROTO);
	fake_set(&fake, serve_surplus, &fake);
	assert_int_equal(prezero_status_json(connection, &json), -EPROTO);
	assert_null(json);
	stop(connection);
}

/* Says something of its own accord after each reply: never taken for the answer to the next call. */
static enum fake_verdict serve_chatty(struct fake_daemon *daemon, int fd, const char *message)
{
	const struct wire_reply give = {.method = WIRE_GIVE, .give = {.completed = true}};
	int segment = fake_segment(PAGE);

	(void)daemon;
	fake_lend(fd, message);
	fake_reply(fd, &give, segment);
	close(segment);
	return FAKE_KEEP;
}

static void chatter(void **state)
{
	struct prezero *connection = start(serve_chatty, NULL);
	struct prezero_lease *lease;

	(void)state;
	for (int i = 0; i < 20; i++) {
		/* Where it arrives with the reply it has a second descriptor at times: refused. */
		int r = take(connection, PAGE, &lease);

		assert_true(r == 0 || r == -EPROTO);
		if (r == 0)
			prezero_lease_free(lease);
		usleep(1000);
	}
	stop(connection);
}

enum death { DEATH_AT_ONCE, DEATH_IN_REPLY, DEATH_WITH_DESCRIPTOR, DEATH_NONE };

static enum fake_verdict serve_death(struct fake_daemon *daemon, int fd, const char *message)
{
	enum death *death = daemon->arg, now = *death;
	int segment;

	*death = DEATH_NONE;
	switch (now) {
	case DEATH_AT_ONCE:
		return FAKE_HANG_UP;
	case DEATH_IN_REPLY:
		if (send(fd, "{\"parameters\":", 14, MSG_NOSIGNAL) < 0)
			abort();
		return FAKE_HANG_UP;
	case DEATH_WITH_DESCRIPTOR:
		segment = fake_segment(PAGE);
		if (send_with_fd(fd, "{\"parameters\":", 14, segment) < 0)
			abort();
		close(segment);
		return FAKE_HANG_UP;
	case DEATH_NONE:
		fake_lend(fd, message);
	}
	return FAKE_KEEP;
}

static void death_during_a_call(void **state)
{
	enum death death = DEATH_NONE;
	struct prezero *connection = start(serve_death, &death);
	struct prezero_lease *lease;

	(void)state;
	for (unsigned int d = DEATH_AT_ONCE; d < DEATH_NONE; d++) {
		death = (enum death)d;
		fake_set(&fake, serve_death, &death);
		assert_int_equal(take(connection, PAGE, &lease), -EPIPE);
		assert_int_equal(count_segment_fds(), 0);
		assert_non_null(strstr(prezero_error(connection), "went away"));
		/* Not tried twice, and the next one is fine. */
		assert_int_equal(fake.n_messages, 2 * d + 1);
		assert_int_equal(take(connection, PAGE, &lease), 0);
		prezero_lease_free(lease);
	}
	stop(connection);
}

static void restart_between_calls(void **state)
{
	struct prezero *connection = start(serve_lend, NULL);
	struct prezero_lease *lease;

	(void)state;
	for (int i = 0; i < 10; i++) {
		assert_int_equal(take(connection, PAGE, &lease), 0);
		prezero_lease_free(lease);
		fake_pause(&fake);
		fake_resume(&fake);
	}
	fake_pause(&fake);
	assert_int_equal(take(connection, PAGE, &lease), -ECONNREFUSED);
	assert_non_null(strstr(prezero_error(connection), "systemctl start prezerod"));
	unlink(fake.socket_path);
	assert_int_equal(take(connection, PAGE, &lease), -ECONNREFUSED);
	fake_resume(&fake);
	assert_int_equal(take(connection, PAGE, &lease), 0);
	prezero_lease_free(lease);
	stop(connection);
}

static enum fake_verdict serve_slowly(struct fake_daemon *daemon, int fd, const char *message)
{
	struct wire_reply reply = {.method = WIRE_TAKE};
	size_t text_bytes;
	char *text;
	int segment = fake_segment(PAGE);

	(void)daemon;
	(void)message;
	reply.take = (struct wire_take_reply){
		.id = "1", .path = "/", .page = "base", .page_bytes = PAGE, .bytes = PAGE};
	usleep(20000);
	if (wire_encode_reply(&reply, &text, &text_bytes) < 0)
		abort();
	fake_send_slowly(fd, text, segment);
	free(text);
	close(segment);
	return FAKE_KEEP;
}

static void on_signal(int signal)
{
	(void)signal;
}

/* A byte at a time, under a rain of signals that restart nothing. */
static void slow_and_interrupted(void **state)
{
	struct sigaction action = {.sa_handler = on_signal}, old_action;
	struct itimerval often = {.it_interval = {0, 500}, .it_value = {0, 500}}, never = {};
	struct prezero *connection = start(serve_slowly, NULL);
	struct prezero_lease *lease;

	(void)state;
	sigaction(SIGALRM, &action, &old_action);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(take(connection, PAGE, &lease), 0);
		prezero_lease_free(lease);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	sigaction(SIGALRM, &old_action, NULL);
	stop(connection);
}

static enum fake_verdict serve_silence(struct fake_daemon *daemon, int fd, const char *message)
{
	(void)daemon;
	(void)fd;
	(void)message;
	return FAKE_KEEP;
}

/* A stopped daemon holds nobody for ever; its late answer belongs to nobody. */
static void silence(void **state)
{
	struct prezero *connection = start(serve_silence, NULL);
	uint64_t start_ns = monotonic_ns();
	struct prezero_lease *lease;
	char *json;

	(void)state;
	assert_int_equal(prezero_status_json(connection, &json), -ETIMEDOUT);
	assert_in_range((monotonic_ns() - start_ns) / 1000000, GRACE_MS, GRACE_MS + 5000);
	assert_non_null(strstr(prezero_error(connection), "does not answer"));
	fake_set(&fake, serve_lend, NULL);
	assert_int_equal(take(connection, PAGE, &lease), 0);
	assert_int_equal(fake.n_connections, 2);
	prezero_lease_free(lease);
	stop(connection);
}

/* Parent and child do not read each other's answers. */
static void fork_in_between(void **state)
{
	struct prezero *connection = start(serve_lend, NULL);
	struct prezero_lease *lease;
	int status;
	pid_t pid;

	(void)state;
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(take(connection, PAGE, &lease) == 0 && lease->reply.take.bytes == PAGE ? 0 :
											       1);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(take(connection, PAGE, &lease), 0);
		prezero_lease_free(lease);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(fake.n_connections, 2);
	stop(connection);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(bad_descriptors),
		TEST(garbage),
		TEST(surplus),
		TEST(chatter),
		TEST(death_during_a_call),
		TEST(restart_between_calls),
		TEST(slow_and_interrupted),
		TEST(silence),
		TEST(fork_in_between),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
