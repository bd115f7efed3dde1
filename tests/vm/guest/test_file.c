/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Role: pages that reach files, shared memory and pins.
 * Guarantees: what fallocate, memfd, SysV shm and every kind of pinning hand out is zero, and what
 * comes back from them is dirty.
 */
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/udmabuf.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOUNT_POINT "/mnt"
#define SHM_HUGE_SHIFT_BITS 26

/* Reads a file's pages back, dirties them, and closes it. */
static void check_file(const struct page_size *size, int fd, long pages, const char *what)
{
	void *address = map_file(size, pages, fd, MAP_SHARED);

	check_zero(size, address, pages, what);
	dirty_pages(size, address, pages);
	unmap_pages(size, address, pages);
}

static void allocate(const struct page_size *size, int fd, long first, long pages)
{
	int result = fallocate(fd, 0, (off_t)first << size->shift, (off_t)pages << size->shift);

	require(!result, "fallocate of %ld x %s: %s", pages, size->name, strerror(errno));
}

static void memfd_fallocate(const struct page_size *size)
{
	long pages = pool_free(size);
	int fd;

	zero_pages(size);
	fd = huge_memfd(size, pages, 0);
	allocate(size, fd, 0, pages);
	check(!pool_free(size), "%ld pages free after fallocate of all", pool_free(size));
	check_file(size, fd, pages, "fallocate");
	close(fd);
	check(zeroable_all(size) == pages, "zeroable: %ld of %ld", zeroable_all(size), pages);
}

static void memfd_fault(const struct page_size *size)
{
	long pages = pool_free(size);
	int fd;

	zero_pages(size);
	fd = huge_memfd(size, pages, 0);
	check_file(size, fd, pages, "memfd");
	close(fd);
}

static void hugetlbfs_file(const struct page_size *size)
{
	long pages = pool_free(size);
	char options[32];
	int fd;

	snprintf(options, sizeof(options), "pagesize=%s", size->name);
	require(!mount("prezero", MOUNT_POINT, "hugetlbfs", 0, options), "mount: %s",
		strerror(errno));
	zero_pages(size);
	fd = open(MOUNT_POINT "/file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	check(fd >= 0 && !ftruncate(fd, (off_t)pages << size->shift), "file: %s", strerror(errno));
	check_file(size, fd, pages, "a file on hugetlbfs");
	close(fd);
	unlink(MOUNT_POINT "/file");
	require(!umount(MOUNT_POINT), "umount: %s", strerror(errno));
}

static void punch_hole(const struct page_size *size)
{
	long pages = pool_free(size), hole = (pages + 1) / 2;
	int fd = huge_memfd(size, pages, 0);
	void *address;

	zero_pages(size);
	allocate(size, fd, 0, pages);
	address = map_file(size, pages, fd, MAP_SHARED);
	dirty_pages(size, address, pages);
	require(!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			   (off_t)hole << size->shift),
		"punch hole: %s", strerror(errno));
	check_zero(size, address, hole, "a hole faulted in again");
	dirty_pages(size, address, hole);
	require(!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			   (off_t)hole << size->shift),
		"punch hole: %s", strerror(errno));
	zero_pages(size);
	allocate(size, fd, 0, hole);
	check_zero(size, address, hole, "a hole filled from clean pages");
	unmap_pages(size, address, pages);
	close(fd);
}

static void truncate_regrow(const struct page_size *size)
{
	long pages = pool_free(size);
	int fd = huge_memfd(size, pages, 0);

	allocate(size, fd, 0, pages);
	check_file(size, fd, pages, "a new file");
	require(!ftruncate(fd, 0) && !ftruncate(fd, (off_t)pages << size->shift), "ftruncate: %s",
		strerror(errno));
	zero_pages(size);
	check_file(size, fd, pages, "a file cut and grown");
	close(fd);
}

static void sysv_shm(const struct page_size *size)
{
	long pages = pool_free(size);
	size_t bytes = (size_t)pages << size->shift;
	int id;
	void *address;

	file_write("/proc/sys/kernel/shmmax", "18446744073692774399");
	zero_pages(size);
	id = shmget(IPC_PRIVATE, bytes,
		    IPC_CREAT | SHM_HUGETLB | (int)(size->shift << SHM_HUGE_SHIFT_BITS) | 0600);
	require(id >= 0, "shmget: %s", strerror(errno));
	address = shmat(id, NULL, 0);
	check(address != (void *)-1, "shmat: %s", strerror(errno));
	shmctl(id, IPC_RMID, NULL);
	if (address == (void *)-1)
		return;
	check_zero(size, address, pages, "SysV shared memory");
	dirty_pages(size, address, pages);
	shmdt(address);
}

/* ---- pages that somebody else's hands fault in: get_user_pages ---- */

