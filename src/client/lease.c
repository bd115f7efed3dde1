// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * client/lease.c - take and give, and what a lease is.
 *
 * A descriptor is believed only after a look at it: a regular file of the right kind and length.
 */
#include "client/client.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/parse.h"

int read_request(struct prezero *connection, const struct prezero_request *request,
		 size_t request_bytes, struct prezero_request *ret)
{
	const unsigned char *beyond = (const unsigned char *)request;
	struct prezero_request known = PREZERO_REQUEST_INIT;
	size_t i;

	if (!request || request_bytes < sizeof(known))
		return set_error(connection, -EINVAL, NULL,
				 "request: %zu bytes are too few for %zu",
				 request ? request_bytes : 0, sizeof(known));
	/* Fields of a later version, all of which mean nothing when zero. */
	for (i = sizeof(known); i < request_bytes; i++) {
		if (beyond[i])
			return set_error(connection, -EINVAL, NULL,
					 "request: asks for more than libprezero %s knows",
					 PREZERO_VERSION);
	}
	memcpy(&known, request, sizeof(known));
	if (known.bytes == 0 || known.bytes > INT64_MAX)
		return set_error(connection, -EINVAL, NULL,
				 "bytes: %" PRIu64 " is no length of memory; ask for whole pages",
				 known.bytes);
	if (known.node < PREZERO_NODE_ANY)
		return set_error(connection, -EINVAL, NULL,
				 "node: there is no node %d; for any use PREZERO_NODE_ANY",
				 known.node);
	if (known.flags & ~PREZERO_TAKE_PARTIAL)
		return set_error(connection, -EINVAL, NULL,
				 "flags: 0x%x is not known to libprezero %s",
				 known.flags & ~PREZERO_TAKE_PARTIAL, PREZERO_VERSION);
	*ret = known;
	return 0;
}

/* Only what can be seen without touching the memory; NULL when all is well. */
static const char *find_fault(int fd, const struct prezero_request *request,
			      const struct wire_take_reply *take)
{
	bool is_tmpfs = strcmp(take->page, "thp") == 0 || strcmp(take->page, "base") == 0;
	struct statfs fs;
	struct stat st;
	int flags;

	if (fd < 0)
		return "no descriptor came with it";
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || (flags & O_ACCMODE) != O_RDWR || (flags & O_PATH))
		return "its descriptor is not for reading and writing";
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return "its descriptor is not a regular file";
	if (take->bytes != (int64_t)request->bytes || st.st_size != take->bytes)
		return "it has another length than was asked for";
	if (take->bytes % take->page_bytes != 0)
		return "its length is not a multiple of its page";
	if (fstatfs(fd, &fs) < 0 || fs.f_type != (is_tmpfs ? TMPFS_MAGIC : HUGETLBFS_MAGIC))
		return "its descriptor is not on the file system of its page size";
	if (!is_tmpfs && fs.f_bsize != take->page_bytes)
		return "its descriptor has another page size";
	if (request->node != PREZERO_NODE_ANY && request->node != take->node)
		return "it is on another node than was asked for";
	if (take->filling && !(request->flags & PREZERO_TAKE_PARTIAL))
		return "it is still being filled";
	return NULL;
}

int prezero_take(struct prezero *connection, const struct prezero_request *request,
		 size_t request_bytes, struct prezero_lease **ret)
{
	struct wire_call call = {.method = WIRE_TAKE};
	struct prezero_request known;
	struct prezero_lease *lease;
	struct answer answer;
	const char *fault;
	int r;

	if (!connection || !ret)
		return -EINVAL;
	r = read_request(connection, request, request_bytes, &known);
	if (r < 0)
		return r;
	call.take = (struct wire_take){
		.bytes = (int64_t)known.bytes,
		.page = known.page,
		.name = known.name,
		.partial = known.flags & PREZERO_TAKE_PARTIAL,
	};
	if (known.node != PREZERO_NODE_ANY)
		call.take.node = WIRE_INT(known.node);
	if (known.wait_ms >= 0)
		call.take.wait_ms = WIRE_INT(known.wait_ms < WIRE_WAIT_MS_MAX ? known.wait_ms :
										WIRE_WAIT_MS_MAX);

	/* Before there is anything to lose. */
	lease = calloc(1, sizeof(*lease));
	if (!lease)
		return set_error(connection, -ENOMEM, NULL, "out of memory");
	r = connection_call(connection, &call, known.wait_ms, &answer);
	if (r == 0) {
		fault = NULL;
		if (answer.reply.error != WIRE_NO_ERROR)
			r = set_reply_error(connection, &call, &answer);
		else if ((fault = find_fault(answer.fd, &known, &answer.reply.take)))
			r = set_error(connection, -EPROTO, answer.text, "lease %s: %s",
				      answer.reply.take.id, fault);
		if (r < 0)
			answer_done(&answer);
	}
	if (r < 0) {
		free(lease);
		return r;
	}
	free(answer.text);
	lease->fd = answer.fd;
	lease->reply = answer.reply;
	*ret = lease;
	return 0;
}

struct prezero_lease *prezero_lease_free(struct prezero_lease *lease)
{
	if (!lease)
		return NULL;
	close_fd(lease->fd);
	wire_reply_done(&lease->reply);
	free(lease);
	return NULL;
}

int prezero_lease_fd(const struct prezero_lease *lease)
{
	return lease->fd;
}

const char *prezero_lease_id(const struct prezero_lease *lease)
{
	return lease->reply.take.id;
}

const char *prezero_lease_path(const struct prezero_lease *lease)
{
	return lease->reply.take.path;
}

const char *prezero_lease_page(const struct prezero_lease *lease)
{
	return lease->reply.take.page;
}

uint64_t prezero_lease_bytes(const struct prezero_lease *lease)
{
	return (uint64_t)lease->reply.take.bytes;
}

uint64_t prezero_lease_page_bytes(const struct prezero_lease *lease)
{
	return (uint64_t)lease->reply.take.page_bytes;
}

int prezero_lease_node(const struct prezero_lease *lease)
{
	return (int)lease->reply.take.node;
}

int prezero_lease_is_filling(const struct prezero_lease *lease)
{
	return lease->reply.take.filling;
}

int prezero_give(struct prezero *connection, const char *lease, int64_t wait_ms)
{
	struct wire_call call = {.method = WIRE_GIVE, .give = {.lease = lease}};
	struct answer answer;
	char holders[512];
	int r;

	if (!connection)
		return -EINVAL;
	if (!lease || !*lease)
		return set_error(connection, -EINVAL, NULL,
				 "give: name the lease by id, name or path");
	/* Without a bound of its own the daemon answers at once. */
	if (wait_ms < 0 || wait_ms > WIRE_WAIT_MS_MAX)
		wait_ms = WIRE_WAIT_MS_MAX;
	if (wait_ms > 0)
		call.give.wait_ms = WIRE_INT(wait_ms);

	r = connection_call(connection, &call, wait_ms, &answer);
	if (r < 0)
		return r;
	if (answer.reply.error != WIRE_NO_ERROR)
		r = set_reply_error(connection, &call, &answer);
	else if (!answer.reply.give.completed)
		r = set_error(connection, -EBUSY, answer.text,
			      "the lease %s is still held by %s; it ends when they close it", lease,
			      answer.reply.give.n_holders ?
				      format_holders(answer.reply.give.holders,
						     answer.reply.give.n_holders, holders,
						     sizeof(holders)) :
				      "somebody");
	answer_done(&answer);
	return r;
}
