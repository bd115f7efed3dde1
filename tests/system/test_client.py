#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""libprezero against the real daemon: a program in C (client_probe) that takes, maps and loses it."""

import errno
import json
import os
import pathlib
import shutil
import subprocess
import time

from prezero_test import BUILD, MIB, PATIENCE_S, SystemTest, main, run_as, wait_until

PROBE = str(BUILD / "tests" / "system" / "client_probe")
PAGE = 2 * MIB
USER = 12345


def stock(name, page, segment, keep):
    return f"[stock {name}]\npage = {page}\nsegment = {segment}\nkeep = {keep}\n"


class ClientTest(SystemTest):
    def environment(self, daemon):
        return dict(os.environ, PREZERO_SOCKET=daemon.socket_path)

    def probe(self, daemon, *arguments):
        done = subprocess.run([PROBE, *map(str, arguments)], env=self.environment(daemon),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0, f"{arguments}: {done.stderr}\n{daemon.log()}")
        return json.loads(done.stdout), done.stderr.strip()

    def hold(self, daemon, *arguments):
        """A probe that holds its mapping until its input is closed; returns it and what it said."""
        process = subprocess.Popen([PROBE, *map(str, arguments)], env=self.environment(daemon),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        line = process.stdout.readline()
        self.assertTrue(line, daemon.log())
        return process, json.loads(line)

    def let_go(self, daemon, process):
        process.stdin.close()
        self.assertEqual(process.wait(PATIENCE_S), 0)
        with daemon.connect() as client:
            wait_until(lambda: not client.list("lent"), "the leases to end")


class Mapping(ClientTest):
    def check(self, page, page_bytes, page_kb):
        daemon = self.daemon(stock("a", page, "64M", 1))
        daemon.wait_ready()
        process, said = self.hold(daemon, "map", 64 * MIB, page, -1)
        self.assertEqual((said["r"], said["segments"], said["page_kb"]), (0, 1, page_kb))
        self.assertEqual(said["address"] % page_bytes, 0)
        if page == "thp":
            self.assertEqual(said["pmd_kb"], 64 << 10)
        # Held by the mapping alone, also while the daemon is killed and started again.
        daemon.kill()
        daemon.start()
        with daemon.connect() as client:
            [lease] = client.list("lent")
            self.assertEqual(lease["bytes"], 64 * MIB)
        self.let_go(daemon, process)
        daemon.wait_ready()

    def test_2m(self):
        self.grow(PAGE, 72)
        self.check("2M", PAGE, 2048)

    def test_thp(self):
        self.check("thp", PAGE, 4)

    def test_base(self):
        self.check("base", 4096, 4)

    def test_of_what_is_ready(self):
        """No segment is large enough, all together are: one mapping of several."""
        self.grow(PAGE, 16)
        daemon = self.daemon(stock("a", "2M", "8M", 4))
        daemon.wait_ready()
        process, said = self.hold(daemon, "map", 32 * MIB, "2M", 0)
        self.assertEqual((said["r"], said["segments"]), (0, 4), daemon.log())
        with daemon.connect() as client:
            self.assertEqual(len(client.list("lent")), 4)
        self.let_go(daemon, process)

    def test_all_or_nothing(self):
        self.grow(PAGE, 16)
        daemon = self.daemon(stock("a", "2M", "8M", 4))
        daemon.wait_ready()
        said, sentence = self.probe(daemon, "map", 34 * MIB, "2M", 0)
        self.assertIn(said["r"], (-errno.ENOMEM, -errno.ETIMEDOUT))
        self.assertTrue(sentence)
        with daemon.connect() as client:
            self.assertEqual(client.list("lent"), [])

    def test_killed_consumer_leaves_nothing(self):
        self.grow(PAGE, 16)
        daemon = self.daemon(stock("a", "2M", "8M", 2))
        for _ in range(5):
            daemon.wait_ready()
            process, said = self.hold(daemon, "map", 8 * MIB, "2M", -1)
            self.assertEqual(said["r"], 0)
            process.kill()
            process.wait()
        with daemon.connect() as client:
            wait_until(lambda: not client.list("lent"), "the leases to end")
        daemon.wait_ready()


class Survival(ClientTest):
    def test_storm_over_killed_daemons(self):
        """Threads on one connection, the daemon killed at any moment: a call is lost, never a page."""
        self.grow(PAGE, 32)
        daemon = self.daemon(stock("a", "2M", "4M", 4))
        daemon.wait_ready()
        process = subprocess.Popen([PROBE, "storm", str(4 * MIB), "2M", "6"],
                                   env=self.environment(daemon), stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        kills = 0
        while process.poll() is None:
            time.sleep(0.1 + 0.07 * (kills % 5))
            daemon.kill()
            daemon.start()
            kills += 1
        self.assertEqual(process.returncode, 0, daemon.log())
        said = json.loads(process.stdout.read())
        self.assertGreater(kills, 3)
        self.assertGreater(said["taken"], kills, f"{kills} kills: {said}")
        with daemon.connect() as client:
            wait_until(lambda: not client.list("lent"), "the leases to end")


class Answers(ClientTest):
    def assert_answer(self, daemon, expected, fragment, *arguments):
        r, sentence = self.probe(daemon, *arguments)
        self.assertEqual(r, -expected, f"{arguments}: {sentence}")
        self.assertIn(fragment, sentence)

    def test_errors_and_their_sentences(self):
        self.grow(PAGE, 8)
        daemon = self.daemon("[daemon]\ngroup = root\n")
        self.assert_answer(daemon, errno.ENODEV, "no such page size",
                           "take", PAGE, "3M", -1, "-", -1)
        self.assert_answer(daemon, errno.ENODEV, "no such node", "take", PAGE, "2M", 63, "-", -1)
        self.assert_answer(daemon, errno.EINVAL, "multiple", "take", PAGE + 4096, "2M", -1, "-", -1)
        self.assert_answer(daemon, errno.EINVAL, "bytes", "take", 0, "2M", -1, "-", -1)
        self.assert_answer(daemon, errno.EINVAL, "name", "take", PAGE, "2M", -1, "../x", -1)
        self.assert_answer(daemon, errno.ENOMEM, "have", "take", 1 << 45, "2M", -1, "-", -1)
        self.assert_answer(daemon, errno.ETIMEDOUT, "", "take", PAGE, "2M", -1, "-", 0)
        self.assert_answer(daemon, errno.ENOENT, "prezero list", "give", "nobody", 0)

    def test_named_leases(self):
        self.grow(PAGE, 8)
        daemon = self.daemon()
        self.assertEqual(self.probe(daemon, "take", PAGE, "2M", -1, "vm7", -1)[0], 0)
        self.assert_answer(daemon, errno.EEXIST, "vm7 is taken", "take", PAGE, "2M", -1, "vm7", -1)
        with daemon.connect() as client:
            [lease] = client.list("lent")
        with open(lease["path"], "r+b"):
            self.assertEqual(self.probe(daemon, "give", "vm7", 0)[0], -errno.EBUSY)
        with daemon.connect() as client:
            wait_until(lambda: not client.list("lent"), "the lease to end")
        for by in ("id", "path", "name"):
            self.assertEqual(self.probe(daemon, "take", PAGE, "2M", -1, "vm8", -1)[0], 0)
            with daemon.connect() as client:
                [lease] = client.list("lent")
            self.assertEqual(self.probe(daemon, "give", lease[by], -1)[0], 0)

    def test_another_users_lease(self):
        self.grow(PAGE, 8)
        daemon = self.daemon()
        os.chmod(daemon.socket_path, 0o666)
        self.assertEqual(self.probe(daemon, "take", PAGE, "2M", -1, "vm7", -1)[0], 0)
        # The build folder may be out of another user's reach.
        program = shutil.copy(PROBE, daemon.directory)
        done = run_as(USER, [program, "give", "vm7", "0"], env=self.environment(daemon))
        self.assertEqual((done.returncode, done.stdout.strip()), (0, str(-errno.EPERM)), done.stderr)
        self.assertIn("belongs to user 0", done.stderr)
        self.assertEqual(self.probe(daemon, "give", "vm7", 0)[0], 0)

    def test_manual_example(self):
        self.grow(PAGE, 40)
        daemon = self.daemon()
        example = str(BUILD / "tests" / "system" / "manual_example")
        done = subprocess.run([example], env=self.environment(daemon), capture_output=True, text=True,
                              check=False, timeout=PATIENCE_S)
        self.assertEqual((done.returncode, done.stdout), (0, "67108864 bytes from the pool\n"),
                         done.stderr)


if __name__ == "__main__":
    main()
