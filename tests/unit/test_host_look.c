/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_host_look.c - imagined machines are seen as they are, and so is this one.
 */
#include "unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

#include "base/io.h"
#include "host/host.h"
#include "tree.h"

#define MIB (1ULL << 20)
#define GIB (1ULL << 30)
#define TIB (1ULL << 40)
#define NODES "sys/devices/system/node"

static struct tree tree;
static struct host *host;
static struct host_view view;

static int setup(void **state)
{
	(void)state;
	tree_init(&tree);
	host = NULL;
	memset(&view, 0xa5, sizeof(view));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	host = host_free(host);
	tree_done(&tree);
	return 0;
}

static void open_tree(void)
{
	assert_int_equal(host_open(tree.path, &host), 0);
}

static void look_at(const char *name)
{
	int r;

	tree_imagine(&tree, name);
	open_tree();
	r = host_look(host, &view);
	if (r < 0)
		fail_msg("%s: %s: %s", name, strerror(-r), host_missing(host));
	assert_string_equal(host_missing(host), "");
}

static const char *set_text(const struct id_set *set)
{
	static char text[256];

	assert_true(format_id_set(set, text, sizeof(text)) >= 0);
	return text;
}

static void eight_nodes(void **state)
{
	const struct hugetlb_view *mid, *big;

	(void)state;
	look_at("eight-nodes");
	assert_int_equal(view.nodes_end, 8);
	assert_true(view.total_bytes == 16 * TIB);
	assert_int_equal(view.n_hugetlb, 2);
	assert_int_equal(view.default_hugetlb_bytes, 2 * MIB);
	assert_string_equal(set_text(&view.cpus), "0-511");
	assert_true(view.thp_bytes == 2 * MIB);
	assert_false(view.thp_shmem_denied);
	assert_true(view.cgroup_headroom_bytes == UNLIMITED);

	mid = host_view_hugetlb(&view, 2 * MIB);
	big = host_view_hugetlb(&view, GIB);
	assert_true(mid == &view.hugetlb[0] && big == &view.hugetlb[1]);
	assert_int_equal(mid->total_pages, 8 * 262144);
	assert_int_equal(mid->free_pages, 8 * 200000);
	assert_int_equal(mid->reserved_pages, 10);
	assert_int_equal(big->reserved_pages, 2);
	assert_true(mid->cgroup_headroom_bytes == UNLIMITED);
	for (unsigned int n = 0; n < 8; n++) {
		/* 2 TiB less 512 GiB and 192 GiB of huge pages; a tenth of 80 GiB held back here. */
		uint64_t available_bytes = (2048 - 512 - 192 - 10) * GIB;

		assert_true(view.node[n].online);
		assert_true(view.node[n].total_bytes == 2 * TIB);
		assert_true(view.node[n].free_bytes == (2048 - 512 - 192 - 100) * GIB);
		assert_true(view.node[n].available_bytes == available_bytes);
		assert_int_equal(id_set_next(&view.node[n].cpus, 0), n * 64);
		assert_int_equal(id_set_count(&view.node[n].cpus), 64);
		assert_int_equal(mid->node[n].free_pages, 200000);
		assert_int_equal(big->node[n].free_pages, 150 + n);
		assert_true(mid->node[n].has_zeroable && big->node[n].has_zeroable);
		assert_int_equal(mid->node[n].zeroable_pages, 1000 * n);
		assert_int_equal(big->node[n].zeroable_pages, n);
	}
	for (unsigned int n = 8; n < NODES_MAX; n++)
		assert_false(view.node[n].online);
}

static void unequal(void **state)
{
	(void)state;
	look_at("unequal");
	assert_int_equal(view.nodes_end, 2);
	assert_true(view.node[0].total_bytes == 64 * GIB && view.node[1].total_bytes == 16 * GIB);
	assert_true(view.node[0].available_bytes == 48 * GIB);
	assert_true(view.node[1].available_bytes == 14 * GIB);
	assert_int_equal(view.hugetlb[0].node[1].free_pages, 512);
	assert_int_equal(view.hugetlb[0].node[1].total_pages, 1024);
	assert_false(view.hugetlb[0].node[0].has_zeroable);
}

