/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/test_wire_codec.c - what is accepted, what is refused and how, and that nothing is lost on
 * the way.
 */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "wire/wire.h"
#include "wire_same.h"

#define TAKE(parameters) "{\"method\":\"io.prezero.Pool.Take\",\"parameters\":" parameters "}"
#define REFUSE(parameters) "{\"error\":\"io.prezero.Pool.Refused\",\"parameters\":" parameters "}"

static int decode_call(const char *text, struct wire_call *call, struct wire_reply *refusal)
{
	return wire_decode_call(text, strlen(text), call, refusal);
}

static int decode_reply(const char *text, enum wire_method method, struct wire_reply *reply)
{
	return wire_decode_reply(text, strlen(text), method, reply);
}

static void calls(void **state)
{
	struct wire_reply refusal;
	struct wire_call call;

	(void)state;
	assert_int_equal(decode_call(TAKE("{\"bytes\":4194304,\"page\":\"2M\",\"node\":0,"
					  "\"name\":\"vm7\",\"partial\":true,\"wait_ms\":250}"),
				     &call, &refusal),
			 0);
	assert_int_equal(call.method, WIRE_TAKE);
	assert_false(call.more || call.oneway);
	assert_int_equal(call.take.bytes, 4194304);
	assert_string_equal(call.take.page, "2M");
	assert_true(call.take.node.is_set && call.take.node.value == 0);
	assert_string_equal(call.take.name, "vm7");
	assert_true(call.take.partial);
	assert_true(call.take.wait_ms.is_set && call.take.wait_ms.value == 250);
	wire_call_done(&call);

	/* Optional ones absent, or null; a number with a fraction of nothing is an integer. */
	assert_int_equal(
		decode_call(TAKE("{\"bytes\":1.0e6,\"page\":null,\"node\":null}"), &call, &refusal),
		0);
	assert_int_equal(call.take.bytes, 1000000);
	assert_null(call.take.page);
	assert_null(call.take.name);
	assert_false(call.take.node.is_set || call.take.wait_ms.is_set || call.take.partial);
	wire_call_done(&call);

	/* No parameters is the same as none of them. */
	assert_int_equal(decode_call("{\"method\":\"io.prezero.Pool.Status\"}", &call, &refusal),
			 0);
	assert_int_equal(call.method, WIRE_STATUS);
	wire_call_done(&call);
	assert_int_equal(decode_call("{\"method\":\"io.prezero.Pool.List\",\"more\":true,"
				     "\"parameters\":null}",
				     &call, &refusal),
			 0);
	assert_true(call.more);
	assert_null(call.list.state);
	wire_call_done(&call);
	assert_int_equal(decode_call("{\"method\":\"io.prezero.Pool.Give\",\"oneway\":true,"
				     "\"parameters\":{\"lease\":\"vm7\"}}",
				     &call, &refusal),
			 0);
	assert_true(call.oneway);
	assert_string_equal(call.give.lease, "vm7");
	wire_call_done(&call);
}

/* Not a message at all: the peer is hung up on. */
static void no_calls(void **state)
{
	static const char *const texts[] = {
		"",
		"x",
		"[]",
		"7",
		"null",
		"\"io.prezero.Pool.Status\"",
		"{",
		"{}x",
		"{\"method\":}",
		"{'method':'io.prezero.Pool.Status'}",
		"{\"method\":\"io.prezero.Pool.Status\"",
		"{\"method\":\"io.prezero.Pool.Status\",}",
		"{\"method\":\"io.prezero.Pool.Status\",\"method\":\"io.prezero.Pool.Status\"}",
		TAKE("{\"bytes\":4096,\"bytes\":8192}"),
		TAKE("{\"bytes\":4096,\"name\":\"a\\u0000b\"}"),
		TAKE("{\"bytes\":4096,\"na\\u0000me\":\"a\"}"),
		TAKE("{\"bytes\":4096,\"name\":\"\xff\"}"),
		TAKE("{\"bytes\":4096,\"name\":\"\xc0\x80\"}"),
		TAKE("{\"bytes\":4096,\"name\":\"\\ud800\"}"),
		TAKE("{\"bytes\":0x1000}"),
		TAKE("{\"bytes\":1e999}"),
		TAKE("{\"bytes\":NaN}"),
	};
	static char deep[WIRE_CALL_BYTES_MAX];
	struct wire_reply refusal;
	struct wire_call call;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		assert_int_equal(decode_call(texts[i], &call, &refusal), -EBADMSG);
	memset(deep, '[', sizeof(deep));
	assert_int_equal(wire_decode_call(deep, sizeof(deep), &call, &refusal), -EBADMSG);
	/* A NUL within: framing rules it out, decoding does not rely on that. */
	assert_int_equal(wire_decode_call("{\0}", 3, &call, &refusal), -EBADMSG);
	assert_int_equal(wire_decode_call("{}\0{}", 5, &call, &refusal), -EBADMSG);
}

