#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""prezero reserve and boot-args: plans for imagined machines, and this machine's own pool."""

import json
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from prezero_test import (GIB, MIB, PATIENCE_S, PREZERO, ROOT, SystemTest, host_has_page,
                          hugetlb_count, main, run_as)

PAGE = 2 * MIB
OVERCOMMIT = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages")


class RunsReserve:
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="prezero-test-"))
        self.addCleanup(shutil.rmtree, self.directory)

    def prezero(self, *arguments, status=0, **options):
        done = subprocess.run([PREZERO, *map(str, arguments)], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False, **options)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def reserve(self, *arguments, status=0):
        return self.prezero("reserve", *arguments, "--runtime-dir", self.directory / "run",
                            status=status)

    def reserve_json(self, *arguments, status=0):
        return json.loads(self.reserve(*arguments, "--json", status=status).stdout)


class Imagined(RunsReserve, unittest.TestCase):
    """On trees of files: needs neither root nor this machine's memory."""

    def imagine(self, name):
        tree = self.directory / name
        subprocess.run([ROOT / "tests/sysroots/imagine", name, tree], check=True)
        return tree

    def pages(self, tree, node, page="2048kB"):
        return int((tree / f"sys/devices/system/node/node{node}/hugepages/hugepages-{page}"
                    / "nr_hugepages").read_text())

    def test_sixteen_tebibytes(self):
        tree = self.imagine("eight-nodes")
        start = time.monotonic()
        plan = self.reserve_json("12T", "--sysroot", tree, "--dry-run")
        seconds = time.monotonic() - start
        self.assertEqual(plan["threads"], 128)
        self.assertEqual(plan["method"], "parallel")
        self.assertEqual([(n["from_pages"], n["to_pages"], n["threads"]) for n in plan["nodes"]],
                         [(262144, 786432, 16)] * 8)
        self.assertLess(seconds, PATIENCE_S / 10, "with the program's start and 200 small reads")

    def test_split_on_files(self):
        tree = self.imagine("unequal")
        result = self.reserve_json("20G", "--sysroot", tree, "--split", "0=18G,1=2G",
                                   "--method", "plain")
        self.assertTrue(result["full"])
        self.assertEqual(self.pages(tree, 0), 9216)
        self.assertEqual(self.pages(tree, 1), 1024)
        self.reserve("8G", "--sysroot", tree, "--split", "0=25%,1=75%", "--shrink")
        self.assertEqual(self.pages(tree, 0), 1024)
        self.assertEqual(self.pages(tree, 1), 3072)

    def test_what_is_borrowed_is_put_back(self):
        tree = self.imagine("unequal")
        setting = tree / "sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages"
        setting.write_text("5\n")
        self.reserve("20G", "--sysroot", tree, "--method", "parallel", "--threads", 2)
        self.assertEqual(setting.read_text(), "5")
        # What a killed run left: the next one puts it back, or leaves what somebody wrote since.
        record = self.directory / "run/reserve.intent"
        for now, then in ("900", "4"), ("17", "17"):
            record.write_text('{"page_bytes": 2097152, "before_pages": 4, "borrowed_pages": 900}')
            setting.write_text(now)
            self.reserve("1G", "--sysroot", tree)
            self.assertEqual(setting.read_text(), then)
            self.assertFalse(record.exists())
        record.write_text("rubbish")
        done = self.reserve("30G", "--sysroot", tree, status=1)
        self.assertIn("reserve.intent", done.stderr)

    def test_floor(self):
        tree = self.imagine("unequal")
        before = self.pages(tree, 0) + self.pages(tree, 1)
        done = self.reserve("70G", "--sysroot", tree, "--floor", "30G", status=8)
        self.assertIn("memory floor", done.stderr)
        got = self.pages(tree, 0) + self.pages(tree, 1) - before
        self.assertLessEqual(got * PAGE, 80 * GIB - before * PAGE - 30 * GIB)
        done = self.reserve("70G", "--sysroot", tree, "--floor", "79G", status=3)
        tree = self.imagine("unequal")
        result = self.reserve_json("70G", "--sysroot", tree, "--floor", "30G", "--all-or-nothing",
                                   status=3)
        self.assertTrue(result["rolled_back"])
        self.assertEqual(self.pages(tree, 0) + self.pages(tree, 1), before)

    def test_method_follows_the_kernel(self):
        tree = self.imagine("eight-nodes")
        (tree / "proc/sys/kernel").mkdir(parents=True)
        (tree / "proc/sys/vm").mkdir()
        (tree / "boot").mkdir()
        (tree / "proc/sys/kernel/osrelease").write_text("6.1.0-57-amd64\n")
        config = tree / "boot/config-6.1.0-57-amd64"
        command_line = tree / "proc/cmdline"

        def method():
            return self.reserve_json("12T", "--sysroot", tree, "--dry-run")["method"]
        config.write_text("CONFIG_A=y\n# CONFIG_INIT_ON_ALLOC_DEFAULT_ON is not set\n")
        self.assertEqual(method(), "plain")
        config.write_text("CONFIG_A=y\nCONFIG_INIT_ON_ALLOC_DEFAULT_ON=y\n")
        self.assertEqual(method(), "parallel")
        config.rename(config.parent / "away")
        elsewhere = tree / "lib/modules/6.1.0-57-amd64/config"
        elsewhere.parent.mkdir(parents=True)
        elsewhere.write_text("# CONFIG_INIT_ON_ALLOC_DEFAULT_ON is not set\n")
        self.assertEqual(method(), "plain")
        elsewhere.write_text("CONFIG_INIT_ON_ALLOC_DEFAULT_ON=y\n")
        self.assertEqual(method(), "parallel")
        elsewhere.unlink()
        log = tree / "var/log/dmesg"
        log.parent.mkdir(parents=True)
        for word, chosen in ("off", "plain"), ("on", "parallel"):
            log.write_text(f"[    0.1] mem auto-init: stack:all(zero), heap alloc:{word}, heap free:off\n")
            self.assertEqual(method(), chosen)
        command_line.write_text("quiet init_on_alloc=1 init_on_alloc=0\n")
        self.assertEqual(method(), "plain")
        command_line.write_text("init_on_alloc=0 init_on_alloc=on ro\n")
        self.assertEqual(method(), "parallel")
        (tree / "proc/sys/vm/hugetlb_optimize_vmemmap").write_text("1\n")
        self.assertEqual(method(), "plain")

    def test_boot_arguments(self):
        tree = self.imagine("eight-nodes")
        (tree / "proc/sys/kernel").mkdir(parents=True)
        release = tree / "proc/sys/kernel/osrelease"
        release.write_text("6.12.1\n")

        def arguments(*more):
            return self.prezero("boot-args", *more, "--sysroot", tree).stdout.strip()
        self.assertEqual(arguments("12T"), "hugepagesz=2M hugepages="
                         + ",".join(f"{node}:786432" for node in range(8)))
        release.write_text("6.15.0-rc1\n")
        self.assertTrue(arguments("12T").endswith(" hugepage_alloc_threads=128"))
        self.assertTrue(arguments("12T", "--threads", 48).endswith(" hugepage_alloc_threads=48"))
        sweep = tree / "sweep.json"
        sweep.write_text('{"figures": {"recommended_threads": 24}}')
        self.assertTrue(arguments("12T", "--sweep", sweep).endswith(" hugepage_alloc_threads=24"))
        for bad in ('{"figures": {"recommended_threads": 0}}', '{"figures": 1}', "[", "[]",
                    '{"figures": {"recommended_threads": 100000}}'):
            sweep.write_text(bad)
            done = self.prezero("boot-args", "12T", "--sweep", sweep, "--sysroot", tree, status=2)
            self.assertIn(f"--sweep '{sweep}': ", done.stderr)
            self.assertIn("prezero bench --threads-sweep --json", done.stderr)
        self.prezero("boot-args", "12T", "--sweep", sweep, "--threads", 2, "--sysroot", tree,
                     status=2)
        self.assertEqual(arguments("1T", "--page", "1G", "--split", "2=25%,1=75%"),
                         "hugepagesz=1G hugepages=1:768,2:256")
        one = self.imagine("no-numa")
        self.assertEqual(self.prezero("boot-args", "2G", "--sysroot", one).stdout,
                         "hugepagesz=2M hugepages=1024\n")

    def test_boot_drop_in(self):
        tree = self.imagine("unequal")
        drop_in = tree / "etc/default/grub.d/prezero.cfg"
        command = ("boot-args", "4G", "--node", "1", "--sysroot", tree, "--grub")
        self.prezero(*command, "--yes", status=2)
        (tree / "etc/default").mkdir(parents=True)
        self.prezero(*command, input="n\n", status=2)
        self.assertFalse(drop_in.exists())
        self.prezero(*command, input="y\n")
        self.assertIn('"$GRUB_CMDLINE_LINUX_DEFAULT hugepagesz=2M hugepages=1:2048"',
                      drop_in.read_text())

    def test_boot_log(self):
        tree = self.imagine("unequal")
        (tree / "var/log").mkdir(parents=True)
        (tree / "var/log/dmesg").write_text(
            "[    0.1] Booting\n[    1.2] HugeTLB: allocation took 120ms with "
            "hugepage_allocation_threads=8\n[    2.0] else\n")
        lines = json.loads(self.prezero("boot-args", "--log", "--json", "--sysroot", tree).stdout)
        self.assertEqual(lines, ["HugeTLB: allocation took 120ms with "
                                 "hugepage_allocation_threads=8"])

    def test_a_cpuset_keeps_away(self):
        tree = self.imagine("confined")  # two nodes of 16G; the cpuset has node 1
        done = self.reserve("1G", "--node", 0, "--sysroot", tree, status=3)
        self.assertIn("cpuset", done.stderr)
        done = self.reserve("20G", "--sysroot", tree, status=3)
        self.assertIn("cgroup", done.stderr)
        self.assertIn("--page", self.reserve("1G", "--page", "64K", "--sysroot", tree,
                                             status=2).stderr)

    def test_bad_input(self):
        for arguments in (("3M",), ("1G", "--split", "0=50%"), ("1G", "--split", "0=1G,0=0"),
                          ("1G", "--split", "0=50%,1=512M"), ("1G", "--split", "0=101%"),
                          ("1G", "--split", "0=1G", "2G"), ("1G", "--node", "x"), ("x",), (),
                          ("1G", "--split", ""), ("1G", "--split", "0"), ("1G", "--page", "3M"),
                          ("1G", "--threads", "0"), ("1G", "--cpus", ""), ("1G", "--node", "77"),
                          ("1G", "--method", "fast"), ("1G", "--deadline", "0")):
            with self.subTest(arguments=arguments):
                done = self.reserve(*arguments, "--dry-run", status=2)
                self.assertNotEqual(done.stderr, "")
                self.assertEqual(done.stdout, "")