static void no_hugetlb(void **state)
{
	(void)state;
	look_at("no-hugetlb");
	assert_int_equal(view.n_hugetlb, 0);
	assert_null(host_view_hugetlb(&view, 2 * MIB));
	assert_true(view.node[0].available_bytes == 8 * GIB);
}

static void no_numa(void **state)
{
	(void)state;
	look_at("no-numa");
	assert_int_equal(view.nodes_end, 1);
	assert_true(view.node[0].online);
	assert_true(view.node[0].total_bytes == 8 * GIB);
	assert_true(view.node[0].available_bytes == 7 * GIB);
	assert_string_equal(set_text(&view.node[0].cpus), "0-3");
	assert_int_equal(view.hugetlb[0].node[0].free_pages, 500);
	assert_int_equal(view.hugetlb[0].node[0].total_pages, 512);
}

static void sparse(void **state)
{
	(void)state;
	look_at("sparse");
	assert_int_equal(view.nodes_end, 34);
	assert_true(view.node[0].online && view.node[4].online && view.node[33].online);
	assert_false(view.node[1].online);
	assert_false(view.node[2].online); /* CPUs and no memory */
	assert_true(id_set_is_empty(&view.node[4].cpus));
	assert_int_equal(view.hugetlb[0].node[4].free_pages, 1000);
	assert_int_equal(view.hugetlb[0].node[4].surplus_pages, 5);
	assert_int_equal(view.hugetlb[0].node[33].free_pages, 0);
	assert_true(view.node[33].available_bytes == 64 * GIB);
}

static void thp_denied(void **state)
{
	(void)state;
	look_at("thp-denied");
	assert_true(view.thp_shmem_denied);
	assert_true(view.thp_bytes == 2 * MIB);
	tree_drop(&tree, "sys/kernel/mm/transparent_hugepage");
	assert_int_equal(host_look(host, &view), 0);
	assert_true(view.thp_shmem_denied);
	assert_true(view.thp_bytes == 0);
}

static void confined(void **state)
{
	(void)state;
	look_at("confined");
	assert_string_equal(set_text(&view.cpus), "1-2"); /* 9 is offline */
	assert_false(view.node[0].online);
	assert_true(view.node[1].online);
	/* Two nodes with memory, so a node's figures stay its own. */
	assert_true(view.node[1].total_bytes == 16 * GIB);
	assert_true(view.node[1].available_bytes == 16 * GIB);
}

static void limited_v2(void **state)
{
	(void)state;
	look_at("limited-v2");
	assert_true(view.cgroup_headroom_bytes == GIB); /* of the slice: 4 - 3 */
	assert_true(view.hugetlb[0].cgroup_headroom_bytes == 768 * MIB);

	tree_put(&tree, "sys/fs/cgroup/system.slice/prezerod.service/memory.high", "1200M\n");
	assert_int_equal(host_look(host, &view), -ENODATA);
	assert_non_null(strstr(host_missing(host), "control group"));
	tree_put(&tree, "sys/fs/cgroup/system.slice/prezerod.service/memory.high", "1610612736\n");
	assert_int_equal(host_look(host, &view), 0);
	assert_true(view.cgroup_headroom_bytes == 512 * MIB); /* high counts as a limit */
	tree_put(&tree, "sys/fs/cgroup/system.slice/memory.max", "1\n");
	assert_int_equal(host_look(host, &view), 0);
	assert_true(view.cgroup_headroom_bytes == 0); /* over the limit already */
	tree_put(&tree, "sys/fs/cgroup/system.slice/memory.max", "max\n");
	tree_put(&tree, "sys/fs/cgroup/system.slice/prezerod.service/memory.high", "max\n");
	assert_int_equal(host_look(host, &view), 0);
	assert_true(view.cgroup_headroom_bytes == 2 * GIB);
	tree_put(&tree, "proc/self/mountinfo",
		 "40 22 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,memory_hugetlb_accounting\n");
	tree_put(&tree, "sys/fs/cgroup/system.slice/prezerod.service/hugetlb.2MB.max", "max\n");
	assert_int_equal(host_look(host, &view), 0);
	assert_true(view.hugetlb[0].cgroup_headroom_bytes == 2 * GIB);
}

