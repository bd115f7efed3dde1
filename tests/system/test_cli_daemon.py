#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""prezero against prezerod, on the machine's own memory."""

import grp
import os
import pathlib
import signal
import subprocess
import sys

from cli_test import (DONE, INPUT, NO_DAEMON, NO_LEASE, NOT_PERMITTED, REFUSED, TIMED_OUT,
                      RunsPrezero)
from prezero_test import (MIB, PREZERO, PREZEROD, SystemTest, dirty, first_nonzero, main, run_as,
                          wait_until)

PAGE_2M = 2 * MIB
USER, OTHER_USER = 65534, 54321
GROUP = grp.getgrgid(USER).gr_name
CONFIG = f"""
[daemon]
group = {GROUP}

[stock small]
page = 2M
segment = 8M
keep = 2

[stock large]
page = 2M
segment = 64M
keep = 1

[stock huge]
page = thp
segment = 8M
keep = 1

[stock plain]
page = base
segment = 8M
keep = 1
"""
# Reads all of it and says whether it is zero, then makes it anything but.
SOIL = """
import mmap, os, sys
memory = mmap.mmap(int(os.environ['PREZERO_FD']), 0)
print('zero' if not any(memory[:]) else 'dirty', len(memory), flush=True)
memory[:] = b'\\xa5' * len(memory)
sys.stdin.readline()
"""


