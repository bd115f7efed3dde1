#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A stock with reserve=yes brings its own pages, once, and --release takes out exactly those."""

import json
import pathlib
import shutil
import subprocess
import tempfile

from prezero_test import MIB, ROOT, SystemTest, hugetlb_count, main, wait_until

PAGE = 2 * MIB
STOCK = "[stock a]\npage = 2M\nnode = 0\nsegment = 8M\nkeep = {}\nreserve = yes\n"
COUNT = pathlib.Path("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages")


class Growth(SystemTest):
    def setUp(self):
        super().setUp()
        self.before = hugetlb_count(PAGE, "nr_hugepages")

    def check_added(self, pages):
        self.assertEqual(hugetlb_count(PAGE, "nr_hugepages") - self.before, pages)
        self.assertEqual(hugetlb_count(PAGE, "surplus_hugepages"), 0)

    def release(self, daemon):
        done = daemon.release()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(daemon.runtime.exists(), "nothing stays in the run-time directory")

    def test_pages_come_once_and_go(self):
        daemon = self.daemon(STOCK.format(4))
        self.assertIn("added to the kernel's pool", daemon.log())
        self.check_added(16)
        daemon.wait_ready()
        for how in ("stop", "kill"):
            getattr(daemon, how)()
            daemon.start()
            self.check_added(16)
        daemon.stop()
        daemon.configure(STOCK.format(6))
        daemon.start()
        self.check_added(24)
        daemon.wait_ready()
        daemon.stop()
        self.release(daemon)
        self.check_added(0)

    def test_a_reload_brings_more_and_blocks_nobody(self):
        daemon = self.daemon(STOCK.format(4))
        daemon.wait_ready()
        daemon.configure(STOCK.format(6))
        daemon.reload()
        daemon.wait_notified("READY=1")
        daemon.status()
        wait_until(lambda: hugetlb_count(PAGE, "nr_hugepages") - self.before == 24, daemon.log)
        daemon.wait_ready()
        # Nothing is missing now: nothing more is added, nor taken when a stock keeps less.
        daemon.configure(STOCK.format(2))
        daemon.reload()
        daemon.wait_notified("READY=1")
        self.check_added(24)
        daemon.stop()
        self.release(daemon)
        self.check_added(0)

    def test_a_node_that_comes(self):
        tree = pathlib.Path(tempfile.mkdtemp(prefix="prezero-test-"))
        self.addCleanup(shutil.rmtree, tree)
        captured = subprocess.run([ROOT / "tests/sysroots/capture"], check=True, capture_output=True)
        subprocess.run([ROOT / "tests/sysroots/unpack", tree], input=captured.stdout, check=True)
        status = tree / "proc/self/status"
        status.write_text(status.read_text().replace("Mems_allowed_list:\t0", "Mems_allowed_list:\t0-63"))
        nodes = tree / "sys/devices/system/node"
        config = STOCK.format(4).replace("node = 0", "node = 63")
        daemon = self.daemon(config, sysroot=tree)
        self.assertIn("nothing can be added", daemon.log())
        node = nodes / "node63"
        pages = node / "hugepages/hugepages-2048kB"
        pages.mkdir(parents=True)
        for name in "nr_hugepages", "free_hugepages", "surplus_hugepages":
            (pages / name).write_text("0")
        (node / "cpulist").write_text("\n")
        (node / "meminfo").write_text("".join(f"Node 63 {name}: {4 << 20} kB\n"
                                              for name in ("MemTotal", "MemFree")))
        (nodes / "online").write_text("0,63\n")
        # The kernel's word that something came; of itself it means nothing.
        for path in pathlib.Path("/sys/devices/system/node").glob("node*/uevent"):
            path.write_text("change")
        wait_until(lambda: (pages / "nr_hugepages").read_text().strip() == "16", daemon.log)
        daemon.wait_log("added to the kernel's pool")
        daemon.stop()
        self.release(daemon)
        self.assertEqual((pages / "nr_hugepages").read_text().strip(), "0")

    def test_an_administrator_wins(self):
        daemon = self.daemon(STOCK.format(4))
        daemon.wait_ready()
        daemon.stop()
        COUNT.write_text(str(self.before + 40))
        daemon.start()
        self.check_added(40)
        daemon.stop()
        self.release(daemon)
        self.check_added(40)
        COUNT.write_text(str(self.before))

    def test_killed_while_it_grows(self):
        """The record says from where to where; what came of it is read back."""
        daemon = self.daemon(STOCK.format(4), start=False)
        daemon.runtime.mkdir(mode=0o755)
        entry = {"page_bytes": PAGE, "stock_node": 0, "node": 0, "added_pages": 0,
                 "from_pages": self.before, "to_pages": self.before + 16, "stands_pages": 0}
        (daemon.runtime / "growth").write_text(json.dumps([entry]))
        COUNT.write_text(str(self.before + 10))
        daemon.start()
        self.check_added(16)
        daemon.stop()
        self.release(daemon)
        self.check_added(0)

    def test_nobody_grows_for_a_daemon_that_is_gone(self):
        daemon = self.daemon(STOCK.format(4), start=False)
        daemon.runtime.mkdir(mode=0o755)
        for other, status in (("1", 1), ("0", 2), ("x", 2)):
            done = subprocess.run(daemon.command("--grow", other), capture_output=True, check=False)
            self.assertEqual(done.returncode, status, done.stderr)
        self.check_added(0)
        self.assertFalse(list(daemon.runtime.iterdir()))

    def test_a_borrowed_setting_is_put_back(self):
        setting = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages")
        before = int(setting.read_text())
        daemon = self.daemon(start=False)
        daemon.runtime.mkdir(mode=0o755)
        record = {"page_bytes": PAGE, "before_pages": before, "borrowed_pages": before + 7}
        (daemon.runtime / "reserve.intent").write_text(json.dumps(record))
        setting.write_text(str(before + 7))
        daemon.start()
        self.assertEqual(int(setting.read_text()), before)
        self.assertIn("nr_overcommit_hugepages was put back", daemon.log())

    def test_strange_record(self):
        daemon = self.daemon(start=False)
        daemon.runtime.mkdir(mode=0o755)
        record = daemon.runtime / "growth"
        record.write_text('[{"page_bytes": 1}]')
        daemon.start(wait=False)
        self.assertEqual(daemon.process.wait(60), 1)
        self.assertIn("is no record of ours", daemon.log())
        self.check_added(0)
        record.unlink()


if __name__ == "__main__":
    main()
