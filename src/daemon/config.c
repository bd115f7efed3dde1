/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/config.c - what the administrator wrote, checked.
 *
 * Guarantees: a configuration that loads is complete and in range; unknown sections and keys, and
 * anything said twice in one file, are faults with file and line.
 */
#include "daemon/config.h"

#include <ctype.h>
#include <fnmatch.h>
#include <pwd.h>
#include <string.h>

#include "daemon/config_lines.h"

#define THREADS_MAX 1024 /* FILL_THREADS_MAX */
#define CLIENTS_DEFAULT 1024
#define CLIENTS_MAX 1000000
#define STOCKS_MAX 1000
#define KEEP_MAX 1000000

enum section {
	SECTION_NONE,
	SECTION_DAEMON,
	SECTION_STOCK,
	SECTION_LEAVE_FREE,
	SECTION_CLEAN,
	SECTION_LIMITS,
};

/* A stock on its way: which file and line began it, and what was said so far. */
struct stock_draft {
	struct stock stock;
	char *file_name;
	unsigned int line;
	bool has_page, has_segment, has_keep;
};

struct builder {
	struct config_lines lines;
	struct config_pages pages;
	struct config *config;
	enum section section;
	char heading[64];
	unsigned int n_drafts;
	struct stock_draft *draft;
	struct stock_draft *current; /* of SECTION_STOCK */
	/* What this file said already: "heading" and "heading key". */
	unsigned int n_said;
	char **said;
};

/* Makes room for one more member; the count is the caller's to raise. */
static void *array_extend(void *array, unsigned int count, size_t member_bytes)
{
	void *larger = reallocarray(array, count + 1, member_bytes);

	if (larger)
		memset((char *)larger + count * member_bytes, 0, member_bytes);
	return larger;
}

static int out_of_memory(struct builder *b)
{
	return config_fault(&b->lines, "out of memory");
}

static int say_once(struct builder *b, const char *text)
{
	char **larger;

	for (unsigned int i = 0; i < b->n_said; i++) {
		if (!strcmp(b->said[i], text))
			return config_fault(&b->lines, "%s is said a second time in this file",
					    text);
	}
	larger = array_extend(b->said, b->n_said, sizeof(*larger));
	if (!larger)
		return out_of_memory(b);
	b->said = larger;
	b->said[b->n_said] = strdup(text);
	if (!b->said[b->n_said])
		return out_of_memory(b);
	b->n_said++;
	return 0;
}

static void forget_said(struct builder *b)
{
	for (unsigned int i = 0; i < b->n_said; i++)
		free(b->said[i]);
	b->n_said = 0;
}

/* Values. */

static int read_count(struct builder *b, const char *name, const char *value, uint64_t min,
		      uint64_t max, unsigned int *ret)
{
	uint64_t count;

	if (parse_u64(value, &count) < 0 || count < min || count > max)
		return config_fault(&b->lines, "%s must be a number from %lu to %lu, not '%s'",
				    name, (unsigned long)min, (unsigned long)max, value);
	*ret = count;
	return 0;
}

static int read_bytes(struct builder *b, const char *name, const char *value, uint64_t *ret)
{
	uint64_t bytes;
	int r = parse_bytes(value, &bytes);

	if (r == -ERANGE)
		return config_fault(&b->lines, "%s is too large: '%s'", name, value);
	if (r < 0)
		return config_fault(&b->lines, "%s must be a size such as 512M or 8G, not '%s'",
				    name, value);
	*ret = bytes;
	return 0;
}

static int read_page(struct builder *b, const char *value, struct page_size *ret)
{
	if (page_size_parse(value, b->pages.thp_bytes, b->pages.base_bytes, ret) < 0)
		return config_fault(
			&b->lines,
			"page must be 2M, 1G, another huge page size, thp or base, not '%s'",
			value);
	return 0;
}

/* [daemon] */

