/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * host/layout.c - which nodes, hugetlb sizes and control groups there are.
 *
 * Guarantees: a node or page size that comes or goes meanwhile is seen as there or not there; a file
 * that is there and cannot be understood is an error, never a guess.
 */
#include "host/internal.h"

#include <fcntl.h>
#include <stdarg.h>
#include <string.h>

#include "base/io.h"
#include "base/parse.h"
#include "host/text.h"

int fault_note(struct fault *fault, int r, const char *format, ...)
{
	va_list args;

	if (r == -EMFILE || r == -ENFILE || r == -ENOMEM)
		return r;
	va_start(args, format);
	vsnprintf(fault->text, sizeof(fault->text), format, args);
	va_end(args);
	return -ENODATA;
}

int look_id_set(int root_fd, const char *path, struct id_set *ret, struct fault *fault)
{
	char text[TEXT_BYTES_MAX];
	int r = (int)read_file_at(root_fd, path, text, sizeof(text));

	if (is_absent(r))
		return -ENOENT;
	if (r >= 0)
		r = parse_id_set(text, ret);
	return r < 0 ? fault_note(fault, r, "/%s", path) : 0;
}

int look_allowed(int root_fd, const char *name, struct id_set *ret, struct fault *fault)
{
	char text[TEXT_BYTES_MAX], list[8192];
	int r = (int)read_file_at(root_fd, "proc/self/status", text, sizeof(text));

	if (r < 0)
		return fault_note(fault, r, "/proc/self/status");
	r = text_field(text, name, list, sizeof(list));
	if (r == -ENOENT)
		return r;
	if (!r)
		r = parse_id_set(list, ret);
	return r < 0 ? fault_note(fault, r, "%s in /proc/self/status", name) : 0;
}

/* A node without memory says 0; one that has just gone has none either. */
static int look_node_total(int root_fd, int node, uint64_t *ret_bytes, struct fault *fault)
{
	char path[64], text[TEXT_BYTES_MAX];
	int r;

	snprintf(path, sizeof(path), NODES_DIR "/node%d/meminfo", node);
	r = (int)read_file_at(root_fd, path, text, sizeof(text));
	if (is_absent(r)) {
		*ret_bytes = 0;
		return 0;
	}
	if (r >= 0)
		r = text_field_kb(text, "MemTotal", ret_bytes);
	return r < 0 ? fault_note(fault, r, "/%s", path) : 0;
}

static int look_nodes(int root_fd, struct layout *ret, struct fault *fault)
{
	struct id_set online, allowed;
	int r = look_id_set(root_fd, NODES_DIR "/online", &online, fault);

	if (r == -ENOENT) {
		ret->memory_nodes = ret->usable_nodes = 1;
		return 0;
	}
	if (r < 0)
		return r;
	ret->has_nodes = true;
	for (int node = id_set_next(&online, 0); node >= 0 && node < NODES_MAX;
	     node = id_set_next(&online, (unsigned int)node + 1)) {
		uint64_t total_bytes;

		r = look_node_total(root_fd, node, &total_bytes, fault);
		if (r < 0)
			return r;
		if (total_bytes)
			ret->memory_nodes |= 1ULL << node;
	}
	ret->usable_nodes = ret->memory_nodes;
	r = look_allowed(root_fd, "Mems_allowed_list", &allowed, fault);
	if (!r)
		ret->usable_nodes &= allowed.word[0];
	return r == -ENOENT ? 0 : r;
}

/* "hugepages-2048kB" */
static int parse_size_name(const char *name, uint64_t *ret_bytes)
{
	char digits[24];
	size_t n;
	uint64_t kb;

	if (strncmp(name, "hugepages-", 10))
		return -EINVAL;
	name += 10;
	n = strspn(name, "0123456789");
	if (n >= sizeof(digits) || strcmp(name + n, "kB"))
		return -EINVAL;
	memcpy(digits, name, n);
	digits[n] = '\0';
	if (parse_u64(digits, &kb) < 0 || !kb || (kb & (kb - 1)) || kb > UINT64_MAX / 1024)
		return -EINVAL;
	*ret_bytes = kb * 1024;
	return 0;
}

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int look_sizes(int root_fd, struct layout *ret, struct fault *fault)
{
	AUTO_FD dir_fd = openat(root_fd, HUGEPAGES_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_DIR dir = dir_fd < 0 ? NULL : fdopendir(dir_fd);
	struct dirent *entry;

	if (!dir)
		return is_absent(-errno) ? 0 : fault_note(fault, -errno, "/" HUGEPAGES_DIR);
	TAKE_FD(dir_fd);
	while (ret->n_sizes < HUGETLB_SIZES_MAX && (entry = readdir(dir))) {
		if (!parse_size_name(entry->d_name, &ret->page_bytes[ret->n_sizes]))
			ret->n_sizes++;
	}
	qsort(ret->page_bytes, ret->n_sizes, sizeof(ret->page_bytes[0]), compare_u64);
	return 0;
}

int layout_look(int root_fd, struct layout *ret, struct fault *fault)
{
	int r;

	memset(ret, 0, sizeof(*ret));
	r = look_nodes(root_fd, ret, fault);
	if (!r)
		r = look_sizes(root_fd, ret, fault);
	if (r < 0)
		return r;
	r = cgroup_find(root_fd, &ret->place);
	return r < 0 ? fault_note(fault, r, "/proc/self/cgroup or /proc/self/mountinfo") : 0;
}

bool layout_equal(const struct layout *a, const struct layout *b)
{
	return a->has_nodes == b->has_nodes && a->memory_nodes == b->memory_nodes &&
	       a->usable_nodes == b->usable_nodes && a->n_sizes == b->n_sizes &&
	       !memcmp(a->page_bytes, b->page_bytes, sizeof(a->page_bytes)) &&
	       cgroup_place_equal(&a->place, &b->place);
}
