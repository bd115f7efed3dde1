// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * client/error.c - what went wrong last, by connection and thread, in words.
 *
 * An entry belongs to two lists, its thread's and its connection's, and is freed with whichever ends
 * first. Only its own thread reads or writes its content, so what prezero_error() returns holds still.
 */
#include "client/client.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/parse.h"

#define ERROR_TEXT_MAX 2048
#define HOLDERS_NAMED 4 /* in a sentence; all are in the JSON */

struct error_entry {
	LIST_ENTRY(error_entry) of_thread;
	LIST_ENTRY(error_entry) of_connection;
	struct prezero *connection;
	char *json;
	char text[ERROR_TEXT_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* both kinds of lists */
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* a thread's struct error_list */
static bool have_key;

/* The lock is held. */
static void free_entry(struct error_entry *entry)
{
	LIST_REMOVE(entry, of_thread);
	LIST_REMOVE(entry, of_connection);
	free(entry->json);
	free(entry);
}

static void end_of_thread(void *list)
{
	struct error_list *errors = list;

	pthread_mutex_lock(&lock);
	while (!LIST_EMPTY(errors))
		free_entry(LIST_FIRST(errors));
	pthread_mutex_unlock(&lock);
	free(errors);
}

static void make_key(void)
{
	have_key = pthread_key_create(&key, end_of_thread) == 0;
}

static struct error_list *thread_errors(void)
{
	struct error_list *errors;

	pthread_once(&key_once, make_key);
	if (!have_key)
		return NULL;
	errors = pthread_getspecific(key);
	if (errors)
		return errors;
	errors = malloc(sizeof(*errors));
	if (!errors)
		return NULL;
	LIST_INIT(errors);
	if (pthread_setspecific(key, errors) != 0) {
		free(errors);
		return NULL;
	}
	return errors;
}

/* NULL where there is none. */
static struct error_entry *find_entry(struct prezero *connection)
{
	struct error_list *errors = connection ? thread_errors() : NULL;
	struct error_entry *entry = NULL;

	if (!errors)
		return NULL;
	pthread_mutex_lock(&lock);
	LIST_FOREACH(entry, errors, of_thread) {
		if (entry->connection == connection)
			break;
	}
	pthread_mutex_unlock(&lock);
	return entry;
}

/* NULL: no memory, and the error goes without its words. */
static struct error_entry *get_entry(struct prezero *connection)
{
	struct error_entry *entry = find_entry(connection);
	struct error_list *errors = thread_errors();

	if (entry || !errors)
		return entry;
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return NULL;
	entry->connection = connection;
	pthread_mutex_lock(&lock);
	LIST_INSERT_HEAD(errors, entry, of_thread);
	LIST_INSERT_HEAD(&connection->errors, entry, of_connection);
	pthread_mutex_unlock(&lock);
	return entry;
}

void forget_errors(struct prezero *connection)
{
	pthread_mutex_lock(&lock);
	while (!LIST_EMPTY(&connection->errors))
		free_entry(LIST_FIRST(&connection->errors));
	pthread_mutex_unlock(&lock);
}

const char *prezero_error(struct prezero *connection)
{
	struct error_entry *entry = find_entry(connection);

	return entry ? entry->text : "";
}

const char *prezero_error_json(struct prezero *connection)
{
	struct error_entry *entry = find_entry(connection);

	return entry && entry->json ? entry->json : "";
}

int set_error(struct prezero *connection, int r, const char *json, const char *format, ...)
{
	struct error_entry *entry = get_entry(connection);
	va_list arguments;

	if (!entry)
		return r;
	va_start(arguments, format);
	vsnprintf(entry->text, sizeof(entry->text), format, arguments);
	va_end(arguments);
	free(entry->json);
	entry->json = json ? strdup(json) : NULL;
	return r;
}

const char *format_holders(const struct wire_holder *holders, size_t n_holders, char *buf,
			   size_t buf_bytes)
{
	size_t i, used = 0;

	buf[0] = '\0';
	for (i = 0; i < n_holders && i < HOLDERS_NAMED && used < buf_bytes; i++)
		used += (size_t)snprintf(buf + used, buf_bytes - used,
					 "%s%s (pid %" PRId64 ", uid %" PRId64 ")", i ? ", " : "",
					 holders[i].command, holders[i].pid, holders[i].uid);
	if (i < n_holders && used < buf_bytes)
		snprintf(buf + used, buf_bytes - used, " and %zu more", n_holders - i);
	return buf;
}

static int refused_errno(const char *reason)
{
	static const struct {
		const char *reason;
		int r;
	} table[] = {
		{"class", -ENODEV}, {"node", -ENODEV},	      {"multiple", -EINVAL},
		{"limit", -EDQUOT}, {"deadline", -ETIMEDOUT}, {"io", -EIO},
	};

	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		if (strcmp(table[i].reason, reason) == 0)
			return table[i].r;
	}
	return -ENOMEM; /* a kind of memory that is short: pages, floor, ... */
}

static int set_refused_error(struct prezero *connection, const struct answer *answer)
{
	const struct wire_refused *refused = &answer->reply.refused;
	char holders[512];

	format_holders(refused->holders, refused->n_holders, holders, sizeof(holders));
	return set_error(connection, refused_errno(refused->reason), answer->text, "%s%s%s%s%s",
			 refused->message, refused->n_holders ? "; held by " : "", holders,
			 refused->fix ? "; fix: " : "", refused->fix ? refused->fix : "");
}

/* The value of a field that the daemon does not accept. */
static const char *format_value(const struct wire_call *call, const char *field, char *buf,
				size_t buf_bytes)
{
	const struct wire_take *take = &call->take;

	buf[0] = '\0';
	if (call->method == WIRE_LIST && strcmp(field, "state") == 0 && call->list.state)
		snprintf(buf, buf_bytes, ": %s", call->list.state);
	if (call->method != WIRE_TAKE)
		return buf;
	if (strcmp(field, "bytes") == 0)
		snprintf(buf, buf_bytes, ": %" PRId64, take->bytes);
	else if (strcmp(field, "node") == 0)
		snprintf(buf, buf_bytes, ": %" PRId64, take->node.value);
	else if (strcmp(field, "page") == 0 && take->page)
		snprintf(buf, buf_bytes, ": %s", take->page);
	else if (strcmp(field, "name") == 0 && take->name)
		snprintf(buf, buf_bytes, ": %s", take->name);
	return buf;
}

int set_reply_error(struct prezero *connection, const struct wire_call *call,
		    const struct answer *answer)
{
	const struct wire_reply *reply = &answer->reply;
	const char *json = answer->text;
	char value[256];

	switch (reply->error) {
	case WIRE_REFUSED:
		return set_refused_error(connection, answer);
	case WIRE_NO_SUCH_LEASE:
		return set_error(connection, -ENOENT, json,
				 "there is no lease %s; see them with: prezero list",
				 reply->no_such_lease.lease);
	case WIRE_NOT_YOURS:
		return set_error(connection, -EPERM, json,
				 "the lease %s belongs to user %" PRId64
				 ", who may end it, or root",
				 reply->not_yours.lease, reply->not_yours.uid);
	case WIRE_NAME_TAKEN:
		return set_error(connection, -EEXIST, json,
				 "the name %s is taken; choose another or end that lease with: "
				 "prezero give %s",
				 reply->name_taken.name, reply->name_taken.name);
	case WIRE_INVALID_PARAMETER:
		return set_error(connection, -EINVAL, json, "the daemon does not accept this %s%s",
				 reply->invalid_parameter.parameter,
				 format_value(call, reply->invalid_parameter.parameter, value,
					      sizeof(value)));
	case WIRE_UNKNOWN_ERROR:
		return set_error(
			connection, -EPROTO, json,
			"the daemon answers %s, which this version of libprezero does not know",
			reply->unknown_error.name);
	default:
		return set_error(connection, -EPROTO, json, "the daemon answers %s to %s",
				 wire_error_name(reply->error), wire_method_name(call->method));
	}
}
