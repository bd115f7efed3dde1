// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * daemon/growth.c - see growth.h.
 *
 * Guarantees: the record is written before the pool grows, with the counts from and to which it does;
 * after a crash in between, what of it came about is read back from the kernel.
 */
#include "daemon/growth.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <string.h>
#include <systemd/sd-daemon.h>

#include "base/io.h"
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "reserve/reserve.h"

#define RECORD_NAME "growth"
#define ENTRIES_MAX 512
#define RECORD_BYTES_MAX (128U << 10)

/* What the stocks of one class had added on one node. */
struct entry {
	uint64_t page_bytes;
	int stock_node; /* or NODE_ANY */
	int node;
	uint64_t added_pages;
	uint64_t from_pages, to_pages; /* while it grows; both 0 otherwise */
	uint64_t stands_pages; /* the count of the node as it was left */
};

struct growth {
	unsigned int n;
	struct entry entry[ENTRIES_MAX];
};

static int save(const struct growth *growth, int dir_fd)
{
	AUTO_FREE char *text = NULL;
	json_t *list = json_array();

	for (unsigned int i = 0; i < growth->n; i++) {
		const struct entry *entry = &growth->entry[i];

		json_array_append_new(list,
				      json_pack("{s:I, s:i, s:i, s:I, s:I, s:I, s:I}", "page_bytes",
						(json_int_t)entry->page_bytes, "stock_node",
						entry->stock_node, "node", entry->node,
						"added_pages", (json_int_t)entry->added_pages,
						"from_pages", (json_int_t)entry->from_pages,
						"to_pages", (json_int_t)entry->to_pages,
						"stands_pages", (json_int_t)entry->stands_pages));
	}
	text = json_dumps(list, JSON_INDENT(1));
	json_decref(list);
	return text ? replace_file_at(dir_fd, RECORD_NAME, text, 0600) : -ENOMEM;
}

static int read_entry(const json_t *object, struct entry *ret)
{
	json_int_t page_bytes, added, from, to, stands;
	int stock_node, node;

	if (json_unpack((json_t *)object, "{s:I, s:i, s:i, s:I, s:I, s:I, s:I !}", "page_bytes",
			&page_bytes, "stock_node", &stock_node, "node", &node, "added_pages",
			&added, "from_pages", &from, "to_pages", &to, "stands_pages",
			&stands) < 0 ||
	    page_bytes <= 0 || node < 0 || node >= NODES_MAX || added < 0 || from < 0 ||
	    to < from || stands < 0)
		return -EBADMSG;
	*ret = (struct entry){(uint64_t)page_bytes, stock_node,	    node,
			      (uint64_t)added,	    (uint64_t)from, (uint64_t)to,
			      (uint64_t)stands};
	return 0;
}

/* No record is an empty one. */
static int load(struct growth *ret, int dir_fd)
{
	AUTO_FREE char *text = malloc(RECORD_BYTES_MAX);
	json_t *list, *object;
	size_t i;
	int r;

	ret->n = 0;
	if (!text)
		return -ENOMEM;
	r = (int)read_file_at(dir_fd, RECORD_NAME, text, RECORD_BYTES_MAX);
	if (r < 0)
		return r == -ENOENT ? 0 : r == -EFBIG ? -EBADMSG : r;
	list = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	r = json_is_array(list) && json_array_size(list) <= ENTRIES_MAX ? 0 : -EBADMSG;
	json_array_foreach(list, i, object) {
		if (!r)
			r = read_entry(object, &ret->entry[ret->n]);
		if (!r)
			ret->n++;
	}
	json_decref(list);
	return r;
}

static struct page_class class_of(const struct entry *entry)
{
	return (struct page_class){{PAGE_HUGETLB, entry->page_bytes}, entry->node};
}

/* Growth has ended for this entry, with so many pages on the node; all that is recorded of the node
 * stands at that. */
static void end_growth(struct growth *growth, struct entry *entry, uint64_t have_pages)
{
	uint64_t end_pages = have_pages < entry->to_pages ? have_pages : entry->to_pages;

	if (end_pages > entry->from_pages)
		entry->added_pages += end_pages - entry->from_pages;
	entry->from_pages = entry->to_pages = 0;
	for (unsigned int i = 0; i < growth->n; i++) {
		if (growth->entry[i].page_bytes == entry->page_bytes &&
		    growth->entry[i].node == entry->node)
			growth->entry[i].stands_pages = have_pages;
	}
}

/* What a daemon that was killed while it grew the pool has come to. */
static int end_all(struct growth *growth, struct host *host)
{
	for (unsigned int i = 0; i < growth->n; i++) {
		struct entry *entry = &growth->entry[i];
		uint64_t pages, surplus_pages;
		int r;

		if (entry->from_pages == entry->to_pages)
			continue;
		r = host_read_pages(host, class_of(entry), &pages, &surplus_pages);
		if (r < 0)
			return r;
		end_growth(growth, entry, pages);
	}
	return 0;
}

