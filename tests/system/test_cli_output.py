#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""prezero status and list: what people and programs read, and the progress line."""

import json
import os
import signal
import threading

from cli_test import FAILED, CliTest, Terminal
from fake_daemon import MIB, fill, page_class, status
from prezero_test import PREZERO, main, wait_until

GIB = 1 << 30
ESCAPES = "vm\x1b[2J\x07\x9b\u202e\ud83d\udca9".encode("utf-16", "surrogatepass").decode("utf-16")


def segment(number, **members):
    return {"id": f"{number:016x}", "path": f"/run/prezero/2M/ready/0-{number:016x}", "page": "2M",
            "node": 0, "bytes": 8 * GIB, "state": "ready", "age_ms": 65000, **members}


class Status(CliTest):
    def big(self):
        """8 nodes of 2 TiB, 4 classes each, everything in use."""
        classes = [page_class(page, node, total_bytes=2 << 40, free_bytes=(2 << 40) - 12345 * MIB,
                              ready_bytes=1023 * GIB, segments_ready=123456,
                              filling_bytes=999 * GIB + 7 * MIB, segments_filling=4096,
                              lent_bytes=(1 << 40) + GIB, segments_lent=99999)
                   for node in range(8) for page in ("2M", "1G", "thp", "base")]
        fills = [fill(page, node, bytes_per_second=123_456_000_000, eta_ms=90061000)
                 for node in range(8) for page in ("2M", "1G", "thp", "base")]
        stocks = [{"name": "a-stock-with-a-name-of-31-chars", "page": "2M", "node": node,
                   "segment_bytes": 64 * GIB, "keep": 1000, "ready": 999, "filling": 1,
                   "short_of": reason}
                  for node, reason in enumerate(("class", "node", "multiple", "machine", "pages",
                                                 "leave_free", "floor", "cgroup", "thp", "limit"))]
        return status(classes=classes, fills=fills, stocks=stocks, total_bytes=16 << 40,
                      pinned=[{"page": "2M", "bytes": 3 * GIB}, {"page": "1G", "bytes": 0}])

    def test_header(self):
        out = self.prezero("status").out
        self.assertEqual(out.split("\n\n")[0].splitlines(), [
            "prezerod 9.9  pid 4711  up 3d02h  threads 8",
            "memory   total 24.0G  available 12.0G  floor 2.00G",
            "so far   takes 5  gives 4  refusals 1  filled 64.0G"])

    def test_big_machine_fits(self):
        self.fake.status = self.big()
        lines = self.prezero("status").out.splitlines()
        for line in lines:
            self.assertLessEqual(len(line), 100, line)
        self.assertEqual(sum("@" in line and "stock" not in line for line in lines), 32)

    def test_columns_line_up(self):
        self.fake.status = self.big()
        self.fake.status["classes"][5]["free_bytes"] = 0
        self.fake.status["fills"].pop(7)
        table = self.prezero("status").out.split("\n\n")[1].splitlines()
        self.assertEqual(len({len(line) for line in table}), 1, "\n".join(table))
        self.assertEqual(table[0].split(), ["CLASS", "TOTAL", "FREE", "READY", "#", "FILLING", "#",
                                            "LENT", "#", "GB/s", "ETA"])

    def test_class_row(self):
        self.fake.status = status(
            classes=[page_class("2M", 1, total_bytes=16 * GIB, free_bytes=4 * GIB,
                                ready_bytes=8 * GIB, segments_ready=2,
                                filling_bytes=2 * GIB, segments_filling=1,
                                lent_bytes=GIB, segments_lent=3), page_class("1G", 1)],
            fills=[fill("2M", 1), fill("2M", 1, eta_ms=61000), fill("2M", 0), fill("1G", 0)],
            zeroing=[fill("2M", 1), fill("2M", 0)])
        rows = [line.split() for line in self.prezero("status").out.splitlines()]
        [row] = [row for row in rows if row[:1] == ["2M@1"]]
        self.assertEqual(row, ["2M@1", "16.0G", "4.00G", "8.00G", "2", "2.00G", "1", "1.00G", "3",
                               "28.5", "1m01s"])
        [row] = [row for row in rows if row[:1] == ["1G@1"]]
        self.assertEqual(row, ["1G@1"] + ["-"] * 5)

    def test_short_stocks(self):
        self.fake.status = self.big()
        out = self.prezero("status").out
        for text in ("SHORT OF", "a-stock-with-a-name-of-31-chars", "64G", "nr_hugepages",
                     "leave_free=", "memory floor", "cgroup", "transparent huge pages", "limit",
                     "page size", "node", "whole pages", "machine"):
            self.assertIn(text, out)
        self.fake.status = status(stocks=[dict(self.big()["stocks"][0], short_of=None)])
        self.assertNotIn("SHORT", self.prezero("status").out)

    def test_pinned(self):
        self.fake.status = self.big()
        out = self.prezero("status").out
        self.assertRegex(out, r"pinned +3\S*G of 2M")
        self.assertNotIn("of 1G", out)

    def test_json_is_the_reply(self):
        for reply in (status(), self.big()):
            self.fake.status = reply
            self.assertEqual(self.json("status"), reply)

    def test_a_daemon_that_is_newer(self):
        self.fake.status = status(something_new={"a": [1, 2]})
        self.assertIn("9.9", self.prezero("status").out)

    def test_nothing_steers_the_terminal(self):
        self.fake.status = status(
            version=ESCAPES, classes=[page_class(ESCAPES, 0)],
            pinned=[{"page": ESCAPES, "bytes": 1}],
            stocks=[dict(self.big()["stocks"][0], name=ESCAPES, short_of=ESCAPES)])
        out = self.prezero("status").out
        for character in ("\x1b", "\x07", "\x9b", "\u202e"):
            self.assertNotIn(character, out)
        self.assertIn("\\x1b[2J\\x07\\xc2\\x9b", out)
        self.assertIn("\U0001f4a9", out)


