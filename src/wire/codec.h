/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * wire/codec.h - one object between JSON and a struct, by its table. Internal to wire.
 *
 * Decoding is all or nothing; what it made is freed by free_object(). *ret_bad names the field that
 * was refused, and points into the table or the object.
 */
#ifndef PREZERO_WIRE_CODEC_H
#define PREZERO_WIRE_CODEC_H

#include <jansson.h>

#include "base/cleanup.h"
#include "wire/table.h"

enum unknown_fields {
	UNKNOWN_REFUSED, /* in calls: a misspelt wish must not be lost silently */
	UNKNOWN_IGNORED, /* in replies: a newer daemon may say more */
};

/* -EINVAL: *ret_bad says what; -ENOMEM. base is all zero before. */
MUST_CHECK int decode_object(const struct wire_type *type, const json_t *object,
			     enum unknown_fields unknown, void *base, const char **ret_bad);
/* -EINVAL: out of bounds, a required string is NULL, or not UTF-8; -ENOMEM. */
MUST_CHECK int encode_object(const struct wire_type *type, const void *base, json_t **ret);
void free_object(const struct wire_type *type, void *base);

static inline void cleanup_json(json_t **json)
{
	json_decref(*json);
}
#define AUTO_JSON __attribute__((cleanup(cleanup_json))) json_t *

#endif
