/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench/consumer.h - what a consumer of memory does, cold and from the pool: the bodies of trials.
 *
 * trial->arg is a struct work. A cold trial runs with every page in the kernel's hands, one from
 * the pool with a segment of the work's size ready.
 */
#ifndef PREZERO_BENCH_CONSUMER_H
#define PREZERO_BENCH_CONSUMER_H

#include "bench/harness.h"

struct qemu;

struct work {
	const char *page_text;
	struct page_size page;
	uint64_t bytes;
	const struct qemu *qemu; /* of run_qemu_...() */
	unsigned int prealloc_threads; /* of run_qemu_prealloc */
	bool is_populated; /* of run_qemu_pool: QEMU maps every page at its start */
};

int prepare_cold(struct bench *bench, struct trial *trial);
int prepare_pool(struct bench *bench, struct trial *trial);

/* Map, and write a byte to each page. */
int run_touch_cold(struct bench *bench, struct trial *trial, double *ret_s);
/* From the request to a populated mapping; trial->also: until a byte is in each page. */
int run_take_and_map(struct bench *bench, struct trial *trial, double *ret_s);

/* Map and mlock; a trial of huge pages checks that it got them. */
int run_mlock_cold(struct bench *bench, struct trial *trial, double *ret_s);
int run_mlock_pool(struct bench *bench, struct trial *trial, double *ret_s);

/* QEMU from its start to the reply to `quit`. The floor is the same QEMU with as much memory, none of it touched: no
 * way to get memory can be faster. From the pool, the time begins before the request for the
 * segment. */
int run_qemu_floor(struct bench *bench, struct trial *trial, double *ret_s);
int run_qemu_prealloc(struct bench *bench, struct trial *trial, double *ret_s);
int run_qemu_pool(struct bench *bench, struct trial *trial, double *ret_s);

#endif
