// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * client/map.c - one contiguous mapping, of one segment or of several.
 *
 * A mapping holds its segment's lease as a descriptor does, so descriptors are closed as soon as they
 * are mapped. On any failure everything is unmapped, and with that every lease taken here ends.
 */
#include "client/client.h"

#include <string.h>
#include <sys/mman.h>

#include "base/io.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

/* More would be of no use: each is a mapping, of which a process may have some ten thousands. */
#define SEGMENTS_MAX 1024U

struct prezero_map {
	unsigned char *address; /* NULL: not yet reserved */
	uint64_t bytes;
	uint64_t page_bytes;
	uint64_t done_bytes; /* mapped, from the front */
};

/* Addresses for everything, aligned to the page. */
static int reserve(struct prezero_map *map, uint64_t page_bytes)
{
	uint64_t whole_bytes = map->bytes + page_bytes;
	uintptr_t start, aligned, end;
	void *address;

	if (whole_bytes > SIZE_MAX)
		return -ENOMEM;
	address = mmap(NULL, whole_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		       -1, 0);
	if (address == MAP_FAILED)
		return -errno;
	start = (uintptr_t)address;
	end = start + whole_bytes;
	aligned = (start + page_bytes - 1) / page_bytes * page_bytes;
	if (aligned > start)
		munmap(address, aligned - start);
	if (aligned + map->bytes < end)
		munmap((void *)(aligned + map->bytes), end - (aligned + map->bytes));
	map->address = (unsigned char *)aligned;
	map->page_bytes = page_bytes;
	return 0;
}

static int append(struct prezero_map *map, const struct prezero_lease *lease)
{
	uint64_t bytes = prezero_lease_bytes(lease);
	void *address;
	int r;

	if (!map->address) {
		r = reserve(map, prezero_lease_page_bytes(lease));
		if (r < 0)
			return r;
	}
	if (prezero_lease_page_bytes(lease) != map->page_bytes)
		return -EPROTO;
	address = mmap(map->address + map->done_bytes, bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_FIXED, lease->fd, 0);
	if (address == MAP_FAILED)
		return -errno;
	map->done_bytes += bytes;
	return 0;
}

static int take_and_append(struct prezero *connection, const struct prezero_request *request,
			   struct prezero_map *map)
{
	struct prezero_lease *lease;
	int r;

	r = prezero_take(connection, request, sizeof(*request), &lease);
	if (r < 0)
		return r;
	r = append(map, lease);
	prezero_lease_free(lease);
	if (r < 0)
		return set_error(connection, r, NULL, "mapping a segment: %s", strerrordesc_np(-r));
	return 0;
}

/* What the daemon said when it last refused this thread something; false: it did not. */
static bool last_refusal(struct prezero *connection, struct wire_reply *ret)
{
	const char *json = prezero_error_json(connection);

	if (wire_decode_reply(json, strlen(json), WIRE_TAKE, ret) < 0)
		return false;
	if (ret->error == WIRE_REFUSED)
		return true;
	wire_reply_done(ret);
	return false;
}

/* Parts make sense where one segment is too much and the sum is not: memory on several nodes, or ready
 * in smaller segments. *ret is what is there of this page size, on the nodes that were asked for. */
static int find_memory(struct prezero *connection, const struct prezero_request *request,
		       const char *page, uint64_t *ret, uint64_t *ret_page_bytes)
{
	const struct wire_call call = {.method = WIRE_STATUS};
	struct answer answer;
	uint64_t bytes = 0;
	size_t i;
	int r;

	r = connection_call(connection, &call, 0, &answer);
	if (r < 0)
		return r;
	*ret_page_bytes = 0;
	for (i = 0; answer.reply.error == WIRE_NO_ERROR && i < answer.reply.status.n_classes; i++) {
		const struct wire_class *class = &answer.reply.status.classes[i];

		if (strcmp(class->page, page) != 0 ||
		    (request->node != PREZERO_NODE_ANY && request->node != class->node))
			continue;
		bytes += (uint64_t) class->ready_bytes;
		if (request->wait_ms != 0)
			bytes += (uint64_t) class->filling_bytes + (uint64_t) class->headroom_bytes;
		*ret_page_bytes = (uint64_t) class->page_bytes;
	}
	answer_done(&answer);
	*ret = bytes;
	return 0;
}

