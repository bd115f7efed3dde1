// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tests/unit/test_daemon_config.c - what the configuration accepts, and how it refuses.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config.h"
#include "unit.h"

static const struct config_pages pages = {.thp_bytes = 2 << 20, .base_bytes = 4096};

static struct config *parse(const char *text)
{
	struct config *config = NULL;
	char *error = NULL;

	if (config_parse(text, "a.conf", pages, &config, &error) < 0)
		fail_msg("refused: %s\n%s", error, text);
	assert_null(error);
	return config;
}

static void empty_is_the_defaults(void **state)
{
	struct config *config = parse("");

	(void)state;
	assert_int_equal(config->n_threads, 0);
	assert_true(id_set_is_empty(&config->cpus));
	assert_int_equal(config->rate_bytes_per_s, 0);
	assert_string_equal(config->group, "prezero");
	assert_int_equal(config->clients_max, 1024);
	assert_int_equal(config->goals.n_stocks, 0);
	assert_int_equal(config->goals.n_leave_free, 0);
	assert_int_equal(config->goals.floor_bytes, 0);
	assert_true(config_limit_bytes(config, 1000) == UNLIMITED);
	config_free(config);
}

static uint64_t clean_bytes(const struct config *config, uint64_t page_bytes, int node)
{
	return config_clean_bytes(config, (struct page_class){{PAGE_HUGETLB, page_bytes}, node});
}

static void every_key_is_read(void **state)
{
	struct config *config = parse("[daemon]\n"
				      "threads = 3\n"
				      "cpus = 0-2,5 ; a comment\n"
				      "rate=1G\n"
				      "floor = 512M\n"
				      "group = kvm\n"
				      "clients_max = 7\n"
				      "[stock big]\n"
				      "  page = 1G\n"
				      "\tnode = 3\n"
				      "segment = 64G\n"
				      "keep = 2\n"
				      "# a comment\n"
				      "\n"
				      "[stock small] # another\n"
				      "page = thp\n"
				      "segment = 6M\n"
				      "keep = 0\n"
				      "[leave_free]\n"
				      "2M = 1G\n"
				      "1G = 4G\n"
				      "[clean]\n"
				      "2M = max\n"
				      "2M@1 = 4G\n"
				      "1G = 8G\n"
				      "1G@0 = 0\n"
				      "[limits]\n"
				      "default = 10G\n"
				      "user.root = 1G\n"
				      "user.12345 = none\r\n");
	const struct stock *stock = config->goals.stock;

	(void)state;
	assert_int_equal(config->n_threads, 3);
	assert_int_equal(id_set_count(&config->cpus), 4);
	assert_true(id_set_has(&config->cpus, 5));
	assert_int_equal(config->rate_bytes_per_s, 1ULL << 30);
	assert_int_equal(config->goals.floor_bytes, 512ULL << 20);
	assert_string_equal(config->group, "kvm");
	assert_int_equal(config->clients_max, 7);
	assert_int_equal(config->goals.n_stocks, 2);
	assert_string_equal(stock[0].name, "big");
	assert_int_equal(stock[0].page_class.page.kind, PAGE_HUGETLB);
	assert_int_equal(stock[0].page_class.page.bytes, 1ULL << 30);
	assert_int_equal(stock[0].page_class.node, 3);
	assert_int_equal(stock[0].segment_bytes, 64ULL << 30);
	assert_int_equal(stock[0].keep, 2);
	assert_int_equal(stock[1].page_class.page.kind, PAGE_THP);
	assert_int_equal(stock[1].page_class.node, NODE_ANY);
	assert_int_equal(config->goals.n_leave_free, 2);
	assert_int_equal(config->goals.leave_free[1].bytes_per_node, 4ULL << 30);
	assert_true(clean_bytes(config, 2 << 20, 0) == UNLIMITED);
	assert_true(clean_bytes(config, 2 << 20, 1) == 4ULL << 30);
	assert_true(clean_bytes(config, 1 << 30, 0) == 0);
	assert_true(clean_bytes(config, 1 << 30, 1) == 8ULL << 30);
	assert_true(clean_bytes(config, 32 << 20, 1) == 0);
	assert_true(config_limit_bytes(config, 1) == 10ULL << 30);
	assert_true(config_limit_bytes(config, 12345) == UNLIMITED);
	assert_true(config_limit_bytes(config, 0) == UNLIMITED);
	config_free(config);
}

#define STOCK "[stock a]\npage=2M\nsegment=4M\nkeep=1\n"

