#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""prezerod: [clean] follows the configuration and the kernel file, and does without.

Here the file is a regular file in a copy of this machine's tree, and a thread plays the kernel: it sees
that a page was asked for and sets the count. That shows what the daemon asks for and when it stops.
Events of the file, and what the kernel makes of a write, are shown by tests/vm (clean_daemon and others).
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time

from prezero_test import PREZERO, PREZEROD, ROOT, SystemTest, main, wait_until

DIGITS = 9  # of the count, so that it is always overwritten whole
ASKED = "1"  # what the daemon writes, over the first digit


class Kernel:
    """A kernel file in a tree, and who plays the kernel behind it."""

    def __init__(self, path):
        self.path, self.dirty, self.zeroed, self.is_over = path, 0, 0, False
        self.thread = threading.Thread(target=self._play)

    def start(self, dirty):
        self.dirty = dirty
        fresh = self.path.with_name("fresh")
        fresh.write_text(f"{dirty:0{DIGITS}}\n")
        fresh.rename(self.path)
        self.thread.start()

    def _play(self):
        with open(self.path, "r+b", buffering=0) as file:
            while not self.is_over:
                if os.pread(file.fileno(), 1, 0) == ASKED.encode():
                    self.zeroed += 1
                    self.dirty = max(self.dirty - 1, 0)
                    os.pwrite(file.fileno(), f"{self.dirty:0{DIGITS}}\n".encode(), 0)
                time.sleep(0.0002)

    def stop(self):
        self.is_over = True
        if self.thread.is_alive():
            self.thread.join()