static int set_daemon_key(struct builder *b, const char *name, const char *value)
{
	struct config *config = b->config;

	if (!strcmp(name, "threads"))
		return read_count(b, name, value, 0, THREADS_MAX, &config->n_threads);
	if (!strcmp(name, "clients_max"))
		return read_count(b, name, value, 1, CLIENTS_MAX, &config->clients_max);
	if (!strcmp(name, "rate"))
		return read_bytes(b, name, value, &config->rate_bytes_per_s);
	if (!strcmp(name, "cpus")) {
		if (parse_id_set(value, &config->cpus) < 0)
			return config_fault(&b->lines,
					    "cpus must be a list such as 0-3,8, not '%s'", value);
		return 0;
	}
	if (!strcmp(name, "floor")) {
		config->goals.floor_bytes = 0;
		if (!strcmp(value, "auto"))
			return 0;
		if (read_bytes(b, name, value, &config->goals.floor_bytes) < 0)
			return -EINVAL;
		if (!config->goals.floor_bytes)
			return config_fault(&b->lines,
					    "floor must leave something: a size, or auto");
		return 0;
	}
	if (!strcmp(name, "group")) {
		if (!*value || strlen(value) >= sizeof(config->group) || strpbrk(value, BLANKS))
			return config_fault(&b->lines,
					    "group must be the name of a group, not '%s'", value);
		strcpy(config->group, value);
		return 0;
	}
	return config_fault(
		&b->lines,
		"unknown key '%s' in [daemon]: threads, cpus, rate, floor, group, clients_max",
		name);
}

/* [stock NAME] */

static int set_stock_key(struct builder *b, const char *name, const char *value)
{
	struct stock_draft *draft = b->current;
	struct stock *stock = &draft->stock;
	unsigned int node = 0;

	if (!strcmp(name, "page")) {
		draft->has_page = true;
		return read_page(b, value, &stock->page_class.page);
	}
	if (!strcmp(name, "segment")) {
		draft->has_segment = true;
		return read_bytes(b, name, value, &stock->segment_bytes);
	}
	if (!strcmp(name, "keep")) {
		draft->has_keep = true;
		return read_count(b, name, value, 0, KEEP_MAX, &stock->keep);
	}
	if (!strcmp(name, "reserve")) {
		if (parse_bool(value, &stock->reserve) < 0)
			return config_fault(&b->lines, "reserve must be yes or no, not '%s'",
					    value);
		return 0;
	}
	if (!strcmp(name, "node")) {
		if (!strcmp(value, "any")) {
			stock->page_class.node = NODE_ANY;
			return 0;
		}
		if (read_count(b, "node, unless it is any,", value, 0, NODES_MAX - 1, &node) < 0)
			return -EINVAL;
		stock->page_class.node = node;
		return 0;
	}
	return config_fault(&b->lines,
			    "unknown key '%s' in [%s]: page, node, segment, keep, reserve", name,
			    b->heading);
}

static int begin_stock(struct builder *b, const char *name)
{
	struct stock_draft *larger, *draft;

	if (!*name || strlen(name) >= sizeof(draft->stock.name))
		return config_fault(&b->lines, "a stock's name has 1 to %zu characters",
				    sizeof(draft->stock.name) - 1);
	for (const char *c = name; *c; c++) {
		if (!isalnum((unsigned char)*c) && !strchr("._-", *c))
			return config_fault(
				&b->lines,
				"a stock's name is made of letters, digits, '.', '_' and '-', not '%s'",
				name);
	}
	for (unsigned int i = 0; i < b->n_drafts; i++) {
		if (!strcmp(b->draft[i].stock.name, name)) {
			b->current = &b->draft[i];
			return 0;
		}
	}
	if (b->n_drafts == STOCKS_MAX)
		return config_fault(&b->lines, "more than %d stocks", STOCKS_MAX);
	larger = array_extend(b->draft, b->n_drafts, sizeof(*larger));
	if (!larger)
		return out_of_memory(b);
	b->draft = larger;
	draft = &larger[b->n_drafts];
	draft->file_name = strdup(b->lines.file_name);
	if (!draft->file_name)
		return out_of_memory(b);
	b->n_drafts++;
	draft->line = b->lines.line;
	draft->stock.page_class.node = NODE_ANY;
	strcpy(draft->stock.name, name);
	b->current = draft;
	return 0;
}

/* [leave_free] */

