/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_client_call.c - what libprezero asks a daemon, and what it makes of the answers.
 */
#include "client_test.h"

#include <fcntl.h>

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
	const struct CMUnitTest tests[] = {
		TEST(no_daemon), TEST(take_a_lease), TEST(bad_requests),
		TEST(refusals),	 TEST(give),	     TEST(list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
