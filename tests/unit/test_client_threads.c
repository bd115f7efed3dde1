/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_client_threads.c - many threads on one connection, and errors that are each thread's own.
 *
 * Of most worth under the thread sanitizer.
 */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "client_test.h"

#define THREADS 6
#define ROUNDS 200

static struct prezero *connection;

/* Gives: the error names the lease that was asked for. The rest is served well. */
static enum fake_verdict serve(struct fake_daemon *daemon, int fd, const char *message)
{
	struct wire_segment segment = {.id = "a", .path = "/a", .page = "base", .state = "lent"};
	struct wire_reply reply = {}, refusal;
	struct wire_call call;

	(void)daemon;
	if (wire_decode_call(message, strlen(message), &call, &refusal) < 0)
		abort();
	reply.method = call.method;
	switch (call.method) {
	case WIRE_TAKE:
		fake_lend(fd, message);
		break;
	case WIRE_GIVE:
		reply.error = WIRE_NO_SUCH_LEASE;
		reply.no_such_lease.lease = call.give.lease;
		fake_reply(fd, &reply, -1);
		break;
	case WIRE_LIST:
		reply.list = (struct wire_list_reply){&segment, 1};
		fake_reply(fd, &reply, -1);
		break;
	default:
		reply.status.version = "0";
		fake_reply(fd, &reply, -1);
	}
	wire_call_done(&call);
	return FAKE_KEEP;
}

static int connect_fake(void **state)
{
	int r = setup(state);

	connection = start(serve, NULL);
	return r;
}

static int disconnect_fake(void **state)
{
	stop(connection);
	return teardown(state);
}

static int each(const char *json, void *arg)
{
	(void)json;
	++*(unsigned int *)arg;
	return 0;
}

/* Returns what went wrong, or NULL. allowed: an errno that is no fault, while daemons come and go. */
static const char *one_round(unsigned int thread, unsigned int round, bool may_fail)
{
	struct prezero_request request = PREZERO_REQUEST_INIT;
	struct prezero_lease *lease;
	struct prezero_map *map;
	char name[32], want[96];
	unsigned int n = 0;
	char *json;
	int r;

	request.bytes = 4096 * (1 + (thread * 7 + round) % 13);
	r = prezero_take(connection, &request, sizeof(request), &lease);
	if (r == 0) {
		if (prezero_lease_bytes(lease) != request.bytes)
			return "somebody else's lease";
		prezero_lease_free(lease);
	} else if (!may_fail || (r != -EPIPE && r != -ECONNREFUSED)) {
		return "take";
	}
	r = prezero_map(connection, &request, sizeof(request), &map);
	if (r == 0)
		prezero_unmap(map);
	else if (!may_fail || (r != -EPIPE && r != -ECONNREFUSED))
		return "map";

	snprintf(name, sizeof(name), "t%u-%u", thread, round);
	snprintf(want, sizeof(want), "there is no lease %s; see them with: prezero list", name);
	r = prezero_give(connection, name, 0);
	if (r == -ENOENT && strcmp(prezero_error(connection), want) != 0)
		return "somebody else's error";
	if (r != -ENOENT && (!may_fail || (r != -EPIPE && r != -ECONNREFUSED)))
		return "give";

	r = prezero_status_json(connection, &json);
	if (r == 0)
		free(json);
	else if (!may_fail)
		return "status";
	r = prezero_list_json(connection, NULL, each, &n);
	if (!may_fail && (r < 0 || n != 1))
		return "list";
	return NULL;
}

struct worker {
	pthread_t thread;
	unsigned int number;
	bool may_fail;
	const char *fault;
};

static void *work(void *arg)
{
	struct worker *worker = arg;

	for (unsigned int i = 0; i < ROUNDS && !worker->fault; i++)
		worker->fault = one_round(worker->number, i, worker->may_fail);
	return NULL;
}

static void start_workers(struct worker workers[THREADS], bool may_fail)
{
	for (unsigned int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.number = i, .may_fail = may_fail};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
}

static void join_workers(struct worker workers[THREADS])
{
	for (unsigned int i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		if (workers[i].fault)
			fail_msg("thread %u: %s: %s", i, workers[i].fault,
				 prezero_error(connection));
	}
}

static void together(void **state)
{
	struct worker workers[THREADS];

	(void)state;
	start_workers(workers, false);
	join_workers(workers);
	/* One connection for the calls, one a listing. */
	assert_int_equal(fake.n_connections, 1 + THREADS * ROUNDS);
	assert_string_equal(prezero_error(connection), "");
}

static void while_daemons_come_and_go(void **state)
{
	struct worker workers[THREADS];
	char *json;

	(void)state;
	start_workers(workers, true);
	for (int i = 0; i < 20; i++) {
		usleep(5000);
		fake_pause(&fake);
		fake_resume(&fake);
	}
	join_workers(workers);
	assert_int_equal(prezero_status_json(connection, &json), 0);
	free(json);
}

/* Threads that end and connections that end, in either order, with errors still standing. */
static void *fail_once(void *arg)
{
	return (void *)(intptr_t)prezero_give(arg, "nobody", 0);
}

static void errors_are_freed(void **state)
{
	struct prezero *others[3];
	pthread_t threads[3];
	void *r;

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(prezero_connect(&others[i], fake.socket_path), 0);
	/* Each thread ends first. */
	for (int i = 0; i < 3; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, fail_once, others[i]), 0);
		assert_int_equal(pthread_join(threads[i], &r), 0);
		assert_int_equal((intptr_t)r, -ENOENT);
		assert_string_equal(prezero_error(others[i]), "");
	}
	/* This thread's errors: each connection ends first, and a new one at the same address is new. */
	for (int i = 0; i < 3; i++) {
		assert_int_equal(prezero_give(others[i], "me", 0), -ENOENT);
		assert_string_not_equal(prezero_error(others[i]), "");
	}
	for (int i = 0; i < 3; i++) {
		prezero_disconnect(others[i]);
		assert_int_equal(prezero_connect(&others[i], fake.socket_path), 0);
		assert_string_equal(prezero_error(others[i]), "");
	}
	for (int i = 0; i < 3; i++)
		prezero_disconnect(others[i]);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, connect_fake, disconnect_fake)
	const struct CMUnitTest tests[] = {
		T(together),
		T(while_daemons_come_and_go),
		T(errors_are_freed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
