// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * wire/message.c - the envelope around parameters: which method, which error, how many replies.
 */
#include "wire/wire.h"

#include <string.h>

#include "wire/codec.h"
#include "interface_text.h" /* generated */

/* What a refusal quotes is cut to this, at a character. */
#define QUOTE_BYTES_MAX 255U

const char wire_pool_interface[] = POOL_INTERFACE;
const char wire_service_interface[] = SERVICE_INTERFACE;

const char *wire_method_name(enum wire_method method)
{
	return wire_methods[method].name;
}

const char *wire_error_name(enum wire_error error)
{
	return wire_errors[error].name;
}

static char *quote(const char *text)
{
	size_t n_bytes = strnlen(text, QUOTE_BYTES_MAX + 1);

	if (n_bytes > QUOTE_BYTES_MAX) {
		n_bytes = QUOTE_BYTES_MAX;
		while (((unsigned char)text[n_bytes] & 0xc0) == 0x80)
			n_bytes--;
	}
	return strndup(text, n_bytes);
}

/* An integer beyond 64 bits makes jansson give up on the whole text. Read as a double instead it is
 * merely out of bounds, so that the answer can name the field. */
static int load(const char *text, size_t text_bytes, json_t **ret)
{
	AUTO_JSON root = NULL;
	json_error_t error;

	root = json_loadb(text, text_bytes, JSON_REJECT_DUPLICATES, &error);
	if (!root && json_error_code(&error) == json_error_numeric_overflow)
		root = json_loadb(text, text_bytes,
				  JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
	if (!root && json_error_code(&error) == json_error_out_of_memory)
		return -ENOMEM;
	if (!json_is_object(root))
		return -EBADMSG;
	*ret = TAKE_PTR(root);
	return 0;
}

static int dump(const json_t *root, size_t bytes_max, char **ret, size_t *ret_bytes)
{
	AUTO_FREE char *text = json_dumps(root, JSON_COMPACT);
	size_t text_bytes;

	if (!text)
		return -ENOMEM;
	text_bytes = strlen(text) + 1;
	if (text_bytes > bytes_max)
		return -EMSGSIZE;
	*ret = TAKE_PTR(text);
	*ret_bytes = text_bytes;
	return 0;
}

/* Absent ones are an empty object. */
static json_t *get_parameters(const json_t *root)
{
	json_t *parameters = json_object_get(root, "parameters");

	return parameters && !json_is_null(parameters) ? json_incref(parameters) : json_object();
}

/* The members of the union share their address, whichever stands. */
static const struct wire_type *call_parameters(struct wire_call *call, void **ret)
{
	*ret = &call->list;
	return wire_methods[call->method].call;
}

static const struct wire_type *reply_parameters(struct wire_reply *reply, void **ret)
{
	*ret = &reply->status;
	return reply->error == WIRE_NO_ERROR ? wire_methods[reply->method].reply :
					       wire_errors[reply->error].parameters;
}

static int refuse(struct wire_reply *refusal, enum wire_error error, const char *subject)
{
	char *quoted = quote(subject);

	if (!quoted)
		return -ENOMEM;
	refusal->error = error;
	if (error == WIRE_INTERFACE_NOT_FOUND)
		refusal->interface_not_found.interface = quoted;
	else if (error == WIRE_METHOD_NOT_FOUND)
		refusal->method_not_found.method = quoted;
	else
		refusal->invalid_parameter.parameter = quoted;
	return -EINVAL;
}

static int find_method(const char *name, enum wire_method *ret, struct wire_reply *refusal)
{
	const char *dot = strrchr(name, '.');
	AUTO_FREE char *interface = dot ? strndup(name, (size_t)(dot - name)) : strdup("");
	size_t i, interface_bytes;
	bool has_interface = false;

	if (!interface)
		return -ENOMEM;
	interface_bytes = strlen(interface);
	for (i = 0; i < WIRE_METHODS; i++) {
		const char *known = wire_methods[i].name;

		if (strcmp(known, name) == 0) {
			*ret = (enum wire_method)i;
			return 0;
		}
		if ((size_t)(strrchr(known, '.') - known) == interface_bytes &&
		    strncmp(known, interface, interface_bytes) == 0)
			has_interface = true;
	}
	return has_interface ? refuse(refusal, WIRE_METHOD_NOT_FOUND, name) :
			       refuse(refusal, WIRE_INTERFACE_NOT_FOUND, interface);
}

static int read_flag(const json_t *json, const char *key, bool *ret, struct wire_reply *refusal)
{
	if (!json_is_boolean(json))
		return refuse(refusal, WIRE_INVALID_PARAMETER, key);
	*ret = json_is_true(json);
	return 0;
}

/* What stands around the parameters. One-way first, so that any refusal knows whether it is wanted. */
static int read_envelope(const json_t *root, struct wire_call *call, const char **ret_method,
			 struct wire_reply *refusal)
{
	bool upgrade = false;
	const char *key;
	json_t *value;
	int r = 0;

	value = json_object_get(root, "oneway");
	if (value)
		r = read_flag(value, "oneway", &call->oneway, refusal);
	if (r < 0)
		return r;
	json_object_foreach((json_t *)root, key, value) {
		if (strcmp(key, "more") == 0)
			r = read_flag(value, key, &call->more, refusal);
		else if (strcmp(key, "upgrade") == 0)
			r = read_flag(value, key, &upgrade, refusal);
		else if (strcmp(key, "method") != 0 && strcmp(key, "parameters") != 0 &&
			 strcmp(key, "oneway") != 0)
			r = refuse(refusal, WIRE_INVALID_PARAMETER, key);
		if (r < 0)
			return r;
	}
	if (upgrade)
		return refuse(refusal, WIRE_INVALID_PARAMETER, "upgrade");
	if (call->more && call->oneway)
		return refuse(refusal, WIRE_INVALID_PARAMETER, "more");
	*ret_method = json_string_value(json_object_get(root, "method"));
	return *ret_method ? 0 : refuse(refusal, WIRE_INVALID_PARAMETER, "method");
}

static int read_call(const json_t *root, struct wire_call *call, struct wire_reply *refusal)
{
	const char *method, *bad = "parameters";
	AUTO_JSON parameters = NULL;
	const struct wire_type *type;
	void *base;
	int r;

	r = read_envelope(root, call, &method, refusal);
	if (r < 0)
		return r;
	r = find_method(method, &call->method, refusal);
	if (r < 0)
		return r;
	refusal->method = call->method;
	if (wire_methods[call->method].needs_more && !call->more) {
		refusal->error = WIRE_EXPECTED_MORE;
		return -EINVAL;
	}
	parameters = get_parameters(root);
	if (!parameters)
		return -ENOMEM;
	type = call_parameters(call, &base);
	r = decode_object(type, parameters, UNKNOWN_REFUSED, base, &bad);
	return r == -EINVAL ? refuse(refusal, WIRE_INVALID_PARAMETER, bad) : r;
}

int wire_decode_call(const char *text, size_t text_bytes, struct wire_call *ret,
		     struct wire_reply *ret_refusal)
{
	struct wire_reply refusal = {0};
	struct wire_call call = {0};
	AUTO_JSON root = NULL;
	int r;

	r = load(text, text_bytes, &root);
	if (r < 0)
		return r;
	r = read_call(root, &call, &refusal);
	if (r == -EINVAL && call.oneway) {
		wire_reply_done(&refusal);
		return -ENOMSG;
	}
	if (r == -EINVAL)
		*ret_refusal = refusal;
	else if (r == 0)
		*ret = call;
	return r;
}

void wire_call_done(struct wire_call *call)
{
	const struct wire_type *type;
	void *base;

	type = call_parameters(call, &base);
	free_object(type, base);
	*call = (struct wire_call){0};
}

static int read_error(const char *name, struct wire_reply *reply)
{
	size_t i;

	for (i = WIRE_NO_ERROR + 1; i < WIRE_UNKNOWN_ERROR; i++) {
		if (strcmp(wire_errors[i].name, name) == 0) {
			reply->error = (enum wire_error)i;
			return 0;
		}
	}
	reply->unknown_error.name = quote(name);
	if (!reply->unknown_error.name)
		return -ENOMEM;
	reply->error = WIRE_UNKNOWN_ERROR;
	return 0;
}

int wire_decode_reply(const char *text, size_t text_bytes, enum wire_method method,
		      struct wire_reply *ret)
{
	struct wire_reply reply = {.method = method};
	AUTO_JSON root = NULL;
	AUTO_JSON parameters = NULL;
	const json_t *error, *continues;
	const struct wire_type *type;
	const char *bad;
	void *base;
	int r;

	r = load(text, text_bytes, &root);
	if (r < 0)
		return r;
	error = json_object_get(root, "error");
	continues = json_object_get(root, "continues");
	if ((error && !json_is_string(error)) || (continues && !json_is_boolean(continues)))
		return -EBADMSG;
	reply.continues = json_is_true(continues);
	if (error) {
		if (reply.continues)
			return -EBADMSG;
		r = read_error(json_string_value(error), &reply);
		if (r == 0 && reply.error == WIRE_UNKNOWN_ERROR)
			*ret = reply;
		if (r < 0 || reply.error == WIRE_UNKNOWN_ERROR)
			return r;
	}
	parameters = get_parameters(root);
	if (!parameters)
		return -ENOMEM;
	type = reply_parameters(&reply, &base);
	r = decode_object(type, parameters, UNKNOWN_IGNORED, base, &bad);
	if (r == 0)
		*ret = reply;
	return r == -EINVAL ? -EBADMSG : r;
}

void wire_reply_done(struct wire_reply *reply)
{
	const struct wire_type *type;
	void *base;

	type = reply_parameters(reply, &base);
	free_object(type, base);
	*reply = (struct wire_reply){0};
}

static int set_new(json_t *object, const char *key, json_t *value)
{
	return value && json_object_set_new(object, key, value) == 0 ? 0 : -ENOMEM;
}

int wire_encode_call(const struct wire_call *call, char **ret, size_t *ret_bytes)
{
	AUTO_JSON root = json_object();
	json_t *parameters;
	const struct wire_type *type;
	void *base;
	int r;

	if (!root)
		return -ENOMEM;
	type = call_parameters((struct wire_call *)call, &base);
	r = set_new(root, "method", json_string(wire_methods[call->method].name));
	if (r == 0)
		r = encode_object(type, base, &parameters);
	if (r == 0)
		r = set_new(root, "parameters", parameters);
	if (r == 0 && call->more)
		r = set_new(root, "more", json_true());
	if (r == 0 && call->oneway)
		r = set_new(root, "oneway", json_true());
	return r < 0 ? r : dump(root, WIRE_CALL_BYTES_MAX, ret, ret_bytes);
}

int wire_encode_reply(const struct wire_reply *reply, char **ret, size_t *ret_bytes)
{
	AUTO_JSON root = json_object();
	json_t *parameters;
	const struct wire_type *type;
	void *base;
	int r = 0;

	if (!root)
		return -ENOMEM;
	if (reply->error == WIRE_UNKNOWN_ERROR)
		return -EINVAL;
	type = reply_parameters((struct wire_reply *)reply, &base);
	if (reply->error != WIRE_NO_ERROR)
		r = set_new(root, "error", json_string(wire_errors[reply->error].name));
	if (r == 0)
		r = encode_object(type, base, &parameters);
	if (r == 0)
		r = set_new(root, "parameters", parameters);
	if (r == 0 && reply->continues)
		r = set_new(root, "continues", json_true());
	return r < 0 ? r : dump(root, WIRE_REPLY_BYTES_MAX, ret, ret_bytes);
}

static int format(const struct wire_type *type, const void *base, char **ret)
{
	AUTO_JSON object = NULL;
	size_t text_bytes;
	int r;

	r = encode_object(type, base, &object);
	return r < 0 ? r : dump(object, SIZE_MAX, ret, &text_bytes);
}

int wire_format_status(const struct wire_status_reply *status, char **ret)
{
	return format(wire_methods[WIRE_STATUS].reply, status, ret);
}

int wire_format_segment(const struct wire_segment *segment, char **ret)
{
	return format(&wire_type_segment, segment, ret);
}
