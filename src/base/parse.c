/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * base/parse.c - numbers, sizes and lists as people and the kernel write them.
 *
 * Guarantees: no locale, and no floating point in what is read; a text is read whole or not at all.
 */
#include "base/parse.h"

#include <inttypes.h>
#include <string.h>

/* Reads the digits at *text and moves it behind them. */
static int scan_u64(const char **text, uint64_t *ret)
{
	const char *p = *text;
	uint64_t value = 0;

	if (*p < '0' || *p > '9')
		return -EINVAL;
	for (; *p >= '0' && *p <= '9'; p++) {
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
			return -ERANGE;
	}
	*text = p;
	*ret = value;
	return 0;
}

int parse_u64(const char *text, uint64_t *ret)
{
	uint64_t value;
	int r = scan_u64(&text, &value);

	/* What is too long and not a number either is not a number. */
	if (r == -ERANGE)
		text += strspn(text, "0123456789");
	if (r == -EINVAL || *text)
		return -EINVAL;
	if (r < 0)
		return r;
	*ret = value;
	return 0;
}

/* The bytes that the fraction digits [first, end) of a unit stand for. From the last digit to the
 * first, each step must divide evenly: if the whole fraction comes out as whole bytes, so does every
 * tail of it. */
static int fraction_bytes(const char *first, const char *end, uint64_t unit_bytes, uint64_t *ret)
{
	uint64_t bytes = 0;

	while (end > first) {
		bytes += (uint64_t)(*--end - '0') * unit_bytes;
		if (bytes % 10)
			return -EINVAL;
		bytes /= 10;
	}
	*ret = bytes;
	return 0;
}

int parse_bytes(const char *text, uint64_t *ret)
{
	static const char unit_letters[] = "KMGTP";
	const char *fraction = NULL, *fraction_end = NULL;
	uint64_t whole = 0, part = 0, unit_bytes = 1;
	int r = scan_u64(&text, &whole);

	if (r < 0 && r != -ERANGE)
		return r;
	if (r == -ERANGE)
		text += strspn(text, "0123456789");
	if (*text == '.') {
		fraction = ++text;
		text += strspn(text, "0123456789");
		fraction_end = text;
		if (fraction == fraction_end)
			return -EINVAL;
	}
	if (*text) {
		char letter = *text >= 'a' && *text <= 'z' ? (char)(*text - 'a' + 'A') : *text;
		const char *at = strchr(unit_letters, letter);

		if (at) {
			unit_bytes = 1ULL << (10 * (at - unit_letters + 1));
			text++;
			if (*text == 'i' && text[1] == 'B')
				text++;
		}
		if (*text == 'B')
			text++;
		if (*text)
			return -EINVAL;
	}
	if (r < 0)
		return r;
	if (fraction && fraction_bytes(fraction, fraction_end, unit_bytes, &part) < 0)
		return -EINVAL;
	if (__builtin_mul_overflow(whole, unit_bytes, &whole) ||
	    __builtin_add_overflow(whole, part, &whole))
		return -ERANGE;
	*ret = whole;
	return 0;
}

int parse_bool(const char *text, bool *ret)
{
	static const struct {
		const char *text;
		bool value;
	} words[] = {
		{"yes", true}, {"no", false},  {"true", true}, {"false", false},
		{"on", true},  {"off", false}, {"1", true},    {"0", false},
	};

	for (unsigned int i = 0; i < ARRAY_LEN(words); i++) {
		if (!strcmp(text, words[i].text)) {
			*ret = words[i].value;
			return 0;
		}
	}
	return -EINVAL;
}

int parse_id_set(const char *text, struct id_set *ret)
{
	struct id_set set = {};

	while (*text) {
		uint64_t first, last;
		int r = scan_u64(&text, &first);

		if (r < 0)
			return r;
		last = first;
		if (*text == '-') {
			text++;
			r = scan_u64(&text, &last);
			if (r < 0)
				return r;
		}
		if (last < first)
			return -EINVAL;
		if (last >= ID_SET_MAX)
			return -ERANGE;
		for (uint64_t id = first; id <= last; id++)
			id_set_add(&set, (unsigned int)id);
		if (!*text)
			break;
		/* A comma stands between two ranges, so something follows it. */
		if (*text != ',' || !*++text)
			return -EINVAL;
	}
	*ret = set;
	return 0;
}

