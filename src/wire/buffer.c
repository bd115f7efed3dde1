// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * wire/buffer.c - frames a byte stream: bytes in, whole messages out.
 *
 * Every byte is looked at once, however the stream is cut, and never more than one longest message
 * is kept.
 */
#include "wire/wire.h"

#include <string.h>

#define CHUNK_BYTES 4096U

int wire_buffer_room(struct wire_buffer *buffer, char **ret, size_t *ret_bytes)
{
	if (buffer->begin > 0) {
		memmove(buffer->data, buffer->data + buffer->begin, buffer->end - buffer->begin);
		buffer->end -= buffer->begin;
		buffer->scanned -= buffer->begin;
		buffer->begin = 0;
	}
	if (buffer->end == buffer->data_bytes) {
		size_t grown_bytes = buffer->data_bytes ? 2 * buffer->data_bytes : CHUNK_BYTES;
		char *grown;

		if (grown_bytes > buffer->max_bytes)
			grown_bytes = buffer->max_bytes;
		if (grown_bytes == buffer->data_bytes)
			return -EMSGSIZE;
		grown = realloc(buffer->data, grown_bytes);
		if (!grown)
			return -ENOMEM;
		buffer->data = grown;
		buffer->data_bytes = grown_bytes;
	}
	*ret = buffer->data + buffer->end;
	*ret_bytes = buffer->data_bytes - buffer->end;
	return 0;
}

void wire_buffer_add(struct wire_buffer *buffer, size_t n_bytes)
{
	buffer->end += n_bytes;
}

bool wire_buffer_next(struct wire_buffer *buffer, const char **ret, size_t *ret_bytes)
{
	char *nul;

	if (wire_buffer_is_empty(buffer)) {
		wire_buffer_done(buffer);
		return false;
	}
	nul = memchr(buffer->data + buffer->scanned, '\0', buffer->end - buffer->scanned);
	if (!nul) {
		buffer->scanned = buffer->end;
		return false;
	}
	*ret = buffer->data + buffer->begin;
	*ret_bytes = (size_t)(nul - *ret);
	buffer->begin += *ret_bytes + 1;
	buffer->scanned = buffer->begin;
	return true;
}

bool wire_buffer_is_empty(const struct wire_buffer *buffer)
{
	return buffer->begin == buffer->end;
}

void wire_buffer_done(struct wire_buffer *buffer)
{
	free(buffer->data);
	*buffer = (struct wire_buffer){.max_bytes = buffer->max_bytes};
}
