// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * wire/table.c - the tables.
 *
 * A field that does not have the C type its kind needs does not compile: MEMBER() has no choice for it.
 */
#include "wire/table.h"

#include "base/cleanup.h"

/* offsetof(), but only for a member of this C type. */
#define MEMBER(struct_, member, type) \
	_Generic(((struct_ *)0)->member, type : offsetof(struct_, member))

#define BOOL(s, m)                                                      \
	{                                                               \
#m, WIRE_KIND_BOOL, false, .offset = MEMBER(s, m, bool) \
	}
#define OPT_BOOL(s, m)                                                 \
	{                                                              \
#m, WIRE_KIND_BOOL, true, .offset = MEMBER(s, m, bool) \
	}
#define INT(s, m, least, most)                                                         \
	{                                                                              \
#m, WIRE_KIND_INT, false, least, most, .offset = MEMBER(s, m, int64_t) \
	}
#define OPT_INT(s, m, least, most)                                       \
	{                                                                \
#m, WIRE_KIND_INT, true, least, most,                    \
			.offset = MEMBER(s, m, struct wire_optional_int) \
	}
#define STRING(s, m, most)                                                                 \
	{                                                                                  \
#m, WIRE_KIND_STRING, false, 0, most, .offset = MEMBER(s, m, const char *) \
	}
#define OPT_STRING(s, m, most)                                                            \
	{                                                                                 \
#m, WIRE_KIND_STRING, true, 0, most, .offset = MEMBER(s, m, const char *) \
	}
