/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * host/text.c - what stands in the kernel's small text files.
 *
 * Guarantees: never reads behind the NUL, whatever the text.
 */
#include "host/text.h"

#include <string.h>

#include "base/parse.h"

static int copy_span(const char *start, size_t length, char *buf, size_t buf_bytes)
{
	if (length >= buf_bytes)
		return -EFBIG;
	memcpy(buf, start, length);
	buf[length] = '\0';
	return 0;
}

/* Behind "Node 3 ", if that is how the line begins. */
static const char *skip_node(const char *line)
{
	const char *p = line;

	if (strncmp(p, "Node ", 5))
		return line;
	p += 5;
	while (*p >= '0' && *p <= '9')
		p++;
	return *p == ' ' ? p + 1 : line;
}

int text_field(const char *text, const char *name, char *buf, size_t buf_bytes)
{
	size_t name_length = strlen(name);

	while (*text) {
		const char *end = strchrnul(text, '\n');
		const char *p = skip_node(text);

		if (!strncmp(p, name, name_length) && p[name_length] == ':') {
			p += name_length + 1;
			p += strspn(p, " \t");
			return copy_span(p, (size_t)(end - p), buf, buf_bytes);
		}
		text = *end ? end + 1 : end;
	}
	return -ENOENT;
}

int text_field_kb(const char *text, const char *name, uint64_t *ret_bytes)
{
	char value[32];
	uint64_t kb;
	char *unit;
	int r = text_field(text, name, value, sizeof(value));

	if (r < 0)
		return r;
	unit = strchr(value, ' ');
	if (!unit || strcmp(unit, " kB"))
		return -EINVAL;
	*unit = '\0';
	if (parse_u64(value, &kb) < 0 || kb > UINT64_MAX / 1024)
		return -EINVAL;
	*ret_bytes = kb * 1024;
	return 0;
}

int text_choice(const char *text, char *buf, size_t buf_bytes)
{
	const char *open = strchr(text, '[');
	const char *close = open ? strchr(open, ']') : NULL;

	if (!close)
		return -EINVAL;
	return copy_span(open + 1, (size_t)(close - open - 1), buf, buf_bytes);
}

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

void text_unescape(char *text)
{
	char *to = text;

	while (*text) {
		if (*text == '\\' && is_octal(text[1]) && is_octal(text[2]) && is_octal(text[3])) {
			*to++ = (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 +
				       (text[3] - '0'));
			text += 4;
		} else {
			*to++ = *text++;
		}
	}
	*to = '\0';
}