static void limited_v1(void **state)
{
	(void)state;
	look_at("limited-v1");
	assert_true(view.cgroup_headroom_bytes == 512 * MIB);
	assert_true(view.hugetlb[0].cgroup_headroom_bytes == 0);
}

/* The cheap look sees what changes on its class, and touches nothing else. */
static void headroom_hugetlb(void **state)
{
	struct page_class pc = {{PAGE_HUGETLB, 2 * MIB}, 1};
	static struct host_view before;

	(void)state;
	look_at("unequal");
	before = view;
	tree_put(&tree, NODES "/node1/hugepages/hugepages-2048kB/free_hugepages", "7\n");
	tree_put(&tree, "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "8199\n");
	tree_put(&tree, "sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "3\n");
	tree_put(&tree, "proc/meminfo", "garbage");
	assert_int_equal(host_look_headroom(host, pc, &view), 0);
	assert_int_equal(view.hugetlb[0].node[1].free_pages, 7);
	assert_int_equal(view.hugetlb[0].free_pages, 8199);
	assert_int_equal(view.hugetlb[0].reserved_pages, 3);
	before.hugetlb[0].node[1].free_pages = 7;
	before.hugetlb[0].free_pages = 8199;
	before.hugetlb[0].reserved_pages = 3;
	assert_memory_equal(&before, &view, sizeof(view));

	pc.page.bytes = 16 * MIB;
	assert_int_equal(host_look_headroom(host, pc, &view), -ENODEV);
	pc.page.bytes = 2 * MIB;
	tree_put(&tree, NODES "/node1/hugepages/hugepages-2048kB/free_hugepages", "many\n");
	assert_int_equal(host_look_headroom(host, pc, &view), -ENODATA);
}

static void headroom_memory(void **state)
{
	struct page_class pc = {{PAGE_THP, 2 * MIB}, 1};
	static struct host_view before;

	(void)state;
	look_at("limited-v2");
	before = view;
	tree_put(&tree, "proc/meminfo",
		 "MemTotal: 33554432 kB\nMemFree: 4194304 kB\nMemAvailable: 4194304 kB\n");
	tree_put(&tree, NODES "/node1/meminfo",
		 "Node 1 MemTotal: 16777216 kB\nNode 1 MemFree: 1048576 kB\n");
	tree_put(&tree, NODES "/node0/meminfo", "not read");
	tree_put(&tree, "sys/fs/cgroup/system.slice/memory.current", "4294967295\n");
	assert_int_equal(host_look_headroom(host, pc, &view), 0);
	assert_true(view.available_bytes == 4 * GIB);
	assert_true(view.node[1].available_bytes == GIB);
	assert_true(view.node[0].available_bytes == before.node[0].available_bytes);
	assert_int_equal(view.cgroup_headroom_bytes, 1);
	pc.node = 0;
	assert_int_equal(host_look_headroom(host, pc, &view), -ENODATA);
}

/* One node: what the kernel counts for the host is the truth. */
static void single_node_is_the_host(void **state)
{
	(void)state;
	tree_imagine(&tree, "no-hugetlb");
	tree_put(&tree, NODES "/node0/meminfo",
		 "Node 0 MemTotal: 1048576 kB\nNode 0 MemFree: 1024 kB\n");
	open_tree();
	assert_int_equal(host_look(host, &view), 0);
	assert_true(view.node[0].total_bytes == 8 * GIB);
	assert_true(view.node[0].available_bytes == view.available_bytes);
}

static void nodes_come_and_go(void **state)
{
	struct page_class pc = {{PAGE_HUGETLB, 2 * MIB}, 1};

	(void)state;
	look_at("unequal");
	tree_drop(&tree, NODES "/node1");
	assert_int_equal(host_look(host, &view), 0); /* before `online` says so */
	assert_false(view.node[1].online);
	tree_put(&tree, NODES "/online", "0\n");
	assert_int_equal(host_look(host, &view), 0);
	assert_int_equal(view.nodes_end, 1);
	tree_imagine(&tree, "unequal");
	assert_int_equal(host_look(host, &view), 0);
	assert_int_equal(view.nodes_end, 2);
	assert_true(view.node[1].online);
	assert_int_equal(host_look_headroom(host, pc, &view), 0);
	assert_int_equal(view.hugetlb[0].node[1].free_pages, 512);
}

/* Every file in turn: absent, empty, garbage, too long. Whatever the result, the view is whole or
 * untouched, and a refusal names a file. */
static void every_file_broken(void **state)
{
	static const char *const files[] = {
		"proc/meminfo",
		"proc/self/status",
		"proc/self/cgroup",
		"proc/self/mountinfo",
		"sys/devices/system/cpu/online",
		NODES "/online",
		NODES "/node1/cpulist",
		NODES "/node1/meminfo",
		"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
		"sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages",
		NODES "/node1/hugepages/hugepages-2048kB/free_hugepages",
		NODES "/node1/hugepages/hugepages-2048kB/surplus_hugepages",
		"sys/kernel/mm/transparent_hugepage/shmem_enabled",
		"sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
		"sys/fs/cgroup/system.slice/memory.max",
		"sys/fs/cgroup/system.slice/memory.current",
	};
	static char too_long[20000];
	static struct host_view untouched;

	(void)state;
	memset(too_long, 'x', sizeof(too_long) - 1);
	memset(&untouched, 0xa5, sizeof(untouched));
	tree_imagine(&tree, "limited-v2");
	open_tree();
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		const char *const contents[] = {"garbage: x y\n", "-1\n", too_long, ""};

		for (size_t c = 0; c <= ARRAY_LEN(contents); c++) {
			bool is_absent = c == ARRAY_LEN(contents);
			int r;

			if (is_absent)
				tree_drop(&tree, files[i]);
			else
				tree_put(&tree, files[i], contents[c]);
			view = untouched;
			r = host_look(host, &view);
			if (r < 0) {
				assert_int_equal(r, -ENODATA);
				assert_true(strlen(host_missing(host)) > 8);
				assert_memory_equal(&view, &untouched, sizeof(view));
			} else if (c == 2) {
				/* No file may be that long and no number. */
				fail_msg("%s: taken although it is garbage", files[i]);
			}
			tree_imagine(&tree, "limited-v2");
			assert_int_equal(host_look(host, &view), 0);
		}
	}
}

static unsigned int count_fds(void)
{
	DIR *fds = opendir("/proc/self/fd");
	unsigned int n = 0;

	assert_non_null(fds);
	while (readdir(fds))
		n++;
	closedir(fds);
	return n;
}

/* With any number of descriptors left, a look works or says why, and loses none. */
static void out_of_descriptors(void **state)
{
	unsigned int before = count_fds(), failed = 0;
	struct rlimit saved, limit;

	(void)state;
	tree_imagine(&tree, "eight-nodes");
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &saved), 0);
	for (unsigned int left = 0; left < 64; left++) {
		int r;

		limit = (struct rlimit){before + left, saved.rlim_max};
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
		r = host_open(tree.path, &host);
		if (!r) {
			r = host_look(host, &view);
			host = host_free(host);
		}
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &saved), 0);
		if (r < 0) {
			assert_int_equal(r, -EMFILE);
			failed++;
		}
		assert_int_equal(count_fds(), before);
	}
	assert_in_range(failed, 10, 50);
}

