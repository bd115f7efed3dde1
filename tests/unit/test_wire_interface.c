/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_wire_interface.c - the interface files and the code say the same, both ways.
 *
 * The interface is rendered from the tables and compared with the reference, comments and white space
 * aside: a field, type, method or error that only one of them has, or has elsewhere, shows.
 */
#include "unit.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "wire/table.h"
#include "wire/wire.h"

static const struct wire_type *const pool_types[] = {
	&wire_type_class,  &wire_type_stock,  &wire_type_fill,
	&wire_type_pinned, &wire_type_holder, &wire_type_segment,
};

static const char *type_text(const struct wire_field *field)
{
	switch (field->kind) {
	case WIRE_KIND_BOOL:
		return "bool";
	case WIRE_KIND_INT:
		return "int";
	case WIRE_KIND_STRING:
		return "string";
	case WIRE_KIND_STRINGS:
		return "[]string";
	case WIRE_KIND_OBJECTS:
		break;
	}
	return field->item->name;
}

static void render_fields(FILE *out, const struct wire_type *type)
{
	fputc('(', out);
	for (size_t i = 0; i < type->n_fields; i++) {
		const struct wire_field *field = &type->fields[i];

		fprintf(out, "%s%s:%s%s%s", i ? "," : "", field->name,
			field->is_optional ? "?" : "", field->kind == WIRE_KIND_OBJECTS ? "[]" : "",
			type_text(field));
	}
	fputc(')', out);
}

/* The name within the interface, or NULL when it belongs to another one. */
static const char *local_name(const char *interface, const char *name)
{
	size_t n = strlen(interface);

	return name && strncmp(name, interface, n) == 0 && name[n] == '.' ? name + n + 1 : NULL;
}

static char *render(const char *interface, const struct wire_type *const *types, size_t n_types)
{
	char *text = NULL;
	size_t text_bytes, i;
	FILE *out = open_memstream(&text, &text_bytes);

	assert_non_null(out);
	fprintf(out, "interface%s", interface);
	for (i = 0; i < n_types; i++) {
		fprintf(out, "type%s", types[i]->name);
		render_fields(out, types[i]);
	}
	for (i = 0; i < WIRE_METHODS; i++) {
		const char *name = local_name(interface, wire_methods[i].name);

		if (!name)
			continue;
		fprintf(out, "method%s", name);
		render_fields(out, wire_methods[i].call);
		fputs("->", out);
		render_fields(out, wire_methods[i].reply);
	}
	for (i = 0; i < WIRE_ERRORS; i++) {
		const char *name = local_name(interface, wire_errors[i].name);

		if (!name)
			continue;
		fprintf(out, "error%s", name);
		render_fields(out, wire_errors[i].parameters);
	}
	fclose(out);
	return text;
}

static char *strip(const char *text)
{
	char *stripped = malloc(strlen(text) + 1), *out = stripped;
	bool comment = false;

	assert_non_null(stripped);
	for (; *text; text++) {
		if (*text == '#')
			comment = true;
		else if (*text == '\n')
			comment = false;
		if (!comment && !isspace((unsigned char)*text))
			*out++ = *text;
	}
	*out = '\0';
	return stripped;
}

static void check(const char *reference, const char *interface,
		  const struct wire_type *const *types, size_t n_types)
{
	AUTO_FREE char *rendered = render(interface, types, n_types);
	AUTO_FREE char *stripped = strip(reference);

	assert_string_equal(rendered, stripped);
}

static void pool_interface(void **state)
{
	(void)state;
	check(wire_pool_interface, "io.prezero.Pool", pool_types, ARRAY_LEN(pool_types));
}

static void service_interface(void **state)
{
	(void)state;
	check(wire_service_interface, "org.varlink.service", NULL, 0);
}

/* What is embedded is the file, to the last byte. */
static void embedded_is_the_file(void **state)
{
	const struct {
		const char *path, *text;
	} files[] = {
		{"src/wire/io.prezero.Pool.varlink", wire_pool_interface},
		{"src/wire/org.varlink.service.varlink", wire_service_interface},
	};

	(void)state;
	assert_non_null(getenv("PREZERO_SOURCE")); /* meson test sets it */
	assert_int_equal(chdir(getenv("PREZERO_SOURCE")), 0);
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		char text[32768];
		AUTO_FILE f = fopen(files[i].path, "r");
		size_t n;

		assert_non_null(f);
		n = fread(text, 1, sizeof(text) - 1, f);
		text[n] = '\0';
		assert_string_equal(text, files[i].text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pool_interface),
		cmocka_unit_test(service_interface),
		cmocka_unit_test(embedded_is_the_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
