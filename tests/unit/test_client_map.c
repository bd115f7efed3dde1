/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_client_map.c - prezero_map(): one segment where it can be had, few where it cannot, and
 * nothing left where the whole cannot.
 *
 * The fake daemon has pools of its own, one a node, with a largest segment each.
 */
#include "unit.h"

#include <string.h>
#include <sys/resource.h>

#include "client_test.h"

#define NODES_MAX 4

struct pools {
	const char *page;
	uint64_t page_bytes;
	unsigned int n_nodes;
	uint64_t free_bytes[NODES_MAX];
	uint64_t largest_bytes[NODES_MAX]; /* of a segment; 0: no bound */
	const char *reason; /* of refusals; NULL: pages */
	unsigned int n_takes, n_refusals, fail_at; /* the n-th take fails with io */
	bool tells; /* how much there is, in refusals */
	bool busy; /* Status promises what Take will not give */
};

static struct prezero *connection;

static void serve_status(struct pools *pools, int fd)
{
	struct wire_class classes[NODES_MAX + 1] = {};
	struct wire_reply reply = {
		.method = WIRE_STATUS,
		.status = {.version = "0", .classes = classes, .n_classes = pools->n_nodes + 1},
	};

	for (unsigned int i = 0; i < pools->n_nodes; i++)
		classes[i] = (struct wire_class){
			.page = pools->page,
			.node = i,
			.page_bytes = (int64_t)pools->page_bytes,
			.headroom_bytes = (int64_t)pools->free_bytes[i] +
					  (pools->busy ? 1 << 30 : 0),
		};
	classes[pools->n_nodes] = (struct wire_class){
		.page = "1G", .page_bytes = 1 << 30, .headroom_bytes = 1LL << 50};
	fake_reply(fd, &reply, -1);
}

static void serve_take(struct pools *pools, int fd, const struct wire_take *take)
{
	struct wire_reply reply = {.method = WIRE_TAKE};
	uint64_t best_bytes = 0;
	int segment;

	pools->n_takes++;
	if (pools->n_takes == pools->fail_at) {
		reply.error = WIRE_REFUSED;
		reply.refused = (struct wire_refused){
			.reason = "io", .message = "a disk broke", .page = pools->page};
		fake_reply(fd, &reply, -1);
		return;
	}
	for (unsigned int i = 0; i < pools->n_nodes; i++) {
		uint64_t have_bytes = pools->free_bytes[i];

		if (take->node.is_set && take->node.value != i)
			continue;
		if (pools->largest_bytes[i] && pools->largest_bytes[i] < have_bytes)
			have_bytes = pools->largest_bytes[i];
		if (have_bytes > best_bytes)
			best_bytes = have_bytes;
		if (have_bytes < (uint64_t)take->bytes)
			continue;
		pools->free_bytes[i] -= (uint64_t)take->bytes;
		reply.take = (struct wire_take_reply){
			.id = "1",
			.path = "/x",
			.page = pools->page,
			.page_bytes = (int64_t)pools->page_bytes,
			.node = i,
			.bytes = take->bytes,
		};
		segment = fake_segment((uint64_t)take->bytes);
		fake_reply(fd, &reply, segment);
		close(segment);
		return;
	}
	pools->n_refusals++;
	reply.error = WIRE_REFUSED;
	reply.refused = (struct wire_refused){
		.reason = pools->reason ? pools->reason : "pages",
		.message = pools->n_refusals == 1 ? "first" : "later",
		.page = pools->page,
		.have_bytes = pools->tells ? (int64_t)best_bytes : 0,
		.need_bytes = take->bytes,
	};
	fake_reply(fd, &reply, -1);
}

static enum fake_verdict serve(struct fake_daemon *daemon, int fd, const char *message)
{
	struct wire_reply refusal;
	struct wire_call call;

	if (wire_decode_call(message, strlen(message), &call, &refusal) < 0)
		abort();
	if (call.method == WIRE_STATUS)
		serve_status(daemon->arg, fd);
	else
		serve_take(daemon->arg, fd, &call.take);
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

static int map_with(struct pools *pools, uint64_t bytes, int node, int64_t wait_ms,
		    struct prezero_map **ret)
{
	struct prezero_request request = PREZERO_REQUEST_INIT;

	int r;

