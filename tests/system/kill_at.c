// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tests/system/kill_at.c - runs a program and kills it (-9) at its N-th system call stop.
 *
 * usage: kill_at N PROGRAM ARGUMENT...     exit status: 0 killed there, 1 it ended before, 2 trouble
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kill_at.h"

static int body(void *arg)
{
	char **command = arg;

	execv(command[0], command);
	return -1;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	switch (run_killed_at(body, &argv[2], (unsigned int)strtoul(argv[1], NULL, 10))) {
	case KILL_DONE:
		return 0;
	case KILL_ENDED:
		return 1;
	case KILL_FAILED:
		break;
	}
	return 2;
}
