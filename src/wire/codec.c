// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * wire/codec.c - walks the tables: JSON to struct, struct to JSON, and free.
 */
#include "wire/codec.h"

#include <string.h>

/* A double holds every integer up to here exactly. */
#define EXACT_MAX 9007199254740992.0 /* 2^53 */

/* Members are reached by their offset. Pointers go through memcpy(): their types differ. */
static void *member(void *base, size_t offset)
{
	return (char *)base + offset;
}

static const void *member_const(const void *base, size_t offset)
{
	return (const char *)base + offset;
}

static void *load_pointer(const void *base, size_t offset)
{
	void *pointer;

	memcpy(&pointer, member_const(base, offset), sizeof(pointer));
	return pointer;
}

static void store_pointer(void *base, size_t offset, const void *pointer)
{
	memcpy(member(base, offset), &pointer, sizeof(pointer));
}

static size_t array_count(const struct wire_field *field, const void *base)
{
	return *(const size_t *)member_const(base, field->count_offset);
}

/* JSON has one kind of number: 4096.0 and 4096 are the same. */
static int decode_int(const struct wire_field *field, const json_t *json, int64_t *ret)
{
	int64_t value;

	if (json_is_integer(json)) {
		value = json_integer_value(json);
	} else if (json_is_real(json)) {
		double real = json_real_value(json);

		if (!(real >= -EXACT_MAX && real <= EXACT_MAX) || (double)(int64_t)real != real)
			return -EINVAL;
		value = (int64_t)real;
	} else {
		return -EINVAL;
	}
	if (value < field->min || value > field->max)
		return -EINVAL;
	*ret = value;
	return 0;
}

static int decode_string(const struct wire_field *field, const json_t *json, char **ret)
{
	if (!json_is_string(json) || json_string_length(json) > (size_t)field->max)
		return -EINVAL;
	*ret = strdup(json_string_value(json));
	return *ret ? 0 : -ENOMEM;
}

/* The array stands in base before its items do, so that free_object() finds what there is. */
static int decode_array(const struct wire_field *field, const json_t *json,
			enum unknown_fields unknown, void *base, const char **ret_bad)
{
	size_t n, i, item_bytes = field->item ? field->item->struct_bytes : sizeof(char *);
	char *items;
	int r;

	if (!json_is_array(json))
		return -EINVAL;
	n = json_array_size(json);
	if (n == 0)
		return 0;
	items = calloc(n, item_bytes);
	if (!items)
		return -ENOMEM;
	store_pointer(base, field->offset, items);
	*(size_t *)member(base, field->count_offset) = n;

	for (i = 0; i < n; i++) {
		const json_t *item = json_array_get(json, i);

		if (field->item)
			r = decode_object(field->item, item, unknown, items + i * item_bytes,
					  ret_bad);
		else
			r = decode_string(field, item, (char **)items + i);
		if (r < 0)
			return r;
	}
	return 0;
}

static int decode_field(const struct wire_field *field, const json_t *json,
			enum unknown_fields unknown, void *base, const char **ret_bad)
{
	char *string;
	int64_t value;
	int r;

	if (!json || json_is_null(json))
		return field->is_optional ? 0 : -EINVAL;

	switch (field->kind) {
	case WIRE_KIND_BOOL:
		if (!json_is_boolean(json))
			return -EINVAL;
		*(bool *)member(base, field->offset) = json_is_true(json);
		return 0;
	case WIRE_KIND_INT:
		r = decode_int(field, json, &value);
		if (r < 0)
			return r;
		if (field->is_optional)
			*(struct wire_optional_int *)member(base, field->offset) = WIRE_INT(value);
		else
			*(int64_t *)member(base, field->offset) = value;
		return 0;
	case WIRE_KIND_STRING:
		r = decode_string(field, json, &string);
		if (r == 0)
			store_pointer(base, field->offset, string);
		return r;
	case WIRE_KIND_STRINGS:
	case WIRE_KIND_OBJECTS:
		return decode_array(field, json, unknown, base, ret_bad);
	}
	return -EINVAL;
}

static const char *find_unknown_key(const struct wire_type *type, const json_t *object)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)object, key, value) {
		size_t i = 0;

		while (i < type->n_fields && strcmp(type->fields[i].name, key) != 0)
			i++;
		if (i == type->n_fields)
			return key;
	}
	return NULL;
}

