// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cli/json.c - JSON as the subcommands print and read it.
 */
#include <limits.h>

#include "cli/json.h"

void print_json(const json_t *value)
{
	json_dumpf(value ? value : json_null(), stdout, JSON_ENCODE_ANY);
	putchar('\n');
}

json_t *lease_json(const struct prezero_lease *lease, const char *name)
{
	return json_pack("{s:s, s:s?, s:s, s:s, s:I, s:i, s:I, s:b}", "id", prezero_lease_id(lease),
			 "name", name, "path", prezero_lease_path(lease), "page",
			 prezero_lease_page(lease), "page_bytes",
			 (json_int_t)prezero_lease_page_bytes(lease), "node",
			 prezero_lease_node(lease), "bytes", (json_int_t)prezero_lease_bytes(lease),
			 "filling", prezero_lease_is_filling(lease));
}

uint64_t member_u64(const json_t *object, const char *name)
{
	json_int_t value = json_integer_value(json_object_get(object, name));

	return value > 0 ? (uint64_t)value : 0;
}

const char *member_text(const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	return text ? text : "";
}

int member_node(const json_t *object)
{
	const json_t *node = json_object_get(object, "node");
	json_int_t value = json_integer_value(node);

	return node && value >= 0 && value <= INT_MAX ? (int)value : PREZERO_NODE_ANY;
}