	fake_set(&fake, serve, pools);
	request.bytes = bytes;
	request.node = node;
	request.wait_ms = wait_ms;
	r = prezero_map(connection, &request, sizeof(request), ret);
	fake_settle(&fake);
	return r;
}

/* Whole, aligned, zero, writable, and held by nothing but its mappings. */
static void check_map(struct prezero_map *map, uint64_t bytes, uint64_t page_bytes,
		      unsigned int n_segments)
{
	unsigned char *address = prezero_map_address(map);

	assert_int_equal(prezero_map_bytes(map), bytes);
	assert_int_equal((uintptr_t)address % page_bytes, 0);
	assert_int_equal(count_segment_maps(), n_segments);
	assert_int_equal(count_segment_fds(), 0);
	for (uint64_t i = 0; i < bytes; i++)
		assert_int_equal(address[i], 0);
	memset(address, 0xa5, bytes);
}

static void one_segment(void **state)
{
	struct pools pools = {
		.page = "thp", .page_bytes = 2 << 20, .n_nodes = 1, .free_bytes = {16 << 20}};
	struct prezero_map *map, *other;

	(void)state;
	assert_int_equal(map_with(&pools, 4 << 20, -1, -1, &map), 0);
	check_map(map, 4 << 20, 2 << 20, 1);
	assert_int_equal(map_with(&pools, 6 << 20, 0, 0, &other), 0);
	assert_int_equal(pools.n_takes, 2);
	assert_null(prezero_unmap(map));
	assert_int_equal(count_segment_maps(), 1);
	assert_null(prezero_unmap(other));
}

static void two_nodes(void **state)
{
	struct pools pools = {.page = "base",
			      .page_bytes = 4096,
			      .n_nodes = 2,
			      .free_bytes = {5 << 20, 3 << 20},
			      .tells = true};
	struct prezero_map *map;

	(void)state;
	/* What the daemon says that there is, then the rest. */
	assert_int_equal(map_with(&pools, 8 << 20, -1, -1, &map), 0);
	assert_int_equal(pools.n_takes, 3);
	check_map(map, 8 << 20, 4096, 2);
	prezero_unmap(map);

	/* Without a hint: halves. */
	pools = (struct pools){
		.page = "base", .page_bytes = 4096, .n_nodes = 2, .free_bytes = {4 << 20, 4 << 20}};
	assert_int_equal(map_with(&pools, 8 << 20, -1, -1, &map), 0);
	assert_int_equal(pools.n_takes, 3);
	check_map(map, 8 << 20, 4096, 2);
	prezero_unmap(map);
}

/* Sizes that halve to no multiple of the page, and segments that are all small. */
static void odd_sizes(void **state)
{
	struct pools pools = {.page = "base",
			      .page_bytes = 4096,
			      .n_nodes = 1,
			      .free_bytes = {1 << 20},
			      .largest_bytes = {3 * 4096}};
	struct prezero_map *map;

	(void)state;
	assert_int_equal(map_with(&pools, 37 * 4096, -1, 0, &map), -ENOMEM); /* nothing is ready */
	pools.n_takes = 0;
	assert_int_equal(map_with(&pools, 37 * 4096, -1, -1, &map), 0);
	check_map(map, 37 * 4096, 4096, 19); /* 37, 18, 9, 4, then 2 each and a last one */
	prezero_unmap(map);
}

static void deadlines(void **state)
{
	struct pools pools = {.page = "base",
			      .page_bytes = 4096,
			      .n_nodes = 1,
			      .free_bytes = {1 << 20},
			      .largest_bytes = {4096},
			      .reason = "deadline"};
	struct prezero_map *map;

	(void)state;
	/* The time is over: not tried in parts. */
	assert_int_equal(map_with(&pools, 8192, -1, 1000, &map), -ETIMEDOUT);
	assert_int_equal(pools.n_takes, 1);
}

static void not_to_be_had(void **state)
{
	struct pools pools = {.page = "base",
			      .page_bytes = 4096,
			      .n_nodes = 2,
			      .free_bytes = {1 << 20, 1 << 20},
			      .tells = true};
	struct prezero_map *map = NULL;

	(void)state;
	/* The sum is too small: nothing is taken to find that out. */
	assert_int_equal(map_with(&pools, 4 << 20, -1, -1, &map), -ENOMEM);
	assert_int_equal(pools.n_takes, 1);
	assert_string_equal(prezero_error(connection), "first");
	/* Enough on both, not on the one that was asked for. */
	assert_int_equal(map_with(&pools, 2 << 20, 1, -1, &map), -ENOMEM);
	assert_int_equal(pools.n_takes, 2);

	/* Somebody else was faster: what was taken is given back, and the first refusal is told. */
	pools.busy = true;
	pools.n_refusals = 0;
	assert_int_equal(map_with(&pools, 3 << 20, -1, -1, &map), -ENOMEM);
	assert_true(pools.n_takes > 4);
	assert_string_equal(prezero_error(connection), "first");
	assert_non_null(strstr(prezero_error_json(connection), "\"first\""));
	assert_int_equal(count_segment_maps(), 0);
	assert_int_equal(count_segment_fds(), 0);

	/* Other refusals are final at once. */
	pools.reason = "limit";
	pools.n_takes = 0;
	assert_int_equal(map_with(&pools, 3 << 20, -1, -1, &map), -EDQUOT);
	assert_int_equal(pools.n_takes, 1);
	assert_null(map);
}

/* A failure at any of the takes leaves nothing. */
static void failure_midway(void **state)
{
	struct prezero_map *map = NULL;

	(void)state;
	for (unsigned int n = 1; n <= 11; n++) {
		struct pools pools = {.page = "base",
				      .page_bytes = 4096,
				      .n_nodes = 1,
				      .free_bytes = {1 << 20},
				      .largest_bytes = {4096},
				      .fail_at = n};

		assert_int_equal(map_with(&pools, 8 * 4096, -1, -1, &map), -EIO);
		assert_int_equal(pools.n_takes, n);
		assert_string_equal(prezero_error(connection), "a disk broke");
		assert_int_equal(count_segment_maps(), 0);
		assert_int_equal(count_segment_fds(), 0);
	}
	assert_null(map);
}

static void no_address_space(void **state)
{
	struct pools pools = {
		.page = "base", .page_bytes = 4096, .n_nodes = 1, .free_bytes = {1LL << 46}};
	struct prezero_map *map = NULL;
	struct rlimit old, limit;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
	limit = (struct rlimit){.rlim_cur = 1LL << 33, .rlim_max = old.rlim_max};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	(void)limit; /* sanitizers live on address space: one larger than the machine's does as well */
	assert_int_equal(map_with(&pools, 1LL << 47, -1, -1, &map), -ENOMEM);
#else
	assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
	assert_int_equal(map_with(&pools, 1LL << 34, -1, -1, &map), -ENOMEM);
	assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
	assert_non_null(strstr(prezero_error(connection), "mapping a segment"));
#endif
	assert_null(map);
}

/* A segment that another holder has cut short: populating says so, nobody gets a SIGBUS. */
static enum fake_verdict serve_cut(struct fake_daemon *daemon, int fd, const char *message)
{
	struct wire_reply reply = {.method = WIRE_TAKE};
	int segment = fake_segment(4096);

