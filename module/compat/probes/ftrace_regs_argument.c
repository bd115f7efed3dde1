// SPDX-License-Identifier: GPL-2.0-only
/* 6.3: arguments and the instruction pointer of a traced function have accessors. */
#include <linux/ftrace.h>

void probe(struct ftrace_regs *fregs);
void probe(struct ftrace_regs *fregs)
{
	ftrace_regs_set_instruction_pointer(fregs, ftrace_regs_get_argument(fregs, 0));
}