static void check_refusal(const char *text, enum wire_error error, const char *subject)
{
	AUTO_FREE char *encoded = NULL;
	struct wire_reply refusal = {};
	struct wire_call call;
	size_t encoded_bytes;

	assert_int_equal(decode_call(text, &call, &refusal), -EINVAL);
	assert_int_equal(refusal.error, error);
	if (error == WIRE_INTERFACE_NOT_FOUND)
		assert_string_equal(refusal.interface_not_found.interface, subject);
	else if (error == WIRE_METHOD_NOT_FOUND)
		assert_string_equal(refusal.method_not_found.method, subject);
	else if (error == WIRE_INVALID_PARAMETER)
		assert_string_equal(refusal.invalid_parameter.parameter, subject);
	/* It can be sent as it is. */
	assert_int_equal(wire_encode_reply(&refusal, &encoded, &encoded_bytes), 0);
	wire_reply_done(&refusal);
}

static void refused_calls(void **state)
{
	static const struct {
		const char *text, *bad;
	} parameters[] = {
		{TAKE("{}"), "bytes"},
		{TAKE("null"), "bytes"},
		{TAKE("[]"), "parameters"},
		{TAKE("7"), "parameters"},
		{TAKE("{\"bytes\":null}"), "bytes"},
		{TAKE("{\"bytes\":0}"), "bytes"},
		{TAKE("{\"bytes\":-4096}"), "bytes"},
		{TAKE("{\"bytes\":\"4096\"}"), "bytes"},
		{TAKE("{\"bytes\":1.5}"), "bytes"},
		{TAKE("{\"bytes\":true}"), "bytes"},
		{TAKE("{\"bytes\":[4096]}"), "bytes"},
		{TAKE("{\"bytes\":9223372036854775808}"), "bytes"},
		{TAKE("{\"bytes\":99999999999999999999999999}"), "bytes"},
		{TAKE("{\"bytes\":1e300}"), "bytes"},
		{TAKE("{\"bytes\":4096,\"node\":99999999999999999999}"), "node"},
		{TAKE("{\"bytes\":4096,\"node\":-2}"), "node"},
		{TAKE("{\"bytes\":4096,\"node\":2147483648}"), "node"},
		{TAKE("{\"bytes\":4096,\"page\":2}"), "page"},
		{TAKE("{\"bytes\":4096,\"page\":\"2M------10--------20--------30--------"
		      "40--------50--------60---64\"}"),
		 "page"},
		{TAKE("{\"bytes\":4096,\"partial\":1}"), "partial"},
		{TAKE("{\"bytes\":4096,\"wait_ms\":-1}"), "wait_ms"},
		{TAKE("{\"bytes\":4096,\"wait_ms\":9223372036855}"), "wait_ms"},
		{TAKE("{\"bytes\":4096,\"page_size\":\"2M\"}"), "page_size"},
		{TAKE("{\"bytes\":4096,\"\":0}"), ""},
		{"{\"method\":\"io.prezero.Pool.Status\",\"parameters\":{\"x\":1}}", "x"},
		{"{\"method\":\"io.prezero.Pool.Give\",\"parameters\":{}}", "lease"},
		{"{}", "method"},
		{"{\"method\":7}", "method"},
		{"{\"method\":\"io.prezero.Pool.Status\",\"more\":1}", "more"},
		{"{\"method\":\"io.prezero.Pool.Status\",\"oneway\":\"yes\"}", "oneway"},
		{"{\"method\":\"io.prezero.Pool.Status\",\"upgrade\":true}", "upgrade"},
		{"{\"method\":\"io.prezero.Pool.Status\",\"upgrade\":0}", "upgrade"},
		{"{\"method\":\"io.prezero.Pool.Status\",\"continues\":true}", "continues"},
		{"{\"method\":\"io.prezero.Pool.Status\",\"extra\":0}", "extra"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(parameters); i++)
		check_refusal(parameters[i].text, WIRE_INVALID_PARAMETER, parameters[i].bad);

	check_refusal("{\"method\":\"io.prezero.Pool.List\"}", WIRE_EXPECTED_MORE, NULL);
	check_refusal("{\"method\":\"io.prezero.Pool.Steal\"}", WIRE_METHOD_NOT_FOUND,
		      "io.prezero.Pool.Steal");
	check_refusal("{\"method\":\"io.prezero.Pool.\"}", WIRE_METHOD_NOT_FOUND,
		      "io.prezero.Pool.");
	check_refusal("{\"method\":\"io.prezero.Lake.Take\"}", WIRE_INTERFACE_NOT_FOUND,
		      "io.prezero.Lake");
	check_refusal("{\"method\":\"io.prezero.Take\"}", WIRE_INTERFACE_NOT_FOUND, "io.prezero");
	check_refusal("{\"method\":\"Take\"}", WIRE_INTERFACE_NOT_FOUND, "");
	check_refusal("{\"method\":\"\"}", WIRE_INTERFACE_NOT_FOUND, "");
	check_refusal("{\"method\":\".\"}", WIRE_INTERFACE_NOT_FOUND, "");
}

/* A refusal quotes no more than fits, and whole characters: of 300 two-byte ones behind a prefix. */
static void check_quote(const char *prefix, size_t n_whole)
{
	char text[1024], want[512];
	size_t i;

	strcat(strcpy(text, "{\"method\":\"io.prezero.Pool.Status\",\""), prefix);
	strcpy(want, prefix);
	for (i = 0; i < 300; i++)
		strcat(text, "\xc3\xa4");
	for (i = 0; i < n_whole; i++)
		strcat(want, "\xc3\xa4");
	check_refusal(strcat(text, "\":0}"), WIRE_INVALID_PARAMETER, want);
}

static void long_quotes(void **state)
{
	(void)state;
	check_quote("", 127); /* 254 bytes */
	check_quote("x", 127); /* 255 bytes */
	check_quote("xx", 126);
}

/* Nobody waits for the answer to a one-way call, not even for a refusal. */
static void oneway_refusals(void **state)
{
	struct wire_reply refusal;
	struct wire_call call;

	(void)state;
	assert_int_equal(decode_call("{\"extra\":1,\"oneway\":true,"
				     "\"method\":\"io.prezero.Pool.Status\"}",
				     &call, &refusal),
			 -ENOMSG);
	assert_int_equal(decode_call("{\"method\":\"no\",\"oneway\":true}", &call, &refusal),
			 -ENOMSG);
	assert_int_equal(decode_call("{\"method\":\"io.prezero.Pool.List\",\"oneway\":true}", &call,
				     &refusal),
			 -ENOMSG);
	assert_int_equal(decode_call("{\"method\":\"io.prezero.Pool.List\",\"oneway\":true,"
				     "\"more\":true}",
				     &call, &refusal),
			 -ENOMSG);
}

static const struct wire_holder holders[] = {
	{.pid = 1, .uid = 0, .command = "init"},
	{.pid = 4194304, .uid = 4294967294, .command = "qemu \"\\\n\xc3\xa4"},
};
static const struct wire_class classes[] = {
	{.page = "2M", .node = 0, .page_bytes = 2 << 20, .zeroable_pages = WIRE_INT(0)},
	{.page = "thp", .node = 1, .page_bytes = 2 << 20, .free_bytes = INT64_MAX},
};
static const struct wire_stock stocks[] = {
	{.name = "vms", .page = "1G", .node = -1, .segment_bytes = 1LL << 33, .short_of = "pages"},
};
static const struct wire_segment segments[] = {
	{.id = "00",
	 .path = "/run/prezero/2M/lent/0-00",
	 .page = "2M",
	 .state = "lent",
	 .uid = WIRE_INT(1000),
	 .name = "vm7",
	 .allocated_bytes = WIRE_INT(0)},
	{.id = "01", .path = "", .page = "2M", .state = "ready"},
};
static const char *const interfaces[] = {"io.prezero.Pool", "org.varlink.service"};

/* Each method and each error once, every optional field once there and once not. */
static const struct wire_reply replies[] = {
	{.method = WIRE_STATUS,
	 .status = {.version = "0.1.0",
		    .pid = 7,
		    .classes = classes,
		    .n_classes = 2,
		    .stocks = stocks,
		    .n_stocks = 1,
		    .total_bytes = INT64_MAX}},
	{.method = WIRE_LIST, .continues = true, .list = {.segments = segments, .n_segments = 2}},
	{.method = WIRE_LIST},
	{.method = WIRE_TAKE,
	 .take = {.id = "0123456789abcdef",
		  .path = "/x",
		  .page = "1G",
		  .page_bytes = 1 << 30,
		  .node = 3,
		  .bytes = 1LL << 40,
		  .filling = true}},
	{.method = WIRE_GIVE, .give = {.completed = true}},
	{.method = WIRE_GIVE, .give = {.holders = holders, .n_holders = 2}},
	{.method = WIRE_GET_INFO,
	 .get_info = {.vendor = "v",
		      .product = "p",
		      .version = "1",
		      .url = "",
		      .interfaces = interfaces,
		      .n_interfaces = 2}},
	{.method = WIRE_GET_INTERFACE_DESCRIPTION,
	 .get_interface_description = {.description = wire_pool_interface}},
	{.method = WIRE_TAKE,
	 .error = WIRE_REFUSED,
	 .refused = {.reason = "pages",
		     .message = "no",
		     .page = "2M",
		     .node = -1,
		     .have_bytes = 1,
		     .need_bytes = 2,
		     .fix = "sysctl",
		     .holders = holders,
		     .n_holders = 1}},
	{.method = WIRE_TAKE,
	 .error = WIRE_REFUSED,
	 .refused = {.reason = "floor", .message = "", .page = "base"}},
	{.method = WIRE_GIVE, .error = WIRE_NO_SUCH_LEASE, .no_such_lease = {.lease = "vm7"}},
	{.method = WIRE_GIVE, .error = WIRE_NOT_YOURS, .not_yours = {.lease = "vm7", .uid = 1}},
	{.method = WIRE_TAKE, .error = WIRE_NAME_TAKEN, .name_taken = {.name = "vm7"}},
	{.method = WIRE_TAKE, .error = WIRE_INTERFACE_NOT_FOUND, .interface_not_found = {"a.b"}},
	{.method = WIRE_TAKE, .error = WIRE_METHOD_NOT_FOUND, .method_not_found = {"a.b.C"}},
	{.method = WIRE_TAKE,
	 .error = WIRE_METHOD_NOT_IMPLEMENTED,
	 .method_not_implemented = {"a.b.C"}},
	{.method = WIRE_TAKE, .error = WIRE_INVALID_PARAMETER, .invalid_parameter = {"bytes"}},
	{.method = WIRE_LIST, .error = WIRE_EXPECTED_MORE},
};

static const struct wire_call all_calls[] = {
	{.method = WIRE_STATUS},
	{.method = WIRE_LIST, .more = true, .list = {.state = "ready"}},
	{.method = WIRE_LIST, .more = true},
	{.method = WIRE_TAKE, .take = {.bytes = 1}},
	{.method = WIRE_TAKE,
	 .oneway = true,
	 .take = {.bytes = INT64_MAX,
		  .page = "base",
		  .node = WIRE_INT(-1),
		  .name = "n",
		  .partial = true,
		  .wait_ms = WIRE_INT(WIRE_WAIT_MS_MAX)}},
	{.method = WIRE_GIVE, .give = {.lease = "vm7"}},
	{.method = WIRE_GIVE, .give = {.lease = "vm7", .wait_ms = WIRE_INT(0)}},
	{.method = WIRE_GET_INFO},
	{.method = WIRE_GET_INTERFACE_DESCRIPTION,
	 .get_interface_description = {.interface = "io.prezero.Pool"}},
};

static void there_and_back(void **state)
{
	bool seen_method[WIRE_METHODS] = {}, seen_error[WIRE_ERRORS] = {},
	     seen_call[WIRE_METHODS] = {};
	struct wire_reply refusal, reply;
	struct wire_call call;
	size_t i, text_bytes;
	char *text;

	(void)state;
	for (i = 0; i < ARRAY_LEN(replies); i++) {
		assert_int_equal(wire_encode_reply(&replies[i], &text, &text_bytes), 0);
		assert_int_equal(text_bytes, strlen(text) + 1);
		assert_int_equal(decode_reply(text, replies[i].method, &reply), 0);
		assert_true(same_reply(&replies[i], &reply));
		wire_reply_done(&reply);
		free(text);
		if (replies[i].error == WIRE_NO_ERROR)
			seen_method[replies[i].method] = true;
		seen_error[replies[i].error] = true;
	}
	for (i = 0; i < ARRAY_LEN(all_calls); i++) {
		assert_int_equal(wire_encode_call(&all_calls[i], &text, &text_bytes), 0);
		assert_int_equal(text_bytes, strlen(text) + 1);
		assert_int_equal(decode_call(text, &call, &refusal), 0);
		assert_true(same_call(&all_calls[i], &call));
		wire_call_done(&call);
		free(text);
		seen_call[all_calls[i].method] = true;
	}
	for (i = 0; i < WIRE_METHODS; i++)
		assert_true(seen_method[i] && seen_call[i]);
	for (i = 0; i < WIRE_UNKNOWN_ERROR; i++)
		assert_true(seen_error[i]);
}

static void replies_of_later_versions(void **state)
{
	struct wire_reply reply;

	(void)state;
	assert_int_equal(
		decode_reply("{\"later\":{},\"parameters\":{\"completed\":true,"
			     "\"holders\":[{\"pid\":1,\"uid\":2,\"command\":\"c\",\"later\":3}],"
			     "\"later\":[1]}}",
			     WIRE_GIVE, &reply),
		0);
	assert_int_equal(reply.give.n_holders, 1);
	assert_int_equal(reply.give.holders[0].uid, 2);
	wire_reply_done(&reply);

	assert_int_equal(decode_reply("{\"error\":\"io.prezero.Pool.Later\",\"parameters\":[1]}",
				      WIRE_GIVE, &reply),
			 0);
	assert_int_equal(reply.error, WIRE_UNKNOWN_ERROR);
	assert_string_equal(reply.unknown_error.name, "io.prezero.Pool.Later");
	wire_reply_done(&reply);
}

static void bad_replies(void **state)
{
	static const char *const texts[] = {
		"",
		"[]",
		"{}",
		"{\"parameters\":7}",
		"{\"parameters\":{\"completed\":true}}",
		"{\"parameters\":{\"completed\":1,\"holders\":[]}}",
		"{\"parameters\":{\"completed\":true,\"holders\":{}}}",
		"{\"parameters\":{\"completed\":true,\"holders\":[7]}}",
		"{\"parameters\":{\"completed\":true,\"holders\":[{\"pid\":1,\"uid\":2}]}}",
		"{\"parameters\":{\"completed\":true,\"holders\":["
		"{\"pid\":1,\"uid\":2,\"command\":\"c\"},{\"pid\":-1,\"uid\":2,\"command\":\"c\"}]}}",
		"{\"parameters\":{\"completed\":true,\"completed\":true,\"holders\":[]}}",
		"{\"continues\":0,\"parameters\":{\"completed\":true,\"holders\":[]}}",
		"{\"error\":7,\"parameters\":{\"completed\":true,\"holders\":[]}}",
		"{\"error\":\"io.prezero.Pool.NoSuchLease\"}",
		"{\"error\":\"io.prezero.Pool.NoSuchLease\",\"parameters\":{\"lease\":7}}",
		"{\"error\":\"io.prezero.Pool.NoSuchLease\",\"continues\":true,"
		"\"parameters\":{\"lease\":\"x\"}}",
		REFUSE("{\"reason\":\"pages\"}"),
	};
	struct wire_reply reply;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		assert_int_equal(decode_reply(texts[i], WIRE_GIVE, &reply), -EBADMSG);
}

/* Every reply cut at every length: refused, and nothing is kept (the leak sanitizer looks on). */
static void cut_replies(void **state)
{
	struct wire_reply reply;
	size_t text_bytes;
	char *text;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(replies); i++) {
		assert_int_equal(wire_encode_reply(&replies[i], &text, &text_bytes), 0);
		for (size_t n = 0; n < text_bytes - 1; n++)
			assert_int_equal(wire_decode_reply(text, n, replies[i].method, &reply),
					 -EBADMSG);
		free(text);
	}
}

