/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fill/range.c - mapping, populating and verifying a part of a segment file.
 *
 * Guarantees: see range.h. The system calls for placement are made directly: they are three, and
 * libnuma would read the whole of /sys in every process that links it.
 */
#include "fill/range.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* As many pages as one move_pages() asks about: 6 KiB of stack. */
#define VERIFY_PAGES 512U
/* EAGAIN means "soon": with a millisecond in between, a second in all. */
#define AGAIN_MAX 1000U

/*
 * A page of a hugetlb file is only preferred to be on the node, and one that came from elsewhere is
 * found by verification. Bound, a consumer that was lent the file before it was full would get SIGBUS
 * where the node has run out, for the policy stays with the file. tmpfs files are not lent before they
 * are full; there binding makes the kernel compact the node before it gives up on a huge page.
 */
static int set_placement(const struct fill_range *range)
{
	int mode = range->page_class.page.kind == PAGE_HUGETLB ? MPOL_PREFERRED : MPOL_BIND;
	unsigned long nodes[NODES_MAX / (8 * sizeof(unsigned long)) + 1] = {0};
	unsigned int node = (unsigned int)range->page_class.node;

	nodes[node / (8 * sizeof(nodes[0]))] = 1UL << (node % (8 * sizeof(nodes[0])));
	if (syscall(SYS_mbind, range->address, range->bytes, mode, nodes, NODES_MAX + 1, 0U) < 0)
		return -errno;
	return 0;
}

/* A PMD can map a huge page only where address and file offset agree, and how a tmpfs file is placed
 * differs between kernels: so ask for one page more, and put the file at the boundary inside. */
static void *map_aligned(int fd, uint64_t offset_bytes, uint64_t bytes, uint64_t align_bytes)
{
	uint64_t around_bytes = bytes + align_bytes;
	char *around, *aligned, *mapped;

	around = mmap(NULL, around_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		      -1, 0);
	if (around == MAP_FAILED)
		return MAP_FAILED;
	aligned = around + (align_bytes - (uintptr_t)around % align_bytes) % align_bytes;
	mapped = mmap(aligned, bytes, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, (off_t)offset_bytes);
	if (mapped == MAP_FAILED) {
		munmap(around, around_bytes);
		return MAP_FAILED;
	}
	if (aligned > around)
		munmap(around, (size_t)(aligned - around));
	if (aligned + bytes < around + around_bytes)
		munmap(aligned + bytes, (size_t)(around + around_bytes - (aligned + bytes)));
	return mapped;
}

int fill_range_map(struct fill_range *range, int fd, uint64_t offset_bytes)
{
	struct page_size page = range->page_class.page;
	void *address;
	int r;

	/* NORESERVE: a reservation made here would stay with the file if the fill stopped midway. */
	if (page.kind == PAGE_THP)
		address = map_aligned(fd, offset_bytes, range->bytes, page.bytes);
	else
		address = mmap(NULL, range->bytes, PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_NORESERVE, fd, (off_t)offset_bytes);
	if (address == MAP_FAILED)
		return -errno;
	range->address = address;
	range->fd = fd;
	range->offset_bytes = offset_bytes;

	/* Without it the kernel does not try hard for a huge page. EINVAL: it has none at all, and
	 * then the check at the end says so. */
	if (page.kind == PAGE_THP && madvise(address, range->bytes, MADV_HUGEPAGE) < 0 &&
	    errno != EINVAL) {
		r = -errno;
		goto fail;
	}
	if (range->bind) {
		r = set_placement(range);
		if (r < 0)
			goto fail;
	}
	return 0;
fail:
	fill_range_unmap(range);
	return r;
}

void fill_range_unmap(struct fill_range *range)
{
	uint64_t piece_bytes = page_size_unit_bytes(range->page_class.page);

	/* Base pages that were verified are mapped one by one: in pieces, so that who maps something
	 * meanwhile waits for one only. */
	if (range->address && range->page_class.page.kind == PAGE_BASE)
		for (uint64_t at = 0; at + piece_bytes < range->bytes; at += piece_bytes)
			madvise(range->address + at, piece_bytes, MADV_DONTNEED);
	if (range->address)
		munmap(range->address, range->bytes);
	range->address = NULL;
}

static int node_of_page(const char *page)
{
	int node = -1;

	if (syscall(SYS_get_mempolicy, &node, NULL, 0UL, page, MPOL_F_NODE | MPOL_F_ADDR) < 0)
		return -errno;
	return node;
}

static int verify_node(const struct fill_range *range, const char *start, uint64_t bytes,
		       int *ret_wrong_node)
{
	uint64_t page_bytes = range->page_class.page.bytes;
	const char *end = start + bytes;
	const void *page[VERIFY_PAGES];
	int node[VERIFY_PAGES];

	while (start < end) {
		unsigned int n;

		for (n = 0; n < VERIFY_PAGES && start < end; n++, start += page_bytes)
			page[n] = start;
		if (syscall(SYS_move_pages, 0, (unsigned long)n, page, NULL, node, 0) < 0)
			return -errno;
		for (unsigned int i = 0; i < n; i++) {
			/* Some kernels do not find gigantic pages this way; asked one by one they do. */
			if (node[i] < 0)
				node[i] = node_of_page(page[i]);
			if (node[i] < 0)
				return -ENOMEM;
			if (node[i] != range->page_class.node) {
				*ret_wrong_node = node[i];
				return -EXDEV;
			}
		}
	}
	return 0;
}

