/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cli/json.h - JSON as the subcommands print and read it.
 *
 * What was printed is always one valid value; what is read may be anything.
 */
#ifndef PREZERO_CLI_JSON_H
#define PREZERO_CLI_JSON_H

#include <jansson.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "prezero.h"

static inline void cleanup_json(json_t **value)
{
	json_decref(*value);
}
#define AUTO_JSON __attribute__((cleanup(cleanup_json))) json_t *

/* Prints it to standard output on a line of its own; null where there was no memory to make it. */
void print_json(const json_t *value);

/* A lease with everything that is known of it; name may be NULL. The caller's to release. */
json_t *lease_json(const struct prezero_lease *lease, const char *name);

/* Members of an object: 0 and "" where there is none of that kind. */
uint64_t member_u64(const json_t *object, const char *name);
const char *member_text(const json_t *object, const char *name);
/* A NUMA node: -1 (any) where there is none. */
int member_node(const json_t *object);

#endif
