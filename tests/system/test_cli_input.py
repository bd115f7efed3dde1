#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""prezero: every exit status, every bad input, and daemons that misbehave."""

import os
import signal
import socket
import threading

from cli_test import (CliTest, FAILED, INPUT, NO_DAEMON, NO_LEASE, NOT_PERMITTED, REFUSED,
                      RUN_FAILED, TIMED_OUT)
from fake_daemon import Answer, refusal
from prezero_test import GIB, MIB, PREZERO, main, run_as, wait_until


class Usage(CliTest):
    """What is wrong with the command line alone never reaches the daemon."""

    def tearDown(self):
        self.assertEqual(self.fake.calls, [])

    def test_commands(self):
        self.fails(INPUT, says="command is missing")
        self.fails(INPUT, "frobnicate", says="no command 'frobnicate'")
        self.fails(INPUT, "", says="no command ''")
        self.fails(INPUT, "--frobnicate", says="--frobnicate")
        for command in ("status", "list"):
            self.fails(INPUT, command, "something", says="takes no arguments")
            self.fails(INPUT, command, "--frobnicate", says="--frobnicate")
            self.fails(INPUT, command, "--socket", says="--socket")
            self.fails(INPUT, command, "--socket", "", says="path is empty")
        self.fails(INPUT, "give", says="LEASE is missing")
        self.fails(INPUT, "give", "", says="LEASE is empty")
        self.fails(INPUT, "give", "one", "two", says="one LEASE at a time: 'two'")
        self.fails(INPUT, "take", says="SIZE is missing")
        self.fails(INPUT, "take", "1G", "2G", says="'2G'")
        self.fails(INPUT, "list", "--state", "gone", says="'gone'")

    BAD_SIZES = ("", "-1", "-2M", "2X", "M", "2MM", " 2M", "2M ", "0x10", "1e9", "+2M", "2,5G",
                 "0.3", "nan", "inf", "1\n", "٢M")
    HUGE_SIZES = ("18446744073709551616", "18446744073709551615", "9223372036854775808", "16384P",
                  "9" * 400, "99999999999T")

    def test_sizes(self):
        for command, status, option in (("take", INPUT, ()), ("run", RUN_FAILED, ("--memory",))):
            end = ("--", "true") if command == "run" else ()
            for text in self.BAD_SIZES:
                with self.subTest(command=command, size=text):
                    dashes = ("--",) if command == "take" else ()
                    self.fails(status, command, *option, *dashes, text, *end, says="not a size")
            for text in self.HUGE_SIZES:
                with self.subTest(command=command, size=text):
                    self.fails(status, command, *option, text, *end, says="more than any machine")
            for text in ("0", "0M", "0.0G"):
                with self.subTest(command=command, size=text):
                    self.fails(status, command, *option, text, *end, says="nothing to take")

    def test_nodes(self):
        for text in ("", "-1", "x", "0-1", "1.5", "2147483648", "99999999999999999999", "ANY"):
            with self.subTest(node=text):
                self.fails(INPUT, "take", "2M", "--node", text, says=f"'{text}'")

    def test_waits(self):
        for text in ("", "-1", "soon", "10y", "99999999999999999999s"):
            with self.subTest(wait=text):
                self.fails(INPUT, "take", "2M", "--wait", text, says=f"'{text}'")
                self.fails(INPUT, "give", "x", "--wait", text, says=f"'{text}'")

    def test_run(self):
        self.fails(RUN_FAILED, "run", says="--memory is missing")
        self.fails(RUN_FAILED, "run", "--memory", "2M", says="COMMAND is missing")
        self.fails(RUN_FAILED, "run", "--memory", "2M", "--", says="COMMAND is missing")
        self.fails(RUN_FAILED, "run", "--", "true", says="--memory is missing")
        self.fails(RUN_FAILED, "run", "--frobnicate", says="--frobnicate")
        self.fails(RUN_FAILED, "run", *["--memory", "2M"] * 65, "--", "true", says="64 times")
        for word in ("{memory2}", "a{memory3}b", "{memory0}", "{fd2}", "{fd0}"):
            with self.subTest(word=word):
                self.fails(RUN_FAILED, "run", "--memory", "2M", "--", "echo", word,
                           says=(word.strip("ab"), "--memory is given 1 time"))

    def test_help_and_version(self):
        for arguments in ((), ("status",), ("take",), ("give",), ("list",), ("run",)):
            for option in ("--help", "--usage", "--version"):
                with self.subTest(arguments=arguments, option=option):
                    self.assertTrue(self.prezero(*arguments, option).out)
        self.assertRegex(self.prezero("--version").out, r"^prezero \d+\.\d+\.\d+\n$")


