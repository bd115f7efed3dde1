/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * wire/table.h - the interface as data: every field of every message, in the order of the reference.
 *
 * Decoding, encoding and freeing walk these tables and know no message by name; the tests render the
 * interface text from them. Internal to wire and its tests.
 */
#ifndef PREZERO_WIRE_TABLE_H
#define PREZERO_WIRE_TABLE_H

#include "wire/messages.h"

enum wire_kind {
	WIRE_KIND_BOOL,
	WIRE_KIND_INT, /* int64_t, or struct wire_optional_int */
	WIRE_KIND_STRING,
	WIRE_KIND_STRINGS, /* an array of them */
	WIRE_KIND_OBJECTS, /* an array of structs */
};

struct wire_field {
	const char *name;
	enum wire_kind kind;
	bool is_optional;
	int64_t min,
		max; /* integers: the value; strings: the length in bytes; of each, in an array */
	size_t offset;
	size_t count_offset; /* arrays: of the size_t beside the pointer */
	const struct wire_type *item; /* WIRE_KIND_OBJECTS */
};

struct wire_type {
	const char *name; /* as the interface has it; NULL for parameters, which have none */
	size_t struct_bytes;
	size_t n_fields;
	const struct wire_field *fields;
};

struct wire_method_row {
	const char *name;
	const struct wire_type *call, *reply;
	bool needs_more; /* replies are many */
};

struct wire_error_row {
	const char *name;
	const struct wire_type *parameters;
};

extern const struct wire_method_row wire_methods[WIRE_METHODS];
extern const struct wire_error_row wire_errors[WIRE_ERRORS];
extern const struct wire_type wire_type_class, wire_type_stock, wire_type_fill, wire_type_pinned,
	wire_type_holder, wire_type_segment;

#endif
