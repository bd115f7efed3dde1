/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/wire_same.h - whether two decoded messages say the same, by their tables.
 */
#ifndef PREZERO_TESTS_WIRE_SAME_H
#define PREZERO_TESTS_WIRE_SAME_H

#include <string.h>

#include "wire/table.h"

static inline bool same_string(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

static inline bool same_object(const struct wire_type *type, const void *a, const void *b);

static inline bool same_array(const struct wire_field *field, const void *a, const void *b)
{
	size_t n = *(const size_t *)((const char *)a + field->count_offset);
	const char *x = *(const char *const *)((const char *)a + field->offset);
	const char *y = *(const char *const *)((const char *)b + field->offset);

	if (n != *(const size_t *)((const char *)b + field->count_offset))
		return false;
	for (size_t i = 0; i < n; i++) {
		if (field->item ?
			    !same_object(field->item, x + i * field->item->struct_bytes,
					 y + i * field->item->struct_bytes) :
			    !same_string(((const char *const *)x)[i], ((const char *const *)y)[i]))
			return false;
	}
	return true;
}

static inline bool same_object(const struct wire_type *type, const void *a, const void *b)
{
	for (size_t i = 0; i < type->n_fields; i++) {
		const struct wire_field *field = &type->fields[i];
		const void *x = (const char *)a + field->offset,
			   *y = (const char *)b + field->offset;
		const struct wire_optional_int *m = x, *n = y;
		bool same = false;

		switch (field->kind) {
		case WIRE_KIND_BOOL:
			same = *(const bool *)x == *(const bool *)y;
			break;
		case WIRE_KIND_INT:
			if (field->is_optional)
				same = m->is_set == n->is_set &&
				       (!m->is_set || m->value == n->value);
			else
				same = *(const int64_t *)x == *(const int64_t *)y;
			break;
		case WIRE_KIND_STRING:
			same = same_string(*(const char *const *)x, *(const char *const *)y);
			break;
		case WIRE_KIND_STRINGS:
		case WIRE_KIND_OBJECTS:
			same = same_array(field, a, b);
			break;
		}
		if (!same)
			return false;
	}
	return true;
}

static inline bool same_call(const struct wire_call *a, const struct wire_call *b)
{
	return a->method == b->method && a->more == b->more && a->oneway == b->oneway &&
	       same_object(wire_methods[a->method].call, &a->list, &b->list);
}

static inline bool same_reply(const struct wire_reply *a, const struct wire_reply *b)
{
	return a->method == b->method && a->error == b->error && a->continues == b->continues &&
	       same_object(a->error == WIRE_NO_ERROR ? wire_methods[a->method].reply :
						       wire_errors[a->error].parameters,
			   &a->status, &b->status);
}

#endif
