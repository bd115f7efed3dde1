/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_client_call.c - libprezero against daemons good and bad.
 *
 * After each test no descriptor and no mapping is left.
 */
#include "unit.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "base/io.h"
#include "fake_daemon.h"

#define PAGE 4096U

static struct fake_daemon fake;
static unsigned int fds_before;

static int setup(void **state)
{
	(void)state;
	fds_before = count_fds();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	if (count_fds() != fds_before || count_segment_maps() != 0) {
		fprintf(stderr, "# %u descriptors, before: %u; %u mappings\n", count_fds(),
			fds_before, count_segment_maps());
		return -1;
	}
	return 0;
}

static struct prezero *start(fake_serve *serve, void *arg)
{
	struct prezero *connection = NULL;

	fake_start(&fake, serve, arg);
	assert_int_equal(prezero_connect(&connection, fake.socket_path), 0);
	assert_string_equal(prezero_error(connection), "");
	assert_string_equal(prezero_error_json(connection), "");
	return connection;
}

static void stop(struct prezero *connection)
{
	assert_null(prezero_disconnect(connection));
	fake_stop(&fake);
}

/* As prezero_take(), but the fake is done with it. */
static int take_request(struct prezero *connection, const struct prezero_request *request,
			size_t request_bytes, struct prezero_lease **ret)
{
	int r = prezero_take(connection, request, request_bytes, ret);

	fake_settle(&fake);
	return r;
}

static int take(struct prezero *connection, uint64_t bytes, struct prezero_lease **ret)
{
	struct prezero_request request = PREZERO_REQUEST_INIT;

	request.bytes = bytes;
	return take_request(connection, &request, sizeof(request), ret);
}

static int give_lease(struct prezero *connection, const char *lease, int64_t wait_ms)
{
	int r = prezero_give(connection, lease, wait_ms);

	fake_settle(&fake);
	return r;
}

static void no_daemon(void **state)
{
	struct prezero *connection = (void *)&fake;
	char path[200];

	(void)state;
	assert_int_equal(prezero_connect(&connection, "/nonexistent/socket"), -ENOENT);
	memset(path, 'x', sizeof(path));
	path[0] = '/';
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(prezero_connect(&connection, path), -ENAMETOOLONG);
	/* A socket that nobody listens on. */
	fake_start(&fake, NULL, NULL);
	fake_pause(&fake);
	assert_int_equal(prezero_connect(&connection, fake.socket_path), -ECONNREFUSED);
	assert_ptr_equal(connection, &fake);
	fake_resume(&fake);
	fake_stop(&fake);

	assert_int_equal(prezero_connect(NULL, NULL), -EINVAL);
	assert_null(prezero_disconnect(NULL));
	assert_null(prezero_lease_free(NULL));
	assert_null(prezero_unmap(NULL));
	assert_string_equal(prezero_error(NULL), "");
	assert_string_equal(prezero_version(), PREZERO_VERSION);
}

static enum fake_verdict serve_lend(struct fake_daemon *daemon, int fd, const char *message)
{
	if (daemon->arg)
		strcpy(daemon->arg, message);
	fake_lend(fd, message);
	return FAKE_KEEP;
}