static const struct {
	const char *text;
	unsigned int line;
	const char *reason; /* part of it */
} refused[] = {
	{"threads = 1\n", 1, "before any section"},
	{"[daemon]\nnonsense\n", 2, "neither"},
	{"[daemon]\nthreads = -1\n", 2, "threads must be a number from 0 to 1024, not '-1'"},
	{"[daemon]\nthreads = 1025\n", 2, "threads"},
	{"[daemon]\nthreads =\n", 2, "threads"},
	{"[daemon]\nthreads = 0x4\n", 2, "threads"},
	{"[daemon]\nthread = 4\n", 2, "unknown key 'thread'"},
	{"[daemon]\nthreads = 4\n\nthreads = 4\n", 4, "a second time"},
	{"[daemon]\n[daemon]\n", 2, "a second time"},
	{"[daemon]\ncpus = 0-\n", 2, "cpus"},
	{"[daemon]\ncpus = 0-99999\n", 2, "cpus"},
	{"[daemon]\nrate = fast\n", 2, "rate must be a size"},
	{"[daemon]\nrate = 99999999999999P\n", 2, "too large"},
	{"[daemon]\nfloor = 0\n", 2, "floor"},
	{"[daemon]\ngroup = \n", 2, "group"},
	{"[daemon]\ngroup = a b\n", 2, "group"},
	{"[daemon]\nclients_max = 0\n", 2, "clients_max"},
	{"[deamon]\n", 1, "unknown section [deamon]"},
	{"[daemon\n", 1, "']'"},
	{"[daemon] x\n", 1, "unexpected text"},
	{"[]\n", 1, "unknown section"},
	{"\n[stock]\n", 2, "unknown section [stock]"},
	{"[stock ]\n", 1, "name"},
	{"[stock a/b]\n", 1, "name"},
	{"[stock aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]\n", 1, "1 to 31"},
	{"[stock aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]\n", 1, "heading"},
	{"[stock a]\n", 1, "lacks page="},
	{"[stock a]\npage = 2M\nkeep = 1\n", 1, "lacks segment="},
	{"[stock a]\npage = 2M\nsegment = 2M\n", 1, "lacks keep="},
	{"[stock a]\npage = 3M\n", 2, "page must be"},
	{"[stock a]\npage = \n", 2, "page must be"},
	{"[stock a]\nnode = -1\n", 2, "node"},
	{"[stock a]\nnode = 64\n", 2, "node"},
	{"[stock a]\nsegment = 1.3\n", 2, "segment"},
	{"[stock a]\npage=2M\nsegment=3M\nkeep=1\n", 1, "3M is not a multiple of the page, 2M"},
	{"[stock a]\npage=base\nsegment=6000\nkeep=1\n", 1, "not a multiple"},
	{"[stock a]\npage=2M\nsegment=0\nkeep=1\n", 1, "must not be 0"},
	{"[stock a]\npage=2M\nsegment=8191P\nkeep=1000000\n", 1, "too large"},
	{"[stock a]\nkeep = 1000001\n", 2, "keep"},
	{STOCK "[stock a]\n", 5, "a second time"},
	{STOCK "[stock b]\npage=2M\nsegment=4M\nkeep=2\n", 5,
	 "same segments as stock a (a.conf:1)"},
	{"[leave_free]\nthp = 1G\n", 2, "huge page sizes"},
	{"[leave_free]\n2M = 3M\n", 2, "multiple"},
	{"[leave_free]\n3M = 3M\n", 2, "huge page sizes"},
	{"[clean]\nthp = max\n", 2, "huge page sizes such as 2M, or 2M@1"},
	{"[clean]\n2M@ = max\n", 2, "the node must be a number from 0 to 63, not ''"},
	{"[clean]\n2M@64 = max\n", 2, "the node"},
	{"[clean]\n2M@any = max\n", 2, "the node"},
	{"[clean]\n2M = all\n", 2, "2M must be a size"},
	{"[clean]\n2M = 3M\n", 2, "3M is not a multiple of the page, 2M"},
	{"[clean]\n2M@1 = 0\n2M@1 = max\n", 3, "a second time"},
	{"[limits]\ndefault = lots\n", 2, "default must be a size"},
	{"[limits]\nuser = 1G\n", 2, "unknown key"},
	{"[limits]\nuser.nobody-of-that-name = 1G\n", 2, "no user"},
};

static void faults_name_file_line_and_reason(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		struct config *config = NULL;
		char *error = NULL, where[32];

		if (config_parse(refused[i].text, "a.conf", pages, &config, &error) >= 0)
			fail_msg("accepted:\n%s", refused[i].text);
		assert_null(config);
		assert_non_null(error);
		snprintf(where, sizeof(where), "a.conf:%u: ", refused[i].line);
		if (strncmp(error, where, strlen(where)) || !strstr(error, refused[i].reason))
			fail_msg("wanted %s... %s, got: %s", where, refused[i].reason, error);
		free(error);
	}
}