static struct entry *entry_of(struct growth *growth, struct page_class stock_class, int node)
{
	struct entry *entry = growth->entry;

	for (; entry < growth->entry + growth->n; entry++) {
		if (entry->page_bytes == stock_class.page.bytes &&
		    entry->stock_node == stock_class.node && entry->node == node)
			return entry;
	}
	if (growth->n == ENTRIES_MAX)
		return NULL;
	growth->n++;
	*entry = (struct entry){
		.page_bytes = stock_class.page.bytes, .stock_node = stock_class.node, .node = node};
	return entry;
}

/* How many pages the stocks of a class bring, less those that they have brought. */
static uint64_t missing_pages(const struct growth *growth, const struct goals *goals,
			      struct page_class page_class)
{
	uint64_t wanted = 0, added = 0;

	for (unsigned int i = 0; i < goals->n_stocks; i++) {
		const struct stock *stock = &goals->stock[i];

		if (stock->reserve && page_class_equal(stock->page_class, page_class))
			wanted += stock->segment_bytes / page_class.page.bytes * stock->keep;
	}
	for (unsigned int i = 0; i < growth->n; i++) {
		if (growth->entry[i].page_bytes == page_class.page.bytes &&
		    growth->entry[i].stock_node == page_class.node)
			added += growth->entry[i].added_pages;
	}
	return wanted > added ? wanted - added : 0;
}

/* The service manager is told that the start takes its time; a signal that stops the daemon stops it. */
static bool tick(void *arg, const struct reserve_progress *progress)
{
	sigset_t pending;

	(void)arg;
	(void)progress;
	sd_notify(false, "EXTEND_TIMEOUT_USEC=30000000");
	return sigpending(&pending) < 0 ||
	       (!sigismember(&pending, SIGTERM) && !sigismember(&pending, SIGINT));
}

static void set_goal(const struct daemon *daemon, struct page_class page_class, uint64_t more_pages,
		     struct reserve_goal *ret)
{
	const struct hugetlb_view *size = host_view_hugetlb(daemon->seen, page_class.page.bytes);
	const struct config *config = daemon->config;
	uint64_t pages = more_pages;

	for (unsigned int node = 0; size && node < daemon->seen->nodes_end; node++) {
		if (host_view_has_node(daemon->seen, (int)node) &&
		    (page_class.node == NODE_ANY || page_class.node == (int)node))
			pages += size->node[node].total_pages - size->node[node].surplus_pages;
	}
	*ret = (struct reserve_goal){
		.page_bytes = page_class.page.bytes,
		.bytes = pages * page_class.page.bytes,
		.n_threads = config->n_threads,
		.cpus = config->cpus,
		.floor_bytes = config->goals.floor_bytes,
	};
	if (page_class.node != NODE_ANY) {
		ret->n_shares = 1;
		ret->share[0] = (struct reserve_share){page_class.node, ret->bytes, 0};
	}
}

static void log_result(struct page_class page_class, uint64_t wanted_pages, uint64_t got_pages,
		       const struct reserve_result *result)
{
	char class_text[CLASS_TEXT_MAX], got[BYTES_TEXT_MAX], wanted[BYTES_TEXT_MAX];

	page_class_format(page_class, class_text);
	format_bytes(got_pages * page_class.page.bytes, got);
	format_bytes(wanted_pages * page_class.page.bytes, wanted);
	if (got_pages >= wanted_pages)
		log_info("%s: %s was added to the kernel's pool in %.3f s, %u threads, %s",
			 class_text, got, (double)result->elapsed_ns / 1e9, result->n_threads,
			 reserve_method_name(result->method));
	else
		log_warning("%s: only %s of %s could be added to the kernel's pool (%s)",
			    class_text, got, wanted, shortage_name(result->why));
}