/* Looks from several threads while the layout changes under them. */
static void *look_in_thread(void *arg)
{
	struct page_class pc = {{PAGE_HUGETLB, 2 * MIB}, 0};
	struct host_view *own = malloc(sizeof(*own));
	bool *stop = arg;

	if (!own)
		return arg; /* joined as a complaint */
	*own = view;
	while (!__atomic_load_n(stop, __ATOMIC_ACQUIRE)) {
		int r = host_look_headroom(host, pc, own);

		if (r < 0 || own->hugetlb[0].node[0].free_pages != 8192) {
			free(own);
			return arg;
		}
	}
	free(own);
	return NULL;
}

static void threads_look(void **state)
{
	static struct host_view changed;
	pthread_t threads[2];
	bool stop = false;

	(void)state;
	look_at("unequal");
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, look_in_thread, &stop), 0);
	for (unsigned int i = 0; i < 200; i++) {
		tree_put(&tree, NODES "/online", i % 2 ? "0-1\n" : "0\n");
		assert_int_equal(host_look(host, &changed), 0);
		assert_int_equal(changed.nodes_end, 1 + i % 2);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
		void *complaint;

		pthread_join(threads[i], &complaint);
		assert_null(complaint);
	}
}

/* The machine itself, and the machine as captured. */
static void this_machine(void **state)
{
	static struct host_view captured;
	char command[PATH_MAX];
	struct host *real;

	(void)state;
	assert_int_equal(host_open(NULL, &real), 0);
	assert_int_equal(host_look(real, &view), 0);
	host_free(real);
	assert_true(view.total_bytes >= view.available_bytes);
	assert_true(view.nodes_end >= 1);
	assert_false(id_set_is_empty(&view.cpus));
	assert_true(view.base_page_bytes >= 4096);

	snprintf(command, sizeof(command), "'%s/capture' | '%s/unpack' '%s'", SYSROOTS, SYSROOTS,
		 tree.path);
	assert_int_equal(system(command), 0);
	open_tree();
	assert_int_equal(host_look(host, &captured), 0);
	assert_true(captured.total_bytes == view.total_bytes);
	assert_int_equal(captured.nodes_end, view.nodes_end);
	assert_int_equal(captured.n_hugetlb, view.n_hugetlb);
	assert_int_equal(captured.default_hugetlb_bytes, view.default_hugetlb_bytes);
	assert_int_equal(view.default_hugetlb_bytes != 0, view.n_hugetlb != 0);
	assert_int_equal(captured.thp_bytes, view.thp_bytes);
	assert_int_equal(captured.thp_shmem_denied, view.thp_shmem_denied);
	assert_int_equal(captured.cgroup_headroom_bytes == UNLIMITED,
			 view.cgroup_headroom_bytes == UNLIMITED);
	assert_memory_equal(&captured.cpus, &view.cpus, sizeof(view.cpus));
	for (unsigned int i = 0; i < view.n_hugetlb; i++)
		assert_true(captured.hugetlb[i].page_bytes == view.hugetlb[i].page_bytes);
}

static void no_such_root(void **state)
{
	(void)state;
	assert_int_equal(host_open("/nowhere/at/all", &host), -ENOENT);
	open_tree();
	/* There is nothing to refresh before the first look. */
	assert_int_equal(host_look_headroom(host, (struct page_class){}, &view), -EINVAL);
	assert_int_equal(host_look(host, &view), -ENODATA);
	assert_string_equal(host_missing(host), "/sys/devices/system/cpu/online");
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(eight_nodes),
		TEST(unequal),
		TEST(no_hugetlb),
		TEST(no_numa),
		TEST(sparse),
		TEST(thp_denied),
		TEST(confined),
		TEST(limited_v2),
		TEST(limited_v1),
		TEST(headroom_hugetlb),
		TEST(headroom_memory),
		TEST(single_node_is_the_host),
		TEST(nodes_come_and_go),
		TEST(every_file_broken),
		TEST(out_of_descriptors),
		TEST(threads_look),
		TEST(this_machine),
		TEST(no_such_root),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