class List(CliTest):
    def test_rows(self):
        self.fake.segments = [segment(1), segment(2, page="thp", node=3, state="filling"),
                              segment(3, state="lent", uid=0, name="vm7", bytes=2 * MIB),
                              segment(4, state="lent", uid=54321, name="n" * 64)]
        rows = [line.split() for line in self.prezero("list").out.splitlines()]
        self.assertEqual(rows[0], ["SEGMENT", "CLASS", "SIZE", "STATE", "AGE", "USER", "PATH"])
        self.assertEqual(rows[1], [f"{1:016x}", "2M@0", "8G", "ready", "1m05s", "-",
                                   self.fake.segments[0]["path"]])
        self.assertEqual(rows[2][1:5], ["thp@3", "8G", "filling", "1m05s"])
        self.assertEqual(rows[3][:6], ["vm7", "2M@0", "2M", "lent", "1m05s", "root"])
        self.assertEqual((rows[4][0], rows[4][5]), ("n" * 64, "54321"))

    def test_state_is_passed_on(self):
        self.prezero("list")
        for state in ("filling", "ready", "lent"):
            self.prezero("list", "--state", state)
        self.assertEqual([p.get("state") for p in self.fake.parameters_of("List")],
                         [None, "filling", "ready", "lent"])

    def test_nothing(self):
        self.assertEqual(self.prezero("list").out, "")
        self.assertEqual(self.json("list"), [])

    def test_json(self):
        self.fake.segments = [segment(i, name="a\"\\\n\x01é", state="lent", uid=i)
                              for i in range(100)]
        self.assertEqual(self.json("list"), self.fake.segments)
        lines = self.prezero("list", "--json").out.splitlines()
        self.assertEqual(len(lines), 102)

    def test_nothing_steers_the_terminal(self):
        self.fake.segments = [segment(1, name=ESCAPES, path="/" + ESCAPES, page=ESCAPES[:20])]
        out = self.prezero("list").out
        for character in ("\x1b", "\x07", "\x9b", "\u202e"):
            self.assertNotIn(character, out)

    def test_streams(self):
        """Lines come as the daemon sends them."""
        resume = threading.Event()
        self.addCleanup(resume.set)

        def slow(parameters):
            yield [segment(1)]
            resume.wait()
            yield [segment(2), segment(3)]
        self.fake.on_list = slow
        process = self.start("list")
        first = [process.stdout.readline() for _ in range(2)]
        self.assertTrue(first[1].startswith(f"{1:016x} "), first)
        resume.set()
        self.assertEqual(len(process.communicate()[0].splitlines()), 2)

    def test_breaks_off(self):
        """Half a listing is still one JSON value, and a failure."""
        self.fake.on_list = lambda parameters: [[segment(1)], [{"id": "not a segment"}]]
        process = self.prezero("list", "--json", status=FAILED)
        self.assertEqual(json.loads(process.out), [segment(1)])
        self.assertIn("does not speak", process.err)