int decode_object(const struct wire_type *type, const json_t *object, enum unknown_fields unknown,
		  void *base, const char **ret_bad)
{
	size_t i;
	int r = 0;

	if (!json_is_object(object))
		return -EINVAL;
	if (unknown == UNKNOWN_REFUSED) {
		const char *key = find_unknown_key(type, object);

		if (key) {
			*ret_bad = key;
			return -EINVAL;
		}
	}
	for (i = 0; i < type->n_fields && r == 0; i++) {
		const struct wire_field *field = &type->fields[i];

		*ret_bad = field->name;
		r = decode_field(field, json_object_get(object, field->name), unknown, base,
				 ret_bad);
	}
	if (r < 0) {
		free_object(type, base);
		memset(base, 0, type->struct_bytes);
	}
	return r;
}

/* jansson does not tell text that is not UTF-8 from a lack of memory; the first is the likely one. */
static int encode_string(const struct wire_field *field, const char *string, json_t **ret)
{
	if (!string)
		return field->is_optional ? 0 : -EINVAL;
	if (strlen(string) > (size_t)field->max)
		return -EINVAL;
	*ret = json_string(string);
	return *ret ? 0 : -EINVAL;
}

static int encode_int(const struct wire_field *field, const void *base, json_t **ret)
{
	int64_t value;

	if (field->is_optional) {
		const struct wire_optional_int *optional = member_const(base, field->offset);

		if (!optional->is_set)
			return 0;
		value = optional->value;
	} else {
		value = *(const int64_t *)member_const(base, field->offset);
	}
	if (value < field->min || value > field->max)
		return -EINVAL;
	*ret = json_integer(value);
	return *ret ? 0 : -ENOMEM;
}

static int encode_array(const struct wire_field *field, const void *base, json_t **ret)
{
	size_t i, n = array_count(field, base);
	const char *items = load_pointer(base, field->offset);
	AUTO_JSON array = json_array();
	int r;

	if (!array)
		return -ENOMEM;
	for (i = 0; i < n; i++) {
		json_t *item = NULL;

		if (field->item)
			r = encode_object(field->item, items + i * field->item->struct_bytes,
					  &item);
		else
			r = encode_string(field, ((char *const *)items)[i], &item);
		if (r < 0)
			return r;
		if (json_array_append_new(array, item) < 0)
			return -ENOMEM;
	}
	*ret = TAKE_PTR(array);
	return 0;
}

/* Leaves *ret alone where an optional field is absent. */
static int encode_field(const struct wire_field *field, const void *base, json_t **ret)
{
	bool value;

	switch (field->kind) {
	case WIRE_KIND_BOOL:
		value = *(const bool *)member_const(base, field->offset);
		if (value || !field->is_optional)
			*ret = json_boolean(value);
		return 0;
	case WIRE_KIND_INT:
		return encode_int(field, base, ret);
	case WIRE_KIND_STRING:
		return encode_string(field, load_pointer(base, field->offset), ret);
	case WIRE_KIND_STRINGS:
	case WIRE_KIND_OBJECTS:
		return encode_array(field, base, ret);
	}
	return -EINVAL;
}

int encode_object(const struct wire_type *type, const void *base, json_t **ret)
{
	AUTO_JSON object = json_object();
	size_t i;
	int r;

	if (!object)
		return -ENOMEM;
	for (i = 0; i < type->n_fields; i++) {
		json_t *value = NULL;

		r = encode_field(&type->fields[i], base, &value);
		if (r < 0)
			return r;
		if (value && json_object_set_new(object, type->fields[i].name, value) < 0)
			return -ENOMEM;
	}
	*ret = TAKE_PTR(object);
	return 0;
}

static void free_array(const struct wire_field *field, void *base)
{
	size_t i, n = array_count(field, base);
	char *items = load_pointer(base, field->offset);

	for (i = 0; i < n; i++) {
		if (field->item)
			free_object(field->item, items + i * field->item->struct_bytes);
		else
			free(((char **)items)[i]);
	}
	free(items);
}

void free_object(const struct wire_type *type, void *base)
{
	size_t i;

	for (i = 0; i < type->n_fields; i++) {
		const struct wire_field *field = &type->fields[i];

		if (field->kind == WIRE_KIND_STRING)
			free(load_pointer(base, field->offset));
		else if (field->kind == WIRE_KIND_STRINGS || field->kind == WIRE_KIND_OBJECTS)
			free_array(field, base);
	}
}