class Answers(CliTest):
    """What the daemon says becomes a sentence and a status."""

    def refuse(self, answer):
        def handler(parameters):
            raise answer
        self.fake.on_take = self.fake.on_give = handler

    def test_request(self):
        self.prezero("take", "1.5G", "--page", "1G", "--node", "3", "--name", "vm7", "--wait", "1m",
                     "--partial")
        self.assertEqual(self.fake.parameters_of("Take"),
                         [{"bytes": 3 * GIB // 2, "page": "1G", "node": 3, "name": "vm7",
                           "wait_ms": 60000, "partial": True}])
        self.fake.calls.clear()
        self.prezero("take", "4M", "--node", "any", "--wait", "0")
        [parameters] = self.fake.parameters_of("Take")
        self.assertEqual(parameters["bytes"], 4 * MIB)
        self.assertEqual(parameters["wait_ms"], 0)
        self.assertRegex(parameters["name"], r"^take-[0-9a-f]{16}$")
        self.assertLessEqual(parameters.get("node", -1), -1)
        self.assertFalse(parameters.get("page"))
        self.assertFalse(parameters.get("partial"))

    def test_takes_print_the_path(self):
        out = self.prezero("take", "4M", "--name", "vm7").out
        self.assertEqual(out, str(self.fake.only_lease()) + "\n")
        self.assertEqual(os.path.getsize(out.strip()), 4 * MIB)
        self.assertFalse(self.fake.is_held(out.strip()))

    def test_take_json(self):
        reply = self.json("take", "4M", "--name", "vm7", "--page", "thp")
        self.assertEqual(reply["path"], str(self.fake.only_lease()))
        self.assertEqual({k: reply[k] for k in ("name", "page", "bytes", "node", "filling")},
                         {"name": "vm7", "page": "thp", "bytes": 4 * MIB, "node": 0,
                          "filling": False})
        self.assertEqual(reply["page_bytes"], 4096)
        self.assertRegex(reply["id"], "^[0-9a-f]{16}$")

    def test_made_up_names_differ(self):
        names = {self.json("take", "2M")["name"] for _ in range(10)}
        self.assertEqual(len(names), 10)

    def test_refused(self):
        message = "2M@any: have 1G, need 8G; raise it with `echo 4096 > nr_hugepages`"
        holders = [{"pid": 7, "uid": 0, "command": "qemu"}]
        for reason in ("pages", "leave_free", "floor", "cgroup", "thp"):
            with self.subTest(reason=reason):
                self.refuse(refusal(reason, message, have_bytes=GIB, need_bytes=8 * GIB,
                                    holders=holders))
                self.fails(REFUSED, "take", "8G", says=message)
                self.fails(RUN_FAILED, "run", "--memory", "8G", "--", "echo", "ran", says=message)
                error = self.json("take", "8G", status=REFUSED)["error"]
                self.assertEqual(error["code"], "refused")
                self.assertIn(message, error["message"])
                self.assertEqual(error["reply"]["parameters"]["holders"], holders)
                self.assertEqual(error["reply"]["parameters"]["need_bytes"], 8 * GIB)
                self.assertEqual(self.json("run", "--memory", "8G", "--", "true",
                                           status=RUN_FAILED)["error"]["code"], "refused")

    def test_input_that_only_the_daemon_can_judge(self):
        for reason in ("class", "node", "multiple"):
            with self.subTest(reason=reason):
                self.refuse(refusal(reason, f"that is no {reason}"))
                self.fails(INPUT, "take", "3M", "--page", "2M", says=f"that is no {reason}")
                self.assertEqual(self.json("take", "3M", status=INPUT)["error"]["code"], "input")
        self.refuse(refusal("machine", "16T is more than the machine's 24G"))
        self.fails(REFUSED, "take", "16T", says="more than the machine")

    def test_limit_and_deadline(self):
        self.refuse(refusal("limit", "user 1000 may hold 4G"))
        self.fails(NOT_PERMITTED, "take", "8G", says="user 1000 may hold 4G")
        self.refuse(refusal("deadline", "30s passed"))
        self.fails(TIMED_OUT, "take", "8G", "--wait", "30s", says="30s passed")
        self.assertEqual(self.json("take", "8G", status=TIMED_OUT)["error"]["code"], "timed-out")

    def test_name_taken(self):
        self.prezero("take", "2M", "--name", "vm7")
        self.fails(INPUT, "take", "2M", "--name", "vm7", says="vm7")

    def test_give(self):
        self.prezero("take", "2M", "--name", "vm7")
        process = self.prezero("give", "vm7")
        self.assertEqual((process.out, process.err), ("", ""))
        self.assertEqual(self.fake.leases, {})
        self.fails(NO_LEASE, "give", "vm7", says="vm7")
        self.assertEqual(self.json("give", "vm7", status=NO_LEASE)["error"]["code"], "no-lease")
        self.prezero("take", "2M", "--name", "vm8")
        self.assertEqual(self.json("give", "vm8"), {"lease": "vm8", "completed": True})

    def test_give_of_another_user(self):
        self.refuse(Answer("NotYours", lease="vm7", uid=1000))
        self.fails(NOT_PERMITTED, "give", "vm7", says=("vm7", "1000"))
        self.assertEqual(self.json("give", "vm7", status=NOT_PERMITTED)["error"]["code"],
                         "not-permitted")

    def test_give_in_use(self):
        holders = [{"pid": 4242, "uid": 0, "command": "qemu\x1b[2J"}]
        self.fake.on_give = lambda parameters: {"completed": False, "holders": holders}
        text = self.fails(TIMED_OUT, "give", "vm7", "--wait", "10ms", says=("4242", "qemu\\x1b[2J"))
        self.assertNotIn("\x1b", text)
        self.assertEqual(self.fake.parameters_of("Give"), [{"lease": "vm7", "wait_ms": 10}])
        error = self.json("give", "vm7", status=TIMED_OUT)["error"]
        self.assertEqual(error["code"], "in-use")
        self.assertEqual(error["reply"]["parameters"]["holders"], holders)