/* What decoding would refuse is not sent in the first place. */
static void bad_encodings(void **state)
{
	static const struct wire_holder bad_holder = {.pid = -1, .command = "c"};
	static const char *const no_string[] = {NULL};
	static const struct wire_reply bad_replies[] = {
		{.method = WIRE_TAKE, .take = {.id = "1", .path = "/", .page = "2M"}}, /* bytes 0 */
		{.method = WIRE_TAKE,
		 .take = {.id = "1", .page = "2M", .page_bytes = 1, .bytes = 1}},
		{.method = WIRE_GIVE, .give = {.holders = &bad_holder, .n_holders = 1}},
		{.method = WIRE_GIVE, .error = WIRE_NO_SUCH_LEASE},
		{.method = WIRE_GIVE, .error = WIRE_NO_SUCH_LEASE, .no_such_lease = {"\xff"}},
		{.method = WIRE_GIVE, .error = WIRE_UNKNOWN_ERROR, .unknown_error = {"a.b.C"}},
		{.method = WIRE_GET_INFO,
		 .get_info = {.vendor = "",
			      .product = "",
			      .version = "",
			      .url = "",
			      .interfaces = no_string,
			      .n_interfaces = 1}},
	};
	static const struct wire_call bad_calls[] = {
		{.method = WIRE_TAKE},
		{.method = WIRE_TAKE, .take = {.bytes = -1}},
		{.method = WIRE_TAKE, .take = {.bytes = 1, .wait_ms = WIRE_INT(-1)}},
		{.method = WIRE_TAKE, .take = {.bytes = 1, .name = "\xc3"}},
		{.method = WIRE_GIVE},
	};
	size_t text_bytes = 77;
	char *text = NULL;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad_replies); i++)
		assert_int_equal(wire_encode_reply(&bad_replies[i], &text, &text_bytes), -EINVAL);
	for (size_t i = 0; i < ARRAY_LEN(bad_calls); i++)
		assert_int_equal(wire_encode_call(&bad_calls[i], &text, &text_bytes), -EINVAL);
	assert_null(text);
	assert_int_equal(text_bytes, 77);
}