int parse_duration_ms(const char *text, uint64_t *ret)
{
	static const struct {
		const char *suffix;
		uint64_t ms;
	} units[] = {{"", 1000}, {"s", 1000}, {"ms", 1}, {"m", 60000}, {"h", 3600000}};
	uint64_t value;
	int r = scan_u64(&text, &value);

	if (r == -ERANGE)
		text += strspn(text, "0123456789");
	else if (r < 0)
		return r;
	for (unsigned int i = 0; i < ARRAY_LEN(units); i++) {
		if (strcmp(text, units[i].suffix))
			continue;
		if (r < 0 || __builtin_mul_overflow(value, units[i].ms, &value))
			return -ERANGE;
		*ret = value;
		return 0;
	}
	return -EINVAL;
}

const char *format_bytes(uint64_t bytes, char buf[BYTES_TEXT_MAX])
{
	static const char unit_letters[] = "KMGTP";
	unsigned int unit = 0;

	while (bytes && bytes % 1024 == 0 && unit < strlen(unit_letters)) {
		bytes /= 1024;
		unit++;
	}
	if (unit)
		snprintf(buf, BYTES_TEXT_MAX, "%" PRIu64 "%c", bytes, unit_letters[unit - 1]);
	else
		snprintf(buf, BYTES_TEXT_MAX, "%" PRIu64, bytes);
	return buf;
}

const char *format_bytes_short(uint64_t bytes, char buf[BYTES_TEXT_MAX])
{
	static const char unit_letters[] = "KMGTPE";
	unsigned int unit = 0;
	uint64_t thousandths;
	double scale = 1;

	if (bytes < 1000) {
		snprintf(buf, BYTES_TEXT_MAX, "%" PRIu64, bytes);
		return buf;
	}
	/* The first unit in which the number, rounded, has no more than three digits before the point. */
	do {
		scale *= 1024;
		thousandths = (uint64_t)((double)bytes * 1000 / scale + 0.5);
	} while (thousandths >= 999500 && unit_letters[++unit]);
	if (thousandths < 1000)
		snprintf(buf, BYTES_TEXT_MAX, "0.%03" PRIu64 "%c", thousandths, unit_letters[unit]);
	else if (thousandths < 9995)
		snprintf(buf, BYTES_TEXT_MAX, "%" PRIu64 ".%02" PRIu64 "%c",
			 (thousandths + 5) / 1000, (thousandths + 5) % 1000 / 10,
			 unit_letters[unit]);
	else if (thousandths < 99950)
		snprintf(buf, BYTES_TEXT_MAX, "%" PRIu64 ".%" PRIu64 "%c",
			 (thousandths + 50) / 1000, (thousandths + 50) % 1000 / 100,
			 unit_letters[unit]);
	else
		snprintf(buf, BYTES_TEXT_MAX, "%" PRIu64 "%c", (thousandths + 500) / 1000,
			 unit_letters[unit]);
	return buf;
}

int format_id_set(const struct id_set *set, char *buf, size_t buf_bytes)
{
	size_t used = 0;
	int first = id_set_next(set, 0);

	if (!buf_bytes)
		return -ENOSPC;
	buf[0] = '\0';
	while (first >= 0) {
		const char *comma = used ? "," : "";
		int last = first, n;

		while (id_set_has(set, (unsigned int)last + 1))
			last++;
		if (last == first)
			n = snprintf(buf + used, buf_bytes - used, "%s%d", comma, first);
		else
			n = snprintf(buf + used, buf_bytes - used, "%s%d-%d", comma, first, last);
		if (n < 0 || (size_t)n >= buf_bytes - used)
			return -ENOSPC;
		used += (size_t)n;
		first = id_set_next(set, (unsigned int)last + 1);
	}
	return (int)used;
}

void id_set_add(struct id_set *set, unsigned int id)
{
	if (id < ID_SET_MAX)
		set->word[id / 64] |= 1ULL << (id % 64);
}

bool id_set_has(const struct id_set *set, unsigned int id)
{
	return id < ID_SET_MAX && (set->word[id / 64] >> (id % 64) & 1);
}

unsigned int id_set_count(const struct id_set *set)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < ARRAY_LEN(set->word); i++)
		n += (unsigned int)__builtin_popcountll(set->word[i]);
	return n;
}

int id_set_next(const struct id_set *set, unsigned int from)
{
	while (from < ID_SET_MAX) {
		uint64_t rest = set->word[from / 64] >> (from % 64);

		if (rest)
			return (int)(from + (unsigned int)__builtin_ctzll(rest));
		from = (from / 64 + 1) * 64;
	}
	return -1;
}

void id_set_and(struct id_set *set, const struct id_set *other)
{
	for (unsigned int i = 0; i < ARRAY_LEN(set->word); i++)
		set->word[i] &= other->word[i];
}

bool id_set_is_empty(const struct id_set *set)
{
	return id_set_next(set, 0) < 0;
}
