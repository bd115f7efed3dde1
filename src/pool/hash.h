/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pool/hash.h - an intrusive hash table: constant time however many entries.
 *
 * Links live in the caller's structures. Only hash_table_init() can fail: a table that cannot grow
 * goes on with longer chains.
 */
#ifndef PREZERO_POOL_HASH_H
#define PREZERO_POOL_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

struct hash_link {
	struct hash_link *next;
	uint64_t hash;
};

struct hash_table {
	struct hash_link **slot;
	size_t n_slots; /* a power of two */
	size_t n_links;
};

#define HASH_ENTRY(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

MUST_CHECK int hash_table_init(struct hash_table *table);
void hash_table_done(struct hash_table *table); /* the entries are the caller's */
void hash_insert(struct hash_table *table, struct hash_link *link, uint64_t hash);
void hash_remove(struct hash_table *table, struct hash_link *link);
/* The first entry with that hash, and the next one after a link; NULL at the end. */
struct hash_link *hash_find(const struct hash_table *table, uint64_t hash);
struct hash_link *hash_find_next(const struct hash_link *link);

/* Spreads every bit of a number over the whole result. */
uint64_t hash_u64(uint64_t value);
uint64_t hash_text(const char *text);

#endif
