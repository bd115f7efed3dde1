// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cli/status.c - `prezero status`: what an operator looks at.
 *
 * Prints the daemon's reply, as it is with --json or as tables that fit 100 columns.
 */
#include <errno.h>
#include <string.h>

#include "base/parse.h"
#include "cli/cli.h"
#include "cli/json.h"
#include "cli/text.h"

static error_t parse(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = state->input;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s': status takes no arguments", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void print_header(const json_t *status)
{
	char uptime[DURATION_TEXT_MAX], a[BYTES_TEXT_MAX], b[BYTES_TEXT_MAX], c[BYTES_TEXT_MAX];

	fputs("prezerod ", stdout);
	print_safe(stdout, member_text(status, "version"));
	printf("  pid %llu  up %s  threads %llu\n", (unsigned long long)member_u64(status, "pid"),
	       format_duration(member_u64(status, "uptime_ms"), uptime),
	       (unsigned long long)member_u64(status, "threads"));
	printf("memory   total %s  available %s  floor %s\n",
	       format_bytes_short(member_u64(status, "total_bytes"), a),
	       format_bytes_short(member_u64(status, "available_bytes"), b),
	       format_bytes_short(member_u64(status, "floor_bytes"), c));
	printf("so far   takes %llu  gives %llu  refusals %llu  filled %s\n",
	       (unsigned long long)member_u64(status, "takes"),
	       (unsigned long long)member_u64(status, "gives"),
	       (unsigned long long)member_u64(status, "refusals"),
	       format_bytes_short(member_u64(status, "filled_bytes"), a));
}

/* What fills and zeroes a class, together: how much a second, and when the last one ends. */
struct rate {
	uint64_t bytes_per_second;
	uint64_t eta_ms;
	bool has_eta;
};

static void add_up(const json_t *fills, const json_t *page_class, struct rate *rate)
{
	json_t *fill;
	size_t i;

	json_array_foreach((json_t *)fills, i, fill) {
		uint64_t eta_ms = member_u64(fill, "eta_ms");

		if (strcmp(member_text(fill, "page"), member_text(page_class, "page")) ||
		    member_node(fill) != member_node(page_class))
			continue;
		rate->bytes_per_second += member_u64(fill, "bytes_per_second");
		rate->has_eta |= json_is_integer(json_object_get(fill, "eta_ms"));
		if (eta_ms > rate->eta_ms)
			rate->eta_ms = eta_ms;
	}
}

static struct rate class_rate(const json_t *status, const json_t *page_class)
{
	struct rate rate = {0};

	add_up(json_object_get(status, "fills"), page_class, &rate);
	add_up(json_object_get(status, "zeroing"), page_class, &rate);
	return rate;
}

static void add_bytes(struct table *table, const json_t *object, const char *member)
{
	char text[BYTES_TEXT_MAX];
	uint64_t bytes = member_u64(object, member);

	table_add(table, "%s", bytes ? format_bytes_short(bytes, text) : "-");
}

static void add_count(struct table *table, const json_t *object, const char *member)
{
	uint64_t count = member_u64(object, member);

	if (count)
		table_add(table, "%llu", (unsigned long long)count);
	else
		table_add(table, "%s", "");
}

static void add_rate(struct table *table, struct rate rate)
{
	char eta[DURATION_TEXT_MAX];

	if (rate.bytes_per_second)
		table_add(table, "%.1f", (double)rate.bytes_per_second / 1e9);
	else
		table_add(table, "%s", "");
	table_add(table, "%s", rate.has_eta ? format_duration(rate.eta_ms + 999, eta) : "");
}

/* Where the kernel can tell clean pages from dirty ones. */
static bool any_zeroable(const json_t *status)
{
	json_t *page_class;
	size_t i;

	json_array_foreach(json_object_get(status, "classes"), i, page_class) {
		if (json_is_integer(json_object_get(page_class, "zeroable_pages")))
			return true;
	}
	return false;
}

static void add_clean_and_dirty(struct table *table, const json_t *page_class)
{
	uint64_t free_bytes = member_u64(page_class, "free_bytes");
	uint64_t dirty_bytes = member_u64(page_class, "zeroable_pages") *
			       member_u64(page_class, "page_bytes");
	char clean[BYTES_TEXT_MAX], dirty[BYTES_TEXT_MAX];

	if (!json_is_integer(json_object_get(page_class, "zeroable_pages"))) {
		table_add(table, "%s", "");
		table_add(table, "%s", "");
		return;
	}
	/* The two were read one after the other. */
	if (dirty_bytes > free_bytes)
		dirty_bytes = free_bytes;
	table_add(table, "%s", format_bytes_short(free_bytes - dirty_bytes, clean));
	table_add(table, "%s", format_bytes_short(dirty_bytes, dirty));
}

static void print_classes(const json_t *status)
{
	static const char *const titles[] = {"CLASS", "TOTAL", "FREE",	  "CLEAN", "DIRTY",
					     "READY", "#",     "FILLING", "#",	   "LENT",
					     "#",     "GB/s",  "ETA"};
	bool has_zeroable = any_zeroable(status);
	AUTO_TABLE table = {.align = has_zeroable ? "lrrrrrrrrrrrr" : "lrrrrrrrrrr"};
	char place[PLACE_TEXT_MAX];
	json_t *page_class;
	size_t i;

	for (i = 0; i < ARRAY_LEN(titles); i++) {
		if (has_zeroable || (strcmp(titles[i], "CLEAN") && strcmp(titles[i], "DIRTY")))
			table_add(&table, "%s", titles[i]);
	}
	json_array_foreach(json_object_get(status, "classes"), i, page_class) {
		struct rate rate = class_rate(status, page_class);

		table_add(&table, "%s",
			  format_place(member_text(page_class, "page"), member_node(page_class),
				       place));
		add_bytes(&table, page_class, "total_bytes");
		add_bytes(&table, page_class, "free_bytes");
		if (has_zeroable)
			add_clean_and_dirty(&table, page_class);
		add_bytes(&table, page_class, "ready_bytes");
		add_count(&table, page_class, "segments_ready");
		add_bytes(&table, page_class, "filling_bytes");
		add_count(&table, page_class, "segments_filling");
		add_bytes(&table, page_class, "lent_bytes");
		add_count(&table, page_class, "segments_lent");
		add_rate(&table, rate);
	}
	putchar('\n');
	table_print(&table, stdout);
}

/* The daemon's reasons in a person's words, to be read after "short of". */
static const char *explain(const char *shortage)
{
	static const char *const words[][2] = {
		{"class", "such a page size on this host"},
		{"node", "such a node with memory"},
		{"multiple", "whole pages in its size"},
		{"machine", "memory in this machine"},
		{"pages", "free pages: raise nr_hugepages"},
		{"leave_free", "pages: leave_free= keeps them"},
		{"floor", "room above the memory floor"},
		{"cgroup", "room in the daemon's cgroup"},
		{"thp", "shared transparent huge pages"},
		{"limit", "room under the user's limit"},
	};

	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		if (!strcmp(shortage, words[i][0]))
			return words[i][1];
	}
	return shortage;
}

