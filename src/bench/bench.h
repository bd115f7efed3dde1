/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench/bench.h - the body of `prezero bench`: the same consumer's work cold and from the pool.
 *
 * Needs no running prezerod: it starts one of its own. Guarantees that whatever it borrows from
 * the host (huge pages, mounts) is given back at its end, however it ends: see bench/guard.h.
 */
#ifndef PREZERO_BENCH_BENCH_H
#define PREZERO_BENCH_BENCH_H

/* argv[0] is "prezero bench". Call it from a process with a single thread. Returns an exit status:
 * 0 done, also when some figures could not be measured; 1 failed; 2 bad usage; 128+N ended by a
 * signal. */
int bench_main(int argc, char **argv);

#endif