static void gup_populate(const struct page_size *size)
{
	long pages = pool_free(size);
	void *address;

	zero_pages(size);
	address = map_pages(size, pages, MAP_PRIVATE | MAP_POPULATE);
	check_zero(size, address, pages, "MAP_POPULATE");
	dirty_pages(size, address, pages);
	unmap_pages(size, address, pages);
	zero_pages(size);
	address = map_pages(size, pages, MAP_SHARED);
	require(!mlock(address, (size_t)pages << size->shift), "mlock: %s", strerror(errno));
	check_zero(size, address, pages, "mlock");
	dirty_pages(size, address, pages);
	unmap_pages(size, address, pages);
}

/* Another process' write to one word faults the whole page in. */
static void gup_remote(const struct page_size *size)
{
	long pages = pool_free(size);
	char *address;

	zero_pages(size);
	address = map_pages(size, pages, MAP_PRIVATE);
	for (long page = 0; page < pages; page++) {
		uint64_t word = 0;
		char *target = address + ((size_t)page << size->shift);
		struct iovec from = {&word, sizeof(word)};
		struct iovec to = {target + size_bytes(size) / 2, sizeof(word)};

		require(process_vm_writev(getpid(), &from, 1, &to, 1, 0) == (ssize_t)sizeof(word),
			"process_vm_writev: %s", strerror(errno));
	}
	check_zero(size, address, pages, "process_vm_writev");
	dirty_pages(size, address, pages);
	unmap_pages(size, address, pages);
}

/* Long-term pins, as of VFIO and RDMA: the pages outlive their mapping. */
static void gup_pin(const struct page_size *size)
{
	struct io_uring_params parameters = {0};
	int ring = (int)syscall(SYS_io_uring_setup, 2U, &parameters);
	long free_before = pool_free(size), pages = free_before < 16 ? free_before : 16;
	struct iovec buffers[16];
	char *address;

	require(ring >= 0, "io_uring: %s", strerror(errno));
	zero_pages(size);
	address = map_pages(size, pages, MAP_PRIVATE);
	for (long page = 0; page < pages; page++)
		buffers[page] =
			(struct iovec){address + ((size_t)page << size->shift), size_bytes(size)};
	require(!syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, buffers,
			 (unsigned int)pages),
		"registering buffers: %s", strerror(errno));
	check_zero(size, address, pages, "pinned pages");
	dirty_pages(size, address, pages);
	unmap_pages(size, address, pages);
	check(pool_free(size) == free_before - pages, "pinned pages came free: %ld",
	      pool_free(size));
	zero_pages(size);
	close(ring);
	for (int tries = 0; pool_free(size) < free_before && tries < 100; tries++)
		sleep_ms(20);
	check(zeroable_all(size) == pages, "zeroable after the pins went: %ld, expected %ld",
	      zeroable_all(size), pages);
}

/* udmabuf takes the pages of a memfd; from 6.11 on it allocates the missing ones by itself. */
static void udmabuf(const struct page_size *size)
{
	int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), fd, buffer;
	long pages = pool_free(size) / 2 ? pool_free(size) / 2 : 1;
	struct udmabuf_create create = {.size = (uint64_t)pages << size->shift};

	if (device < 0)
		skip("this kernel has no /dev/udmabuf");
	file_write("/sys/module/udmabuf/parameters/size_limit_mb", "16384");
	zero_pages(size);
	fd = huge_memfd(size, pages, MFD_ALLOW_SEALING);
	require(!fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), "sealing: %s", strerror(errno));
	create.memfd = (uint32_t)fd;
	buffer = ioctl(device, UDMABUF_CREATE, &create);
	require(buffer >= 0, "UDMABUF_CREATE: %s", strerror(errno));
	check_file(size, fd, pages, "a udmabuf's memfd");
	close(fd);
	zero_pages(size);
	close(buffer);
	close(device);
}

static const struct test tests[] = {
	{.name = "memfd_fallocate", .run = memfd_fallocate, .sizes = SIZE_BOTH},
	{.name = "memfd_fault", .run = memfd_fault, .sizes = SIZE_2M},
	{.name = "hugetlbfs_file", .run = hugetlbfs_file, .sizes = SIZE_BOTH},
	{.name = "punch_hole", .run = punch_hole, .sizes = SIZE_BOTH},
	{.name = "truncate_regrow", .run = truncate_regrow, .sizes = SIZE_2M},
	{.name = "sysv_shm", .run = sysv_shm, .sizes = SIZE_BOTH},
	{.name = "gup_populate", .run = gup_populate, .sizes = SIZE_BOTH},
	{.name = "gup_remote", .run = gup_remote, .sizes = SIZE_2M},
	{.name = "gup_pin", .run = gup_pin, .sizes = SIZE_BOTH},
	{.name = "udmabuf", .run = udmabuf, .sizes = SIZE_BOTH},
};

const struct test_group group_file = {tests, ARRAY_SIZE(tests)};