class Clean(SystemTest):
    def setUp(self):
        super().setUp()
        self.tree = pathlib.Path(tempfile.mkdtemp(prefix="prezero-test-", dir="/run"))
        self.addCleanup(shutil.rmtree, self.tree)
        captured = subprocess.run([ROOT / "tests/sysroots/capture"], check=True, capture_output=True)
        subprocess.run([ROOT / "tests/sysroots/unpack", self.tree], input=captured.stdout, check=True)
        self.sizes = self.tree / "sys/devices/system/node/node0/hugepages/hugepages-2048kB"
        if not self.sizes.is_dir():
            self.skipTest("no 2M pages on this machine")
        self.file = self.sizes / "zeroable_hugepages"
        (self.sizes / "free_hugepages").write_text("100\n")

    def kernel(self, dirty):
        kernel = Kernel(self.file)
        self.addCleanup(kernel.stop)
        kernel.start(dirty)
        return kernel

    def clean(self, config, **options):
        return self.daemon(f"[daemon]\nthreads = 2\n[clean]\n{config}", sysroot=self.tree, **options)

    def test_max_zeroes_all(self):
        kernel = self.kernel(50)
        daemon = self.clean("2M = max\n")
        wait_until(lambda: kernel.dirty <= 0, lambda: f"{kernel.dirty} dirty\n{daemon.log()}")
        daemon.wait_log("zeroed 2M@0: ")

        def classes_now():
            return {(c["page"], c["node"]): c for c in daemon.status()["classes"]}
        # A page that is just asked for stands in the file for a moment.
        wait_until(lambda: classes_now()["2M", 0]["zeroable_pages"] == kernel.dirty, "the count")
        classes = classes_now()
        self.assertNotIn("zeroable_pages", classes["base", 0])

    def test_a_target_that_is_met_is_looked_at_ever_more_seldom(self):
        kernel = self.kernel(50)
        daemon = self.clean("2M = 120M\n")
        wait_until(lambda: kernel.zeroed >= 10 and not daemon.status()["zeroing"],
                   lambda: f"{kernel.zeroed} zeroed\n{daemon.log()}")

        def reads():
            return pathlib.Path(f"/proc/{daemon.process.pid}/io").read_text().split("syscr: ")[1].split()[0]
        time.sleep(1.3)  # one look after a second, and the next two seconds after that
        before = reads()
        time.sleep(1.2)
        self.assertEqual(reads(), before)
        zeroed = kernel.zeroed
        # Somebody took half of what is clean: that, no event tells.
        (self.sizes / "free_hugepages").write_text("70\n")
        wait_until(lambda: kernel.zeroed > zeroed, lambda: f"{kernel.zeroed} zeroed\n{daemon.log()}")

    def test_without_a_target_nothing_is_asked(self):
        kernel = self.kernel(50)
        daemon = self.daemon("[daemon]\nthreads = 1\n", sysroot=self.tree)
        daemon.status()
        daemon.stop()
        self.assertEqual(kernel.zeroed, 0)

    def test_a_reload_changes_the_target(self):
        kernel = self.kernel(50)
        daemon = self.clean("2M@0 = 0\n2M = max\n")
        daemon.status()
        self.assertEqual(kernel.zeroed, 0)
        daemon.configure("[clean]\n2M@0 = max\n")
        daemon.reload()
        wait_until(lambda: kernel.dirty <= 0, lambda: f"{kernel.dirty} dirty\n{daemon.log()}")

    def test_without_the_file_it_says_so_once(self):
        daemon = self.clean("2M = max\n1G = 0\n")
        daemon.wait_log("[clean] 2M@0 waits: this kernel has no zeroable_hugepages (fix: modprobe prezero")
        for _ in range(3):
            daemon.status()
        daemon.configure("[clean]\n2M = max\n[stock a]\npage = base\nsegment = 4M\nkeep = 1\n")
        daemon.reload()
        daemon.wait_ready()  # the pool serves
        self.assertEqual(daemon.log().count("2M@0 waits"), 2)  # a reload tells anew
        self.assertNotIn("1G@0 waits", daemon.log())
        kernel = self.kernel(3)
        daemon.reload()
        wait_until(lambda: kernel.dirty <= 0, lambda: f"{kernel.dirty} dirty\n{daemon.log()}")

    def test_a_class_that_is_not_there_is_told(self):
        daemon = self.clean("2M@63 = max\n16G = 32G\n")
        daemon.wait_log("[clean] 2M@63: there is no such page class on this host")
        daemon.wait_log("[clean] 16G@any: there is no such page class on this host")

    def test_stopping_does_not_wait_for_it(self):
        self.file.write_text("9" * DIGITS + "\n")  # nobody plays: it never ends
        daemon = self.clean("2M = max\n")
        wait_until(lambda: self.file.read_text().startswith(ASKED), daemon.log)
        [zeroing] = daemon.status()["zeroing"]
        self.assertEqual((zeroing["page"], zeroing["node"]), ("2M", 0))
        self.assertGreater(zeroing["total_bytes"], zeroing["done_bytes"])
        self.assertEqual(daemon.status()["fills"], [])
        began = time.monotonic()
        self.assertEqual(daemon.stop(), 0)
        self.assertLess(time.monotonic() - began, 10)

    def test_status_shows_clean_and_dirty(self):
        self.file.write_text("25\n")
        daemon = self.daemon("[daemon]\nthreads = 1\n", sysroot=self.tree)
        out = subprocess.run([PREZERO, "status", "--socket", daemon.socket_path], text=True,
                             capture_output=True, check=True).stdout
        rows = [line.split() for line in out.splitlines()]
        titles = next(row for row in rows if row[:1] == ["CLASS"])
        self.assertEqual(titles[2:5], ["FREE", "CLEAN", "DIRTY"])
        row = next(row for row in rows if row[:1] == ["2M@0"])
        self.assertEqual(row[2:5], ["200M", "150M", "50.0M"])
        self.assertLessEqual(max(map(len, out.splitlines())), 100)

    def test_check_config(self):
        path = self.tree / "bad.conf"
        path.write_text("[clean]\n2M = 3M\n")
        done = subprocess.run([PREZEROD, "--check-config", "--config", path], text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("bad.conf:2: 3M is not a multiple of the page, 2M", done.stderr)


if __name__ == "__main__":
    main()