static void take_a_lease(void **state)
{
	struct prezero_request request = PREZERO_REQUEST_INIT;
	char message[512];
	struct prezero *connection = start(serve_lend, message);
	struct prezero_lease *lease;

	(void)state;
	request.bytes = 3 * PAGE;
	request.node = 2;
	assert_int_equal(take_request(connection, &request, sizeof(request), &lease), 0);
	assert_string_equal(message, "{\"method\":\"io.prezero.Pool.Take\",\"parameters\":"
				     "{\"bytes\":12288,\"node\":2}}");
	assert_string_equal(prezero_lease_id(lease), "00112233445566aa");
	assert_string_equal(prezero_lease_path(lease), "/run/prezero/base/lent/0-00112233445566aa");
	assert_string_equal(prezero_lease_page(lease), "base");
	assert_int_equal(prezero_lease_bytes(lease), 3 * PAGE);
	assert_int_equal(prezero_lease_page_bytes(lease), PAGE);
	assert_int_equal(prezero_lease_node(lease), 2);
	assert_false(prezero_lease_is_filling(lease));
	assert_true(fcntl(prezero_lease_fd(lease), F_GETFD) & FD_CLOEXEC);
	assert_int_equal(count_segment_fds(), 1);
	assert_null(prezero_lease_free(lease));
	assert_int_equal(count_segment_fds(), 0);

	request = (struct prezero_request){PAGE,  "base", PREZERO_NODE_ANY, PREZERO_TAKE_PARTIAL,
					   "vm7", 250};
	assert_int_equal(take_request(connection, &request, sizeof(request), &lease), 0);
	assert_string_equal(message, "{\"method\":\"io.prezero.Pool.Take\",\"parameters\":"
				     "{\"bytes\":4096,\"page\":\"base\",\"name\":\"vm7\","
				     "\"partial\":true,\"wait_ms\":250}}");
	assert_true(prezero_lease_is_filling(lease));
	prezero_lease_free(lease);

	/* For ever, nearly; and not at all. */
	request = (struct prezero_request)PREZERO_REQUEST_INIT;
	request.bytes = PAGE;
	request.wait_ms = INT64_MAX;
	assert_int_equal(take_request(connection, &request, sizeof(request), &lease), 0);
	assert_non_null(strstr(message, "\"wait_ms\":9223372036854}"));
	prezero_lease_free(lease);
	request.wait_ms = 0;
	assert_int_equal(take_request(connection, &request, sizeof(request), &lease), 0);
	assert_non_null(strstr(message, "\"wait_ms\":0}"));
	prezero_lease_free(lease);
	assert_int_equal(fake.n_connections, 1);
	stop(connection);
}

/* Refused before anything is sent. */
static void bad_requests(void **state)
{
	struct {
		struct prezero_request known;
		uint64_t later;
	} request = {.known = PREZERO_REQUEST_INIT};
	struct prezero *connection = start(serve_lend, NULL);
	struct prezero_lease *lease = NULL;

	(void)state;
	request.known.bytes = PAGE;
	assert_int_equal(take_request(connection, &request.known, 8, &lease), -EINVAL);
	assert_int_equal(take_request(connection, NULL, sizeof(request.known), &lease), -EINVAL);
	assert_int_equal(take_request(connection, &request.known, sizeof(request.known), NULL),
			 -EINVAL);
	assert_int_equal(take_request(NULL, &request.known, sizeof(request.known), &lease),
			 -EINVAL);
	assert_int_equal(take(connection, 0, &lease), -EINVAL);
	assert_int_equal(take(connection, UINT64_MAX, &lease), -EINVAL);
	assert_string_equal(prezero_error(connection),
			    "bytes: 18446744073709551615 is no length of "
			    "memory; ask for whole pages");
	request.known.node = -2;
	assert_int_equal(take_request(connection, &request.known, sizeof(request.known), &lease),
			 -EINVAL);
	request.known.node = 0;
	request.known.flags = 6;
	assert_int_equal(take_request(connection, &request.known, sizeof(request.known), &lease),
			 -EINVAL);
	request.known.flags = 0;
	request.known.name = "\xff";
	assert_int_equal(take_request(connection, &request.known, sizeof(request.known), &lease),
			 -EINVAL);
	assert_string_not_equal(prezero_error(connection), "");
	assert_string_equal(prezero_error_json(connection), "");
	request.known.name = NULL;
	request.later = 1;
	assert_int_equal(take_request(connection, &request.known, sizeof(request), &lease),
			 -EINVAL);
	assert_int_equal(give_lease(connection, NULL, 0), -EINVAL);
	assert_int_equal(give_lease(connection, "", 0), -EINVAL);
	assert_null(lease);
	assert_int_equal(fake.n_messages, 0);

	/* A later version's request that asks for nothing new. */
	request.later = 0;
	assert_int_equal(take_request(connection, &request.known, sizeof(request), &lease), 0);
	prezero_lease_free(lease);
	stop(connection);
}

static enum fake_verdict serve_text(struct fake_daemon *daemon, int fd, const char *message)
{
	(void)message;
	fake_send(fd, daemon->arg, -1);
	return FAKE_KEEP;
}

#define REFUSED(reason, rest)                                                                 \
	"{\"error\":\"io.prezero.Pool.Refused\",\"parameters\":{\"reason\":\"" reason "\","   \
	"\"message\":\"2M@0: have 1G, need 4G\",\"page\":\"2M\",\"node\":0,\"have_bytes\":1," \
	"\"need_bytes\":2," rest "}}"
#define HOLDER(pid) "{\"pid\":" pid ",\"uid\":1000,\"command\":\"qemu\"}"

