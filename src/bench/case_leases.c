/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench/case_leases.c - how many leases a second: clients that take a page and give it back.
 *
 * Each client checks that its page is zero and dirties it. The time runs until the stock stands
 * again, so that refilling is part of it.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/io.h"
#include "bench/report.h"
#include "bench/service.h"
#include "bench/work.h"
#include "prezero.h"

#define CLIENTS 8
#define SEGMENT_BYTES (2ULL << 20)
#define STOCK_SEGMENTS_MAX 128
#define TAKE_WAIT_MS 10000
#define ROUND_S 2.0

struct round {
	const char *socket;
	int node;
	bool is_named;
	double end_s;
	atomic_uint n_trips;
	atomic_uint next_name;
	pthread_mutex_t lock; /* of why */
	char why[REASON_MAX];
};

static void round_fail(struct round *round, const char *what, const char *error)
{
	pthread_mutex_lock(&round->lock);
	if (!round->why[0])
		snprintf(round->why, sizeof(round->why), "%s: %s", what, error);
	pthread_mutex_unlock(&round->lock);
}

/* Promise I1, on the way: the first word of the page is zero; and it does not go back clean. */
static bool is_zero_then_dirty(int fd)
{
	uint64_t *word = mmap(NULL, SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	bool is_zero;

	if (word == MAP_FAILED)
		return false;
	is_zero = *word == 0;
	*word = UINT64_MAX;
	munmap(word, SEGMENT_BYTES);
	return is_zero;
}

static bool trip(struct round *round, struct prezero *connection)
{
	struct prezero_request request = PREZERO_REQUEST_INIT;
	struct prezero_lease *lease;
	char name[32];
	bool is_zero;

	snprintf(name, sizeof(name), "bench-%u", atomic_fetch_add(&round->next_name, 1));
	request.bytes = SEGMENT_BYTES;
	request.page = "2M";
	request.node = round->node;
	request.name = round->is_named ? name : NULL;
	request.wait_ms = TAKE_WAIT_MS; /* others give their page back meanwhile */
	if (prezero_take(connection, &request, sizeof(request), &lease) < 0) {
		round_fail(round, "take", prezero_error(connection));
		return false;
	}
	is_zero = is_zero_then_dirty(prezero_lease_fd(lease));
	prezero_lease_free(lease);
	if (!is_zero) {
		round_fail(round, "a page", "it could not be mapped, or was not zero");
		return false;
	}
	if (round->is_named && prezero_give(connection, name, -1) < 0) {
		round_fail(round, "give", prezero_error(connection));
		return false;
	}
	return true;
}

static void *client_main(void *arg)
{
	struct round *round = arg;
	struct prezero *connection;
	int r = prezero_connect(&connection, round->socket);

	if (r < 0) {
		round_fail(round, "connect", strerror(-r));
		return NULL;
	}
	while (now_s() < round->end_s && trip(round, connection))
		atomic_fetch_add(&round->n_trips, 1);
	prezero_disconnect(connection);
	return NULL;
}

static int prepare(struct bench *bench, struct trial *trial)
{
	const char *why = bench_why_no_pool(bench);
	uint64_t keep = bench->bytes / SEGMENT_BYTES / 4; /* the rest is on its way there or back */

	if (keep > STOCK_SEGMENTS_MAX)
		keep = STOCK_SEGMENTS_MAX;
	if (why)
		return trial_fail(trial, -ENODATA, "%s", why);
	return service_keep(bench->service, "2M", SEGMENT_BYTES, (unsigned int)keep, trial->reason,
			    sizeof(trial->reason));
}

/* The sample is the time of one trip, so that more is slower as everywhere. */
static int run(struct bench *bench, struct trial *trial, double *ret_s)
{
	struct round round = {
		.socket = service_socket(bench->service),
		.node = bench->node,
		.is_named = *(const bool *)trial->arg,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	pthread_t clients[CLIENTS];
	unsigned int n_clients = 0;
	double started_s = now_s();
	int r = 0;

	round.end_s = started_s + ROUND_S;
	while (n_clients < CLIENTS && r == 0) {
		r = -pthread_create(&clients[n_clients], NULL, client_main, &round);
		n_clients += r == 0;
	}
	for (unsigned int i = 0; i < n_clients; i++)
		pthread_join(clients[i], NULL);
	if (r < 0)
		return trial_fail(trial, r, "cannot start a thread: %s", strerror(-r));
	if (round.why[0])
		return trial_fail(trial, -EIO, "%s", round.why);
	r = prepare(bench, trial);
	*ret_s = (now_s() - started_s) / atomic_load(&round.n_trips);
	return r;
}

/* How long a take lasts should not depend on how many segments stand ready. */
#define TAKES 8

static int prepare_keep(struct bench *bench, struct trial *trial)
{
	const char *why = bench_why_no_pool(bench);

	if (why)
		return trial_fail(trial, -ENODATA, "%s", why);
	return service_keep(bench->service, "2M", SEGMENT_BYTES, *(const unsigned int *)trial->arg,
			    trial->reason, sizeof(trial->reason));
}

static int run_takes(struct bench *bench, struct trial *trial, double *ret_s)
{
	struct prezero *connection = service_connection(bench->service);
	struct prezero_request request = PREZERO_REQUEST_INIT;
	struct prezero_lease *lease[TAKES];
	unsigned int n_taken = 0;
	double started_s = now_s();
	int r = 0;

	request.bytes = SEGMENT_BYTES;
	request.page = "2M";
	request.node = bench->node;
	request.wait_ms = 0;
	while (n_taken < TAKES && r == 0) {
		r = prezero_take(connection, &request, sizeof(request), &lease[n_taken]);
		n_taken += r == 0;
	}
	*ret_s = (now_s() - started_s) / TAKES;
	if (r < 0)
		trial_fail(trial, r, "%s", prezero_error(connection));
	while (n_taken-- > 0)
		prezero_lease_free(lease[n_taken]);
	return r;
}

static void measure_pool_size(struct bench *bench)
{
	unsigned int few = 2 * TAKES, many = 2048;
	char few_name[40], many_name[40];
	struct trial trials[] = {
		{.name = few_name, .prepare = prepare_keep, .run = run_takes, .arg = &few},
		{.name = many_name, .prepare = prepare_keep, .run = run_takes, .arg = &many},
	};

	while (many > few && many * SEGMENT_BYTES > bench->bytes / 2)
		many /= 2;
	snprintf(few_name, sizeof(few_name), "take, %u segments ready", few);
	snprintf(many_name, sizeof(many_name), "take, %u segments ready", many);
	for (size_t i = 0; i < ARRAY_LEN(trials); i++)
		snprintf(trials[i].what, sizeof(trials[i].what),
			 "one take of a 2M page, the mean of %d in a row", TAKES);
	trials_interleave(bench, "leases", trials, ARRAY_LEN(trials), bench_rounds(bench, 7));
	report_ratio(bench->report, "take_many_over_few_segments", &trials[1], &trials[0]);
	report_trials(bench->report, "leases", trials, ARRAY_LEN(trials));
}

static void report_rate(struct bench *bench, const char *figure, const struct trial *trial)
{
	if (trial_is_measured(trial))
		report_figure(bench->report, figure, 1 / series_summary(&trial->series).median);
	else
		report_no_figure(bench->report, figure, trial->reason);
}

void case_leases(struct bench *bench)
{
	static bool named = true, unnamed = false;
	struct trial trials[] = {
		{.name = "take and give, named",
		 .what = "8 clients take a 2M page by name, close it, give it; time of a trip",
		 .prepare = prepare,
		 .run = run,
		 .arg = &named},
		{.name = "take and close, unnamed",
		 .what = "8 clients take a 2M page and close it; time of a trip",
		 .prepare = prepare,
		 .run = run,
		 .arg = &unnamed},
	};

	trials_interleave(bench, "leases", trials, ARRAY_LEN(trials), bench_rounds(bench, 3));
	report_rate(bench, "leases_per_second", &trials[0]);
	report_rate(bench, "leases_unnamed_per_second", &trials[1]);
	report_trials(bench->report, "leases", trials, ARRAY_LEN(trials));
	measure_pool_size(bench);
}
