/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/refusal.c - why something cannot be had, and what would help, in words.
 *
 * Guarantees: every refusal names the class, have, need, and the command that would help if there is
 * one; those for want of pages name who holds pages of that size.
 */
#include "daemon/refusal.h"

#include <string.h>
#include <sys/stat.h>

#include "daemon/log.h"
#include "daemon/scan.h"
#include "daemon/server.h"

static const struct {
	const char *reason, *words;
} words[] = {
	{"class", "this host has no such page size"},
	{"node", "this host has no such node with memory"},
	{"multiple", "it is not a multiple of the page"},
	{"machine", "it is more than the machine has"},
	{"pages", "too few free huge pages"},
	{"leave_free", "leave_free= keeps the rest for others"},
	{"floor", "the memory floor keeps the rest available"},
	{"cgroup", "the daemon's cgroup has no more room"},
	{"thp", "the kernel gives tmpfs no huge pages"},
	{"limit", "the user's limit"},
	{"deadline", "not in the time given"},
	{"io", "it failed on the host"},
};

const char *refusal_words(const char *reason)
{
	for (unsigned int i = 0; i < ARRAY_LEN(words); i++) {
		if (!strcmp(words[i].reason, reason))
			return words[i].words;
	}
	return reason;
}

static bool is(const struct refusal *refusal, const char *reason)
{
	return !strcmp(refusal->reason, reason);
}

/* How far the kernel's pool must grow: for any node, the whole host's. */
static void fix_pages(struct daemon *daemon, const struct refusal *refusal, char *buf)
{
	const struct hugetlb_view *hugetlb = host_view_hugetlb(daemon->seen, refusal->page.bytes);
	uint64_t page_bytes = refusal->page.bytes, total;
	uint64_t missing = refusal->need_bytes - refusal->have_bytes;

	if (!hugetlb || refusal->need_bytes <= refusal->have_bytes)
		return;
	total = refusal->node == NODE_ANY ? hugetlb->total_pages :
					    hugetlb->node[refusal->node].total_pages;
	total += (missing + page_bytes - 1) / page_bytes;
	if (refusal->node == NODE_ANY)
		snprintf(buf, REFUSAL_TEXT_MAX,
			 "echo %lu > /sys/kernel/mm/hugepages/hugepages-%lukB/nr_hugepages",
			 (unsigned long)total, (unsigned long)(page_bytes >> 10));
	else
		snprintf(
			buf, REFUSAL_TEXT_MAX,
			"echo %lu > /sys/devices/system/node/node%d/hugepages/hugepages-%lukB/nr_hugepages",
			(unsigned long)total, refusal->node, (unsigned long)(page_bytes >> 10));
}

static void fix_class(struct daemon *daemon, const struct refusal *refusal, char *buf)
{
	uint64_t bytes;

	(void)daemon;
	/* Sizes that the processor has can be added at boot only. */
	if (refusal->page_text && parse_bytes(refusal->page_text, &bytes) == 0)
		snprintf(buf, REFUSAL_TEXT_MAX,
			 "prezero status shows the page sizes that are there");
}

void refusal_fix(struct daemon *daemon, const struct refusal *refusal, char buf[REFUSAL_TEXT_MAX])
{
	const char *config = daemon->options.config_path;
	char bytes[BYTES_TEXT_MAX];

	buf[0] = '\0';
	if (is(refusal, "pages") || is(refusal, "leave_free"))
		fix_pages(daemon, refusal, buf);
	else if (is(refusal, "class"))
		fix_class(daemon, refusal, buf);
	else if (is(refusal, "floor"))
		snprintf(buf, REFUSAL_TEXT_MAX,
			 "free memory, or lower floor= in %s and run: systemctl reload prezerod",
			 config);
	else if (is(refusal, "cgroup"))
		snprintf(buf, REFUSAL_TEXT_MAX,
			 "systemctl set-property prezerod MemoryMax=infinity");
	else if (is(refusal, "thp"))
		snprintf(buf, REFUSAL_TEXT_MAX, "%s",
			 daemon->seen->thp_shmem_denied ?
				 "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled" :
				 "echo 1 > /proc/sys/vm/compact_memory");
	else if (is(refusal, "limit"))
		snprintf(
			buf, REFUSAL_TEXT_MAX,
			"prezero give a lease, or raise the limit in %s and run: systemctl reload prezerod",
			config);
	else if (is(refusal, "multiple") && refusal->page.bytes)
		snprintf(buf, REFUSAL_TEXT_MAX, "ask for %s",
			 format_bytes((refusal->asked_bytes / refusal->page.bytes + 1) *
					      refusal->page.bytes,
				      bytes));
}