static void print_short_stocks(const json_t *status)
{
	AUTO_TABLE table = {.align = "llrrrrl"};
	char place[PLACE_TEXT_MAX], size[BYTES_TEXT_MAX];
	size_t i, n_short = 0;
	json_t *stock;

	json_array_foreach(json_object_get(status, "stocks"), i, stock) {
		const char *shortage = member_text(stock, "short_of");

		if (!shortage[0])
			continue;
		if (!n_short++) {
			static const char *const titles[] = {"SHORT STOCK", "CLASS", "SIZE",
							     "KEEP",	    "READY", "FILLING",
							     "SHORT OF"};

			for (size_t t = 0; t < ARRAY_LEN(titles); t++)
				table_add(&table, "%s", titles[t]);
		}
		table_add(&table, "%s", member_text(stock, "name"));
		table_add(&table, "%s",
			  format_place(member_text(stock, "page"), member_node(stock), place));
		table_add(&table, "%s", format_bytes(member_u64(stock, "segment_bytes"), size));
		table_add(&table, "%llu", (unsigned long long)member_u64(stock, "keep"));
		table_add(&table, "%llu", (unsigned long long)member_u64(stock, "ready"));
		table_add(&table, "%llu", (unsigned long long)member_u64(stock, "filling"));
		table_add(&table, "%s", explain(shortage));
	}
	if (!n_short)
		return;
	putchar('\n');
	table_print(&table, stdout);
}

static void print_pinned(const json_t *status)
{
	char size[BYTES_TEXT_MAX];
	json_t *pinned;
	size_t i;

	json_array_foreach(json_object_get(status, "pinned"), i, pinned) {
		if (!member_u64(pinned, "bytes"))
			continue;
		printf("\npinned   %s of ", format_bytes_short(member_u64(pinned, "bytes"), size));
		print_safe(stdout, member_text(pinned, "page"));
		puts(" in no segment: somebody still holds them after the lease ended");
	}
}

int cmd_status(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = parse,
		.doc = "Show what stands ready, what is being filled and what is lent, for every page "
		       "class.",
		.children = session_options,
	};
	AUTO_SESSION session = {.command = argv[0]};
	AUTO_FREE char *text = NULL;
	AUTO_JSON status = NULL;
	int r;

	argp_parse(&argp, argc, argv, 0, NULL, &session);
	r = session_open(&session);
	if (r)
		return r;
	r = prezero_status_json(session.connection, &text);
	if (r < 0)
		return session_fail(&session, r, "status");
	if (session.json) {
		puts(text);
		return session_flush(&session);
	}
	status = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	if (!status)
		return session_fail(&session, -EPROTO, "status");
	print_header(status);
	print_classes(status);
	print_short_stocks(status);
	print_pinned(status);
	return session_flush(&session);
}
