// SPDX-License-Identifier: GPL-2.0-only
/* Must compile on every kernel: if it does not, the probes themselves are broken. */
#include <linux/hugetlb.h>

unsigned long probe(struct hstate *h);
unsigned long probe(struct hstate *h)
{
	return huge_page_size(h);
}
