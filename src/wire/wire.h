/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * wire/wire.h - Varlink's wire form: JSON objects, each ended by NUL, on a byte stream.
 *
 * Decoding takes bytes from anybody: what it accepts is well formed, complete, in range and bounded;
 * everything else is refused and nothing is kept. Encoding accepts exactly what decoding would. No I/O:
 * the caller moves bytes and descriptors.
 */
#ifndef PREZERO_WIRE_WIRE_H
#define PREZERO_WIRE_WIRE_H

#include "base/cleanup.h"
#include "wire/messages.h"

/* The longest messages that a daemon and a client accept, in bytes with the NUL. */
#define WIRE_CALL_BYTES_MAX (64U << 10)
#define WIRE_REPLY_BYTES_MAX (4U << 20)

/* The interface in full, as GetInterfaceDescription returns it. */
extern const char wire_pool_interface[]; /* io.prezero.Pool */
extern const char wire_service_interface[]; /* org.varlink.service */

/*
 * Bytes in, messages out. Grows with the longest message, and shrinks to nothing when it is empty.
 * All zero but for max_bytes is a valid start.
 */
struct wire_buffer {
	size_t max_bytes; /* the longest message, with its NUL */
	char *data;
	size_t data_bytes; /* allocated */
	size_t begin, end; /* what came and was not yet returned */
	size_t scanned; /* no NUL before this */
};

/* Where the next bytes go: room for at least one. Pointers from wire_buffer_next() are dead after it.
 * -EMSGSIZE: a message longer than max_bytes; the connection is of no more use. */
MUST_CHECK int wire_buffer_room(struct wire_buffer *buffer, char **ret, size_t *ret_bytes);
/* So many bytes were put there. */
void wire_buffer_add(struct wire_buffer *buffer, size_t n_bytes);
/* The next whole message, NUL-terminated, its length without the NUL; false: none is complete. */
bool wire_buffer_next(struct wire_buffer *buffer, const char **ret, size_t *ret_bytes);
/* False while part of a message waits for the rest. */
bool wire_buffer_is_empty(const struct wire_buffer *buffer);
void wire_buffer_done(struct wire_buffer *buffer);

/* One call, of text_bytes without the NUL. 0: *ret is to be given back by wire_call_done().
 * -EINVAL: refused; *ret_refusal is the reply to send, then wire_reply_done() it.
 * -ENOMSG: refused, but the call was one-way: there is nothing to send.
 * -EBADMSG: this is no call (not a JSON object, a key twice, an embedded NUL): hang up. */
MUST_CHECK int wire_decode_call(const char *text, size_t text_bytes, struct wire_call *ret,
				struct wire_reply *ret_refusal);
void wire_call_done(struct wire_call *call);
/* The reply to a call of this method. 0: *ret is to be given back by wire_reply_done().
 * -EBADMSG: not a reply to it. Fields that this version does not know are passed over. */
MUST_CHECK int wire_decode_reply(const char *text, size_t text_bytes, enum wire_method method,
				 struct wire_reply *ret);
void wire_reply_done(struct wire_reply *reply);

/* *ret is a message with its NUL, ret_bytes long with it; free() it. -EINVAL: a field is out of its
 * bounds, a required string is NULL, or a text is not UTF-8. */
MUST_CHECK int wire_encode_call(const struct wire_call *call, char **ret, size_t *ret_bytes);
MUST_CHECK int wire_encode_reply(const struct wire_reply *reply, char **ret, size_t *ret_bytes);

/* "io.prezero.Pool.Take", "io.prezero.Pool.Refused". */
const char *wire_method_name(enum wire_method method);
const char *wire_error_name(enum wire_error error);

/* One object as JSON text, in the interface's terms; free() it. */
MUST_CHECK int wire_format_status(const struct wire_status_reply *status, char **ret);
MUST_CHECK int wire_format_segment(const struct wire_segment *segment, char **ret);

#endif