/* Takes what is left in the largest parts that are to be had: first what the daemon says there is, then
 * half, and so on down to a page. */
static int take_parts(struct prezero *connection, const struct prezero_request *whole,
		      uint64_t first_part_bytes, uint64_t page_bytes, struct prezero_map *map)
{
	uint64_t deadline_ns = monotonic_ns() +
			       (uint64_t)(whole->wait_ms > 0 ? whole->wait_ms : 0) * 1000000;
	struct prezero_request part = *whole;
	unsigned int n_segments = 0;
	int r;

	part.bytes = first_part_bytes;
	while (map->done_bytes < map->bytes) {
		if (part.bytes > map->bytes - map->done_bytes)
			part.bytes = map->bytes - map->done_bytes;
		part.bytes -= part.bytes % page_bytes;
		if (part.bytes == 0 || n_segments == SEGMENTS_MAX)
			return -ENOMEM;
		if (whole->wait_ms > 0) {
			uint64_t now_ns = monotonic_ns();

			part.wait_ms = now_ns < deadline_ns ?
					       (int64_t)((deadline_ns - now_ns) / 1000000) :
					       0;
		}
		r = take_and_append(connection, &part, map);
		if (r == 0) {
			n_segments++;
		} else if (r == -ENOMEM || (r == -ETIMEDOUT && part.wait_ms == 0)) {
			part.bytes /= 2;
		} else {
			return r;
		}
	}
	return 0;
}

/* The whole was refused with r. Where parts cannot be had either, the caller hears about the whole. */
static int try_parts(struct prezero *connection, const struct prezero_request *whole, int r,
		     struct prezero_map *map)
{
	AUTO_FREE char *text = strdup(prezero_error(connection));
	AUTO_FREE char *json = strdup(prezero_error_json(connection));
	uint64_t there_bytes, page_bytes, part_bytes;
	struct wire_reply refusal;
	int parts_r;

	if (!text || !json || !last_refusal(connection, &refusal))
		return r;
	part_bytes = (uint64_t)refusal.refused.have_bytes;
	if (part_bytes == 0 || part_bytes >= whole->bytes)
		part_bytes = whole->bytes / 2;
	parts_r = find_memory(connection, whole, refusal.refused.page, &there_bytes, &page_bytes);
	if (parts_r == 0 && (there_bytes < whole->bytes || page_bytes == 0))
		parts_r = -ENOMEM;
	if (parts_r == 0)
		parts_r = take_parts(connection, whole, part_bytes, page_bytes, map);
	wire_reply_done(&refusal);
	if (parts_r == -ENOMEM || parts_r == -ETIMEDOUT)
		return set_error(connection, r, json, "%s", text);
	return parts_r;
}

int prezero_map(struct prezero *connection, const struct prezero_request *request,
		size_t request_bytes, struct prezero_map **ret)
{
	struct prezero_request known;
	struct prezero_map *map;
	int r;

	if (!connection || !ret)
		return -EINVAL;
	r = read_request(connection, request, request_bytes, &known);
	if (r < 0)
		return r;
	if (known.name)
		return set_error(connection, -EINVAL, NULL,
				 "name: a mapping has none, its leases end with it");
	map = calloc(1, sizeof(*map));
	if (!map)
		return set_error(connection, -ENOMEM, NULL, "out of memory");
	map->bytes = known.bytes;

	r = take_and_append(connection, &known, map);
	if (!map->address && (r == -ENOMEM || (r == -ETIMEDOUT && known.wait_ms == 0)))
		r = try_parts(connection, &known, r, map);
	/* To read is enough: the pages are there, and what is shared and writable is mapped writable at
	 * once. Of base pages the kernel then maps sixteen at a time. */
	if (r == 0 && madvise(map->address, map->bytes, MADV_POPULATE_READ) < 0)
		r = set_error(connection, -errno, NULL, "populating the mapping: %s",
			      strerrordesc_np(errno));
	if (r < 0) {
		prezero_unmap(map);
		return r;
	}
	*ret = map;
	return 0;
}

void *prezero_map_address(const struct prezero_map *map)
{
	return map->address;
}

uint64_t prezero_map_bytes(const struct prezero_map *map)
{
	return map->bytes;
}

struct prezero_map *prezero_unmap(struct prezero_map *map)
{
	if (!map)
		return NULL;
	if (map->address)
		munmap(map->address, map->bytes);
	free(map);
	return NULL;
}