class NoDaemon(CliTest):
    COMMANDS = (("status",), ("list",), ("take", "2M"), ("give", "x"))

    def fail_all(self, status, path, says):
        for command in self.COMMANDS:
            with self.subTest(command=command, path=path):
                self.fails(status, *command, "--socket", path, says=says)
                error = self.json(*command, "--socket", path, status=status)["error"]
                self.assertTrue(error["code"])
        self.fails(RUN_FAILED, "run", "--memory", "2M", "--socket", path, "--", "echo", "ran",
                   says=says)

    def test_nothing_there(self):
        self.fail_all(NO_DAEMON, "/nonexistent/socket", ("/nonexistent/socket", "systemctl start"))

    def test_nobody_listens(self):
        path = str(self.fake.directory / "dead")
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(path)
        self.fail_all(NO_DAEMON, path, "no daemon at")

    def test_path_too_long(self):
        self.fail_all(INPUT, "/" + "x" * 200, "too long")

    def test_environment_names_the_socket(self):
        self.prezero("status")
        self.environment["PREZERO_SOCKET"] = "/nonexistent/other"
        self.fails(NO_DAEMON, "status", says="/nonexistent/other")
        self.prezero("status", "--socket", self.fake.socket_path)

    def test_permission(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to become another user")
        os.chmod(self.fake.socket_path, 0o600)
        done = run_as(65534, [PREZERO, "status"], env=self.environment)
        self.assertEqual(done.returncode, NOT_PERMITTED, done.stderr)
        self.assertIn("usermod", done.stderr)

    def test_hangs_up(self):
        self.fake.raw = b""
        self.fail_all(NO_DAEMON, self.fake.socket_path, "went away")

    def test_garbage(self):
        for raw in (b"garbage\0", b"\0", b"[]\0", b"{}{}\0", b'{"parameters": 7}\0',
                    b'{"parameters": {"a": 1, "a": 2}}\0', b'{"error": 7}\0', b"\xff\xfe\0",
                    b'{"parameters": {"bytes": -1, "path": null}}\0'):
            self.fake.raw = raw
            with self.subTest(raw=raw):
                self.fail_all(FAILED, self.fake.socket_path, "does not speak")


class Outputs(CliTest):
    """A result that cannot be told is a failure, and leaves nothing behind."""

    def test_full_disk(self):
        self.fake.segments = [{"id": "00000000000000ab", "path": "/x", "page": "2M", "node": 0,
                               "bytes": 1, "state": "ready", "age_ms": 1}]
        for command in (("status",), ("list",), ("status", "--json"), ("list", "--json")):
            with self.subTest(command=command), open("/dev/full", "w", encoding="ascii") as full:
                process = self.start(*command, stdout=full)
                self.assertIn("No space left", process.communicate()[1])
                self.assertEqual(process.returncode, FAILED)

    def test_take_that_cannot_tell_its_path_is_given_back(self):
        for options in ((), ("--json",), ("--name", "vm7")):
            with self.subTest(options=options), open("/dev/full", "w", encoding="ascii") as full:
                process = self.start("take", "2M", *options, stdout=full)
                process.communicate()
                self.assertEqual(process.returncode, FAILED)
                self.assertEqual(self.fake.leases, {})
        read_end, write_end = os.pipe()
        os.close(read_end)
        process = self.start("take", "2M", stdout=write_end)
        os.close(write_end)
        process.communicate()
        self.assertEqual(process.returncode, FAILED)
        self.assertEqual(self.fake.leases, {})

    def test_interrupted_while_waiting(self):
        def wait_for_ever(parameters):
            event.wait()
            raise refusal("deadline", "too late")
        event = threading.Event()
        self.addCleanup(event.set)
        self.fake.on_take = wait_for_ever
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self.fake.calls.clear()
            process = self.start("take", "2M")
            wait_until(lambda: self.fake.calls, "the call")
            process.send_signal(number)
            process.communicate(timeout=5)
            self.assertEqual(process.returncode, -number)


if __name__ == "__main__":
    main()
