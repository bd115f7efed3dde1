/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/client_test.h - a connection to a fake daemon, and that nothing is left after a test.
 */
#ifndef PREZERO_TESTS_CLIENT_TEST_H
#define PREZERO_TESTS_CLIENT_TEST_H

#include "unit.h"

#include <string.h>

#include "fake_daemon.h"

#define PAGE 4096U

static struct fake_daemon fake;
static unsigned int fds_before;

static inline int setup(void **state)
{
	(void)state;
	fds_before = count_fds();
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	if (count_fds() != fds_before || count_segment_maps() != 0) {
		fprintf(stderr, "# %u descriptors, before: %u; %u mappings\n", count_fds(),
			fds_before, count_segment_maps());
		return -1;
	}
	return 0;
}

static inline struct prezero *start(fake_serve *serve, void *arg)
{
	struct prezero *connection = NULL;

	fake_start(&fake, serve, arg);
	assert_int_equal(prezero_connect(&connection, fake.socket_path), 0);
	assert_string_equal(prezero_error(connection), "");
	assert_string_equal(prezero_error_json(connection), "");
	return connection;
}

static inline void stop(struct prezero *connection)
{
	assert_null(prezero_disconnect(connection));
	fake_stop(&fake);
}

/* As prezero_take(), but the fake is done with it. */
static inline int take_request(struct prezero *connection, const struct prezero_request *request,
			       size_t request_bytes, struct prezero_lease **ret)
{
	int r = prezero_take(connection, request, request_bytes, ret);

	fake_settle(&fake);
	return r;
}

static inline int take(struct prezero *connection, uint64_t bytes, struct prezero_lease **ret)
{
	struct prezero_request request = PREZERO_REQUEST_INIT;

	request.bytes = bytes;
	return take_request(connection, &request, sizeof(request), ret);
}

static inline int give_lease(struct prezero *connection, const char *lease, int64_t wait_ms)
{
	int r = prezero_give(connection, lease, wait_ms);

	fake_settle(&fake);
	return r;
}

static inline enum fake_verdict serve_lend(struct fake_daemon *daemon, int fd, const char *message)
{
	if (daemon->arg)
		strcpy(daemon->arg, message);
	fake_lend(fd, message);
	return FAKE_KEEP;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
