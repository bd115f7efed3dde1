/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pool/recover.c - what stands in the three directories becomes the pool again.
 *
 * Guarantees: a file comes into ready only if it can be nothing but a segment that this pool filled and
 * nobody has; what is lent stays while somebody holds it or it has a name; everything else is removed.
 * Nothing found here is trusted beyond what the kernel says of it.
 */
#include "pool/segment.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

int parse_file_name(const char *text, int *ret_node, uint64_t *ret_id, const char **ret_name)
{
	unsigned int node = 0, n_digits;
	uint64_t id = 0;
	const char *at = text;

	for (n_digits = 0; n_digits < 4 && *at >= '0' && *at <= '9'; n_digits++, at++)
		node = node * 10 + (unsigned int)(*at - '0');
	if (!n_digits || node >= NODES_MAX || (*text == '0' && n_digits > 1) || *at++ != '-')
		return -EINVAL;
	for (n_digits = 0; n_digits < 16; n_digits++, at++) {
		if (*at >= '0' && *at <= '9')
			id = id << 4 | (uint64_t)(*at - '0');
		else if (*at >= 'a' && *at <= 'f')
			id = id << 4 | (uint64_t)(*at - 'a' + 10);
		else
			return -EINVAL;
	}
	if (!id || (*at && (*at != '=' || !lease_name_is_valid(at + 1))))
		return -EINVAL;
	*ret_node = (int)node;
	*ret_id = id;
	*ret_name = *at ? at + 1 : NULL;
	return 0;
}

/* What a file looks like from outside. */
struct found {
	struct segment segment;
	const char *name;
	struct stat st;
	bool is_locked; /* by a holder */
	bool is_open; /* by somebody, with the lock or without */
	int fd; /* where it is lent and not open: nobody opens it until this is closed; or -1 */
};

static int look_who_has_it(int fd, struct found *found)
{
	int r = fd_is_locked(fd);

	found->is_locked = found->is_open = r > 0;
	if (r != 0)
		return r < 0 ? r : 0;
	r = fd_is_alone(fd);
	found->is_open = r == 0;
	/* Where the kernel cannot say, the lock has to do. */
	return r == -EOPNOTSUPP || r > 0 ? 0 : r;
}

