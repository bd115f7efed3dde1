/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/fuzz/fuzz_wire.c - any bytes as a stream, as a call, and as the reply to every method.
 *
 * Promises: framing gives back what was put in, however it is cut; what is decoded can be encoded, and
 * says the same when decoded again; a refusal can be sent; a failure keeps and writes nothing.
 */
#include <string.h>

#include "../unit/wire_same.h"
#include "fuzz.h"
#include "wire/wire.h"

#define STREAM_BYTES_MAX 512U

/* Pieces of one length after another, from one byte up. */
static void frame(const uint8_t *data, size_t data_bytes)
{
	struct wire_buffer buffer = {.max_bytes = STREAM_BYTES_MAX};
	size_t fed = 0, seen = 0, piece_bytes = 1;

	while (fed < data_bytes) {
		size_t room_bytes, message_bytes;
		const char *message;
		char *room;
		int r = wire_buffer_room(&buffer, &room, &room_bytes);

		if (r < 0) {
			MUST(r == -EMSGSIZE && fed - seen == STREAM_BYTES_MAX);
			MUST(!memchr(data + seen, 0, fed - seen));
			break;
		}
		MUST(room_bytes > 0 && buffer.data_bytes <= STREAM_BYTES_MAX);
		if (room_bytes > piece_bytes)
			room_bytes = piece_bytes;
		if (room_bytes > data_bytes - fed)
			room_bytes = data_bytes - fed;
		memcpy(room, data + fed, room_bytes);
		wire_buffer_add(&buffer, room_bytes);
		fed += room_bytes;
		piece_bytes = piece_bytes % 61 + 1;
		while (wire_buffer_next(&buffer, &message, &message_bytes)) {
			MUST(message_bytes < STREAM_BYTES_MAX);
			MUST(memcmp(message, data + seen, message_bytes + 1) == 0);
			seen += message_bytes + 1;
		}
		MUST(wire_buffer_is_empty(&buffer) == (seen == fed));
	}
	wire_buffer_done(&buffer);
}

static void reply_there_and_back(const struct wire_reply *reply)
{
	struct wire_reply back;
	size_t text_bytes;
	char *text;

	if (reply->error == WIRE_UNKNOWN_ERROR) {
		MUST(wire_encode_reply(reply, &text, &text_bytes) == -EINVAL);
		return;
	}
	MUST(wire_encode_reply(reply, &text, &text_bytes) == 0);
	MUST(strlen(text) + 1 == text_bytes);
	MUST(wire_decode_reply(text, text_bytes - 1, reply->method, &back) == 0);
	MUST(same_reply(reply, &back));
	wire_reply_done(&back);
	free(text);
}

static void decode_as_reply(const char *text, size_t text_bytes)
{
	for (unsigned int method = 0; method < WIRE_METHODS; method++) {
		struct wire_reply reply, untouched;
		int r;

		memset(&reply, 0x5a, sizeof(reply));
		memset(&untouched, 0x5a, sizeof(untouched));
		r = wire_decode_reply(text, text_bytes, (enum wire_method)method, &reply);
		if (r < 0) {
			MUST(r == -EBADMSG);
			MUST(memcmp(&reply, &untouched, sizeof(reply)) == 0);
			continue;
		}
		reply_there_and_back(&reply);
		if (method == WIRE_STATUS && reply.error == WIRE_NO_ERROR) {
			char *status;

			MUST(wire_format_status(&reply.status, &status) == 0);
			free(status);
		}
		wire_reply_done(&reply);
	}
}

static void decode_as_call(const char *text, size_t text_bytes)
{
	struct wire_reply refusal = {};
	struct wire_call call, back;
	size_t encoded_bytes;
	char *encoded;
	int r;

	r = wire_decode_call(text, text_bytes, &call, &refusal);
	if (r == -EINVAL) {
		MUST(refusal.error != WIRE_NO_ERROR);
		reply_there_and_back(&refusal);
		wire_reply_done(&refusal);
		return;
	}
	MUST(refusal.error == WIRE_NO_ERROR);
	if (r < 0) {
		MUST(r == -EBADMSG || r == -ENOMSG);
		return;
	}
	MUST(!wire_methods[call.method].needs_more || call.more);
	MUST(wire_encode_call(&call, &encoded, &encoded_bytes) == 0);
	MUST(strlen(encoded) + 1 == encoded_bytes);
	MUST(wire_decode_call(encoded, encoded_bytes - 1, &back, &refusal) == 0);
	MUST(same_call(&call, &back));
	wire_call_done(&back);
	wire_call_done(&call);
	free(encoded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
	frame(data, data_bytes);
	decode_as_call((const char *)data, data_bytes);
	decode_as_reply((const char *)data, data_bytes);
	return 0;
}
