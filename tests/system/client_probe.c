/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/system/client_probe.c - a consumer that uses libprezero as any program would, for test_client.py.
 *
 * usage: client_probe map BYTES PAGE WAIT_MS     maps, checks, dirties, says so, holds until end of input
 *        client_probe storm BYTES PAGE SECONDS   threads that take, check, dirty and drop
 *        client_probe take BYTES PAGE NODE NAME WAIT_MS   "-" is NULL; prints the result and its sentence
 *        client_probe give LEASE WAIT_MS
 *
 * Every page that comes is checked to be zero and left dirty. Exit status 1: a promise was broken.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "prezero.h"

#define STORM_THREADS 4

#define MUST(condition)                                                                         \
	do {                                                                                    \
		if (!(condition)) {                                                             \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                                \
		}                                                                               \
	} while (0)

static struct prezero *connection;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static const char *or_null(const char *text)
{
	return strcmp(text, "-") == 0 ? NULL : text;
}

/* The oracle: zero when it comes, a pattern when it goes. */
static void check_and_dirty(void *memory, uint64_t bytes)
{
	uint64_t *word = memory;

	for (uint64_t i = 0; i < bytes / sizeof(*word); i++) {
		MUST(word[i] == 0);
		word[i] = 0xa5a5a5a5a5a5a5a5;
	}
}

/* What smaps says of a range: its mappings, the smallest page, and what is mapped by PMD. */
static void print_smaps(const void *memory, uint64_t bytes)
{
	uintptr_t begin = (uintptr_t)memory, end = begin + bytes, from, to;
	unsigned long kb, pmd_kb = 0, page_kb = 0;
	FILE *smaps = fopen("/proc/self/smaps", "re");
	unsigned int n = 0;
	bool inside = false;
	char line[512];

	MUST(smaps);
	while (fgets(line, sizeof(line), smaps)) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) {
			inside = from >= begin && to <= end;
			n += inside;
		}
		if (inside && sscanf(line, "KernelPageSize: %lu kB", &kb) == 1)
			page_kb = page_kb && page_kb < kb ? page_kb : kb;
		if (inside && sscanf(line, "ShmemPmdMapped: %lu kB", &kb) == 1)
			pmd_kb += kb;
	}
	fclose(smaps);
	printf("{\"segments\": %u, \"page_kb\": %lu, \"pmd_kb\": %lu", n, page_kb, pmd_kb);
}

static int map(char **argv)
{
	struct prezero_request request = PREZERO_REQUEST_INIT;
	struct prezero_map *whole;
	uint64_t start_ns;
	void *memory;
	char byte;
	int r;

	request.bytes = strtoull(argv[0], NULL, 10);
	request.page = or_null(argv[1]);
	request.wait_ms = strtoll(argv[2], NULL, 10);
	start_ns = now_ns();
	r = prezero_map(connection, &request, sizeof(request), &whole);
	if (r < 0) {
		printf("{\"r\": %d}\n", r);
		fprintf(stderr, "%s\n", prezero_error(connection));
		return 0;
	}
	start_ns = now_ns() - start_ns;
	memory = prezero_map_address(whole);
	MUST(prezero_map_bytes(whole) == request.bytes);
	print_smaps(memory, request.bytes);
	check_and_dirty(memory, request.bytes);
	printf(", \"r\": 0, \"ns\": %" PRIu64 ", \"address\": %" PRIuPTR "}\n", start_ns,
	       (uintptr_t)memory);
	fflush(stdout);
	/* The mapping alone holds it: no connection, no descriptor. */
	connection = prezero_disconnect(connection);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	MUST(prezero_unmap(whole) == NULL);
	return 0;
}

struct storm {
	struct prezero_request request;
	uint64_t until_ns;
	atomic_uint n_taken, n_lost;
};

static void *storm_thread(void *arg)
{
	struct storm *storm = arg;

	while (now_ns() < storm->until_ns) {
		struct prezero_lease *lease;
		void *memory;
		int r = prezero_take(connection, &storm->request, sizeof(storm->request), &lease);

		if (r < 0) {
			/* While the daemon is killed and started: nothing but this. */
			MUST(r == -EPIPE || r == -ECONNREFUSED);
			MUST(*prezero_error(connection));
			atomic_fetch_add(&storm->n_lost, 1);
			usleep(1000);
			continue;
		}
		memory = mmap(NULL, prezero_lease_bytes(lease), PROT_READ | PROT_WRITE, MAP_SHARED,
			      prezero_lease_fd(lease), 0);
		MUST(memory != MAP_FAILED);
		check_and_dirty(memory, prezero_lease_bytes(lease));
		munmap(memory, prezero_lease_bytes(lease));
		MUST(prezero_lease_free(lease) == NULL);
		atomic_fetch_add(&storm->n_taken, 1);
	}
	return NULL;
}

static int storm(char **argv)
{
	struct storm storm = {.request = PREZERO_REQUEST_INIT};
	pthread_t threads[STORM_THREADS];

	storm.request.bytes = strtoull(argv[0], NULL, 10);
	storm.request.page = or_null(argv[1]);
	storm.until_ns = now_ns() + strtoull(argv[2], NULL, 10) * 1000000000U;
	for (unsigned int i = 0; i < STORM_THREADS; i++)
		MUST(pthread_create(&threads[i], NULL, storm_thread, &storm) == 0);
	for (unsigned int i = 0; i < STORM_THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("{\"taken\": %u, \"lost\": %u}\n", storm.n_taken, storm.n_lost);
	return 0;
}

static int print_result(int r)
{
	printf("%d\n", r);
	if (r < 0)
		fprintf(stderr, "%s\n", prezero_error(connection));
	return 0;
}

static int take(char **argv)
{
	struct prezero_request request = PREZERO_REQUEST_INIT;
	struct prezero_lease *lease = NULL;
	int r;

	request.bytes = strtoull(argv[0], NULL, 10);
	request.page = or_null(argv[1]);
	request.node = atoi(argv[2]);
	request.name = or_null(argv[3]);
	request.wait_ms = strtoll(argv[4], NULL, 10);
	r = prezero_take(connection, &request, sizeof(request), &lease);
	prezero_lease_free(lease);
	return print_result(r);
}

static int give(char **argv)
{
	return print_result(prezero_give(connection, argv[0], strtoll(argv[1], NULL, 10)));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int n_arguments;
		int (*run)(char **argv);
	} commands[] = {{"map", 3, map}, {"storm", 3, storm}, {"take", 5, take}, {"give", 2, give}};
	int r = prezero_connect(&connection, NULL);

	if (r < 0) {
		fprintf(stderr, "connect: %s\n", strerror(-r));
		return 4;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (argc == commands[i].n_arguments + 2 && strcmp(argv[1], commands[i].name) == 0) {
			r = commands[i].run(argv + 2);
			prezero_disconnect(connection);
			return r;
		}
	}
	return 2;
}