static int set_leave_free_key(struct builder *b, const char *name, const char *value)
{
	struct goals *goals = &b->config->goals;
	struct leave_free *larger;
	struct page_size page;
	uint64_t bytes;

	if (page_size_parse(name, 0, 0, &page) < 0 || page.kind != PAGE_HUGETLB)
		return config_fault(
			&b->lines,
			"the keys of [leave_free] are huge page sizes such as 2M, not '%s'", name);
	if (read_bytes(b, name, value, &bytes) < 0)
		return -EINVAL;
	if (bytes % page.bytes)
		return config_fault(&b->lines, "%s is not a multiple of the page, %s", value, name);
	for (unsigned int i = 0; i < goals->n_leave_free; i++) {
		if (page_size_equal(goals->leave_free[i].page, page)) {
			goals->leave_free[i].bytes_per_node = bytes;
			return 0;
		}
	}
	larger = array_extend(goals->leave_free, goals->n_leave_free, sizeof(*larger));
	if (!larger)
		return out_of_memory(b);
	goals->leave_free = larger;
	larger[goals->n_leave_free++] = (struct leave_free){page, bytes};
	return 0;
}

/* [clean] */

/* "2M" or "2M@1" */
static int read_clean_class(struct builder *b, const char *name, struct page_size *ret_page,
			    int *ret_node)
{
	const char *at = strchrnul(name, '@');
	char page[PAGE_TEXT_MAX];
	unsigned int node = 0;

	snprintf(page, sizeof(page), "%.*s", (int)(at - name), name);
	if (page_size_parse(page, 0, 0, ret_page) < 0 || ret_page->kind != PAGE_HUGETLB)
		return config_fault(
			&b->lines,
			"the keys of [clean] are huge page sizes such as 2M, or 2M@1 on a node, not '%s'",
			name);
	*ret_node = NODE_ANY;
	if (!*at)
		return 0;
	if (read_count(b, "the node", at + 1, 0, NODES_MAX - 1, &node) < 0)
		return -EINVAL;
	*ret_node = node;
	return 0;
}

static int set_clean_key(struct builder *b, const char *name, const char *value)
{
	struct config *config = b->config;
	struct clean_target target = {.bytes = UNLIMITED}, *larger;

	if (read_clean_class(b, name, &target.page, &target.node) < 0)
		return -EINVAL;
	if (strcmp(value, "max") && read_bytes(b, name, value, &target.bytes) < 0)
		return -EINVAL;
	if (target.bytes != UNLIMITED && target.bytes % target.page.bytes)
		return config_fault(&b->lines, "%s is not a multiple of the page, %s", value, name);
	for (unsigned int i = 0; i < config->n_clean_targets; i++) {
		if (page_size_equal(config->clean_target[i].page, target.page) &&
		    config->clean_target[i].node == target.node) {
			config->clean_target[i] = target;
			return 0;
		}
	}
	larger = array_extend(config->clean_target, config->n_clean_targets, sizeof(*larger));
	if (!larger)
		return out_of_memory(b);
	config->clean_target = larger;
	larger[config->n_clean_targets++] = target;
	return 0;
}

/* [limits] */

static int read_user(struct builder *b, const char *name, uid_t *ret)
{
	struct passwd *user;
	uint64_t uid;

	if (parse_u64(name, &uid) == 0 && uid < UINT32_MAX) {
		*ret = uid;
		return 0;
	}
	user = getpwnam(name);
	if (!user)
		return config_fault(&b->lines, "no user '%s' on this host", name);
	*ret = user->pw_uid;
	return 0;
}

static int set_limits_key(struct builder *b, const char *name, const char *value)
{
	struct config *config = b->config;
	struct user_limit *larger;
	uint64_t bytes = UNLIMITED;
	uid_t uid = 0;

	if (strcmp(value, "none") && read_bytes(b, name, value, &bytes) < 0)
		return -EINVAL;
	if (!strcmp(name, "default")) {
		config->default_limit_bytes = bytes;
		return 0;
	}
	if (strncmp(name, "user.", 5))
		return config_fault(&b->lines, "unknown key '%s' in [limits]: default, user.NAME",
				    name);
	if (read_user(b, name + 5, &uid) < 0)
		return -EINVAL;
	for (unsigned int i = 0; i < config->n_user_limits; i++) {
		if (config->user_limit[i].uid == uid) {
			config->user_limit[i].bytes = bytes;
			return 0;
		}
	}
	larger = array_extend(config->user_limit, config->n_user_limits, sizeof(*larger));
	if (!larger)
		return out_of_memory(b);
	config->user_limit = larger;
	larger[config->n_user_limits++] = (struct user_limit){uid, bytes};
	return 0;
}

/* Lines. */

