// SPDX-License-Identifier: GPL-2.0-only
/* 7.0: the architecture clears a run of pages with one instruction. */
#include <linux/mm.h>

void probe(void *addr);
void probe(void *addr)
{
	clear_pages(addr, 32);
}
