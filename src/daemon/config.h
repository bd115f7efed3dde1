/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/config.h - what the administrator wrote, checked.
 *
 * A configuration is read whole or not at all: the file, then FILE.d/X.conf in the order of their
 * names, each later one winning key by key. Every fault is told as "FILE:LINE: reason".
 */
#ifndef PREZERO_DAEMON_CONFIG_H
#define PREZERO_DAEMON_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/parse.h"
#include "model/goal.h"

#define CONFIG_DEFAULT_PATH "/etc/prezero/prezerod.conf"

struct user_limit {
	uid_t uid;
	uint64_t bytes;
};

/* One key of [clean]. */
struct clean_target {
	struct page_size page;
	int node; /* or NODE_ANY: every node that has no target of its own */
	uint64_t bytes; /* on each node; UNLIMITED: all that is free; 0: none */
};

struct config {
	/* [daemon] */
	unsigned int n_threads; /* 0: a quarter of the CPUs */
	struct id_set cpus; /* empty: all that the daemon may use */
	uint64_t rate_bytes_per_s; /* 0: no cap */
	char group[33]; /* who may use the socket, besides root */
	unsigned int clients_max;
	/* [stock NAME], [leave_free], and floor= of [daemon] */
	struct goals goals;
	/* [clean]: how much of the kernel's free pages shall be clean */
	unsigned int n_clean_targets;
	struct clean_target *clean_target;
	/* [limits]: bytes of leases that a user may hold; UNLIMITED */
	uint64_t default_limit_bytes;
	unsigned int n_user_limits;
	struct user_limit *user_limit;
};

/* The sizes that "thp" and "base" stand for on this host. */
struct config_pages {
	uint64_t thp_bytes, base_bytes;
};

/* A missing file is a fault, unless may_be_missing: then it counts as empty. On failure *ret_error is
 * a sentence to be freed (NULL when memory is out). */
MUST_CHECK int config_load(const char *path, bool may_be_missing, struct config_pages pages,
			   struct config **ret, char **ret_error);
/* The same from a text, which errors call `name`; no drop-ins. For tests. */
MUST_CHECK int config_parse(const char *text, const char *name, struct config_pages pages,
			    struct config **ret, char **ret_error);
struct config *config_free(struct config *config); /* returns NULL */

/* What a user may hold; root is not limited. */
uint64_t config_limit_bytes(const struct config *config, uid_t uid);

/* What [clean] wants of a class: bytes of free pages that are clean; UNLIMITED, 0. */
uint64_t config_clean_bytes(const struct config *config, struct page_class page_class);

#endif