static void refusals(void **state)
{
	static const struct {
		const char *reply;
		int r;
		const char *text;
	} cases[] = {
		{REFUSED("pages",
			 "\"holders\":[" HOLDER("7") "," HOLDER("8") "],\"fix\":\"free some\""),
		 -ENOMEM,
		 "2M@0: have 1G, need 4G; held by qemu (pid 7, uid 1000), qemu (pid 8, uid 1000); "
		 "fix: free some"},
		{REFUSED("floor", "\"holders\":[" HOLDER("1") "," HOLDER("2") "," HOLDER(
					  "3") "," HOLDER("4") "," HOLDER("5") "," HOLDER("6") "]"),
		 -ENOMEM,
		 "2M@0: have 1G, need 4G; held by qemu (pid 1, uid 1000), qemu (pid 2, uid 1000), "
		 "qemu (pid 3, uid 1000), qemu (pid 4, uid 1000) and 2 more"},
		{REFUSED("later", "\"holders\":[]"), -ENOMEM, "2M@0: have 1G, need 4G"},
		{REFUSED("class", "\"holders\":[]"), -ENODEV, "2M@0: have 1G, need 4G"},
		{REFUSED("node", "\"holders\":[]"), -ENODEV, "2M@0: have 1G, need 4G"},
		{REFUSED("multiple", "\"holders\":[]"), -EINVAL, "2M@0: have 1G, need 4G"},
		{REFUSED("limit", "\"holders\":[]"), -EDQUOT, "2M@0: have 1G, need 4G"},
		{REFUSED("deadline", "\"holders\":[]"), -ETIMEDOUT, "2M@0: have 1G, need 4G"},
		{REFUSED("io", "\"holders\":[]"), -EIO, "2M@0: have 1G, need 4G"},
		{"{\"error\":\"io.prezero.Pool.NameTaken\",\"parameters\":{\"name\":\"vm7\"}}",
		 -EEXIST,
		 "the name vm7 is taken; choose another or end that lease with: prezero give vm7"},
		{"{\"error\":\"org.varlink.service.InvalidParameter\",\"parameters\":"
		 "{\"parameter\":\"bytes\"}}",
		 -EINVAL, "the daemon does not accept this bytes: 4096"},
		{"{\"error\":\"io.prezero.Pool.Later\",\"parameters\":{}}", -EPROTO,
		 "the daemon answers io.prezero.Pool.Later, which this version of libprezero does "
		 "not know"},
		{"{\"error\":\"org.varlink.service.MethodNotFound\",\"parameters\":"
		 "{\"method\":\"io.prezero.Pool.Take\"}}",
		 -EPROTO,
		 "the daemon answers org.varlink.service.MethodNotFound to io.prezero.Pool.Take"},
	};
	struct prezero *connection = start(serve_text, NULL);
	struct prezero_lease *lease = NULL;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		fake_set(&fake, serve_text, (void *)cases[i].reply);
		assert_int_equal(take(connection, PAGE, &lease), cases[i].r);
		assert_string_equal(prezero_error(connection), cases[i].text);
		assert_string_equal(prezero_error_json(connection), cases[i].reply);
	}
	assert_null(lease);
	/* An answer, whatever it says, is no reason to hang up. */
	assert_int_equal(fake.n_connections, 1);
	stop(connection);
}

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

static enum fake_verdict serve_give(struct fake_daemon *daemon, int fd, const char *message)
{
	strcpy(daemon->arg, message);
	if (strstr(message, "vm1"))
		fake_send(fd, "{\"parameters\":{\"completed\":true,\"holders\":[]}}", -1);
	else if (strstr(message, "vm2"))
		fake_send(fd,
			  "{\"parameters\":{\"completed\":false,\"holders\":[" HOLDER("9") "]}}",
			  -1);
	else if (strstr(message, "vm3"))
		fake_send(fd,
			  "{\"error\":\"io.prezero.Pool.NotYours\",\"parameters\":"
			  "{\"lease\":\"vm3\",\"uid\":1000}}",
			  -1);
	else
		fake_send(fd,
			  "{\"error\":\"io.prezero.Pool.NoSuchLease\",\"parameters\":"
			  "{\"lease\":\"vm4\"}}",
			  -1);
	return FAKE_KEEP;
}

