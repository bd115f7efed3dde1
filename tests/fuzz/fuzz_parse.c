/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/fuzz/fuzz_parse.c - the parsers of base/parse.h on any text.
 *
 * Promises: a refusal leaves the output alone, and what was read is written and read back the same.
 */
#include <string.h>

#include "base/parse.h"
#include "fuzz.h"

#define KEPT 0x5a5a5a5a5a5a5a5aULL

static void numbers(const char *text)
{
	char buf[BYTES_TEXT_MAX];
	uint64_t value = KEPT, back;
	int r;

	r = parse_u64(text, &value);
	MUST(r == 0 || ((r == -EINVAL || r == -ERANGE) && value == KEPT));
	if (r == 0) {
		/* Every plain number is a size too. */
		MUST(parse_bytes(text, &back) == 0 && back == value);
	}

	value = KEPT;
	r = parse_duration_ms(text, &value);
	MUST(r == 0 || ((r == -EINVAL || r == -ERANGE) && value == KEPT));

	value = KEPT;
	r = parse_bytes(text, &value);
	MUST(r == 0 || ((r == -EINVAL || r == -ERANGE) && value == KEPT));
	if (r == 0) {
		format_bytes(value, buf);
		MUST(parse_bytes(buf, &back) == 0 && back == value);
		format_bytes_short(value, buf);
		MUST(strlen(buf) <= 6);
	}
}

static void sets(const char *text)
{
	static char buf[ID_SET_MAX * 6];
	struct id_set set = {.word[3] = KEPT}, back = {};
	unsigned int n = 0;
	int r = parse_id_set(text, &set);

	if (r < 0) {
		MUST(r == -EINVAL || r == -ERANGE);
		MUST(set.word[3] == KEPT && id_set_count(&set) == 32);
		return;
	}
	for (int id = id_set_next(&set, 0); id >= 0; id = id_set_next(&set, (unsigned int)id + 1))
		n++;
	MUST(n == id_set_count(&set));
	MUST((n == 0) == id_set_is_empty(&set));
	MUST(format_id_set(&set, buf, sizeof(buf)) == (int)strlen(buf));
	MUST(parse_id_set(buf, &back) == 0);
	MUST(!memcmp(&set, &back, sizeof(set)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
	char *text = malloc(data_bytes + 1);
	bool yes = true;

	MUST(text);
	if (data_bytes)
		memcpy(text, data, data_bytes);
	text[data_bytes] = '\0';
	numbers(text);
	sets(text);
	if (parse_bool(text, &yes) < 0)
		MUST(yes);
	free(text);
	return 0;
}
