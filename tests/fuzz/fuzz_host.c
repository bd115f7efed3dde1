/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/fuzz/fuzz_host.c - the readers of sysfs and procfs on any tree of files.
 *
 * The input is a tree as text (tests/sysroots). Promises: a look gives a whole view in which policy may
 * trust every index and count, or leaves the view alone and names a file; no descriptor is lost.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "fuzz.h"
#include "host/host.h"
#include "tree.h"

static unsigned int count_fds(void)
{
	DIR *fds = opendir("/proc/self/fd");
	unsigned int n = 0;

	MUST(fds);
	while (readdir(fds))
		n++;
	closedir(fds);
	return n;
}

static void check_view(const struct host_view *view)
{
	MUST(view->nodes_end <= NODES_MAX);
	MUST(view->n_hugetlb <= HUGETLB_SIZES_MAX);
	for (unsigned int n = view->nodes_end; n < NODES_MAX; n++)
		MUST(!view->node[n].online);
	for (unsigned int i = 0; i < view->n_hugetlb; i++) {
		MUST(view->hugetlb[i].page_bytes >= 1024);
		MUST(!i || view->hugetlb[i].page_bytes > view->hugetlb[i - 1].page_bytes);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
	static struct host_view view, untouched;
	unsigned int before = count_fds();
	struct host *host = NULL;
	struct holder holder;
	struct tree tree;
	int r;

	tree_init(&tree);
	tree_unpack(&tree, (const char *)data, data_bytes);
	memset(&view, 0xa5, sizeof(view));
	memset(&untouched, 0xa5, sizeof(untouched));

	MUST(host_open(tree.path, &host) == 0);
	r = host_look(host, &view);
	if (r < 0) {
		MUST(r == -ENODATA);
		MUST(*host_missing(host));
		MUST(!memcmp(&view, &untouched, sizeof(view)));
	} else {
		check_view(&view);
		for (int node = NODE_ANY; node < 3; node++) {
			struct page_class pc = {{PAGE_HUGETLB, 2 << 20}, node};

			r = host_look_headroom(host, pc, &view);
			MUST(r == 0 || r == -ENODEV);
			pc.page.kind = PAGE_BASE;
			MUST(host_look_headroom(host, pc, &view) == 0);
		}
		check_view(&view);
	}
	r = host_holders(host, 0x2a, 77, &holder, 1);
	/* A folder where a file is due: nobody knows whether that process holds anything. */
	MUST(r >= 0 || r == -ENOENT || r == -ENOTDIR || r == -EISDIR);
	host_free(host);
	tree_done(&tree);
	MUST(count_fds() == before);
	return 0;
}