static int populate(char *start, uint64_t bytes)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	unsigned int n_again = 0;

	while (madvise(start, bytes, MADV_POPULATE_WRITE) < 0) {
		switch (errno) {
		case EINTR:
			break;
		case EAGAIN:
			if (++n_again == AGAIN_MAX)
				return -ENOMEM;
			nanosleep(&pause, NULL);
			break;
		case EFAULT: /* no huge page, no room in the mount, or the file was cut */
		case ENOSPC:
		case EHWPOISON:
			return -ENOMEM;
		default:
			return -errno;
		}
	}
	return 0;
}

/* Base pages: to write zeros takes three fifths of what populating takes, for it needs neither a fault
 * nor, later, an unmapping for each page. Every page is written as a whole. */
static int write_zeros(int fd, uint64_t offset_bytes, uint64_t bytes)
{
	static const char zeros[64 << 10];
	struct stat st;

	/* A file that somebody cut is not to grow again. */
	if (fstat(fd, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_size < offset_bytes + bytes)
		return -ENOMEM;
	while (bytes > 0) {
		size_t piece_bytes = bytes < sizeof(zeros) ? bytes : sizeof(zeros);
		ssize_t n = pwrite(fd, zeros, piece_bytes, (off_t)offset_bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n == 0 || errno == ENOSPC || errno == EFBIG ? -ENOMEM : -errno;
		offset_bytes += (uint64_t)n;
		bytes -= (uint64_t)n;
	}
	return 0;
}

int fill_range_populate(const struct fill_range *range, uint64_t start_bytes, uint64_t unit_bytes,
			int *ret_wrong_node)
{
	bool is_base = range->page_class.page.kind == PAGE_BASE;
	char *start = range->address + start_bytes;
	int r;

#ifdef PREZERO_BREAK_SHORT_FILL
	if (start_bytes + unit_bytes == range->bytes)
		return 0;
#endif
	if (is_base)
		r = write_zeros(range->fd, range->offset_bytes + start_bytes, unit_bytes);
	else
		r = populate(start, unit_bytes);
	if (r < 0 || !range->bind)
		return r;
	/* move_pages() sees only what is mapped. */
	if (is_base && madvise(start, unit_bytes, MADV_POPULATE_READ) < 0)
		return -errno;
	return verify_node(range, start, unit_bytes, ret_wrong_node);
}

/* What smaps says of the mappings that lie in a range. */
struct pmd_count {
	uintptr_t start, end; /* the range */
	bool inside; /* the lines now read are of a mapping in it */
	uint64_t mapped_bytes, pmd_bytes;
};

static const char *parse_hex(const char *text, uintptr_t *ret)
{
	uintptr_t value = 0;
	int digit;

	for (;; text++) {
		if (*text >= '0' && *text <= '9')
			digit = *text - '0';
		else if (*text >= 'a' && *text <= 'f')
			digit = *text - 'a' + 10;
		else
			break;
		value = value << 4 | (uintptr_t)digit;
	}
	*ret = value;
	return text;
}

static void count_line(struct pmd_count *count, const char *line)
{
	static const char field[] = "ShmemPmdMapped:";
	uintptr_t start, end;
	const char *rest = parse_hex(line, &start);

	if (rest > line && *rest == '-') {
		rest = parse_hex(rest + 1, &end);
		count->inside = *rest == ' ' && start < count->end && end > count->start;
		if (count->inside)
			count->mapped_bytes += end - start;
	} else if (count->inside && !strncmp(line, field, sizeof(field) - 1)) {
		uint64_t kib = 0;

		for (rest = line + sizeof(field) - 1; *rest == ' '; rest++)
			;
		for (; *rest >= '0' && *rest <= '9'; rest++)
			kib = kib * 10 + (uint64_t)(*rest - '0');
		count->pmd_bytes += kib << 10;
	}
}

/* smaps and not the newer PAGEMAP_SCAN, for it works on every kernel and is asked once a job: the
 * kernel walks page tables, 512 times fewer entries than pages. Not through stdio: a first malloc()
 * would give every team thread an arena of its own. */
int fill_range_check_pmd(const struct fill_range *range)
{
	struct pmd_count count = {
		.start = (uintptr_t)range->address,
		.end = (uintptr_t)range->address + range->bytes,
	};
	char buf[4096];
	size_t kept = 0;
	AUTO_FD fd = open("/proc/thread-self/smaps", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	for (;;) {
		ssize_t n = read(fd, buf + kept, sizeof(buf) - 1 - kept);
		char *line = buf, *newline;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		buf[kept + (size_t)n] = '\0';
		while ((newline = strchr(line, '\n'))) {
			*newline = '\0';
			count_line(&count, line);
			line = newline + 1;
		}
		kept = strlen(line);
		/* A longer line can only be a file's name, and what counts stands before it. */
		if (kept == sizeof(buf) - 1)
			kept = 0;
		memmove(buf, line, kept);
	}
	return count.mapped_bytes && count.pmd_bytes == count.mapped_bytes ? 0 : -ENOTSUP;
}