class RealDaemon(RunsPrezero, SystemTest):
    def setUp(self):
        super().setUp()
        self.grow(PAGE_2M, 100)
        self.started = self.daemon(CONFIG)
        self.started.wait_ready()
        self.use_socket(self.started.socket_path)

    def user(self, *arguments, user=USER):
        return run_as(user, [PREZERO, *arguments], env=self.environment)

    def listed(self, state="lent"):
        return self.json("list", "--state", state)

    def wait_no_lease(self):
        wait_until(lambda: not self.listed(), lambda: f"the end of {self.listed()}")

    def test_status(self):
        status = self.json("status")
        out = self.prezero("status").out
        self.assertIn(f"pid {self.started.process.pid} ", out)
        for page_class in status["classes"]:
            self.assertIn(f"{page_class['page']}@{page_class['node']} ", out)
        [row] = [line.split() for line in out.splitlines() if line.startswith("2M@0 ")]
        self.assertEqual(row[3:5], ["80.0M", "3"])
        self.assertNotIn("SHORT", out)
        self.assertLessEqual(max(map(len, out.splitlines())), 100)

    def test_short_stock(self):
        self.started.configure(CONFIG + "[stock toomuch]\npage = 2M\nsegment = 1G\nkeep = 9\n")
        self.started.reload()
        wait_until(lambda: "toomuch" in self.prezero("status").out, "the short stock")
        self.assertRegex(self.prezero("status").out, r"toomuch +2M@any +1G +9 .*nr_hugepages")

    def test_list(self):
        ready = self.listed("ready")
        self.assertEqual(len(ready), 5)
        self.assertEqual({s["page"] for s in ready}, {"2M", "thp", "base"})
        self.assertEqual(len(self.prezero("list").out.splitlines()), 6)
        self.assertEqual(self.json("list", "--state", "filling"), [])

    def test_take_and_give(self):
        for page, name_of_lease in (("2M", "name"), ("thp", "id"), ("base", "path")):
            with self.subTest(page=page):
                lease = self.json("take", "8M", "--page", page, "--name", "vm7")
                self.assertEqual((lease["page"], lease["bytes"], lease["filling"]),
                                 (page, 8 * MIB, False))
                fd = os.open(lease["path"], os.O_RDWR)
                self.assertIsNone(first_nonzero(fd, 8 * MIB))
                dirty(fd, 8 * MIB)
                os.close(fd)
                [segment] = self.listed()
                self.assertEqual({k: segment[k] for k in ("id", "name", "path", "uid", "state")},
                                 {"id": lease["id"], "name": "vm7", "path": lease["path"], "uid": 0,
                                  "state": "lent"})
                self.fails(INPUT, "take", "8M", "--page", page, "--name", "vm7", says="vm7")
                self.prezero("give", lease[name_of_lease])
                self.assertEqual(self.listed(), [])
                self.fails(NO_LEASE, "give", lease[name_of_lease], says=lease[name_of_lease])

    def test_take_prints_a_path_that_works(self):
        path = self.prezero("take", "8M").out.strip()
        self.assertEqual(os.path.getsize(path), 8 * MIB)
        self.prezero("give", path)
        self.assertFalse(os.path.exists(path))

    def test_bad_requests(self):
        takes = self.json("status")["takes"]
        for arguments, status, says in (
                (("take", "3M", "--page", "2M"), INPUT, "3M"),
                (("take", "8M", "--page", "3M"), INPUT, "3M"),
                (("take", "8M", "--page", "16G"), INPUT, "16G"),
                (("take", "8M", "--page", ""), INPUT, ""),
                (("take", "8M", "--page", "huge"), INPUT, "huge"),
                (("take", "8M", "--node", "63"), INPUT, "63"),
                (("take", "8M", "--node", "4096"), INPUT, "4096"),
                (("take", "8M", "--node", "2147483647"), INPUT, "2147483647"),
                (("take", "1", "--page", "base"), INPUT, ""),
                (("take", "4095P", "--page", "2M"), REFUSED, "2M"),
                (("take", "9223372036852678656", "--page", "2M"), REFUSED, "2M"),
                (("take", "8T", "--page", "thp"), REFUSED, "thp"),
                (("take", "8T", "--page", "base"), REFUSED, "base"),
                (("take", "4G", "--page", "2M", "--wait", "0"), REFUSED, "2M"),
                (("take", "8M", "--name", ""), INPUT, "name"),
                (("take", "8M", "--name", "../x"), INPUT, "name"),
                (("take", "8M", "--name", ".hidden"), INPUT, "name"),
                (("take", "8M", "--name", "a b"), INPUT, "name"),
                (("take", "8M", "--name", "x" * 65), INPUT, "name"),
                (("take", "8M", "--name", "\x1b[2J"), INPUT, "name"),
                (("give", "nobody"), NO_LEASE, "nobody"),
                (("give", "/etc/passwd"), NO_LEASE, "passwd"),
                (("give", "0" * 16), NO_LEASE, "0" * 16),
                (("give", "x" * 5000), INPUT, "out of bounds")):
            with self.subTest(arguments=str(arguments)[:80]):
                self.assertNotIn("\x1b", self.fails(status, *arguments, says=says))
        self.assertEqual(self.listed(), [])
        self.assertEqual(self.json("status")["takes"], takes)

    def test_refusal_says_what_would_help(self):
        error = self.json("take", "16G", "--page", "2M", status=REFUSED)["error"]
        reply = error["reply"]["parameters"]
        self.assertEqual(reply["page"], "2M")
        self.assertGreater(reply["need_bytes"], reply["have_bytes"])
        self.assertEqual(error["message"].count(reply["fix"]), 1)

    def test_limit(self):
        self.started.configure(CONFIG + f"[limits]\nuser.{USER} = 12M\n")
        self.started.reload()
        self.started.wait_log("read anew")
        done = self.user("take", "8M", "--name", "first")
        self.assertEqual(done.returncode, DONE, done.stderr)
        done = self.user("take", "8M")
        self.assertEqual(done.returncode, NOT_PERMITTED, done.stderr)
        self.assertIn("the user's limit: have 4.00M, need 8.00M", done.stderr)
        self.assertEqual(self.user("give", "first").returncode, DONE)
        self.assertEqual(self.user("run", "--memory", "8M", "--", "true").returncode, DONE)

    def test_other_users(self):
        done = self.user("status", user=OTHER_USER)
        self.assertEqual(done.returncode, NOT_PERMITTED, done.stderr)
        self.prezero("take", "8M", "--name", "mine")
        done = self.user("give", "mine")
        self.assertEqual(done.returncode, NOT_PERMITTED, done.stderr)
        path = self.user("take", "8M", "--name", "theirs").stdout.strip()
        self.assertEqual(os.stat(path).st_uid, USER)
        done = run_as(OTHER_USER, ["cat", path])
        self.assertNotEqual(done.returncode, 0)
        self.prezero("give", "theirs")
        self.prezero("give", "mine")

    def test_give_in_use(self):
        path = self.prezero("take", "8M", "--name", "busy").out.strip()
        with open(path, "rb") as file:
            self.fails(TIMED_OUT, "give", "busy", says=("busy", f"pid {os.getpid()}"))
            self.assertEqual(os.fstat(file.fileno()).st_size, 8 * MIB)
        self.wait_no_lease()

    def test_give_waits(self):
        path = self.prezero("take", "8M", "--name", "busy").out.strip()
        with open(path, "rb"):
            self.fails(TIMED_OUT, "give", "busy", "--wait", "100ms", says="busy")
            giving = self.start("give", path, "--wait", "30s")
            self.assertIsNone(giving.poll())
        self.assertIn(giving.wait(30), (DONE, NO_LEASE), giving.communicate())

    # run

    def soil(self, *options, **more):
        process = self.start("run", *options, "--", sys.executable, "-c", SOIL,
                             stdin=subprocess.PIPE, **more)
        process.said = process.stdout.readline().split()
        if not process.said:
            self.fail(process.communicate()[1])
        return process

    def test_run_gets_zeros_however_often(self):
        """Every run soils all of its memory; every next one finds zeros."""
        for page in ("2M", "thp", "base"):
            for _ in range(5):
                process = self.soil("--memory", "8M", "--page", page)
                self.assertEqual(process.said, ["zero", str(8 * MIB)])
                self.assertEqual(len(self.listed()), 1)
                process.communicate("\n")
                self.assertEqual(process.returncode, 0)
                self.wait_no_lease()

    def test_run_is_killed(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            process = self.soil("--memory", "8M", "--page", "2M")
            self.assertEqual(process.said[0], "zero")
            process.send_signal(number)
            process.communicate()
            self.wait_no_lease()

    def test_run_maps_huge_pages(self):
        script = ("import mmap, os, re\n"
                  "m = mmap.mmap(int(os.environ['PREZERO_FD']), 0)\n"
                  "text = open('/proc/self/smaps').read()\n"
                  "part = text[text.index(os.environ['PREZERO_MEMORY']):]\n"
                  "print(re.search('KernelPageSize: +([0-9]+) kB', part).group(1))\n")
        out = self.prezero("run", "--memory", "8M", "--page", "2M", "--", sys.executable, "-c",
                           script).out
        self.assertEqual(out, "2048\n")
        self.wait_no_lease()

    def test_run_several(self):
        out = self.prezero("run", "--memory", "8M", "--page", "2M", "--memory", "8M", "--page", "thp",
                           "--memory", "8M", "--page", "base", "--", "stat", "-c", "%s", "{memory}",
                           "{memory2}", "{memory3}").out
        self.assertEqual(out, f"{8 * MIB}\n" * 3)
        self.wait_no_lease()

    def test_run_as_an_unprivileged_user(self):
        done = run_as(USER, [PREZERO, "run", "--memory", "8M", "--", "sh", "-c",
                             "id -u; stat -c %u:%s {memory}; exec 9<>/proc/self/fd/{fd}; echo $?"],
                      env=self.environment)
        self.assertEqual(done.stdout, f"{USER}\n{USER}:{8 * MIB}\n0\n", done.stderr)
        self.wait_no_lease()

    def test_run_outlives_the_daemon(self):
        process = self.soil("--memory", "8M", "--page", "2M")
        [before] = self.listed()
        self.started.kill()
        self.fails(NO_DAEMON, "status", says="no daemon")
        self.assertIsNone(process.poll())
        self.started.start()
        [after] = self.listed()
        self.assertEqual(after["path"], before["path"])
        process.communicate("\n")
        self.assertEqual(process.returncode, 0)
        self.wait_no_lease()

    def test_run_of_what_is_not_ready_waits_for_a_fill(self):
        process = self.soil("--memory", "24M", "--page", "thp")
        self.assertEqual(process.said, ["zero", str(24 * MIB)])
        process.communicate("\n")
        self.wait_no_lease()

    def test_nothing_is_left_where_take_cannot_tell(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            process = self.start("take", "8M", stdout=full)
            process.communicate()
        self.assertEqual(self.listed(), [])
        self.assertEqual(list(pathlib.Path(self.started.runtime).glob("*/lent/*")), [])

    def test_stopped_daemon(self):
        self.started.stop()
        for command in (("status",), ("list",), ("take", "8M"), ("give", "x")):
            self.fails(NO_DAEMON, *command, says="systemctl start prezerod")

    def test_release_is_told(self):
        """What --release gives back shows as gone after the next start."""
        self.started.stop()
        released = subprocess.run([PREZEROD, "--runtime-dir", str(self.started.runtime), "--config",
                                   str(self.started.config_file), "--release"], check=False)
        self.assertEqual(released.returncode, 0)
        self.started.configure("")
        self.started.start()
        self.assertEqual(self.json("list"), [])


if __name__ == "__main__":
    main()