static void too_long_to_send(void **state)
{
	static struct wire_segment many[30000];
	struct wire_reply reply = {.method = WIRE_LIST, .list = {.segments = many}};
	size_t text_bytes;
	char *text;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(many); i++)
		many[i] = segments[0];
	reply.list.n_segments = ARRAY_LEN(many);
	assert_int_equal(wire_encode_reply(&reply, &text, &text_bytes), -EMSGSIZE);
	reply.list.n_segments = 100;
	assert_int_equal(wire_encode_reply(&reply, &text, &text_bytes), 0);
	free(text);
}

static void objects_as_text(void **state)
{
	AUTO_FREE char *segment = NULL, *status = NULL;
	struct wire_status_reply empty = {.version = "0.1.0"};

	(void)state;
	assert_int_equal(wire_format_segment(&segments[1], &segment), 0);
	assert_string_equal(segment,
			    "{\"id\":\"01\",\"path\":\"\",\"page\":\"2M\",\"node\":0,\"bytes\":0,"
			    "\"state\":\"ready\",\"age_ms\":0}");
	assert_int_equal(wire_format_status(&empty, &status), 0);
	assert_memory_equal(status, "{\"version\":\"0.1.0\",\"pid\":0,", 27);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls),
		cmocka_unit_test(no_calls),
		cmocka_unit_test(refused_calls),
		cmocka_unit_test(long_quotes),
		cmocka_unit_test(oneway_refusals),
		cmocka_unit_test(there_and_back),
		cmocka_unit_test(replies_of_later_versions),
		cmocka_unit_test(bad_replies),
		cmocka_unit_test(cut_replies),
		cmocka_unit_test(bad_encodings),
		cmocka_unit_test(too_long_to_send),
		cmocka_unit_test(objects_as_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