#define STRINGS(s, m, most)                                          \
	{                                                            \
#m, WIRE_KIND_STRINGS, false, 0, most,               \
			.offset = MEMBER(s, m, const char *const *), \
			.count_offset = MEMBER(s, n_##m, size_t)     \
	}
#define OBJECTS(s, m, item_)                                                                \
	{                                                                                   \
#m, WIRE_KIND_OBJECTS, .offset = MEMBER(s, m, const struct wire_##item_ *), \
				       .count_offset = MEMBER(s, n_##m, size_t),            \
				       .item = &wire_type_##item_                           \
	}

#define TYPE(name_, s, table)                                                           \
	{                                                                               \
		.name = name_, .struct_bytes = sizeof(s), .n_fields = ARRAY_LEN(table), \
		.fields = table                                                         \
	}

#define COUNT_MAX INT64_MAX
#define BYTES_MAX INT64_MAX
#define MS_MAX INT64_MAX
#define NODE_MIN (-1) /* any */
#define NODE_MAX INT32_MAX
#define PID_MAX INT32_MAX
#define UID_MAX ((int64_t)UINT32_MAX)
/* The longest strings, in bytes. */
#define WORD_LEN 63 /* a page size, a state, an id */
#define NAME_LEN 255 /* what people choose */
#define PATH_LEN 4095
#define TEXT_LEN 4095 /* a sentence */
#define DESCRIPTION_LEN 65535

static const struct wire_field class_fields[] = {
	STRING(struct wire_class, page, WORD_LEN),
	INT(struct wire_class, node, 0, NODE_MAX),
	INT(struct wire_class, page_bytes, 1, BYTES_MAX),
	INT(struct wire_class, total_bytes, 0, BYTES_MAX),
	INT(struct wire_class, free_bytes, 0, BYTES_MAX),
	INT(struct wire_class, headroom_bytes, 0, BYTES_MAX),
	INT(struct wire_class, filling_bytes, 0, BYTES_MAX),
	INT(struct wire_class, ready_bytes, 0, BYTES_MAX),
	INT(struct wire_class, lent_bytes, 0, BYTES_MAX),
	INT(struct wire_class, segments_filling, 0, COUNT_MAX),
	INT(struct wire_class, segments_ready, 0, COUNT_MAX),
	INT(struct wire_class, segments_lent, 0, COUNT_MAX),
	OPT_INT(struct wire_class, zeroable_pages, 0, COUNT_MAX),
};
const struct wire_type wire_type_class = TYPE("Class", struct wire_class, class_fields);

static const struct wire_field stock_fields[] = {
	STRING(struct wire_stock, name, NAME_LEN),
	STRING(struct wire_stock, page, WORD_LEN),
	INT(struct wire_stock, node, NODE_MIN, NODE_MAX),
	INT(struct wire_stock, segment_bytes, 1, BYTES_MAX),
	INT(struct wire_stock, keep, 0, COUNT_MAX),
	INT(struct wire_stock, ready, 0, COUNT_MAX),
	INT(struct wire_stock, filling, 0, COUNT_MAX),
	OPT_STRING(struct wire_stock, short_of, WORD_LEN),
};
const struct wire_type wire_type_stock = TYPE("Stock", struct wire_stock, stock_fields);

static const struct wire_field fill_fields[] = {
	STRING(struct wire_fill, page, WORD_LEN),
	INT(struct wire_fill, node, 0, NODE_MAX),
	INT(struct wire_fill, done_bytes, 0, BYTES_MAX),
	INT(struct wire_fill, total_bytes, 0, BYTES_MAX),
	INT(struct wire_fill, bytes_per_second, 0, BYTES_MAX),
	OPT_INT(struct wire_fill, eta_ms, 0, MS_MAX),
};
const struct wire_type wire_type_fill = TYPE("Fill", struct wire_fill, fill_fields);

static const struct wire_field pinned_fields[] = {
	STRING(struct wire_pinned, page, WORD_LEN),
	INT(struct wire_pinned, bytes, 0, BYTES_MAX),
};
const struct wire_type wire_type_pinned = TYPE("Pinned", struct wire_pinned, pinned_fields);

static const struct wire_field holder_fields[] = {
	INT(struct wire_holder, pid, 0, PID_MAX),
	INT(struct wire_holder, uid, 0, UID_MAX),
	STRING(struct wire_holder, command, NAME_LEN),
};
const struct wire_type wire_type_holder = TYPE("Holder", struct wire_holder, holder_fields);

static const struct wire_field segment_fields[] = {
	STRING(struct wire_segment, id, WORD_LEN),
	STRING(struct wire_segment, path, PATH_LEN),
	STRING(struct wire_segment, page, WORD_LEN),
	INT(struct wire_segment, node, 0, NODE_MAX),
	INT(struct wire_segment, bytes, 0, BYTES_MAX),
	STRING(struct wire_segment, state, WORD_LEN),
	INT(struct wire_segment, age_ms, 0, MS_MAX),
	OPT_INT(struct wire_segment, uid, 0, UID_MAX),
	OPT_STRING(struct wire_segment, name, NAME_LEN),
	OPT_INT(struct wire_segment, allocated_bytes, 0, BYTES_MAX),
};
const struct wire_type wire_type_segment = TYPE("Segment", struct wire_segment, segment_fields);

/* Parameters of calls. */

static const struct wire_type no_parameters = {0};

static const struct wire_field list_fields[] = {
	OPT_STRING(struct wire_list, state, WORD_LEN),
};
static const struct wire_type list_call = TYPE(NULL, struct wire_list, list_fields);

static const struct wire_field take_fields[] = {
	INT(struct wire_take, bytes, 1, BYTES_MAX),
	OPT_STRING(struct wire_take, page, WORD_LEN),
	OPT_INT(struct wire_take, node, NODE_MIN, NODE_MAX),
	OPT_STRING(struct wire_take, name, NAME_LEN),
	OPT_BOOL(struct wire_take, partial),
	OPT_INT(struct wire_take, wait_ms, 0, WIRE_WAIT_MS_MAX),
};
static const struct wire_type take_call = TYPE(NULL, struct wire_take, take_fields);

static const struct wire_field give_fields[] = {
	STRING(struct wire_give, lease, PATH_LEN),
	OPT_INT(struct wire_give, wait_ms, 0, WIRE_WAIT_MS_MAX),
};
static const struct wire_type give_call = TYPE(NULL, struct wire_give, give_fields);

static const struct wire_field describe_fields[] = {
	STRING(struct wire_get_interface_description, interface, NAME_LEN),
};
static const struct wire_type describe_call =
	TYPE(NULL, struct wire_get_interface_description, describe_fields);

/* Parameters of replies. */

static const struct wire_field status_reply_fields[] = {
	STRING(struct wire_status_reply, version, WORD_LEN),
	INT(struct wire_status_reply, pid, 0, PID_MAX),
	INT(struct wire_status_reply, uptime_ms, 0, MS_MAX),
	INT(struct wire_status_reply, threads, 0, COUNT_MAX),
	INT(struct wire_status_reply, floor_bytes, 0, BYTES_MAX),
	INT(struct wire_status_reply, available_bytes, 0, BYTES_MAX),
	INT(struct wire_status_reply, total_bytes, 0, BYTES_MAX),
	INT(struct wire_status_reply, takes, 0, COUNT_MAX),
	INT(struct wire_status_reply, gives, 0, COUNT_MAX),
	INT(struct wire_status_reply, refusals, 0, COUNT_MAX),
	INT(struct wire_status_reply, filled_bytes, 0, BYTES_MAX),
	OBJECTS(struct wire_status_reply, classes, class),
	OBJECTS(struct wire_status_reply, stocks, stock),
	OBJECTS(struct wire_status_reply, fills, fill),
	OBJECTS(struct wire_status_reply, zeroing, fill),
	OBJECTS(struct wire_status_reply, pinned, pinned),
};
static const struct wire_type status_reply =
	TYPE(NULL, struct wire_status_reply, status_reply_fields);

static const struct wire_field list_reply_fields[] = {
	OBJECTS(struct wire_list_reply, segments, segment),
};
static const struct wire_type list_reply = TYPE(NULL, struct wire_list_reply, list_reply_fields);

static const struct wire_field take_reply_fields[] = {
	STRING(struct wire_take_reply, id, WORD_LEN),
	STRING(struct wire_take_reply, path, PATH_LEN),
	STRING(struct wire_take_reply, page, WORD_LEN),
	INT(struct wire_take_reply, page_bytes, 1, BYTES_MAX),
	INT(struct wire_take_reply, node, 0, NODE_MAX),
	INT(struct wire_take_reply, bytes, 1, BYTES_MAX),
	BOOL(struct wire_take_reply, filling),
	INT(struct wire_take_reply, fd, 0, 0),
};
static const struct wire_type take_reply = TYPE(NULL, struct wire_take_reply, take_reply_fields);

static const struct wire_field give_reply_fields[] = {
	BOOL(struct wire_give_reply, completed),
	OBJECTS(struct wire_give_reply, holders, holder),
};
static const struct wire_type give_reply = TYPE(NULL, struct wire_give_reply, give_reply_fields);

static const struct wire_field info_reply_fields[] = {
	STRING(struct wire_get_info_reply, vendor, NAME_LEN),
	STRING(struct wire_get_info_reply, product, NAME_LEN),
	STRING(struct wire_get_info_reply, version, NAME_LEN),
	STRING(struct wire_get_info_reply, url, NAME_LEN),
	STRINGS(struct wire_get_info_reply, interfaces, NAME_LEN),
};
static const struct wire_type info_reply =
	TYPE(NULL, struct wire_get_info_reply, info_reply_fields);

static const struct wire_field describe_reply_fields[] = {
	STRING(struct wire_get_interface_description_reply, description, DESCRIPTION_LEN),
};
static const struct wire_type describe_reply =
	TYPE(NULL, struct wire_get_interface_description_reply, describe_reply_fields);

/* Parameters of errors. */

static const struct wire_field refused_fields[] = {
	STRING(struct wire_refused, reason, WORD_LEN),
	STRING(struct wire_refused, message, TEXT_LEN),
	STRING(struct wire_refused, page, WORD_LEN),
	INT(struct wire_refused, node, NODE_MIN, NODE_MAX),
	INT(struct wire_refused, have_bytes, 0, BYTES_MAX),
	INT(struct wire_refused, need_bytes, 0, BYTES_MAX),
	OPT_STRING(struct wire_refused, fix, TEXT_LEN),
	OBJECTS(struct wire_refused, holders, holder),
};
static const struct wire_type refused = TYPE(NULL, struct wire_refused, refused_fields);

static const struct wire_field no_such_lease_fields[] = {
	STRING(struct wire_no_such_lease, lease, PATH_LEN),
};
static const struct wire_type no_such_lease =
	TYPE(NULL, struct wire_no_such_lease, no_such_lease_fields);

static const struct wire_field not_yours_fields[] = {
	STRING(struct wire_not_yours, lease, PATH_LEN),
	INT(struct wire_not_yours, uid, 0, UID_MAX),
};
static const struct wire_type not_yours = TYPE(NULL, struct wire_not_yours, not_yours_fields);

static const struct wire_field name_taken_fields[] = {
	STRING(struct wire_name_taken, name, NAME_LEN),
};
static const struct wire_type name_taken = TYPE(NULL, struct wire_name_taken, name_taken_fields);

static const struct wire_field interface_not_found_fields[] = {
	STRING(struct wire_interface_not_found, interface, NAME_LEN),
};
static const struct wire_type interface_not_found =
	TYPE(NULL, struct wire_interface_not_found, interface_not_found_fields);

static const struct wire_field method_not_found_fields[] = {
	STRING(struct wire_method_not_found, method, NAME_LEN),
};
static const struct wire_type method_not_found =
	TYPE(NULL, struct wire_method_not_found, method_not_found_fields);

static const struct wire_field method_not_implemented_fields[] = {
	STRING(struct wire_method_not_implemented, method, NAME_LEN),
};
static const struct wire_type method_not_implemented =
	TYPE(NULL, struct wire_method_not_implemented, method_not_implemented_fields);

static const struct wire_field invalid_parameter_fields[] = {
	STRING(struct wire_invalid_parameter, parameter, NAME_LEN),
};
static const struct wire_type invalid_parameter =
	TYPE(NULL, struct wire_invalid_parameter, invalid_parameter_fields);

static const struct wire_field unknown_error_fields[] = {
	STRING(struct wire_unknown_error, name, NAME_LEN),
};
static const struct wire_type unknown_error =
	TYPE(NULL, struct wire_unknown_error, unknown_error_fields);

const struct wire_method_row wire_methods[WIRE_METHODS] = {
	[WIRE_STATUS] = {"io.prezero.Pool.Status", &no_parameters, &status_reply},
	[WIRE_LIST] = {"io.prezero.Pool.List", &list_call, &list_reply, .needs_more = true},
	[WIRE_TAKE] = {"io.prezero.Pool.Take", &take_call, &take_reply},
	[WIRE_GIVE] = {"io.prezero.Pool.Give", &give_call, &give_reply},
	[WIRE_GET_INFO] = {"org.varlink.service.GetInfo", &no_parameters, &info_reply},
	[WIRE_GET_INTERFACE_DESCRIPTION] = {"org.varlink.service.GetInterfaceDescription",
					    &describe_call, &describe_reply},
};

const struct wire_error_row wire_errors[WIRE_ERRORS] = {
	[WIRE_REFUSED] = {"io.prezero.Pool.Refused", &refused},
	[WIRE_NO_SUCH_LEASE] = {"io.prezero.Pool.NoSuchLease", &no_such_lease},
	[WIRE_NOT_YOURS] = {"io.prezero.Pool.NotYours", &not_yours},
	[WIRE_NAME_TAKEN] = {"io.prezero.Pool.NameTaken", &name_taken},
	[WIRE_INTERFACE_NOT_FOUND] = {"org.varlink.service.InterfaceNotFound",
				      &interface_not_found},
	[WIRE_METHOD_NOT_FOUND] = {"org.varlink.service.MethodNotFound", &method_not_found},
	[WIRE_METHOD_NOT_IMPLEMENTED] = {"org.varlink.service.MethodNotImplemented",
					 &method_not_implemented},
	[WIRE_INVALID_PARAMETER] = {"org.varlink.service.InvalidParameter", &invalid_parameter},
	[WIRE_EXPECTED_MORE] = {"org.varlink.service.ExpectedMore", &no_parameters},
	[WIRE_UNKNOWN_ERROR] = {NULL, &unknown_error},
};