static int begin_section(void *arg, const char *heading)
{
	struct builder *b = arg;
	char said[80];

	snprintf(b->heading, sizeof(b->heading), "%s", heading);
	snprintf(said, sizeof(said), "[%s]", heading);
	if (say_once(b, said) < 0)
		return -EINVAL;
	if (!strcmp(heading, "daemon"))
		b->section = SECTION_DAEMON;
	else if (!strcmp(heading, "leave_free"))
		b->section = SECTION_LEAVE_FREE;
	else if (!strcmp(heading, "clean"))
		b->section = SECTION_CLEAN;
	else if (!strcmp(heading, "limits"))
		b->section = SECTION_LIMITS;
	else if (!strncmp(heading, "stock ", 6)) {
		b->section = SECTION_STOCK;
		return begin_stock(b, heading + 6);
	} else
		return config_fault(
			&b->lines,
			"unknown section [%s]: daemon, stock NAME, leave_free, clean, limits",
			heading);
	return 0;
}

static int set_key(void *arg, const char *name, const char *value)
{
	struct builder *b = arg;
	char said[160];

	snprintf(said, sizeof(said), "%s= in [%s]", name, b->heading);
	if (b->section != SECTION_NONE && say_once(b, said) < 0)
		return -EINVAL;
	switch (b->section) {
	case SECTION_DAEMON:
		return set_daemon_key(b, name, value);
	case SECTION_STOCK:
		return set_stock_key(b, name, value);
	case SECTION_LEAVE_FREE:
		return set_leave_free_key(b, name, value);
	case SECTION_CLEAN:
		return set_clean_key(b, name, value);
	case SECTION_LIMITS:
		return set_limits_key(b, name, value);
	case SECTION_NONE:
		break;
	}
	return config_fault(&b->lines, "'%s' stands before any section", name);
}

/* The whole. */

static int check_stock(struct builder *b, const struct stock_draft *draft)
{
	const struct stock *stock = &draft->stock;
	uint64_t total;

	b->lines.file_name = draft->file_name;
	b->lines.line = draft->line;
	if (!draft->has_page || !draft->has_segment || !draft->has_keep)
		return config_fault(&b->lines, "stock %s lacks %s=", stock->name,
				    !draft->has_page	? "page" :
				    !draft->has_segment ? "segment" :
							  "keep");
	if (!stock->segment_bytes)
		return config_fault(&b->lines, "stock %s: segment must not be 0", stock->name);
	if (stock->page_class.page.bytes && stock->segment_bytes % stock->page_class.page.bytes) {
		char page[PAGE_TEXT_MAX], segment[BYTES_TEXT_MAX];

		return config_fault(&b->lines,
				    "stock %s: segment %s is not a multiple of the page, %s",
				    stock->name, format_bytes(stock->segment_bytes, segment),
				    page_size_format(stock->page_class.page, page));
	}
	if (stock->reserve && stock->page_class.page.kind != PAGE_HUGETLB)
		return config_fault(
			&b->lines,
			"stock %s: reserve is for huge pages such as 2M: others need none",
			stock->name);
	if (__builtin_mul_overflow(stock->segment_bytes, (uint64_t)stock->keep, &total))
		return config_fault(&b->lines, "stock %s: keep times segment is too large",
				    stock->name);
	for (const struct stock_draft *other = b->draft; other < draft; other++) {
		if (page_class_equal(other->stock.page_class, stock->page_class) &&
		    other->stock.segment_bytes == stock->segment_bytes)
			return config_fault(
				&b->lines,
				"stock %s wants the same segments as stock %s (%s:%u): say one keep for both",
				stock->name, other->stock.name, other->file_name, other->line);
	}
	return 0;
}

static int finish(struct builder *b)
{
	struct goals *goals = &b->config->goals;

	for (unsigned int i = 0; i < b->n_drafts; i++) {
		if (check_stock(b, &b->draft[i]) < 0)
			return -EINVAL;
	}
	if (!b->n_drafts)
		return 0;
	goals->stock = calloc(b->n_drafts, sizeof(*goals->stock));
	if (!goals->stock)
		return -ENOMEM;
	for (unsigned int i = 0; i < b->n_drafts; i++)
		goals->stock[goals->n_stocks++] = b->draft[i].stock;
	return 0;
}

static int builder_init(struct builder *b, struct config_pages pages)
{
	*b = (struct builder){.pages = pages};
	b->lines.section = begin_section;
	b->lines.key = set_key;
	b->config = calloc(1, sizeof(*b->config));
	if (!b->config)
		return -ENOMEM;
	b->config->clients_max = CLIENTS_DEFAULT;
	b->config->default_limit_bytes = UNLIMITED;
	strcpy(b->config->group, "prezero");
	return 0;
}

