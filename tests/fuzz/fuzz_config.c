// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tests/fuzz/fuzz_config.c - any bytes as a configuration file: accepted whole and in range, or refused
 * with file, line and reason.
 */
#include <string.h>

#include "daemon/config.h"
#include "fuzz.h"

static void check_accepted(const struct config *config)
{
	MUST(config->n_threads <= 1024);
	MUST(config->clients_max >= 1);
	MUST(config->group[0]);
	for (unsigned int i = 0; i < config->goals.n_stocks; i++) {
		const struct stock *stock = &config->goals.stock[i];

		MUST(stock->name[0]);
		MUST(stock->segment_bytes);
		MUST(stock->page_class.page.bytes);
		MUST(stock->segment_bytes % stock->page_class.page.bytes == 0);
		MUST(stock->page_class.node >= NODE_ANY && stock->page_class.node < NODES_MAX);
		MUST(!stock->keep || stock->segment_bytes <= UINT64_MAX / stock->keep);
	}
	for (unsigned int i = 0; i < config->goals.n_leave_free; i++) {
		const struct leave_free *leave_free = &config->goals.leave_free[i];

		MUST(leave_free->page.kind == PAGE_HUGETLB);
		MUST(leave_free->bytes_per_node % leave_free->page.bytes == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
	const struct config_pages pages = {.thp_bytes = 2 << 20, .base_bytes = 4096};
	char *text = malloc(data_bytes + 1), *error = NULL;
	struct config *config = NULL;

	MUST(text);
	memcpy(text, data, data_bytes);
	text[data_bytes] = '\0';
	if (config_parse(text, "f", pages, &config, &error) == 0) {
		MUST(config && !error);
		check_accepted(config);
		config_free(config);
	} else {
		MUST(!config && error && !strncmp(error, "f:", 2));
	}
	free(error);
	free(text);
	return 0;
}
