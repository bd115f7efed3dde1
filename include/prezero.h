/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * prezero.h - take memory that is allocated, on the right NUMA node and already zero.
 *
 * Every function returns 0 or a negative errno; outputs are written only on success. Functions are
 * thread safe: calls on one connection take turns, calls on several run side by side. The library
 * never logs, exits, forks, starts threads or touches signal handlers. Sizes are in bytes. Leases
 * outlive the connection and the daemon: they last as long as any process has the segment open or
 * mapped, named ones until prezero_give().
 *
 * Manual: libprezero(3).
 */
#ifndef PREZERO_H
#define PREZERO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct prezero; /* a connection to prezerod */
struct prezero_lease; /* a lent segment: a descriptor, and where it stands */
struct prezero_map; /* one contiguous mapping of one or more segments */

/* socket_path NULL: $PREZERO_SOCKET, else /run/prezero/socket. -ENOENT or -ECONNREFUSED: no daemon
 * there; programs then behave as without prezero. -EACCES: the user is not in the group prezero.
 *
 * A daemon that goes away during a call is one -EPIPE; one that restarts between calls is not noticed,
 * and one that is not back gives -ECONNREFUSED. A child of fork() gets a connection of its own. Signals
 * interrupt nothing. */
int prezero_connect(struct prezero **ret, const char *socket_path);
struct prezero *prezero_disconnect(struct prezero *connection); /* returns NULL */

/* The sentence that explains the calling thread's last failed call on this connection: what was asked,
 * have, need, and the command that fixes it; "" if there was none. Valid until its next call. */
const char *prezero_error(struct prezero *connection);
/* The daemon's message behind that failure as one JSON object, just as it came: an error with its
 * parameters, or Give's reply with the holders; "" where the daemon had no part in it. Valid as above. */
const char *prezero_error_json(struct prezero *connection);

#define PREZERO_NODE_ANY (-1)
#define PREZERO_TAKE_PARTIAL (1U << 0) /* a segment still being filled is welcome */

struct prezero_request {
	uint64_t bytes; /* a multiple of the page */
	const char *page; /* "2M", "1G", "thp", "base"; NULL: the host's default huge page */
	int node; /* a NUMA node, or PREZERO_NODE_ANY */
	unsigned int flags;
	const char *name; /* lasts until prezero_give(); NULL: until its last holder is gone */
	int64_t wait_ms; /* -1: as long as a fill takes; 0: only what is ready; else a bound in ms */
};
#define PREZERO_REQUEST_INIT                                                  \
	{                                                                     \
		0, (const char *)0, PREZERO_NODE_ANY, 0U, (const char *)0, -1 \
	}

/* -EINVAL: a field is out of bounds; -ENOMEM: refused, prezero_error() says why; -ETIMEDOUT: wait_ms is
 * over, or nothing is ready; -EEXIST: the name is taken; -EDQUOT: the user's limit; -ENODEV: no such page
 * size or node; -EIO: the host failed; -EPROTO: what answers does not speak our language. request_bytes
 * is sizeof(struct prezero_request): a later, larger one still works with this library and the other way
 * round. */
int prezero_take(struct prezero *connection, const struct prezero_request *request,
		 size_t request_bytes, struct prezero_lease **ret);

/* Closes the descriptor: an unnamed lease ends if no other holder is left. Returns NULL. */
struct prezero_lease *prezero_lease_free(struct prezero_lease *lease);
int prezero_lease_fd(const struct prezero_lease *lease); /* stays the lease's; dup() to keep one */
const char *prezero_lease_id(const struct prezero_lease *lease);
const char *prezero_lease_path(const struct prezero_lease *lease);
const char *prezero_lease_page(const struct prezero_lease *lease);
uint64_t prezero_lease_bytes(const struct prezero_lease *lease);
uint64_t prezero_lease_page_bytes(const struct prezero_lease *lease);
int prezero_lease_node(const struct prezero_lease *lease);
int prezero_lease_is_filling(const struct prezero_lease *lease);

/* Ends a lease by id, name or path. Waits up to wait_ms for those who still hold it, -1 as long as it
 * takes. -EBUSY: they still do, prezero_error() says who, and it ends when they close; -ENOENT; -EPERM:
 * it is another user's. */
int prezero_give(struct prezero *connection, const char *lease, int64_t wait_ms);

/* Takes request->bytes in as few segments as can be had and maps them as one contiguous, populated,
 * shared mapping, aligned to the page. All or nothing; no name. */
int prezero_map(struct prezero *connection, const struct prezero_request *request,
		size_t request_bytes, struct prezero_map **ret);
void *prezero_map_address(const struct prezero_map *map);
uint64_t prezero_map_bytes(const struct prezero_map *map);
/* Unmaps; the leases end. Returns NULL. */
struct prezero_map *prezero_unmap(struct prezero_map *map);

/* The reply of io.prezero.Pool.Status as JSON, NUL-terminated; free() it. */
int prezero_status_json(struct prezero *connection, char **ret);
/* Calls each(segment as JSON, arg) for every segment; state is "filling", "ready", "lent" or NULL. A
 * non-zero return ends the listing and is returned. */
int prezero_list_json(struct prezero *connection, const char *state,
		      int (*each)(const char *segment_json, void *arg), void *arg);

const char *prezero_version(void);

#ifdef __cplusplus
}
#endif

#endif