class Progress(CliTest):
    """A line on the terminal while somebody waits, and only then."""

    def setUp(self):
        super().setUp()
        self.lend = threading.Event()
        self.addCleanup(self.lend.set)

        def slow_take(parameters):
            self.lend.wait()
            return self.fake.take(parameters)
        self.fake.on_take = slow_take
        self.fake.status = status(fills=[fill(total=4 * GIB), fill("2M", 0, 2 * GIB, 8 * GIB)])

    def test_on_a_terminal(self):
        for command in (("take", "8G"), ("run", "--memory", "8G", "--", "echo", "{memory}")):
            self.lend.clear()
            terminal = Terminal([PREZERO, *command], self.environment)
            output = terminal.read_until(b"9.5 GB/s")
            self.assertIn(b" 25%", output)
            self.assertIn(b"2M@0", output)
            self.lend.set()
            self.assertEqual(terminal.finish(), 0)
            last_line = terminal.output.rsplit(b"\r\x1b[K", 1)[1]
            self.assertRegex(last_line, rb"^/\S+\r\n$")

    def test_only_on_a_terminal(self):
        process = self.start("take", "8G")
        wait_until(lambda: self.fake.calls, "the call")
        threading.Timer(1, self.lend.set).start()
        self.assertEqual(process.communicate()[1], "")
        self.assertEqual(self.fake.parameters_of("Status"), [])

    def test_no_line_for_what_is_ready(self):
        self.lend.set()
        terminal = Terminal([PREZERO, "take", "8G"], self.environment)
        self.assertEqual(terminal.finish(), 0)
        self.assertNotIn(b"\x1b", terminal.output)

    def test_nothing_is_filled_yet(self):
        self.fake.status = status()
        terminal = Terminal([PREZERO, "take", "8G"], self.environment)
        terminal.read_until(b"waiting for 8G")
        self.lend.set()
        self.assertEqual(terminal.finish(), 0)

    def test_a_daemon_that_does_not_answer_status_delays_nobody(self):
        never = threading.Event()
        self.addCleanup(never.set)

        def hang(parameters):
            never.wait()
            return self.fake.status
        self.fake.on_status = hang
        terminal = Terminal([PREZERO, "take", "8G"], self.environment)
        wait_until(lambda: self.fake.parameters_of("Status"), "the question")
        self.lend.set()
        self.assertEqual(terminal.finish(), 0)

    def test_interrupt(self):
        terminal = Terminal([PREZERO, "take", "8G"], self.environment)
        terminal.read_until(b"GB/s")
        terminal.type(b"\x03")
        self.assertEqual(os.WTERMSIG(terminal.finish()), signal.SIGINT)

    def test_killed(self):
        """The one that draws ends with the one that waits."""
        terminal = Terminal([PREZERO, "take", "8G"], self.environment)
        terminal.read_until(b"GB/s")
        os.kill(terminal.pid, signal.SIGKILL)
        self.assertEqual(os.WTERMSIG(terminal.finish()), signal.SIGKILL)
        def asked():
            return len(self.fake.parameters_of("Status"))
        before = asked()
        self.assertFalse(threading.Event().wait(0.6))
        self.assertLessEqual(asked(), before + 1)

    def test_dumb_terminal(self):
        self.environment["TERM"] = "dumb"
        terminal = Terminal([PREZERO, "take", "8G"], self.environment)
        threading.Timer(0.7, self.lend.set).start()
        self.assertEqual(terminal.finish(), 0)
        self.assertNotIn(b"\x1b", terminal.output)


if __name__ == "__main__":
    main()