/* A refusal on its way: its texts are its own. */
struct sending {
	struct connection *connection;
	struct scan *scan;
	const char *reason;
	char page[PAGE_TEXT_MAX];
	int node;
	uint64_t have_bytes, need_bytes;
	char message[2 * REFUSAL_TEXT_MAX];
	char fix[REFUSAL_TEXT_MAX];
};

static void answer(struct sending *sending, const struct holder *holders, int n_holders)
{
	struct wire_holder list[SCAN_HOLDERS_MAX];
	struct wire_reply reply = {
		.error = WIRE_REFUSED,
		.refused =
			{
				.reason = sending->reason,
				.message = sending->message,
				.page = sending->page,
				.node = sending->node,
				.have_bytes = sending->have_bytes,
				.need_bytes = sending->need_bytes,
				.fix = *sending->fix ? sending->fix : NULL,
				.holders = list,
				.n_holders = scan_wire_holders(holders, n_holders, list),
			},
	};

	connection_reply(sending->connection, &reply, -1);
	free(sending);
}

static void holders_found(void *arg, const struct holder *holders, int n_holders)
{
	answer(arg, holders, n_holders);
}

static void abandon(void *arg)
{
	struct sending *sending = arg;

	scan_abandon(sending->scan);
	free(sending);
}

/* Holders and fix go beside it, for the client to add to its own sentence. */
static void write_message(const struct refusal *refusal, struct sending *sending)
{
	char asked[BYTES_TEXT_MAX], have[BYTES_TEXT_MAX], need[BYTES_TEXT_MAX], node[16];

	if (refusal->node == NODE_ANY)
		snprintf(node, sizeof(node), "any");
	else
		snprintf(node, sizeof(node), "%d", refusal->node);
	snprintf(sending->message, sizeof(sending->message), "%s of %s@%s: %s: have %s, need %s",
		 format_bytes(refusal->asked_bytes, asked), sending->page, node,
		 refusal->detail ? refusal->detail : refusal_words(refusal->reason),
		 format_bytes_short(refusal->have_bytes, have),
		 format_bytes_short(refusal->need_bytes, need));
}

/* Others hold what is missing: worth a look who. */
static bool wants_holders(const struct refusal *refusal)
{
	return is(refusal, "pages") || is(refusal, "leave_free") || is(refusal, "deadline") ||
	       is(refusal, "floor");
}

void refusal_send(struct daemon *daemon, struct connection *connection,
		  const struct refusal *refusal)
{
	struct page_pool *pages = refusal->page_text ? NULL : daemon_pool(daemon, refusal->page);
	struct sending *sending = calloc(1, sizeof(*sending)), bare = {0};
	struct stat st;

	daemon->counters.refusals++;
	if (!sending) {
		struct wire_reply reply = {
			.error = WIRE_REFUSED,
			.refused = {.reason = "io", .message = strerror(ENOMEM), .page = bare.page},
		};

		connection_reply(connection, &reply, -1);
		return;
	}
	sending->connection = connection;
	sending->reason = refusal->reason;
	sending->node = refusal->node;
	sending->have_bytes = refusal->have_bytes;
	sending->need_bytes = refusal->need_bytes;
	if (refusal->page_text)
		snprintf(sending->page, sizeof(sending->page), "%s", refusal->page_text);
	else
		page_size_format(refusal->page, sending->page);
	refusal_fix(daemon, refusal, sending->fix);
	write_message(refusal, sending);
	/* One scan at a time: a refusal without holders is still a refusal, and peers may ask in a loop. */
	if (!pages || !wants_holders(refusal) || daemon->n_scans || fstat(pages->dir_fd, &st) < 0 ||
	    scan_start(daemon, st.st_dev, 0, holders_found, sending, &sending->scan) < 0) {
		answer(sending, NULL, 0);
		return;
	}
	connection_wait(connection, abandon, sending);
}
