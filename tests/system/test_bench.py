#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""prezero bench: every figure is there or says why not, and the host is as it was, however it ends."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import prezero_test
from prezero_test import (MIB, NODES, PREZERO, SystemTest, hugetlb_count, is_sanitized, run_as,
                          wait_until)

GUARD = pathlib.Path("/run/prezero-bench")
FIGURES = ("qemu_start_over_floor", "qemu_prealloc_over_ours", "handover_ms_per_gib_2M",
           "handover_ms_per_gib_1G", "fill_over_bare_populate", "fill_two_threads_speedup",
           "leases_per_second", "mlock_thp_cold_over_pool", "mlock_base_cold_over_pool")
# The smallest run of everything.
SMALL = ("--bytes=256M", "--pairs=1")
# A run that will not end by itself within the test.
LONG = ("--bytes=256M", "--pairs=256", "--case=handover")


def pages():
    return hugetlb_count(2 * MIB, "nr_hugepages")


def loans():
    record = GUARD / "borrowed"
    return record.exists() and record.read_text()


def processes_of(name):
    """Of programs that were started with the benchmark's runtime directory."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if name.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            pass
    return found


def children_of(pid):
    """Not from /proc/PID/task/PID/children, which few kernels have."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


class BenchTest(SystemTest):
    def setUp(self):
        super().setUp()
        self.before = pages()

    def bench(self, *arguments, status=0, **options):
        done = subprocess.run([PREZERO, "bench", *arguments], capture_output=True, text=True,
                              check=False, timeout=20 * prezero_test.PATIENCE_S, **options)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def start(self, *arguments):
        """A run under way, with pages borrowed and its daemon serving."""
        process = subprocess.Popen([PREZERO, "bench", *arguments], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        wait_until((GUARD / "run/socket").exists, "the private prezerod")
        self.assertTrue(loans())
        return process

    def check_host(self):
        self.assertEqual(pages(), self.before)
        self.assertFalse(GUARD.exists(), list(GUARD.rglob("*")))
        self.assertNotIn(str(GUARD), pathlib.Path("/proc/self/mounts").read_text())
        self.assertEqual(processes_of(str(GUARD)), [])

    def test_every_figure(self):
        with tempfile.TemporaryDirectory() as plots:
            done = self.bench("--json", *SMALL, "--plot", plots)
            report = json.loads(done.stdout)
            figures, reasons = report["figures"], report["reasons"]
            for name in FIGURES:
                self.assertIn(name, figures)
            for name, value in figures.items():
                if value is None:
                    self.assertTrue(reasons[name], name)
                else:
                    self.assertGreater(value, 0, name)
                    self.assertNotIn(name, reasons)
            measured = {name for name, value in figures.items() if value is not None}
            expected = {name for name in FIGURES if not name.endswith("_1G")}
            if not shutil.which("qemu-system-x86_64"):
                expected = {name for name in expected if not name.startswith("qemu")}
            # A sanitizer keeps the kernel from giving its program anonymous huge pages.
            if is_sanitized(PREZERO) and "transparent" in reasons.get("mlock_thp_cold_over_pool", ""):
                expected.discard("mlock_thp_cold_over_pool")
            self.assertLessEqual(expected, measured, reasons)
            for trial in report["trials"]:
                if "reason" not in trial:
                    self.assertTrue(0 < trial["min_s"] <= trial["median_s"] <= trial["max_s"], trial)
                self.assertTrue(trial["what"], trial)
            self.assertEqual([point["bytes"] for point in report["curve"]], [256 * MIB])
            if shutil.which("gnuplot"):
                names = sorted(path.name for path in pathlib.Path(plots).iterdir())
                self.assertEqual(names, ["qemu.png", "qemu.svg", "touch.png", "touch.svg"])
                self.assertFalse([n for n in report["notes"] if n.startswith("no plots")])
        self.check_host()

    def test_table_names_what_was_not_measured(self):
        done = self.bench("--case=qemu", *SMALL, env={**os.environ, "PATH": "/nonexistent"})
        self.assertRegex(done.stdout, r"(?m)^qemu_start_over_floor +- +no qemu-system-x86_64$")
        self.check_host()

    def test_case_that_was_not_asked_for(self):
        report = json.loads(self.bench("--json", "--case=handover", *SMALL).stdout)
        self.assertIsNone(report["figures"]["leases_per_second"])
        self.assertEqual(report["reasons"]["leases_per_second"], "not asked for: --case=leases")
        self.assertGreater(report["figures"]["handover_ms_per_gib_2M"], 0)

    def test_does_not_reserve_when_told(self):
        report = json.loads(self.bench("--json", "--no-reserve", "--case=handover", *SMALL).stdout)
        if hugetlb_count(2 * MIB) * 2 >= 256:
            self.skipTest("this host has free 2M pages")
        self.assertIsNone(report["figures"]["handover_ms_per_gib_2M"])
        self.assertIn("without growing", report["reasons"]["handover_ms_per_gib_2M"])

    def test_more_than_the_machine_has(self):
        report = json.loads(self.bench("--json", "--bytes=64T", "--pairs=1", "--case=handover").stdout)
        self.assertIsNone(report["figures"]["handover_ms_per_gib_2M"])
        self.assertIn("are needed", report["reasons"]["handover_ms_per_gib_2M"])
        self.check_host()

    def test_unprivileged(self):
        done = run_as(65534, [PREZERO, "bench", "--json", "--case=handover", "--case=leases",
                              "--case=mlock", *SMALL])
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        for name in ("leases_per_second", "mlock_base_cold_over_pool", "mlock_thp_cold_over_pool"):
            self.assertIsNone(report["figures"][name])
            self.assertIn("root", report["reasons"][name])

    def test_bad_usage(self):
        for arguments in (["--case=none"], ["--bytes=3"], ["--bytes=-1"], ["--bytes=300000001"],
                          ["--pairs=0"], ["--pairs=x"], ["--node=99"], ["--pairs=1000000"],
                          ["--what"], ["more"]):
            with self.subTest(arguments):
                done = self.bench(*arguments, status=2)
                self.assertEqual(done.stdout, "")
                self.assertTrue(done.stderr)
        self.check_host()

    def test_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number):
                process = self.start(*LONG)
                process.send_signal(number)
                self.assertEqual(process.wait(prezero_test.PATIENCE_S), 128 + number)
                self.check_host()

    def test_child_that_dies(self):
        """Whatever ends the part that measures, the part that guards puts back."""
        process = self.start(*LONG)
        child, = children_of(process.pid)
        os.kill(child, signal.SIGKILL)
        self.assertEqual(process.wait(prezero_test.PATIENCE_S), 128 + signal.SIGKILL)
        self.check_host()

    def test_kill_9_is_mended_by_the_next_run(self):
        process = self.start(*LONG)
        process.kill()
        process.wait()
        wait_until(lambda: not processes_of(str(GUARD)), "the end of all that it had started")
        self.assertTrue(loans())
        done = self.bench("--case=handover", *SMALL)
        self.assertIn("an earlier run was killed", done.stderr)
        self.check_host()

    def test_one_at_a_time(self):
        process = self.start(*LONG)
        done = self.bench(*LONG, status=1)
        self.assertIn("another one is running", done.stderr)
        process.terminate()
        process.wait(prezero_test.PATIENCE_S)
        self.check_host()

    def test_an_administrator_wins(self):
        process = self.start(*LONG)
        path = NODES / "node0/hugepages/hugepages-2048kB/nr_hugepages"
        path.write_text(str(pages() + 3))
        wanted = pages()
        process.terminate()
        _, errors = process.communicate(timeout=prezero_test.PATIENCE_S)
        self.addCleanup(path.write_text, str(self.before))
        self.assertEqual(pages(), wanted)
        self.assertIn("somebody else changed", errors)
        self.assertFalse(GUARD.exists())


if __name__ == "__main__":
    prezero_test.main()
