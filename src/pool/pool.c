/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pool/pool.c - segments change their state, on disk first and then in the index.
 *
 * Theory of operation. The daemon may be killed between any two system calls, and the next one has
 * only the files. So a change of state is one rename, and everything else is done on the side of it
 * where a crash does no harm:
 *
 *	step				a crash here leaves		recovery
 *	create, set the length		a file in filling/		removes it
 *	fill it				a part-full one in filling/	removes it
 *	rename to ready/		one or the other		removes or adopts it
 *	open anew, lock			the file in ready/; the lock	adopts it
 *					goes with the process
 *	chown to the consumer		not root's own in ready/	removes it: nobody has it, but
 *					(it may be root's)		who it was for is unknown
 *	chmod				the same			the same
 *	rename to lent/			in lent/, without a holder	removes it, unless it has a name
 *	send the descriptor (daemon)	with a holder, if it arrived	keeps it while it is locked
 *	give it: a mark beside it	with the mark or without	keeps it: given or not
 *	unlink				in lent/ or gone		keeps it, or removes the mark
 *
 *	cut: rename to filling/,	in filling/			removes it
 *	truncate, rename to ready/	in ready/, shorter		adopts it
 *
 * Nothing goes from lent/ to anywhere but out: a page that a consumer may have written on reaches
 * another one only through the kernel, which zeroes it. ready/ and filling/ are closed to everyone
 * (0700), so that a file in there cannot have been opened by its next owner before it is lent.
 *
 * A lessee owns its file and can write, grow, cut and chmod it, but not rename, link or unlink it, for
 * the directory is root's. So of a lent file only the name is trusted, and its lock; its length is
 * what the index remembers or, after recovery, what is allocated.
 */
#include "pool/segment.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

static const char *const state_dir[SEGMENT_STATES] = {
	[SEGMENT_FILLING] = "filling",
	[SEGMENT_READY] = "ready",
	[SEGMENT_LENT] = "lent",
};

static const mode_t state_mode[SEGMENT_STATES] = {
	[SEGMENT_FILLING] = 0700,
	[SEGMENT_READY] = 0700,
	[SEGMENT_LENT] = 0711,
};

bool lease_name_is_valid(const char *name)
{
	size_t n =
		strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

	return n > 0 && n <= LEASE_NAME_MAX && !name[n] && name[0] != '.';
}

void format_file_name(const struct segment *segment, char buf[FILE_NAME_MAX])
{
	snprintf(buf, FILE_NAME_MAX, "%d-%016" PRIx64 "%s%s", segment->node, segment->id,
		 segment->name ? "=" : "", segment->name ? segment->name : "");
}

void format_given_mark(const struct segment *segment, char buf[FILE_NAME_MAX])
{
	snprintf(buf, FILE_NAME_MAX, "%d-%016" PRIx64 GIVEN_MARK, segment->node, segment->id);
}

int segment_open(const struct pool *pool, const struct segment *segment, int flags)
{
	char name[FILE_NAME_MAX];
	int fd;

	format_file_name(segment, name);
	fd = openat(pool->state_fd[segment->state], name,
		    flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int fd_is_locked(int fd)
{
	if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
		flock(fd, LOCK_UN);
		return 0;
	}
	return errno == EWOULDBLOCK ? 1 : -errno;
}

static int rename_to(const struct pool *pool, const struct segment *segment,
		     enum segment_state state, const char *lease_name)
{
	struct segment renamed = *segment;
	char from[FILE_NAME_MAX], to[FILE_NAME_MAX];

	renamed.name = (char *)lease_name;
	format_file_name(segment, from);
	format_file_name(&renamed, to);
	if (renameat2(pool->state_fd[segment->state], from, pool->state_fd[state], to,
		      RENAME_NOREPLACE) < 0)
		return -errno;
	return 0;
}

static uint64_t now_s(void)
{
	return (uint64_t)time(NULL);
}

static void note_state(struct pool *pool, struct entry *entry, enum segment_state state)
{
	entry->segment.since_s = now_s();
	index_set_state(pool, entry, state);
}

static int open_state_dir(struct pool *pool, enum segment_state state)
{
	struct stat st;

	if (mkdirat(pool->dir_fd, state_dir[state], state_mode[state]) < 0 && errno != EEXIST)
		return -errno;
	pool->state_fd[state] = openat(pool->dir_fd, state_dir[state],
				       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (pool->state_fd[state] < 0 || fstat(pool->state_fd[state], &st) < 0)
		return -errno;
	if (st.st_uid != geteuid())
		return -EPERM;
	if ((st.st_mode & 07777) != state_mode[state] &&
	    fchmod(pool->state_fd[state], state_mode[state]) < 0)
		return -errno;
	return 0;
}

static int look_whether_mount(struct pool *pool)
{
	struct stat self, parent;

	if (fstat(pool->dir_fd, &self) < 0 || fstatat(pool->dir_fd, "..", &parent, 0) < 0)
		return -errno;
	pool->is_mount = self.st_dev != parent.st_dev;
	return 0;
}

static int open_in(struct pool *pool, int dir_fd, struct pool_recovery *recovery)
{
	int r = index_init(pool);

	if (r < 0)
		return r;
	pool->dir_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
	if (pool->dir_fd < 0)
		return -errno;
	r = look_whether_mount(pool);
	for (int state = 0; state < SEGMENT_STATES && r == 0; state++)
		r = open_state_dir(pool, (enum segment_state)state);
	/* The watch first: who closes while recovery looks is looked at again. */
	if (r == 0)
		r = watch_start(pool);
	if (r == 0)
		r = recover(pool, recovery);
	return r;
}

int pool_open(int dir_fd, struct page_size page, struct pool **ret, struct pool_recovery *recovery)
{
	struct pool *pool = calloc(1, sizeof(*pool));
	int r;

	if (!pool)
		return -ENOMEM;
	pool->page = page;
	pool->dir_fd = pool->inotify_fd = -1;
	for (int state = 0; state < SEGMENT_STATES; state++)
		pool->state_fd[state] = -1;
	r = open_in(pool, dir_fd, recovery);
	if (r < 0) {
		pool_close(pool);
		return r;
	}
	*ret = pool;
	return 0;
}

struct pool *pool_close(struct pool *pool)
{
	if (!pool)
		return NULL;
	index_done(pool);
	for (int state = 0; state < SEGMENT_STATES; state++)
		close_fd(pool->state_fd[state]);
	close_fd(pool->inotify_fd);
	close_fd(pool->dir_fd);
	free(pool);
	return NULL;
}

struct page_size pool_page(const struct pool *pool)
{
	return pool->page;
}

static int new_id(const struct pool *pool, uint64_t *ret)
{
	uint64_t id;

	do {
		if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
			return -EIO;
	} while (id == 0 || index_find(pool, id));
	*ret = id;
	return 0;
}

int pool_create(struct pool *pool, int node, uint64_t bytes, struct segment **ret, int *ret_fd)
{
	struct segment segment = {.bytes = bytes, .node = node, .state = SEGMENT_FILLING};
	char name[FILE_NAME_MAX];
	struct entry *entry;
	AUTO_FD fd = -1;
	int r;

	if (node < 0 || node >= NODES_MAX || !bytes || bytes % pool->page.bytes ||
	    bytes > INT64_MAX)
		return -EINVAL;
	r = new_id(pool, &segment.id);
	if (r < 0)
		return r;
	segment.since_s = now_s();
	format_file_name(&segment, name);
	fd = openat(pool->state_fd[SEGMENT_FILLING], name,
		    O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = ftruncate(fd, (off_t)bytes) < 0 ? -errno : 0;
	entry = r < 0 ? NULL : index_add(pool, &segment);
	if (!entry) {
		unlinkat(pool->state_fd[SEGMENT_FILLING], name, 0);
		return r < 0 ? r : -ENOMEM;
	}
	*ret = &entry->segment;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int pool_segment_stat(const struct pool *pool, const struct segment *segment, dev_t *dev,
		      ino_t *ino, uint64_t *allocated_bytes)
{
	char name[FILE_NAME_MAX];
	struct stat st;

	format_file_name(segment, name);
	if (fstatat(pool->state_fd[segment->state], name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	*dev = st.st_dev;
	*ino = st.st_ino;
	*allocated_bytes = (uint64_t)st.st_blocks * 512;
	return 0;
}

static int check_full(const struct pool *pool, const struct segment *segment, uint64_t bytes)
{
	char name[FILE_NAME_MAX];
	struct stat st;

	format_file_name(segment, name);
	if (fstatat(pool->state_fd[segment->state], name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if ((uint64_t)st.st_size != bytes || (uint64_t)st.st_blocks * 512 < bytes)
		return -ENODATA;
	return 0;
}

int pool_set_ready(struct pool *pool, struct segment *segment)
{
	int r;

	if (segment->state == SEGMENT_LENT) {
		segment->is_partial = false;
		return 0;
	}
	if (segment->state != SEGMENT_FILLING)
		return -EINVAL;
	r = check_full(pool, segment, segment->bytes);
	if (r < 0)
		return r;
	r = rename_to(pool, segment, SEGMENT_READY, NULL);
	if (r < 0)
		return r;
	note_state(pool, entry_of(segment), SEGMENT_READY);
	return 0;
}

/* Out of the directory; the pages go with the last descriptor. */
static int unlink_segment(struct pool *pool, struct segment *segment)
{
	char name[FILE_NAME_MAX];

	format_file_name(segment, name);
	if (unlinkat(pool->state_fd[segment->state], name, 0) < 0 && errno != ENOENT)
		return -errno;
	if (entry_of(segment)->has_mark) {
		format_given_mark(segment, name);
		(void)unlinkat(pool->state_fd[SEGMENT_LENT], name, 0);
	}
	index_remove(pool, entry_of(segment));
	return 0;
}

/* The same; *ret_fd becomes the last descriptor, or -1. */
static int unlink_open_segment(struct pool *pool, struct segment *segment, int fd, int *ret_fd)
{
	AUTO_FD owned_fd = fd;
	int r = unlink_segment(pool, segment);

	if (r == 0 && ret_fd)
		*ret_fd = fd < 0 ? -1 : TAKE_FD(owned_fd);
	return r;
}

int pool_drop(struct pool *pool, struct segment *segment, int *ret_fd)
{
	if (segment->state == SEGMENT_LENT)
		return -EINVAL;
	/* Read-only, so that closing it does not look like a consumer's close. */
	return unlink_open_segment(pool, segment,
				   ret_fd ? segment_open(pool, segment, O_RDONLY) : -1, ret_fd);
}

int pool_begin_cut(struct pool *pool, struct segment *segment, int *ret_fd)
{
	AUTO_FD fd = -1;
	int r;

	if (segment->state != SEGMENT_READY)
		return -EINVAL;
	fd = segment_open(pool, segment, O_RDWR);
	if (fd < 0)
		return fd;
	r = rename_to(pool, segment, SEGMENT_FILLING, NULL);
	if (r < 0)
		return r;
	segment->is_claimed = true;
	note_state(pool, entry_of(segment), SEGMENT_FILLING);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int pool_end_cut(struct pool *pool, struct segment *segment, uint64_t bytes)
{
	int r;

	if (segment->state != SEGMENT_FILLING || !bytes || bytes % pool->page.bytes ||
	    bytes > segment->bytes)
		return -EINVAL;
	r = check_full(pool, segment, bytes);
	if (r < 0)
		return r;
	r = index_set_bytes(pool, entry_of(segment), bytes);
	if (r < 0)
		return r;
	r = rename_to(pool, segment, SEGMENT_READY, NULL);
	if (r < 0)
		return r;
	note_state(pool, entry_of(segment), SEGMENT_READY);
	return 0;
}

/*
 * A shared mapping of a hugetlb file reserves every page of it that is missing, and the reservation
 * belongs to the file, so that it outlives the mapping: no touch can find the kernel out of pages, with
 * SIGBUS. In tmpfs only allocating reserves, which takes as long as filling where the kernel zeroes
 * what it allocates.
 */
static int reserve(const struct pool *pool, int fd, uint64_t bytes)
{
	void *address;

	if (pool->page.kind != PAGE_HUGETLB)
		return -EOPNOTSUPP;
	address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (address == MAP_FAILED)
		return -errno;
	munmap(address, bytes);
	return 0;
}

static int make_lessees(const struct pool *pool, struct segment *segment, int fd,
			const struct lessee *lessee)
{
	int r;

#ifndef PREZERO_BREAK_NO_LOCK
	if (flock(fd, LOCK_SH | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
#endif
	if (fchown(fd, lessee->uid, lessee->gid) < 0)
		return -errno;
	r = fchmod(fd, 0600) < 0 ? -errno : rename_to(pool, segment, SEGMENT_LENT, lessee->name);
	/* Not lent: the pool's again. If that fails too, the next recovery removes it. */
	if (r < 0 && fchown(fd, geteuid(), getegid()) < 0)
		return -EIO;
	return r;
}

int pool_lend(struct pool *pool, struct segment *segment, const struct lessee *lessee, int *ret_fd)
{
	struct entry *entry = entry_of(segment);
	bool is_partial = segment->state == SEGMENT_FILLING;
	AUTO_FREE struct lease_name *name = NULL;
	AUTO_FD fd = -1;
	int r;

	if (segment->state == SEGMENT_LENT)
		return -EINVAL;
	if (lessee->name) {
		if (!lease_name_is_valid(lessee->name))
			return -EINVAL;
		if (index_find_name(pool, lessee->name))
			return -EEXIST;
		name = lease_name_new(lessee->name);
		if (!name)
			return -ENOMEM;
	}
	/* Opened anew: the lock has to belong to a description that nobody else has a duplicate of. */
	fd = segment_open(pool, segment, O_RDWR);
	if (fd < 0)
		return fd;
	r = is_partial ? reserve(pool, fd, segment->bytes) : 0;
	if (r == 0)
		r = make_lessees(pool, segment, fd, lessee);
	if (r < 0)
		return r;

	segment->uid = lessee->uid;
	segment->is_partial = is_partial;
	if (name)
		index_set_name(pool, entry, TAKE_PTR(name));
	note_state(pool, entry, SEGMENT_LENT);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int pool_lease_is_held(struct pool *pool, struct segment *segment)
{
	AUTO_FD fd = segment_open(pool, segment, O_RDONLY);

	if (fd == -ENOENT)
		return 0;
	return fd < 0 ? fd : fd_is_locked(fd);
}

static int end_lease(struct pool *pool, struct segment *segment, int fd, int *ret_fd)
{
#ifdef PREZERO_BREAK_RELEND
	if (rename_to(pool, segment, SEGMENT_READY, NULL) == 0) {
		index_drop_name(pool, entry_of(segment));
		note_state(pool, entry_of(segment), SEGMENT_READY);
		if (ret_fd)
			*ret_fd = -1;
		close_fd(fd);
		return 0;
	}
#endif
	return unlink_open_segment(pool, segment, fd, ret_fd);
}

int fd_is_alone(int fd)
{
	if (fcntl(fd, F_SETLEASE, F_WRLCK) == 0)
		return 1;
	return errno == EAGAIN ? 0 : errno == EINVAL ? -EOPNOTSUPP : -errno;
}

int pool_give_lease(struct pool *pool, struct segment *segment)
{
	(void)pool;
	if (segment->state != SEGMENT_LENT || !segment->name)
		return -EINVAL;
	segment->is_given = true;
	return 0;
}

int pool_mark_given(struct pool *pool, struct segment *segment)
{
	struct entry *entry = entry_of(segment);
	char name[FILE_NAME_MAX];

	if (!segment->is_given || entry->has_mark)
		return 0;
	format_given_mark(segment, name);
	if (mknodat(pool->state_fd[SEGMENT_LENT], name, S_IFREG | 0600, 0) < 0 && errno != EEXIST)
		return -errno;
	entry->has_mark = true;
	return 0;
}

/*
 * Whoever has a file open may hold its inode's lock for as long as it likes (a write() from memory that
 * a file system of its own serves, a long fallocate()), and unlinking waits for that lock. So the file
 * is unlinked under an exclusive file lease, which is had only while nobody else has the file open.
 * Whoever opens it meanwhile waits until the descriptor is closed, without the lock; the kernel sends
 * SIGIO, which the owner ignores.
 */
int pool_try_end_lease(struct pool *pool, struct segment *segment, int *ret_fd)
{
	AUTO_FD fd = -1;
	int r;

	if (segment->state != SEGMENT_LENT)
		return -EINVAL;
	fd = segment_open(pool, segment, O_RDONLY);
	if (fd == -ENOENT)
		return pool_end_lease(pool, segment, ret_fd);
	if (fd == -EAGAIN)
		return -EBUSY; /* its lessee has a file lease of its own on it */
	if (fd < 0)
		return fd;
	r = fd_is_locked(fd);
	if (r != 0)
		return r;
	r = fd_is_alone(fd);
	if (r <= 0)
		return r == 0 ? -EBUSY : r;
	return end_lease(pool, segment, TAKE_FD(fd), ret_fd);
}

int pool_end_lease(struct pool *pool, struct segment *segment, int *ret_fd)
{
	if (segment->state != SEGMENT_LENT)
		return -EINVAL;
	return end_lease(pool, segment, ret_fd ? segment_open(pool, segment, O_RDONLY) : -1,
			 ret_fd);
}

int pool_segment_path(const struct pool *pool, const struct segment *segment, char *buf,
		      size_t buf_bytes)
{
	char name[FILE_NAME_MAX];
	int n;

	(void)pool;
	format_file_name(segment, name);
	n = snprintf(buf, buf_bytes, "%s/%s", state_dir[segment->state], name);
	return n >= 0 && (size_t)n < buf_bytes ? n : -ENOSPC;
}

/* Whether a file that is unlinked is still there. Only a mount with a bound on inodes counts them. */
static bool has_unlinked(struct pool *pool, const struct statfs *fs)
{
	uint64_t n_linked = 1 + SEGMENT_STATES; /* the directories */

	for (struct segment *s = pool_next(pool, NULL); s; s = pool_next(pool, s))
		n_linked += 1 + entry_of(s)->has_mark;
	return (int64_t)fs->f_files <= 0 || (uint64_t)(fs->f_files - fs->f_ffree) > n_linked;
}

/* What lessees took beyond the length of their leases. */
static uint64_t grown_bytes(struct pool *pool)
{
	uint64_t grown_bytes = 0, allocated_bytes;
	dev_t dev;
	ino_t ino;

	for (struct segment *s = pool_next(pool, NULL); s; s = pool_next(pool, s)) {
		if (s->state == SEGMENT_LENT &&
		    pool_segment_stat(pool, s, &dev, &ino, &allocated_bytes) == 0 &&
		    allocated_bytes > s->bytes)
			grown_bytes += allocated_bytes - s->bytes;
	}
	return grown_bytes;
}

int pool_pinned_bytes(struct pool *pool, uint64_t *ret)
{
	uint64_t used_bytes, segments_bytes = 0;
	struct statfs fs;
	struct entry *entry;

	*ret = 0;
	if (!pool->is_mount)
		return 0;
	if (fstatfs(pool->dir_fd, &fs) < 0)
		return -errno;
	used_bytes = (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
	for (int node = 0; node < NODES_MAX; node++)
		segments_bytes += pool->usage[node].ready_bytes + pool->usage[node].lent_bytes;
	/* What is being filled has not yet all it will have. */
	TAILQ_FOREACH(entry, &pool->filling, link) {
		uint64_t allocated_bytes;
		dev_t dev;
		ino_t ino;

		if (pool_segment_stat(pool, &entry->segment, &dev, &ino, &allocated_bytes) == 0)
			segments_bytes += allocated_bytes;
	}
	if (used_bytes <= segments_bytes)
		return 0;
	*ret = used_bytes - segments_bytes;
	/* Kernels since 6.15 forget to give a huge page back to the quota of its mount when a fault found
	 * none free. With no file but the segments, their own say is what counts. */
	if (pool->page.kind == PAGE_HUGETLB && !has_unlinked(pool, &fs))
		*ret = grown_bytes(pool);
	return 0;
}
