/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_daemon_headroom.c - units that are granted and not yet in the kernel's counters.
 */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "daemon/headroom.h"
#include "tree.h"

#define PAGE (2ULL << 20)
#define SIZE_DIR "hugepages/hugepages-2048kB/"

static struct tree tree;
static struct host *host;
static struct headroom *headroom;

static void put_pages(const char *dir, const char *name, unsigned int pages)
{
	char path[128], text[16];

	snprintf(path, sizeof(path), "%s/" SIZE_DIR "%s", dir, name);
	snprintf(text, sizeof(text), "%u\n", pages);
	tree_put(&tree, path, text);
}

static void put_free(unsigned int node0_pages, unsigned int node1_pages)
{
	put_pages("sys/kernel/mm", "free_hugepages", node0_pages + node1_pages);
	put_pages("sys/devices/system/node/node0", "free_hugepages", node0_pages);
	put_pages("sys/devices/system/node/node1", "free_hugepages", node1_pages);
}

static struct page_class on_node(int node)
{
	return (struct page_class){{PAGE_HUGETLB, PAGE}, node};
}

struct asker {
	pthread_t thread;
	_Atomic bool is_answered;
	int r;
};

static void *ask(void *arg)
{
	struct asker *asker = arg;

	asker->r = headroom_may_take(headroom, on_node(1), 2 * PAGE, false);
	asker->is_answered = true;
	return NULL;
}

/* Four pages on each of two nodes, six of the eight reserved for others: two may be taken, from either
 * node, and not two from each. */
static void nodes_share_what_is_not_reserved(void **state)
{
	static struct host_view view;
	const struct goals goals = {0};
	struct asker asker = {0};

	(void)state;
	tree_init(&tree);
	tree_imagine(&tree, "unequal");
	put_free(4, 4);
	put_pages("sys/kernel/mm", "resv_hugepages", 6);
	assert_int_equal(host_open(tree.path, &host), 0);
	assert_int_equal(host_look(host, &view), 0);
	assert_int_equal(headroom_new(host, &view, &goals, &headroom), 0);

	assert_int_equal(headroom_may_take(headroom, on_node(0), 2 * PAGE, false), 0);
	/* Not yet gone from the counters: whether there is more is known when it is. */
	assert_int_equal(pthread_create(&asker.thread, NULL, ask, &asker), 0);
	usleep(50000);
	assert_false(asker.is_answered);
	put_free(2, 4);
	headroom_took(headroom, on_node(0), 2 * PAGE);
	pthread_join(asker.thread, NULL);
	assert_int_equal(asker.r, -ENOMEM);

	/* What is reserved for the caller needs no room. */
	assert_int_equal(headroom_may_take(headroom, on_node(1), PAGE, true), 0);
	headroom_took(headroom, on_node(1), PAGE);
	headroom_free(headroom);
	host_free(host);
	tree_done(&tree);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nodes_share_what_is_not_reserved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
