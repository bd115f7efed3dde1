/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/host_state.h - the host's memory settings around a group of tests, and memory to test on.
 *
 * Guarantees: one group at a time on a host (a lock file, shared with the tests of whole programs);
 * mounts are in a mount namespace of the test's own; every setting is put back, by a keeper process
 * where the test itself is killed; a setting or a counter that is not as before fails the group.
 */
#ifndef PREZERO_TESTS_HOST_STATE_H
#define PREZERO_TESTS_HOST_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "model/class.h"

#define HUGE_2M (2ULL << 20)

/* cmocka group fixtures. Not root: every test skips (host_required()). */
int host_enter(void **state);
int host_leave(void **state);
/* The first line of every test: skips it where the group could not be set up. */
void host_required(void);

/* Free huge pages for the tests of a group: at least that many, or the test skips. */
void host_need_pages(uint64_t page_bytes, unsigned int n_pages);
/* Writes nr_hugepages of node 0 as an administrator would; host_leave() puts it back. */
void host_set_pages(uint64_t page_bytes, uint64_t n_pages);
uint64_t host_count(uint64_t page_bytes, const char *what); /* "free_hugepages" of node 0, ... */
uint64_t host_reserved_pages(uint64_t page_bytes); /* of the whole host */

/* The page sizes that tests run on; bytes of thp and base are the host's. */
struct page_size host_page(enum page_kind kind);

/* A fresh mount for a pool of that page size: at most limit_bytes. Returns its directory's descriptor. */
int host_mount(struct page_size page, uint64_t limit_bytes);
/* Checks that nothing is left in the mount, closes and unmounts it. */
void host_unmount(int dir_fd);
/* The same after a populate that found no huge page: kernels since 6.15, and stable ones that took the
 * same change, then never give that page back to the mount's quota (only to that, the page is free). */
void host_unmount_short_of(int dir_fd, struct page_size page);
uint64_t host_used_bytes(int dir_fd); /* statfs */

unsigned int count_fds(void);

/* The oracle. Every byte is zero and every page is there; every page gets a pattern. */
bool oracle_is_full(int fd, uint64_t bytes);
bool oracle_is_zero(int fd, uint64_t bytes);
bool oracle_is_dirty(int fd, uint64_t bytes);
void oracle_dirty(int fd, uint64_t bytes);

#endif
