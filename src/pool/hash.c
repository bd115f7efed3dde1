/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pool/hash.c - an intrusive hash table that doubles when it is full.
 *
 * Guarantees: see hash.h.
 */
#include "pool/hash.h"

#define SLOTS_MIN 16U

int hash_table_init(struct hash_table *table)
{
	*table = (struct hash_table){.n_slots = SLOTS_MIN};
	table->slot = calloc(table->n_slots, sizeof(*table->slot));
	return table->slot ? 0 : -ENOMEM;
}

void hash_table_done(struct hash_table *table)
{
	free(table->slot);
	*table = (struct hash_table){0};
}

static struct hash_link **slot_of(const struct hash_table *table, uint64_t hash)
{
	return &table->slot[hash & (table->n_slots - 1)];
}

static void grow(struct hash_table *table)
{
	struct hash_table grown = {.n_slots = table->n_slots * 2, .n_links = table->n_links};

	grown.slot = calloc(grown.n_slots, sizeof(*grown.slot));
	if (!grown.slot)
		return;
	for (size_t i = 0; i < table->n_slots; i++) {
		struct hash_link *link = table->slot[i];

		while (link) {
			struct hash_link *next = link->next;
			struct hash_link **slot = slot_of(&grown, link->hash);

			link->next = *slot;
			*slot = link;
			link = next;
		}
	}
	free(table->slot);
	*table = grown;
}

void hash_insert(struct hash_table *table, struct hash_link *link, uint64_t hash)
{
	struct hash_link **slot;

	if (table->n_links == table->n_slots)
		grow(table);
	slot = slot_of(table, hash);
	link->hash = hash;
	link->next = *slot;
	*slot = link;
	table->n_links++;
}

void hash_remove(struct hash_table *table, struct hash_link *link)
{
	struct hash_link **at = slot_of(table, link->hash);

	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	table->n_links--;
}

static struct hash_link *with_hash(struct hash_link *link, uint64_t hash)
{
	while (link && link->hash != hash)
		link = link->next;
	return link;
}

struct hash_link *hash_find(const struct hash_table *table, uint64_t hash)
{
	return with_hash(*slot_of(table, hash), hash);
}

struct hash_link *hash_find_next(const struct hash_link *link)
{
	return with_hash(link->next, link->hash);
}

/* One odd multiplication carries low bits up, the shift brings them back down. */
uint64_t hash_u64(uint64_t value)
{
	value ^= value >> 32;
	value *= 0x9e3779b97f4a7c15ULL;
	return value ^ value >> 32;
}

uint64_t hash_text(const char *text)
{
	uint64_t hash = 0;

	for (; *text; text++)
		hash = hash_u64(hash + (unsigned char)*text);
	return hash;
}