static void builder_done(struct builder *b)
{
	forget_said(b);
	free(b->said);
	for (unsigned int i = 0; i < b->n_drafts; i++)
		free(b->draft[i].file_name);
	free(b->draft);
	free(b->lines.error);
	config_free(b->config);
}

/* Hands out what was built, or the reason why not. */
static int builder_result(struct builder *b, int r, struct config **ret, char **ret_error)
{
	if (r >= 0)
		r = finish(b);
	if (r >= 0)
		*ret = TAKE_PTR(b->config);
	else
		*ret_error = TAKE_PTR(b->lines.error);
	builder_done(b);
	return r;
}

static int read_stream(struct builder *b, FILE *file, const char *name)
{
	b->section = SECTION_NONE;
	b->lines.arg = b;
	b->lines.file_name = name;
	forget_said(b);
	return config_read_lines(&b->lines, file);
}

static int read_named(struct builder *b, const char *path, bool may_be_missing)
{
	AUTO_FILE file = fopen(path, "re");

	if (!file) {
		int r = -errno;

		if (r == -ENOENT && may_be_missing)
			return 0;
		if (asprintf(&b->lines.error, "%s: %s", path, strerror(-r)) < 0)
			b->lines.error = NULL;
		return r;
	}
	return read_stream(b, file, path);
}

static int is_drop_in(const struct dirent *entry)
{
	return fnmatch("*.conf", entry->d_name, FNM_PERIOD) == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name); /* the same order in every locale */
}

static int read_drop_ins(struct builder *b, const char *path)
{
	AUTO_FREE char *directory = NULL;
	struct dirent **entry = NULL;
	int n, r = 0;

	if (asprintf(&directory, "%s.d", path) < 0)
		return -ENOMEM;
	n = scandir(directory, &entry, is_drop_in, by_name);
	if (n < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	for (int i = 0; i < n; i++) {
		AUTO_FREE char *file_path = NULL;

		if (r >= 0 && asprintf(&file_path, "%s/%s", directory, entry[i]->d_name) < 0)
			r = -ENOMEM;
		else if (r >= 0)
			r = read_named(b, file_path, false);
		free(entry[i]);
	}
	free(entry);
	return r;
}

int config_load(const char *path, bool may_be_missing, struct config_pages pages,
		struct config **ret, char **ret_error)
{
	struct builder b;
	int r;

	*ret_error = NULL;
	r = builder_init(&b, pages);
	if (r < 0)
		return r;
	r = read_named(&b, path, may_be_missing);
	if (r >= 0)
		r = read_drop_ins(&b, path);
	return builder_result(&b, r, ret, ret_error);
}

int config_parse(const char *text, const char *name, struct config_pages pages, struct config **ret,
		 char **ret_error)
{
	AUTO_FILE file = NULL;
	struct builder b;
	int r;

	*ret_error = NULL;
	r = builder_init(&b, pages);
	if (r < 0)
		return r;
	/* fmemopen() of nothing fails: one newline more says the same. */
	file = *text ? fmemopen((void *)text, strlen(text), "r") : fmemopen((char[]){"\n"}, 1, "r");
	r = file ? read_stream(&b, file, name) : -errno;
	return builder_result(&b, r, ret, ret_error);
}

struct config *config_free(struct config *config)
{
	if (config) {
		free(config->goals.stock);
		free(config->goals.leave_free);
		free(config->clean_target);
		free(config->user_limit);
		free(config);
	}
	return NULL;
}

uint64_t config_limit_bytes(const struct config *config, uid_t uid)
{
	if (uid == 0)
		return UNLIMITED;
	for (unsigned int i = 0; i < config->n_user_limits; i++) {
		if (config->user_limit[i].uid == uid)
			return config->user_limit[i].bytes;
	}
	return config->default_limit_bytes;
}

uint64_t config_clean_bytes(const struct config *config, struct page_class page_class)
{
	uint64_t bytes = 0;

	for (unsigned int i = 0; i < config->n_clean_targets; i++) {
		const struct clean_target *target = &config->clean_target[i];

		if (!page_size_equal(target->page, page_class.page))
			continue;
		if (target->node == page_class.node)
			return target->bytes;
		if (target->node == NODE_ANY)
			bytes = target->bytes;
	}
	return bytes;
}