static int grow(struct daemon *daemon, struct growth *growth, struct page_class page_class,
		uint64_t more_pages)
{
	const struct reserve_config config = {
		.host = daemon->host,
		.seen = daemon->seen,
		.runtime_dir = daemon->runtime.path,
		.is_imagined = daemon->options.sysroot != NULL,
		.tick = tick,
	};
	AUTO_FREE struct reserve_goal *goal = malloc(sizeof(*goal));
	AUTO_FREE struct reserve_plan *plan = malloc(sizeof(*plan));
	AUTO_FREE struct reserve_result *result = calloc(1, sizeof(*result));
	char class_text[CLASS_TEXT_MAX];
	uint64_t got_pages = 0;
	enum shortage why;
	int r, node;

	if (!goal || !plan || !result)
		return -ENOMEM;
	page_class_format(page_class, class_text);
	set_goal(daemon, page_class, more_pages, goal);
	if (reserve_decide(daemon->host, daemon->seen, goal, plan, &why, &node) < 0) {
		log_warning("%s: nothing can be added to the kernel's pool (%s)", class_text,
			    shortage_name(why));
		return 0;
	}
	for (unsigned int i = 0; i < plan->n_nodes; i++) {
		struct entry *entry = entry_of(growth, page_class, plan->node[i].node);

		if (!entry)
			return -ENOMEM;
		entry->from_pages = plan->node[i].from_pages;
		entry->to_pages = plan->node[i].to_pages;
	}
	r = save(growth, daemon->runtime.dir_fd);
	if (r < 0)
		return r;
	r = reserve_run(&config, goal, plan, result);
	if (r < 0)
		log_warning("%s: nothing could be added to the kernel's pool: %s", class_text,
			    strerror(-r));
	for (unsigned int i = 0; i < result->n_nodes; i++) {
		struct entry *entry = entry_of(growth, page_class, result->node[i].node);
		uint64_t before_pages = entry->added_pages;

		end_growth(growth, entry, result->node[i].have_pages);
		got_pages += entry->added_pages - before_pages;
	}
	if (r == 0)
		log_result(page_class, more_pages, got_pages, result);
	/* Of what failed, the kernel knows the outcome. */
	r = end_all(growth, daemon->host);
	return r < 0 ? r : save(growth, daemon->runtime.dir_fd);
}

int growth_start(struct daemon *daemon)
{
	const struct goals *goals = &daemon->config->goals;
	AUTO_FREE struct growth *growth = calloc(1, sizeof(*growth));
	bool has_grown = false;
	int r;

	if (!growth)
		return -ENOMEM;
	r = reserve_mend(daemon->host, daemon->runtime.path);
	if (r > 0)
		log_notice(
			"nr_overcommit_hugepages was put back, which a `prezero reserve` that was "
			"killed had raised");
	else if (r < 0)
		log_warning("%s/reserve.intent: %s", daemon->runtime.path, strerror(-r));
	r = load(growth, daemon->runtime.dir_fd);
	if (r == -EBADMSG)
		log_error("%s/" RECORD_NAME
			  " is no record of ours: remove it, and mind that what was "
			  "added to the kernel's pool stays",
			  daemon->runtime.path);
	if (!r)
		r = end_all(growth, daemon->host);
	for (unsigned int i = 0; i < goals->n_stocks && !r; i++) {
		const struct stock *stock = &goals->stock[i];
		uint64_t more_pages;

		if (!stock->reserve || stock->page_class.page.kind != PAGE_HUGETLB)
			continue;
		more_pages = missing_pages(growth, goals, stock->page_class);
		if (!more_pages)
			continue;
		has_grown = true;
		r = grow(daemon, growth, stock->page_class, more_pages);
		if (!r)
			r = host_look(daemon->host, daemon->seen);
	}
	if (!r && has_grown)
		*daemon->net = *daemon->seen;
	return r;
}

/* All entries of a node together. */
static int release_node(struct host *host, struct growth *growth, const struct entry *first,
			struct growth_release *ret)
{
	uint64_t added_pages = 0, pages, surplus_pages;
	int r = host_read_pages(host, class_of(first), &pages, &surplus_pages);

	if (r < 0)
		return r;
	for (unsigned int i = 0; i < growth->n; i++) {
		struct entry *entry = &growth->entry[i];

		if (entry->page_bytes != first->page_bytes || entry->node != first->node)
			continue;
		added_pages += entry->added_pages;
		entry->added_pages = 0;
	}
	if (!added_pages)
		return 0;
	if (pages != first->stands_pages || pages < added_pages) {
		ret->n_overruled++;
		return 0;
	}
	ret->bytes += added_pages * first->page_bytes;
	return host_write_pages(host, class_of(first), pages - added_pages);
}

int growth_release(struct host *host, const char *runtime_path, struct growth_release *ret)
{
	AUTO_FREE struct growth *growth = calloc(1, sizeof(*growth));
	AUTO_FD dir_fd = open(runtime_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	*ret = (struct growth_release){0};
	if (!growth)
		return -ENOMEM;
	if (dir_fd < 0)
		return errno == ENOENT ? 0 : -errno;
	r = reserve_mend(host, runtime_path);
	if (r >= 0)
		r = load(growth, dir_fd);
	if (r >= 0)
		r = end_all(growth, host);
	for (unsigned int i = 0; i < growth->n && r >= 0; i++)
		r = release_node(host, growth, &growth->entry[i], ret);
	if (r < 0)
		return r;
	unlinkat(dir_fd, RECORD_NAME, 0);
	unlinkat(dir_fd, "reserve.lock", 0);
	return 0;
}
