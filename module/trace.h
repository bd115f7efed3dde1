/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracepoints: what happened to which page, and how long it took.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM prezero

#if !defined(PREZERO_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define PREZERO_TRACE_H

#include <linux/tracepoint.h>

/* Tracepoints have a layout of their own. */
/* clang-format off */

/* A page was taken, zeroed in whole (clean) or not, and given back. */
TRACE_EVENT(prezero_zero,
	TP_PROTO(unsigned long pfn, unsigned long page_bytes, int node, bool clean, u64 hold_ns),
	TP_ARGS(pfn, page_bytes, node, clean, hold_ns),
	TP_STRUCT__entry(
		__field(unsigned long, pfn)
		__field(unsigned long, page_bytes)
		__field(int, node)
		__field(bool, clean)
		__field(u64, hold_ns)
	),
	TP_fast_assign(
		__entry->pfn = pfn;
		__entry->page_bytes = page_bytes;
		__entry->node = node;
		__entry->clean = clean;
		__entry->hold_ns = hold_ns;
	),
	TP_printk("pfn=0x%lx page_bytes=%lu node=%d clean=%d hold_ns=%llu", __entry->pfn,
		  __entry->page_bytes, __entry->node, __entry->clean, __entry->hold_ns)
);

/* A consumer was spared the zeroing of a page. */
TRACE_EVENT(prezero_skip,
	TP_PROTO(unsigned long pfn),
	TP_ARGS(pfn),
	TP_STRUCT__entry(
		__field(unsigned long, pfn)
	),
	TP_fast_assign(
		__entry->pfn = pfn;
	),
	TP_printk("pfn=0x%lx", __entry->pfn)
);

/* An allocation waited for pages being zeroed. */
TRACE_EVENT(prezero_wait,
	TP_PROTO(unsigned long page_bytes, u64 wait_ns),
	TP_ARGS(page_bytes, wait_ns),
	TP_STRUCT__entry(
		__field(unsigned long, page_bytes)
		__field(u64, wait_ns)
	),
	TP_fast_assign(
		__entry->page_bytes = page_bytes;
		__entry->wait_ns = wait_ns;
	),
	TP_printk("page_bytes=%lu wait_ns=%llu", __entry->page_bytes, __entry->wait_ns)
);

/* clang-format on */

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
