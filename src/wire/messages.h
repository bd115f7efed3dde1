/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * wire/messages.h - the messages of io.prezero.Pool and org.varlink.service as plain structs.
 *
 * What each field means is written in io.prezero.Pool.varlink, the reference; a test holds these
 * structs and their tables (table.c) against it. Rules for every struct:
 *
 *  - integers are int64_t, as JSON carries them, and checked against the table's bounds;
 *  - a string that is optional is NULL when absent, an optional bool false, an optional integer not set;
 *  - an array is a pointer and its count, NULL and 0 when empty.
 *
 * Zero-initialise, fill in, encode: encoding borrows everything. What was decoded is owned by the
 * struct and given back by wire_call_done() or wire_reply_done().
 */
#ifndef PREZERO_WIRE_MESSAGES_H
#define PREZERO_WIRE_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wire_optional_int {
	bool is_set;
	int64_t value;
};
#define WIRE_INT(v) ((struct wire_optional_int){.is_set = true, .value = (v)})

/* wait_ms is at most this, so that it fits nanoseconds: for ever, in practice. */
#define WIRE_WAIT_MS_MAX (INT64_MAX / 1000000)

struct wire_class {
	const char *page;
	int64_t node;
	int64_t page_bytes;
	int64_t total_bytes;
	int64_t free_bytes;
	int64_t headroom_bytes;
	int64_t filling_bytes;
	int64_t ready_bytes;
	int64_t lent_bytes;
	int64_t segments_filling;
	int64_t segments_ready;
	int64_t segments_lent;
	struct wire_optional_int zeroable_pages;
};

struct wire_stock {
	const char *name;
	const char *page;
	int64_t node;
	int64_t segment_bytes;
	int64_t keep;
	int64_t ready;
	int64_t filling;
	const char *short_of; /* optional */
};

struct wire_fill {
	const char *page;
	int64_t node;
	int64_t done_bytes;
	int64_t total_bytes;
	int64_t bytes_per_second;
	struct wire_optional_int eta_ms;
};

struct wire_pinned {
	const char *page;
	int64_t bytes;
};

struct wire_holder {
	int64_t pid;
	int64_t uid;
	const char *command;
};

struct wire_segment {
	const char *id;
	const char *path;
	const char *page;
	int64_t node;
	int64_t bytes;
	const char *state;
	int64_t age_ms;
	struct wire_optional_int uid;
	const char *name; /* optional */
	struct wire_optional_int allocated_bytes;
};

/* Calls. Status and GetInfo carry no parameters. */

struct wire_list {
	const char *state; /* optional */
};

struct wire_take {
	int64_t bytes;
	const char *page; /* optional */
	struct wire_optional_int node;
	const char *name; /* optional */
	bool partial; /* optional */
	struct wire_optional_int wait_ms;
};

struct wire_give {
	const char *lease;
	struct wire_optional_int wait_ms;
};

struct wire_get_interface_description {
	const char *interface;
};

/* Replies. */

struct wire_status_reply {
	const char *version;
	int64_t pid;
	int64_t uptime_ms;
	int64_t threads;
	int64_t floor_bytes;
	int64_t available_bytes;
	int64_t total_bytes;
	int64_t takes;
	int64_t gives;
	int64_t refusals;
	int64_t filled_bytes;
	const struct wire_class *classes;
	size_t n_classes;
	const struct wire_stock *stocks;
	size_t n_stocks;
	const struct wire_fill *fills;
	size_t n_fills;
	const struct wire_fill *zeroing;
	size_t n_zeroing;
	const struct wire_pinned *pinned;
	size_t n_pinned;
};

struct wire_list_reply {
	const struct wire_segment *segments;
	size_t n_segments;
};

struct wire_take_reply {
	const char *id;
	const char *path;
	const char *page;
	int64_t page_bytes;
	int64_t node;
	int64_t bytes;
	bool filling;
	int64_t fd; /* an index, as in systemd's Varlink: 0, the one descriptor sent along */
};

struct wire_give_reply {
	bool completed;
	const struct wire_holder *holders;
	size_t n_holders;
};

struct wire_get_info_reply {
	const char *vendor;
	const char *product;
	const char *version;
	const char *url;
	const char *const *interfaces;
	size_t n_interfaces;
};

struct wire_get_interface_description_reply {
	const char *description;
};

/* Errors. ExpectedMore carries no parameters. */

struct wire_refused {
	const char *reason;
	const char *message;
	const char *page;
	int64_t node;
	int64_t have_bytes;
	int64_t need_bytes;
	const char *fix; /* optional */
	const struct wire_holder *holders;
	size_t n_holders;
};

struct wire_no_such_lease {
	const char *lease;
};

struct wire_not_yours {
	const char *lease;
	int64_t uid;
};

struct wire_name_taken {
	const char *name;
};

struct wire_interface_not_found {
	const char *interface;
};

struct wire_method_not_found {
	const char *method;
};

struct wire_method_not_implemented {
	const char *method;
};

struct wire_invalid_parameter {
	const char *parameter;
};

struct wire_unknown_error {
	const char *name; /* of an error that this version does not know */
};

enum wire_method {
	WIRE_STATUS,
	WIRE_LIST,
	WIRE_TAKE,
	WIRE_GIVE,
	WIRE_GET_INFO,
	WIRE_GET_INTERFACE_DESCRIPTION,
	WIRE_METHODS,
};

enum wire_error {
	WIRE_NO_ERROR,
	WIRE_REFUSED,
	WIRE_NO_SUCH_LEASE,
	WIRE_NOT_YOURS,
	WIRE_NAME_TAKEN,
	WIRE_INTERFACE_NOT_FOUND,
	WIRE_METHOD_NOT_FOUND,
	WIRE_METHOD_NOT_IMPLEMENTED,
	WIRE_INVALID_PARAMETER,
	WIRE_EXPECTED_MORE,
	WIRE_UNKNOWN_ERROR, /* decoded only */
	WIRE_ERRORS,
};

struct wire_call {
	enum wire_method method;
	bool more; /* the caller takes several replies */
	bool oneway; /* the caller wants none */
	union {
		struct wire_list list;
		struct wire_take take;
		struct wire_give give;
		struct wire_get_interface_description get_interface_description;
	};
};

struct wire_reply {
	enum wire_method method; /* what was called */
	enum wire_error error; /* decides with method which member of the union stands */
	bool continues; /* more replies follow; only where the call said more */
	union {
		struct wire_status_reply status;
		struct wire_list_reply list;
		struct wire_take_reply take;
		struct wire_give_reply give;
		struct wire_get_info_reply get_info;
		struct wire_get_interface_description_reply get_interface_description;
		struct wire_refused refused;
		struct wire_no_such_lease no_such_lease;
		struct wire_not_yours not_yours;
		struct wire_name_taken name_taken;
		struct wire_interface_not_found interface_not_found;
		struct wire_method_not_found method_not_found;
		struct wire_method_not_implemented method_not_implemented;
		struct wire_invalid_parameter invalid_parameter;
		struct wire_unknown_error unknown_error;
	};
};

#endif