class Host(RunsReserve, SystemTest):
    def setUp(self):
        super().setUp()
        if not host_has_page(PAGE):
            self.skipTest("no 2M pages on this machine")
        self.before = hugetlb_count(PAGE, "nr_hugepages")
        self.addCleanup(self.put_back)

    def put_back(self):
        path = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
        pathlib.Path(path).write_text(str(self.before))

    def target(self, pages):
        return str((self.before + pages) * PAGE)

    def test_result_stays(self):
        for method in "parallel", "plain":
            with self.subTest(method=method):
                result = self.reserve_json(self.target(128), "--node", 0, "--threads", 2,
                                           "--method", method)
                self.assertTrue(result["full"])
                self.assertEqual(result["pages"], 128)
                self.assertEqual(hugetlb_count(PAGE, "nr_hugepages"), self.before + 128)
                self.assertEqual(hugetlb_count(PAGE), self.before + 128)
                self.assertEqual(hugetlb_count(PAGE, "surplus_hugepages"), 0)
                self.assertEqual(OVERCOMMIT.read_text().strip(), "0")
                self.assertFalse((self.directory / "run/reserve.intent").exists())
                # Once more: nothing to do.
                self.assertEqual(self.reserve_json(self.target(128), "--node", 0)["pages"], 0)
                self.reserve(self.target(0), "--node", 0, "--shrink")
                self.assertEqual(hugetlb_count(PAGE, "nr_hugepages"), self.before)

    def test_interrupted_says_what_it_has(self):
        for delay_s in 0.0, 0.01, 0.03, 0.1:
            command = [PREZERO, "reserve", self.target(256), "--json", "--threads", "2",
                       "--method", "parallel", "--runtime-dir", str(self.directory / "run")]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       text=True)
            time.sleep(delay_s)
            process.send_signal(signal.SIGINT)
            out, error = process.communicate(timeout=PATIENCE_S)
            have = hugetlb_count(PAGE, "nr_hugepages") - self.before
            if process.returncode == -signal.SIGINT:  # before it could catch it
                self.assertEqual(have, 0)
            else:
                self.assertEqual(json.loads(out)["pages"], have, error)
                self.assertEqual(process.returncode, 0 if have == 256 else 8 if have else 3, error)
            self.assertEqual(OVERCOMMIT.read_text().strip(), "0")
            self.put_back()

    def test_threads_sweep(self):
        done = self.prezero("bench", "--threads-sweep", "--bytes", "256M", "--pairs", 1, "--json")
        found = json.loads(done.stdout)
        self.assertEqual(found["threads"][0]["threads"], 1)
        self.assertEqual(len(found["sizes"]), 4)
        self.assertEqual([point["bytes"] // MIB for point in found["sizes"]], [32, 64, 128, 256])
        for point in found["threads"] + found["sizes"] + [found["grow_and_touch"]]:
            self.assertGreater(point["seconds"], 0)
            self.assertAlmostEqual(point["seconds"], point["reserve_s"] + point["zero_s"], 4)
        self.assertIn(found["figures"]["recommended_threads"],
                      [point["threads"] for point in found["threads"]])
        figures = found["figures"]
        names = {"reserve_over_plain_write", "reserve_over_plain_write_with_module"}
        null = {name for name in names if figures[name] is None}
        self.assertEqual(set(figures["reasons"]), null)
        self.assertEqual(len(null), 1)
        self.assertGreater(figures["ready_over_grow_and_touch"], 0)
        self.assertEqual(figures["two_threads_speedup"] is None, len(found["threads"]) < 2)
        self.assertEqual(hugetlb_count(PAGE, "nr_hugepages"), self.before)

    def test_an_unprivileged_user_is_told(self):
        done = run_as(65534, [PREZERO, "reserve", self.target(8), "--runtime-dir", "/tmp"])
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertIn("root", done.stderr)
        pathlib.Path("/tmp/reserve.lock").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
