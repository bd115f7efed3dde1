/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench/service.h - a prezerod of the benchmark's own.
 *
 * Its stock is switched on and off between trials by a reload, so that a cold trial and one from
 * the pool use the same pages in turn. Dies with the benchmark; bench/guard.h gives its pages
 * back.
 */
#ifndef PREZERO_BENCH_SERVICE_H
#define PREZERO_BENCH_SERVICE_H

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

struct prezero;
struct service;

/* The prezerod beside this program, else the one in $PATH. -ENOENT: neither. */
MUST_CHECK int service_find_prezerod(char *buf, size_t buf_bytes);

/* Starts it without a stock. Errors are explained in why. */
MUST_CHECK int service_start(const char *prezerod, unsigned int n_threads, int node,
			     struct service **ret, char *why, size_t why_bytes);
struct service *service_stop(struct service *service); /* returns NULL */
/* Where clients connect. */
const char *service_socket(const struct service *service);
/* The benchmark's own connection. */
struct prezero *service_connection(struct service *service);

/* The stock from now on: `keep` segments of a size. Returns when they are ready, nothing is lent
 * and no fill is under way. */
MUST_CHECK int service_keep(struct service *service, const char *page, uint64_t segment_bytes,
			    unsigned int keep, char *why, size_t why_bytes);
/* No stock: returns when every page is back in the kernel. */
MUST_CHECK int service_keep_nothing(struct service *service, char *why, size_t why_bytes);
/* The same, but what is lent stays lent: when it ends it is not replaced. */
MUST_CHECK int service_keep_leases(struct service *service, char *why, size_t why_bytes);

#endif
