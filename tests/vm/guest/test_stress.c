/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: everything at once, for as long as the plan says.
 * Guarantees: no verifier sees a dirty page, nobody gets a SIGBUS, and every page is there in the
 * end.
 */
#include "guest.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define VERIFIERS 3
#define WRITERS 3

struct actor {
	const struct page_size *size;
	unsigned int seed;
};

static double end_ms;

static void writer(void *argument)
{
	static const char *const texts[] = {"max", "1", "4"};
	struct actor *actor = argument;

	while (now_ms() < end_ms) {
		int node = rand_r(&actor->seed) % nodes;

		/* The file comes and goes with the module. */
		if (pool_write(actor->size, node, "zeroable_hugepages",
			       texts[rand_r(&actor->seed) % ARRAY_SIZE(texts)]))
			sleep_ms(1);
	}
}

static void reader(void *argument)
{
	struct actor *actor = argument;

	while (now_ms() < end_ms) {
		zeroable(actor->size, rand_r(&actor->seed) % nodes);
		sleep_ms(1);
	}
}

static void break_cow(void *argument)
{
	*(volatile char *)argument ^= 1;
}

/* Takes some pages, finds them zero, dirties them, finds them so, and gives them back. */
static void verifier(void *argument)
{
	struct actor *actor = argument;
	const struct page_size *size = actor->size;
	long most = pool_total(size) / VERIFIERS, rounds = 0, refused = 0;

	pattern_owner = (uint32_t)getpid();
	while (now_ms() < end_ms) {
		long pages = 1 + rand_r(&actor->seed) % (most > 1 ? most : 1);
		int flags = rand_r(&actor->seed) % 2 ? MAP_PRIVATE : MAP_SHARED;
		void *address = try_map_pages(size, pages, flags);

		if (!address) { /* the resizer has the pages */
			refused++;
			sleep_ms(1);
			continue;
		}
		check_zero(size, address, pages, "stress");
		dirty_pages(size, address, pages);
		if (flags == MAP_PRIVATE && rand_r(&actor->seed) % 4 == 0) {
			int pid = start_child(break_cow, address), status;

			/* A child has no reservation: without a page left it may get SIGBUS. */
			waitpid(pid, &status, 0);
		}
		check_dirty(size, address, pages, "stress");
		unmap_pages(size, address, pages);
		rounds++;
	}
	note("verifier: %ld rounds, %ld refused", rounds, refused);
}

static void resizer(void *argument)
{
	struct actor *actor = argument;

	while (now_ms() < end_ms) {
		int node = rand_r(&actor->seed) % nodes;
		long pages = pool_pages / 2 + rand_r(&actor->seed) % pool_pages;

		pool_write_number(actor->size, node, "nr_hugepages", pages);
		sleep_ms(rand_r(&actor->seed) % 20);
	}
}

static void migrator(void *argument)
{
	struct actor *actor = argument;
	const struct page_size *size = actor->size;
	long moves = 0;

	pattern_owner = (uint32_t)getpid();
	while (now_ms() < end_ms) {
		void *address = try_map_pages(size, 1, MAP_PRIVATE);
		int status, target;

		if (!address) {
			sleep_ms(1);
			continue;
		}
		dirty_pages(size, address, 1);
		target = (page_node(address) + 1) % nodes;
		if (!syscall(SYS_move_pages, 0, 1UL, &address, &target, &status, MPOL_MF_MOVE))
			moves += status == target;
		check_dirty(size, address, 1, "migration under stress");
		unmap_pages(size, address, 1);
	}
	note("migrator: %ld moves", moves);
}

static void compactor(void *argument)
{
	(void)argument;
	while (now_ms() < end_ms) {
		file_write("/proc/sys/vm/compact_memory", "1");
		sleep_ms(50);
	}
}

static void reloader(void *argument)
{
	struct actor *actor = argument;
	long rounds = 0;

	while (now_ms() < end_ms) {
		sleep_ms(200 + rand_r(&actor->seed) % 300);
		if (!module_unload()) {
			int result = module_load();

			rounds++;
			require(!result, "loading under stress: %s", strerror(-result));
		}
	}
	note("reloader: %ld rounds", rounds);
}

struct part {
	void (*play)(void *actor);
	int number;
};

static void run_actors(const struct page_size *size, const struct part *parts, size_t count)
{
	int pids[32], started = 0;

	end_ms = now_ms() + stress_s * 1e3;
	for (size_t i = 0; i < count; i++)
		for (int n = 0; n < parts[i].number; n++) {
			struct actor actor = {size, (unsigned int)(started * 7919 + getpid())};

			pids[started++] = start_child(parts[i].play, &actor);
		}
	while (started)
		wait_child(pids[--started], 0);
}

/* The resizer changes the pool, and a migration without a free target moves a page between nodes. */
static void restore_pool(const struct page_size *size)
{
	for (int node = 0; node < nodes && size == &page_2m; node++)
		pool_write_number(size, node, "nr_hugepages", pool_pages);
}

static void stress(const struct page_size *size)
{
	static const struct part parts[] = {
		{writer, WRITERS}, {verifier, VERIFIERS}, {resizer, 1},
		{migrator, 1},	   {compactor, 1},	  {reader, 1},
	};
	static const struct part parts_1g[] = {{writer, 2}, {verifier, 2}, {reader, 1}};

	if (size == &page_2m)
		run_actors(size, parts, ARRAY_SIZE(parts));
	else
		run_actors(size, parts_1g, ARRAY_SIZE(parts_1g));
	restore_pool(size);
	check_pool_zero(size, "after stress");
}

static void stress_reload(const struct page_size *size)
{
	static const struct part parts[] = {
		{writer, WRITERS}, {verifier, VERIFIERS}, {migrator, 1}, {reader, 1}, {reloader, 1},
	};

	run_actors(size, parts, ARRAY_SIZE(parts));
	if (!module_loaded("prezero"))
		module_load();
	restore_pool(size);
	check_pool_zero(size, "after stress with reloading");
}

static const struct test tests[] = {
	{.name = "stress", .run = stress, .sizes = SIZE_BOTH, .limit_s = 900},
	{.name = "stress_reload",
	 .run = stress_reload,
	 .sizes = SIZE_2M,
	 .limit_s = 900,
	 .unloaded = true},
};

const struct test_group group_stress = {tests, ARRAY_SIZE(tests)};
