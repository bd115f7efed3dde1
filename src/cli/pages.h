/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cli/pages.h - the arguments by which `reserve` and `boot-args` are told how many pages to have where.
 */
#ifndef PREZERO_CLI_PAGES_H
#define PREZERO_CLI_PAGES_H

#include "cli/cli.h"
#include "host/host.h"
#include "policy/reserve.h"

/* What was typed, and the host and the plan that come of it. Zero, but for session. */
struct pages_wish {
	struct session *session;
	const char *size_text, *page_text;
	const char *sysroot; /* tests show it another machine */
	struct reserve_goal goal;
	struct host *host;
	struct host_view *view;
	struct reserve_plan plan;
};

/* The child parser of SIZE, --page, --node, --split, --threads, --sysroot and --json; its input is the
 * wish. */
extern const struct argp_child pages_options[];

/* Looks at the host and decides. STATUS_DONE, or the exit status after having said why. */
MUST_CHECK int pages_decide(struct pages_wish *wish);
void pages_done(struct pages_wish *wish);
#define AUTO_PAGES_WISH __attribute__((cleanup(pages_done))) struct pages_wish

#endif
