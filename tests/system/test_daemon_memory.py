#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""prezerod costs nothing when nothing happens: no wake-ups, little memory, whatever its stock."""

import os
import time

from prezero_test import MIB, SystemTest, is_sanitized, main, wait_until

SEGMENTS = 10000


def own_memory(pid):
    """Bytes that no file and no other process backs."""
    for line in open(f"/proc/{pid}/smaps_rollup", encoding="ascii"):
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no Anonymous: in smaps_rollup")


def switches(pid):
    """Times that any of its threads went to sleep or was put aside."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        for line in open(f"/proc/{pid}/task/{task}/status", encoding="ascii"):
            if "ctxt_switches" in line:
                total += int(line.split()[1])
    return total


class Memory(SystemTest):
    def test_many_segments(self):
        daemon = self.daemon("[daemon]\nthreads = 2\n[stock many]\npage = base\nsegment = 4K\n"
                             f"keep = {SEGMENTS}\n")
        wait_until(lambda: daemon.status()["stocks"][0]["ready"] == SEGMENTS, "the stock", 180)
        with daemon.connect() as client:
            self.assertEqual(len(client.list()), SEGMENTS)
            leases = [client.take(4096, page="base")[1] for _ in range(200)]
            self.assertEqual(len(client.list("lent")), 200)
            for fd in leases:
                os.close(fd)
        daemon.wait_ready()
        idle = [daemon.connect() for _ in range(200)]
        for client in idle:
            client.call("Status")
        used = own_memory(daemon.process.pid)
        print(f"# own memory with {SEGMENTS} segments after a full list: {used / MIB:.1f} MiB",
              flush=True)
        if not is_sanitized():
            self.assertLess(used, 10 * MIB)
        for client in idle:
            client.close()

    def test_quiet(self):
        daemon = self.daemon("[stock a]\npage = base\nsegment = 1M\nkeep = 4\n")
        daemon.wait_ready()

        def rests():
            before = switches(daemon.process.pid)
            time.sleep(2)
            return switches(daemon.process.pid) == before
        wait_until(rests, "the daemon to sleep", 30)
        before = switches(daemon.process.pid)
        time.sleep(10)
        self.assertEqual(switches(daemon.process.pid), before, "it woke up with nothing to do")

    def test_short(self):
        """A stock that cannot be kept: told once, looked after ever more rarely."""
        daemon = self.daemon("[stock a]\npage = 2M\nsegment = 1T\nkeep = 1\n")
        daemon.wait_log("stock a")
        time.sleep(8)
        before = switches(daemon.process.pid)
        time.sleep(4)
        self.assertLess(switches(daemon.process.pid) - before, 10)
        self.assertEqual(daemon.log().count("is short"), 1)


if __name__ == "__main__":
    main()
