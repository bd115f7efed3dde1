#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""prezero zero: what it asks of the kernel, what it tells, what it refuses, and how it stops.

Here the kernel file is a regular file of an imagined machine: it shows which pages are asked for, and
zeroes nothing. What the kernel makes of it is shown by tests/vm (zero_command and others).
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from cli_test import INPUT, NOT_PERMITTED, REFUSED, CliTest, Terminal
from prezero_test import PREZERO, ROOT, main, run_as, wait_until

FILE = "sys/devices/system/node/node{}/hugepages/hugepages-{}kB/zeroable_hugepages"
MANY = 999999999  # pages of 2M: as long as a test needs


class Zero(CliTest):
    def setUp(self):
        super().setUp()
        self.tree = pathlib.Path(tempfile.mkdtemp(prefix="prezero-test-"))
        self.addCleanup(shutil.rmtree, self.tree)
        self.imagine("eight-nodes")

    def imagine(self, name):
        subprocess.run([ROOT / "tests/sysroots/imagine", name, self.tree], check=True)

    def file(self, node, kb=2048):
        return self.tree / FILE.format(node, kb)

    def arguments(self, *arguments):
        return ["zero", "--sysroot", str(self.tree), *map(str, arguments)]

    def zero(self, *arguments):
        return json.loads(self.prezero(*self.arguments("--json", *arguments)).out)

    def refused(self, status, *arguments, says=()):
        before = {path: path.read_text() for path in self.tree.rglob("zeroable_hugepages")}
        error = self.fails(status, *self.arguments(*arguments), says=says)
        self.assertEqual(before, {path: path.read_text()
                                  for path in self.tree.rglob("zeroable_hugepages")})
        return error

    def test_all_of_a_class(self):
        done = self.zero("max", "--page", "2M", "--node", 3, "--threads", 2)
        self.assertEqual((done["page"], done["node"], done["pages"]), ("2M", 3, 3000))
        self.assertEqual(done["bytes"], 3000 << 21)
        self.assertIn(done["threads"], (1, 2))
        self.assertFalse(done["stopped"])
        self.assertGreater(done["seconds"], 0)
        self.assertEqual(self.file(3).read_text(), "1000\n")  # "1" was written over "3000"
        self.assertEqual(self.file(2).read_text(), "2000\n")
        self.assertEqual(self.file(3, 1 << 20).read_text(), "3\n")

    def test_a_number_of_pages(self):
        self.assertEqual(self.zero(17, "--node", 3)["pages"], 17)
        self.assertEqual(self.zero(2, "--node", 5, "--page", "1G")["pages"], 2)
        self.assertEqual(self.zero(100, "--node", 6, "--page", "1G")["pages"], 6)
        self.assertEqual(self.zero("max", "--node", 0)["pages"], 0)

    def test_every_node_without_one(self):
        self.assertEqual(self.zero("max", "--page", "1G")["pages"], sum(range(8)))
        self.imagine("eight-nodes")
        done = self.zero(1500)  # of the default size: node 0 has none, node 1 has 1000
        self.assertEqual((done["pages"], done["node"]), (1500, -1))
        self.assertEqual(self.file(2).read_text(), "1000\n")
        self.assertEqual(self.file(3).read_text(), "3000\n")

    def test_the_closing_line(self):
        line = self.prezero(*self.arguments("max", "--node", 3, "--threads", 1)).out
        self.assertRegex(line, r"^zeroed 2M@3: 3000 pages, 5\.86G in \d+\.\d{3} s, "
                               r"\d+\.\d\d GB/s, 1 threads\n$")

    def test_it_stops_where_nothing_is_dirty_any_more(self):
        """Somebody else zeroes the rest, or takes it."""
        self.file(1).write_text(f"{MANY}\n")

        def play():
            wait_until(lambda: self.file(1).read_text() != f"{MANY}\n", "a first write")
            with open(self.file(1), "r+b", buffering=0) as file:
                while thread.is_alive():
                    os.pwrite(file.fileno(), b"0" * len(str(MANY)), 0)
                    time.sleep(0.001)
        result = {}
        thread = threading.Thread(target=lambda: result.update(self.zero("max", "--node", 1)))
        thread.start()
        play()
        thread.join()
        self.assertGreater(result["pages"], 0)
        self.assertLess(result["pages"], MANY)

    def test_without_the_file_it_says_what_brings_it(self):
        for node in (4, 5):
            self.file(node).unlink()
        self.refused(REFUSED, "max", "--node", 4,
                     says=("2M@4", "zeroable_hugepages", "modprobe prezero"))
        self.refused(REFUSED, "max", says="2M@4")
        self.prezero(*self.arguments("1", "--node", 3))
        error = json.loads(self.prezero(*self.arguments("--json", "max", "--node", 4),
                                        status=REFUSED).out)
        self.assertEqual(error["error"]["code"], "refused")

    def test_only_who_may_write_it(self):
        self.tree.chmod(0o755)
        done = run_as(65534, [PREZERO, *self.arguments("max", "--node", 3)])
        self.assertEqual(done.returncode, NOT_PERMITTED, done.stderr)
        self.assertIn("run it as root", done.stderr)
        self.assertEqual(self.file(3).read_text(), "3000\n")

    def test_bad_input_is_refused(self):
        for arguments, says in (
                ((), "COUNT is missing"), (("0",), "COUNT '0'"), (("all",), "COUNT 'all'"),
                (("-1",), ""), (("1", "2"), "one COUNT"), (("1x",), "COUNT '1x'"),
                (("1", "--page", "3M"), "2M 1G"), (("1", "--page", "16M"), "'16M'"),
                (("1", "--page", "thp"), "'thp'"), (("1", "--node", "8"), "--node 8"),
                (("1", "--node", "x"), "--node 'x'"), (("1", "--threads", "0"), "--threads '0'"),
                (("1", "--threads", "9999"), "--threads"), (("1", "--cpus", ""), "--cpus ''"),
                (("1", "--cpus", "5-"), "--cpus '5-'"), (("1", "--cpus", "8000"), "none of these")):
            with self.subTest(arguments=arguments):
                self.refused(INPUT, *arguments, says=says)
        self.fails(INPUT, "zero", "--sysroot", "/nonexistent", "1", says="/nonexistent")

    def test_an_error_of_the_kernel_is_told(self):
        self.file(1).write_text("many\n")
        self.fails(1, *self.arguments("1", "--node", 1), says="zeroable_hugepages")

    def stop_by(self, number):
        """Sends a signal while it works; its output."""
        self.file(3).write_text(f"{MANY}\n")
        process = self.start(*self.arguments("--json", "max", "--node", 3))
        wait_until(lambda: self.file(3).read_text() != f"{MANY}\n", "a first write")
        process.send_signal(number)
        began = time.monotonic()
        output, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, -number, errors)
        self.assertLess(time.monotonic() - began, 10)
        return json.loads(output)

    def test_a_signal_stops_it(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            done = self.stop_by(number)
            self.assertTrue(done["stopped"])
            self.assertGreater(done["pages"], 0)
            self.assertLess(done["pages"], MANY)

    def test_on_a_terminal_it_draws_a_bar(self):
        self.file(3).write_text(f"{MANY}\n")
        terminal = Terminal([PREZERO, *self.arguments("max", "--node", 3)], self.environment)
        terminal.read_until(b" left")
        terminal.type(b"\x03")
        terminal.read_until(b"; stopped")
        status = terminal.finish()
        self.assertEqual(status & 0x7f, signal.SIGINT)
        self.assertRegex(terminal.output, rb"\[[#.]{20}\] +\d+%  \S+ of 1.86P on 2M@3  \d+\.\d GB/s  \S+ left")
        self.assertTrue(re.search(rb"\x1b\[Kzeroed 2M@3", terminal.output), terminal.output)

    def test_job_control_does_not_end_it(self):
        self.file(3).write_text(f"{MANY}\n")
        process = self.start(*self.arguments("--json", "max", "--node", 3))
        wait_until(lambda: self.file(3).read_text() != f"{MANY}\n", "a first write")
        for _ in range(20):
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.01)
            process.send_signal(signal.SIGCONT)
        time.sleep(0.05)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertTrue(json.loads(process.communicate(timeout=60)[0])["stopped"])


if __name__ == "__main__":
    main()