static void a_long_line_is_a_fault(void **state)
{
	char text[1024] = "[daemon]\ncpus = ", *error = NULL;
	struct config *config = NULL;

	(void)state;
	while (strlen(text) < 600)
		strcat(text, "0,");
	assert_true(config_parse(text, "a.conf", pages, &config, &error) < 0);
	assert_non_null(strstr(error, "a.conf:2: the line is longer"));
	free(error);
}

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static void drop_ins_win_key_by_key(void **state)
{
	char dir[] = "/tmp/prezero-config-XXXXXX", path[4][128], *error = NULL;
	struct config *config = NULL;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path[0], sizeof(path[0]), "%s/c", dir);
	snprintf(path[1], sizeof(path[1]), "%s/c.d", dir);
	snprintf(path[2], sizeof(path[2]), "%s/c.d/10-a.conf", dir);
	snprintf(path[3], sizeof(path[3]), "%s/c.d/20-b.conf", dir);
	write_file(path[0], "[daemon]\nthreads=1\nrate=1M\n" STOCK);
	assert_int_equal(mkdir(path[1], 0700), 0);
	write_file(path[2], "[daemon]\nthreads=2\n[stock a]\nkeep=5\n");
	write_file(path[3], "[daemon]\nthreads=3\n");

	assert_int_equal(config_load(path[0], false, pages, &config, &error), 0);
	assert_int_equal(config->n_threads, 3);
	assert_int_equal(config->rate_bytes_per_s, 1 << 20);
	assert_int_equal(config->goals.n_stocks, 1);
	assert_int_equal(config->goals.stock[0].keep, 5);
	assert_int_equal(config->goals.stock[0].segment_bytes, 4 << 20);
	config_free(config);

	write_file(path[3], "\n[daemon]\nwrong=3\n");
	assert_true(config_load(path[0], false, pages, &config, &error) < 0);
	assert_non_null(strstr(error, "c.d/20-b.conf:3: unknown key"));
	free(error);

	unlink(path[0]);
	assert_true(config_load(path[0], false, pages, &config, &error) < 0);
	assert_non_null(strstr(error, path[0]));
	free(error);
	unlink(path[3]);
	/* The drop-in alone lacks what the file would have said. */
	assert_true(config_load(path[0], true, pages, &config, &error) < 0);
	assert_non_null(strstr(error, "lacks page="));
	free(error);
	unlink(path[2]);
	rmdir(path[1]);
	assert_int_equal(config_load(path[0], true, pages, &config, &error), 0);
	config_free(config);
	rmdir(dir);
}

/* The shipped file, with what it shows in comments switched on or not. */
static void check_shipped(bool uncomment)
{
	char path[512], text[8192] = "", line[256];
	struct config *config, *defaults;
	bool in_stock = false;
	unsigned int n_shown = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/data/prezerod.conf", getenv("PREZERO_SOURCE"));
	file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		const char *key = line + strspn(line, "#");

		/* The example of a stock and of a user are no defaults. */
		if (line[0] == '[' || !strncmp(line, "#[", 2))
			in_stock = line[0] == '#';
		if (line[0] == '#' && line[1] != ' ' && strstr(line, " =") && !in_stock &&
		    strncmp(key, "user.", 5)) {
			n_shown++;
			if (uncomment) {
				strcat(text, key);
				continue;
			}
		}
		strcat(text, line);
	}
	fclose(file);
	assert_int_equal(n_shown, 11);
	config = parse(text);
	defaults = parse("");
	assert_int_equal(config->goals.n_stocks, 0);
	for (unsigned int i = 0; i < config->goals.n_leave_free; i++)
		assert_int_equal(config->goals.leave_free[i].bytes_per_node, 0);
	for (unsigned int i = 0; i < config->n_clean_targets; i++)
		assert_int_equal(config->clean_target[i].bytes, 0);
	free(config->clean_target);
	config->clean_target = NULL;
	config->n_clean_targets = 0;
	assert_int_equal(config->goals.floor_bytes, defaults->goals.floor_bytes);
	free(config->goals.leave_free);
	memset(&config->goals, 0, sizeof(config->goals));
	memset(&defaults->goals, 0, sizeof(defaults->goals));
	assert_memory_equal(config, defaults, sizeof(*config));
	config_free(config);
	config_free(defaults);
}

static void the_shipped_file_shows_the_defaults(void **state)
{
	(void)state;
	check_shipped(false);
	check_shipped(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(empty_is_the_defaults),
		cmocka_unit_test(every_key_is_read),
		cmocka_unit_test(faults_name_file_line_and_reason),
		cmocka_unit_test(a_long_line_is_a_fault),
		cmocka_unit_test(drop_ins_win_key_by_key),
		cmocka_unit_test(the_shipped_file_shows_the_defaults),
	};

	return cmocka_run_group_tests_name("daemon_config", tests, NULL, NULL);
}
