/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/fake_daemon.h - a daemon in a thread that says whatever a test wants it to.
 *
 * For the client's tests: well-behaved, wrong, garbled, silent, dead. It listens on a socket in a folder
 * of its own and hands every message to the test's function. Segments are memfds, so nothing of the
 * host is needed or changed.
 */
#ifndef PREZERO_TESTS_FAKE_DAEMON_H
#define PREZERO_TESTS_FAKE_DAEMON_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/client.h"

enum fake_verdict { FAKE_KEEP, FAKE_HANG_UP };

struct fake_daemon;
typedef enum fake_verdict fake_serve(struct fake_daemon *daemon, int client_fd,
				     const char *message);

struct fake_daemon {
	char directory[32];
	char socket_path[64];
	int listen_fd, wake_fd;
	pthread_t thread;
	pthread_mutex_t serving; /* held while serve runs */
	fake_serve *serve;
	void *arg; /* the test's */
	atomic_uint n_connections, n_messages;
};

void fake_start(struct fake_daemon *daemon, fake_serve *serve, void *arg);
/* Hangs up on everybody; the socket stays as a dead one does, fake_resume() listens again. */
void fake_pause(struct fake_daemon *daemon);
void fake_resume(struct fake_daemon *daemon);
void fake_stop(struct fake_daemon *daemon);
/* From the next message on. What the test wrote before is seen by serve. */
void fake_set(struct fake_daemon *daemon, fake_serve *serve, void *arg);
/* Returns once serve has returned: what it wrote may be read, and what it opened is closed. */
void fake_settle(struct fake_daemon *daemon);

/* The text and its NUL, with a descriptor unless fd < 0; one byte a packet with slow. */
void fake_send(int client_fd, const char *text, int fd);
void fake_send_slowly(int client_fd, const char *text, int fd);
void fake_reply(int client_fd, const struct wire_reply *reply, int fd);
/* A new segment of base pages; the caller closes it. */
int fake_segment(uint64_t bytes);
/* Decodes a Take and answers it with a new segment. */
void fake_lend(int client_fd, const char *message);

/* Descriptors of this process. */
unsigned int count_fds(void);
/* Those among them that are segments. */
unsigned int count_segment_fds(void);
/* Mappings of segments. */
unsigned int count_segment_maps(void);

#endif