static int look_at(struct pool *pool, enum segment_state state, const char *file, struct found *ret)
{
	struct found found = {.segment.state = state, .fd = -1};
	AUTO_FD fd = -1;
	int r = parse_file_name(file, &found.segment.node, &found.segment.id, &found.name);

	if (r < 0)
		return r;
	if (index_find(pool, found.segment.id))
		return -EEXIST;
	/* By path first: opening something else than a file may have effects. */
	if (fstatat(pool->state_fd[state], file, &found.st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISREG(found.st.st_mode))
		return -EINVAL;
	fd = openat(pool->state_fd[state], file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd == -1 && errno == EAGAIN && state == SEGMENT_LENT)
		found.is_open = true; /* a file lease of its lessee is in the way */
	else if (fd < 0)
		return -errno;
	else
		r = look_who_has_it(fd, &found);
	if (r < 0)
		return r;
	found.segment.since_s = (uint64_t)found.st.st_ctim.tv_sec;
	if (state == SEGMENT_LENT && !found.is_open)
		found.fd = TAKE_FD(fd);
	*ret = found;
	return 0;
}

static bool is_whole_and_ours(const struct pool *pool, const struct found *found)
{
	uint64_t bytes = (uint64_t)found->st.st_size;

	return !found->name && !found->is_open && found->st.st_uid == geteuid() &&
	       found->st.st_nlink == 1 && bytes && bytes % pool->page.bytes == 0 &&
	       (uint64_t)found->st.st_blocks * 512 >= bytes;
}

static bool is_given_mark(const char *file)
{
	size_t n = strlen(file), n_mark = strlen(GIVEN_MARK);

	return n > n_mark && !strcmp(file + n - n_mark, GIVEN_MARK) && !strchr(file, '=');
}

static bool is_out_of_something(int r)
{
	return r == -ENOMEM || r == -EMFILE || r == -ENFILE;
}

/* What cannot be removed (a mount point, say) stays, and keeps nobody from starting. */
static void remove_file(struct pool *pool, enum segment_state state, const char *file)
{
	int dir_fd = pool->state_fd[state];

	if (unlinkat(dir_fd, file, 0) < 0 && errno == EISDIR)
		(void)unlinkat(dir_fd, file, AT_REMOVEDIR);
}

static int recover_filling(struct pool *pool, const char *file, struct pool_recovery *recovery)
{
	recovery->n_filling_dropped++;
	remove_file(pool, SEGMENT_FILLING, file);
	return 0;
}

static int recover_ready(struct pool *pool, const char *file, struct pool_recovery *recovery)
{
	struct found found;
	int r = look_at(pool, SEGMENT_READY, file, &found);

	if (is_out_of_something(r))
		return r;
	if (r < 0 || !is_whole_and_ours(pool, &found)) {
		recovery->n_ready_refused++;
		remove_file(pool, SEGMENT_READY, file);
		return 0;
	}
	found.segment.bytes = (uint64_t)found.st.st_size;
	if (!index_add(pool, &found.segment))
		return -ENOMEM;
	recovery->n_ready_adopted++;
	return 0;
}

static int recover_lent(struct pool *pool, const char *file, struct pool_recovery *recovery)
{
	uint64_t page_bytes = pool->page.bytes;
	struct lease_name *name = NULL;
	struct entry *entry;
	AUTO_FD alone_fd = -1; /* closed when the file is removed */
	struct found found;
	int r;

	if (is_given_mark(file))
		return 0;
	r = look_at(pool, SEGMENT_LENT, file, &found);
	if (r == 0)
		alone_fd = found.fd;
	if (is_out_of_something(r))
		return r;
	if (r == 0 && found.name && index_find_name(pool, found.name))
		r = -EEXIST;
	if (r < 0 || (!found.name && !found.is_open)) {
		recovery->n_lent_ended++;
		remove_file(pool, SEGMENT_LENT, file);
		return 0;
	}
	/* Its length is in the lessee's hand, what is allocated is real. */
	found.segment.bytes = (uint64_t)found.st.st_blocks * 512 / page_bytes * page_bytes;
	if (!found.segment.bytes)
		found.segment.bytes = page_bytes;
	found.segment.uid = found.st.st_uid;
	if (found.name) {
		name = lease_name_new(found.name);
		if (!name)
			return -ENOMEM;
	}
	entry = index_add(pool, &found.segment);
	if (!entry) {
		free(name);
		return -ENOMEM;
	}
	if (name)
		index_set_name(pool, entry, name);
	/* Who has it without the lock may go without a word. */
	if (!name && !found.is_locked)
		index_note_closed(pool, entry);
	recovery->n_lent_kept++;
	return 0;
}

/* Once all leases are known. */
static int recover_given(struct pool *pool, const char *file, struct pool_recovery *recovery)
{
	struct entry *entry = NULL;
	char name[FILE_NAME_MAX];
	const char *ignored;
	uint64_t id;
	int node;

	(void)recovery;
	if (!is_given_mark(file))
		return 0;
	snprintf(name, sizeof(name), "%.*s", (int)(strlen(file) - strlen(GIVEN_MARK)), file);
	if (parse_file_name(name, &node, &id, &ignored) == 0)
		entry = index_find(pool, id);
	if (!entry || !entry->segment.name) {
		remove_file(pool, SEGMENT_LENT, file);
		return 0;
	}
	entry->segment.is_given = true;
	entry->has_mark = true;
	index_note_closed(pool, entry); /* its last holder may be gone */
	return 0;
}

static int recover_dir(struct pool *pool, enum segment_state state,
		       int (*recover_file)(struct pool *pool, const char *file,
					   struct pool_recovery *recovery),
		       struct pool_recovery *recovery)
{
	AUTO_FD fd = openat(pool->state_fd[state], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_DIR dir = NULL;
	struct dirent *item;
	int r = 0;

	if (fd < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir)
		return -errno;
	(void)TAKE_FD(fd);
	while (r == 0 && (errno = 0, item = readdir(dir))) {
		if (!strcmp(item->d_name, ".") || !strcmp(item->d_name, ".."))
			continue;
		r = recover_file(pool, item->d_name, recovery);
	}
	return r < 0 ? r : -errno;
}

int recover(struct pool *pool, struct pool_recovery *ret)
{
	struct pool_recovery recovery = {0};
	int r;

	/* What gives pages back comes first. */
	r = recover_dir(pool, SEGMENT_FILLING, recover_filling, &recovery);
	if (r == 0)
		r = recover_dir(pool, SEGMENT_LENT, recover_lent, &recovery);
	if (r == 0)
		r = recover_dir(pool, SEGMENT_LENT, recover_given, &recovery);
	if (r == 0)
		r = recover_dir(pool, SEGMENT_READY, recover_ready, &recovery);
	if (r < 0)
		return r;
	index_sort_by_age(pool);
	*ret = recovery;
	return 0;
}