	(void)message;
	(void)daemon;
	reply.take = (struct wire_take_reply){
		.id = "1", .path = "/", .page = "base", .page_bytes = 4096, .bytes = 8192};
	fake_reply(fd, &reply, segment);
	close(segment);
	return FAKE_KEEP;
}

static void bad_calls(void **state)
{
	struct pools pools = {
		.page = "base", .page_bytes = 4096, .n_nodes = 1, .free_bytes = {1 << 20}};
	struct prezero_request request = PREZERO_REQUEST_INIT;
	struct prezero_map *map = NULL;

	(void)state;
	fake_set(&fake, serve, &pools);
	request.bytes = 8192;
	assert_int_equal(prezero_map(NULL, &request, sizeof(request), &map), -EINVAL);
	assert_int_equal(prezero_map(connection, &request, sizeof(request), NULL), -EINVAL);
	assert_int_equal(prezero_map(connection, &request, 4, &map), -EINVAL);
	request.name = "vm7";
	assert_int_equal(prezero_map(connection, &request, sizeof(request), &map), -EINVAL);
	request.name = NULL;
	request.bytes = 0;
	assert_int_equal(prezero_map(connection, &request, sizeof(request), &map), -EINVAL);
	assert_int_equal(pools.n_takes, 0);
	request.bytes = 8192;
	fake_set(&fake, serve_cut, NULL);
	assert_int_equal(prezero_map(connection, &request, sizeof(request), &map), -EPROTO);
	assert_null(map);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, connect_fake, disconnect_fake)
	const struct CMUnitTest tests[] = {
		T(one_segment),	  T(two_nodes),	     T(odd_sizes),	  T(deadlines),
		T(not_to_be_had), T(failure_midway), T(no_address_space), T(bad_calls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