static void give(void **state)
{
	char message[512];
	struct prezero *connection = start(serve_give, message);

	(void)state;
	assert_int_equal(give_lease(connection, "vm1", 0), 0);
	assert_string_equal(message, "{\"method\":\"io.prezero.Pool.Give\",\"parameters\":"
				     "{\"lease\":\"vm1\"}}");
	assert_int_equal(give_lease(connection, "vm1", -1), 0);
	assert_non_null(strstr(message, "\"wait_ms\":9223372036854}"));
	assert_int_equal(give_lease(connection, "vm2", 5), -EBUSY);
	assert_non_null(strstr(message, "\"wait_ms\":5}"));
	assert_string_equal(prezero_error(connection),
			    "the lease vm2 is still held by qemu (pid 9, "
			    "uid 1000); it ends when they close it");
	assert_non_null(strstr(prezero_error_json(connection), "\"completed\":false"));
	assert_int_equal(give_lease(connection, "vm3", 0), -EPERM);
	assert_non_null(strstr(prezero_error(connection), "user 1000"));
	assert_int_equal(give_lease(connection, "vm4", 0), -ENOENT);
	assert_non_null(strstr(prezero_error(connection), "prezero list"));
	stop(connection);
}

static enum fake_verdict serve_list(struct fake_daemon *daemon, int fd, const char *message)
{
	static const struct wire_segment segments[3] = {
		{.id = "a", .path = "/a", .page = "2M", .state = "ready"},
		{.id = "b", .path = "/b", .page = "2M", .state = "ready"},
		{.id = "c", .path = "/c", .page = "2M", .state = "lent"},
	};
	struct wire_reply reply = {.method = WIRE_LIST, .list = {segments, 2}, .continues = true};

	if (strstr(message, "Status")) {
		fake_send(fd, "{\"error\":\"io.prezero.Pool.Later\"}", -1);
		return FAKE_KEEP;
	}
	if (strstr(message, "lent")) {
		fake_reply(fd, &reply, -1);
		return FAKE_HANG_UP;
	}
	if (strstr(message, "wrong")) {
		fake_send(fd,
			  "{\"error\":\"org.varlink.service.InvalidParameter\",\"parameters\":"
			  "{\"parameter\":\"state\"}}",
			  -1);
		return FAKE_KEEP;
	}
	if (!strstr(message, "filling")) {
		fake_reply(fd, &reply, -1);
		fake_reply(fd, &reply, -1);
		reply.list.segments = &segments[2];
		reply.list.n_segments = 1;
	} else {
		reply.list.n_segments = 0;
	}
	reply.continues = false;
	fake_reply(fd, &reply, -1);
	(void)daemon;
	return FAKE_KEEP;
}

struct listing {
	struct prezero *connection;
	char ids[64];
	int stop_after, stop_with;
};

static int note_segment(const char *json, void *arg)
{
	struct listing *listing = arg;
	char *status;

	assert_memory_equal(json, "{\"id\":\"", 7);
	strncat(listing->ids, json + 7, 1);
	/* The connection is free meanwhile. */
	assert_int_equal(prezero_status_json(listing->connection, &status), -EPROTO);
	return --listing->stop_after == 0 ? listing->stop_with : 0;
}

static void list(void **state)
{
	struct listing listing = {.connection = start(serve_list, NULL)};
	struct prezero *connection = listing.connection;

	(void)state;
	assert_int_equal(prezero_list_json(connection, NULL, note_segment, &listing), 0);
	assert_string_equal(listing.ids, "ababc");

	listing = (struct listing){.connection = connection, .stop_after = 3, .stop_with = 42};
	assert_int_equal(prezero_list_json(connection, NULL, note_segment, &listing), 42);
	assert_string_equal(listing.ids, "aba");

	listing = (struct listing){.connection = connection};
	assert_int_equal(prezero_list_json(connection, "filling", note_segment, &listing), 0);
	assert_string_equal(listing.ids, "");

	/* Half a list is not a list. */
	assert_int_equal(prezero_list_json(connection, "lent", note_segment, &listing), -EPIPE);
	assert_int_equal(prezero_list_json(connection, "wrong", note_segment, &listing), -EINVAL);
	assert_string_equal(prezero_error(connection),
			    "the daemon does not accept this state: wrong");
	assert_int_equal(prezero_list_json(connection, NULL, NULL, NULL), -EINVAL);
	stop(connection);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(no_daemon),
		T(take_a_lease),
		T(bad_requests),
		T(refusals),
		T(bad_descriptors),
		T(garbage),
		T(surplus),
		T(chatter),
		T(death_during_a_call),
		T(restart_between_calls),
		T(slow_and_interrupted),
		T(silence),
		T(fork_in_between),
		T(give),
		T(list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
