/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_wire_buffer.c - a byte stream comes out as the messages that went in, however it is cut.
 */
#include "unit.h"

#include <string.h>

#include "wire/wire.h"

/* Puts bytes in, in pieces of at most piece_bytes; every message that comes out is appended to out with
 * a '|'. */
static int feed(struct wire_buffer *buffer, const char *data, size_t data_bytes, size_t piece_bytes,
		char *out)
{
	const char *message;
	size_t n, message_bytes;
	char *room;
	int r;

	while (data_bytes > 0) {
		r = wire_buffer_room(buffer, &room, &n);
		if (r < 0)
			return r;
		assert_true(n > 0);
		if (n > piece_bytes)
			n = piece_bytes;
		if (n > data_bytes)
			n = data_bytes;
		memcpy(room, data, n);
		wire_buffer_add(buffer, n);
		data += n;
		data_bytes -= n;
		while (wire_buffer_next(buffer, &message, &message_bytes)) {
			assert_int_equal(strlen(message), message_bytes);
			strcat(strcat(out, message), "|");
		}
	}
	return 0;
}

static void any_cut(void **state)
{
	static const char stream[] = "one\0\0three and more\0four"; /* and the literal's own NUL */

	(void)state;
	for (size_t piece_bytes = 1; piece_bytes <= sizeof(stream); piece_bytes++) {
		struct wire_buffer buffer = {.max_bytes = 64};
		char out[256] = "";

		assert_int_equal(feed(&buffer, stream, sizeof(stream), piece_bytes, out), 0);
		assert_string_equal(out, "one||three and more|four|");
		assert_true(wire_buffer_is_empty(&buffer));
		assert_null(buffer.data);
		wire_buffer_done(&buffer);
	}
}

static void cut_off(void **state)
{
	struct wire_buffer buffer = {.max_bytes = 64};
	char out[64] = "";

	(void)state;
	assert_int_equal(feed(&buffer, "whole\0par", 9, 64, out), 0);
	assert_string_equal(out, "whole|");
	assert_false(wire_buffer_is_empty(&buffer));
	wire_buffer_done(&buffer);
}

/* A message of the bound, NUL included, passes; a byte more is refused before it is kept. */
static void bound(void **state)
{
	static char data[3 * WIRE_CALL_BYTES_MAX], out[3 * WIRE_CALL_BYTES_MAX];
	const size_t pieces[] = {1, 7, 4096, sizeof(data)};

	(void)state;
	memset(data, 'x', sizeof(data));
	for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
		struct wire_buffer buffer = {.max_bytes = WIRE_CALL_BYTES_MAX};

		data[WIRE_CALL_BYTES_MAX - 1] = '\0';
		out[0] = '\0';
		assert_int_equal(feed(&buffer, data, WIRE_CALL_BYTES_MAX, pieces[i], out), 0);
		assert_int_equal(strlen(out), WIRE_CALL_BYTES_MAX); /* with its '|' */

		data[WIRE_CALL_BYTES_MAX - 1] = 'x';
		out[0] = '\0';
		assert_int_equal(feed(&buffer, data, WIRE_CALL_BYTES_MAX + 1, pieces[i], out),
				 -EMSGSIZE);
		assert_string_equal(out, "");
		assert_true(buffer.data_bytes <= WIRE_CALL_BYTES_MAX);
		wire_buffer_done(&buffer);
	}
}

/* Long after short after long, a byte at a time: nothing is lost where the buffer moves and grows. */
static void many(void **state)
{
	static char data[200000], want[200000], out[200000];
	struct wire_buffer buffer = {.max_bytes = 10000};
	size_t data_bytes = 0;

	(void)state;
	for (unsigned int i = 0; i < 40; i++) {
		size_t n = i % 3 ? i : 9000 / (i + 1);

		memset(data + data_bytes, 'a' + (int)(i % 26), n);
		data[data_bytes + n] = '\0';
		strcat(strcat(want, data + data_bytes), "|");
		data_bytes += n + 1;
	}
	for (size_t piece_bytes = 1; piece_bytes < 30000; piece_bytes = piece_bytes * 3 + 1) {
		out[0] = '\0';
		assert_int_equal(feed(&buffer, data, data_bytes, piece_bytes, out), 0);
		assert_string_equal(out, want);
	}
	wire_buffer_done(&buffer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_cut),
		cmocka_unit_test(cut_off),
		cmocka_unit_test(bound),
		cmocka_unit_test(many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
