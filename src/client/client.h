/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * client/client.h - the inside of libprezero.
 *
 * A channel is one socket to the daemon; a connection is a channel that threads share, call by call,
 * and that is opened again when the daemon went away. Locks: a connection's, then the one in error.c.
 */
#ifndef PREZERO_CLIENT_CLIENT_H
#define PREZERO_CLIENT_CLIENT_H

#include <pthread.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "wire/wire.h"

/* The library is built with hidden symbols; these are the ones to be seen. */
#pragma GCC visibility push(default)
#include "prezero.h"
#pragma GCC visibility pop

/* A daemon that is well answers within this, beyond what it was asked to wait. */
#define GRACE_MS 10000

struct channel {
	int socket_fd; /* -1: closed */
	struct wire_buffer in;
};

/* channel_open: -ENOENT, -ECONNREFUSED: no daemon there; or what connect(2) says. */
MUST_CHECK int channel_open(struct channel *channel, const char *socket_path);
/* Whether a call may be sent: open, the peer still there, and nothing that nobody asked for came. */
bool channel_is_ready(struct channel *channel);
/* Returns 0 or a negative errno, -EPIPE when the daemon went away: then no part of the call is done. */
MUST_CHECK int channel_send(struct channel *channel, const char *message, size_t message_bytes);
/* The first call of a channel. What the daemon says before it hangs up is there to be received. */
MUST_CHECK int channel_open_and_send(struct channel *channel, const char *socket_path,
				     const char *message, size_t message_bytes);
/* One message, which stays the channel's until its next use, and the descriptor that came with it or
 * -1. wait_ms < 0: no bound. -EPIPE, -ETIMEDOUT, -EPROTO: more than a descriptor, or too long. */
MUST_CHECK int channel_receive(struct channel *channel, int64_t wait_ms, const char **ret,
			       size_t *ret_bytes, int *ret_fd);
void channel_close(struct channel *channel);

LIST_HEAD(error_list, error_entry);

struct prezero {
	pthread_mutex_t lock; /* held for the length of a call */
	struct channel channel;
	pid_t owner_pid; /* who opened the channel: a child opens its own */
	char *socket_path;
	struct error_list errors; /* under the lock in error.c */
};

/* One reply and what came with it. answer_done() closes the descriptor unless it was taken out. */
struct answer {
	struct wire_reply reply;
	char *text; /* as it came */
	int fd;
};

/* One call, one reply; the calling thread's error is set on failure. wait_ms is what the daemon was
 * asked to wait, < 0: no bound. A reply that is an error is not a failure here. */
MUST_CHECK int connection_call(struct prezero *connection, const struct wire_call *call,
			       int64_t wait_ms, struct answer *ret);
/* Receives and decodes. */
MUST_CHECK int receive_answer(struct prezero *connection, struct channel *channel,
			      enum wire_method method, int64_t wait_ms, struct answer *ret);
void answer_done(struct answer *answer);

/* Sets the calling thread's error and returns r. json may be NULL. */
int set_error(struct prezero *connection, int r, const char *json, const char *format, ...)
	PRINTF(4, 5);
/* From what the channel said; returns the errno for the caller. */
int set_channel_error(struct prezero *connection, int r);
/* From a reply that is an error: says its sentence and returns its errno. */
int set_reply_error(struct prezero *connection, const struct wire_call *call,
		    const struct answer *answer);
/* "qemu (pid 7, uid 0), ...": at most a few. Returns buf. */
const char *format_holders(const struct wire_holder *holders, size_t n_holders, char *buf,
			   size_t buf_bytes);
void forget_errors(struct prezero *connection);

/* The fields of a caller's struct that this version knows, whatever version the caller has. */
MUST_CHECK int read_request(struct prezero *connection, const struct prezero_request *request,
			    size_t request_bytes, struct prezero_request *ret);

struct prezero_lease {
	int fd;
	struct wire_reply reply; /* a Take's: owns the strings */
};

#endif
