/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * base/parse.h - numbers, sizes and lists as people and the kernel write them.
 *
 * Every parser reads the whole text or nothing: -EINVAL for what does not parse, -ERANGE for what
 * does not fit, and then *ret keeps its value. No locale, no leading or trailing blanks (the
 * caller strips), no sign, no hexadecimal.
 */
#ifndef PREZERO_BASE_PARSE_H
#define PREZERO_BASE_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

/* A set of small numbers: CPUs or NUMA nodes. */
#define ID_SET_MAX 8192U
struct id_set {
	uint64_t word[ID_SET_MAX / 64];
};

/* Decimal digits only. */
MUST_CHECK int parse_u64(const char *text, uint64_t *ret);
/* "2M", "8G", "512", "1.5G": a decimal number with an optional K, M, G, T or P (either case; powers of
* 1024) and an optional "B" or "iB" after it; a fraction must come out as whole bytes. */
MUST_CHECK int parse_bytes(const char *text, uint64_t *ret);
/* "yes", "no", "true", "false", "on", "off", "1", "0". */
MUST_CHECK int parse_bool(const char *text, bool *ret);
/* "0-3,8,10-11" as in cpulist files and taskset; "" is the empty set. */
MUST_CHECK int parse_id_set(const char *text, struct id_set *ret);
/* "90s", "5m", "1h", "250ms", or plain seconds. */
MUST_CHECK int parse_duration_ms(const char *text, uint64_t *ret);

#define BYTES_TEXT_MAX 24
/* The shortest exact text: "8G", "1536M", "4096" -> "4K"; parse_bytes() reads it back. Returns buf. */
const char *format_bytes(uint64_t bytes, char buf[BYTES_TEXT_MAX]);
/* For people: three significant digits, "7.45G". Returns buf. */
const char *format_bytes_short(uint64_t bytes, char buf[BYTES_TEXT_MAX]);
/* "0-3,8"; returns the length written without the final NUL, or -ENOSPC. */
int format_id_set(const struct id_set *set, char *buf, size_t buf_bytes);

void id_set_add(struct id_set *set, unsigned int id);
bool id_set_has(const struct id_set *set, unsigned int id);
unsigned int id_set_count(const struct id_set *set);
/* The first member >= from, or -1. */
int id_set_next(const struct id_set *set, unsigned int from);
void id_set_and(struct id_set *set, const struct id_set *other);
bool id_set_is_empty(const struct id_set *set);

#endif
