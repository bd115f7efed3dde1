#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""prezero run: the command runs as under env(1), and its memory lives exactly as long."""

import json
import os
import re
import signal
import subprocess
import sys
import threading

from cli_test import RUN_CANNOT, RUN_FAILED, RUN_NOT_FOUND, CliTest, Terminal
from fake_daemon import MIB, refusal
from prezero_test import PREZERO, main, run_as, wait_until

UNPRIVILEGED = 65534


class Run(CliTest):
    def run_command(self, *command, options=("--memory", "4M"), **more):
        return self.prezero("run", *options, "--", *command, **more)

    def test_words(self):
        out = self.run_command("printf", "%s\n", "{memory}", "{fd}", "mem-path={memory},share=on",
                               "{memory}:{fd}:{memory}", "/proc/self/fd/{fd}").out.splitlines()
        path = str(self.fake.only_lease())
        self.assertEqual(out[0], path)
        fd = int(out[1])
        self.assertGreater(fd, 2)
        self.assertEqual(out[2:], [f"mem-path={path},share=on", f"{path}:{fd}:{path}",
                                   f"/proc/self/fd/{fd}"])

    def test_other_braces_stay(self):
        words = ["{}", "{memory", "memory}", "{Memory}", "{fdset}", "{memoryx}", "{ memory}", "{",
                 "}", "{{}}", "%s", "{memory1x}", "{fd-1}", "\\{x}", ""]
        self.assertEqual(self.run_command("printf", "<%s>", *words).out,
                         "".join(f"<{word}>" for word in words))
        self.assertEqual(self.run_command("printf", "%s", "{{fd}}").out[:1], "{")

    def test_first_is_also_number_one(self):
        out = self.run_command("printf", "%s %s", "{memory1}", "{fd1}").out.split()
        self.assertEqual(out[0], str(self.fake.only_lease()))

    def test_environment(self):
        self.environment["PREZERO_MEMORY"] = "something old"
        script = 'echo "$PREZERO_MEMORY"; stat -L -c %n:%s /proc/self/fd/$PREZERO_FD; echo $KEPT'
        out = self.run_command("sh", "-c", script,
                               env={**self.environment, "KEPT": "yes"}).out.splitlines()
        self.assertEqual(out[0], str(self.fake.only_lease()))
        self.assertEqual(out[1].rpartition(":")[2], str(4 * MIB))
        self.assertEqual(out[2], "yes")

    def test_several(self):
        options = ("--page", "thp", "--memory", "2M", "--memory", "4M", "--page", "1G",
                   "--node", "1", "--memory", "6M", "--node", "any", "--partial", "--wait", "3s")
        script = ('echo "$PREZERO_MEMORY $PREZERO_MEMORY_2 $PREZERO_MEMORY_3"; '
                  'stat -L -c %s /proc/self/fd/$PREZERO_FD /proc/self/fd/$PREZERO_FD_2 '
                  '/proc/self/fd/$PREZERO_FD_3; echo "$@"')
        out = self.run_command("sh", "-c", script, "sh", "{memory}", "{memory2}", "{memory3}",
                               options=options).out.splitlines()
        self.assertEqual(out[0], out[4])
        self.assertEqual(len(set(out[0].split())), 3)
        self.assertEqual(out[1:4], [str(n * MIB) for n in (2, 4, 6)])
        asked = [(p["bytes"] // MIB, p.get("page"), p.get("node", -1), bool(p.get("partial")),
                  p.get("wait_ms")) for p in self.fake.parameters_of("Take")]
        self.assertEqual(asked, [(2, "thp", -1, False, None), (4, "1G", 1, False, None),
                                 (6, "thp", -1, True, 3000)])

    def test_lease_has_no_name(self):
        self.run_command("true")
        self.assertFalse(self.fake.parameters_of("Take")[0].get("name"))

    def test_only_its_descriptors_are_inherited(self):
        out = self.run_command("ls", "-l", "/proc/self/fd").out
        open_fds = [line for line in out.splitlines() if "->" in line]
        sockets = [line for line in open_fds if "socket:" in line]
        leases = [line for line in open_fds if str(self.fake.lent) in line]
        self.assertEqual((len(sockets), len(leases)), (0, 1), out)

    def test_options_of_the_command_are_its_own(self):
        words = ("--memory", "8G", "--help", "--json")
        out = self.prezero("run", "--memory", "2M", "echo", *words).out
        self.assertEqual(out, "--memory 8G --help --json\n")

    def test_standard_streams(self):
        process = self.start("run", "--memory", "2M", "--", "sh", "-c", "cat; echo error >&2",
                             stdin=subprocess.PIPE)
        self.assertEqual(process.communicate("through\n"), ("through\n", "error\n"))

    def test_json(self):
        out = self.prezero("run", "--memory", "2M", "--memory", "4M", "--json", "--", "echo",
                           "{memory2}").out.splitlines()
        leases = json.loads(out[0])["leases"]
        self.assertEqual([lease["bytes"] for lease in leases], [2 * MIB, 4 * MIB])
        self.assertEqual(out[1], leases[1]["path"])

    # How it ends.

    def test_exit_status(self):
        for status in (0, 1, 2, 3, 77, 124, 125, 126, 127, 200, 255):
            self.run_command("sh", "-c", f"exit {status}", status=status)

    def test_death_by_signal(self):
        """The wait status is the command's own: a shell sees 128+N, as without us."""
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT):
            suicide = f"ulimit -c 0; kill -{int(number)} $$"
            self.run_command("sh", "-c", suicide, status=-number)
            script = '"$0" run --memory 2M -- sh -c "$1"; echo $?'
            shell = subprocess.run(["sh", "-c", script, PREZERO, suicide], env=self.environment,
                                   text=True, capture_output=True, check=False)
            self.assertEqual(shell.stdout.split()[-1], str(128 + number), shell)

    def test_not_found_and_not_runnable(self):
        self.run_command("/nonexistent/command", status=RUN_NOT_FOUND)
        error = self.run_command("no-such-command-here", status=RUN_NOT_FOUND).err
        self.assertIn("no-such-command-here: No such file", error)
        self.assertIn("/etc/passwd: Permission denied",
                      self.run_command("/etc/passwd", status=RUN_CANNOT).err)
        self.run_command("/tmp", status=RUN_CANNOT)
        for path in self.fake.leases.values():
            self.assertFalse(self.fake.is_held(path))

    def test_refused_runs_nothing(self):
        takes = []

        def second_is_refused(parameters):
            takes.append(parameters)
            if len(takes) == 2:
                raise refusal("pages", "no more")
            return self.fake.take(parameters)
        self.fake.on_take = second_is_refused
        process = self.prezero("run", "--memory", "2M", "--memory", "2M", "--", "echo", "ran",
                               status=RUN_FAILED)
        self.assertEqual(process.out, "")
        self.assertIn("no more", process.err)
        self.assertFalse(self.fake.is_held(self.fake.only_lease()))

    # Signals.

    def test_signals_reach_the_command(self):
        script = ("import signal, sys, os\n"
                  "def told(number, frame): print(int(number), flush=True)\n"
                  "numbers = [int(n) for n in sys.argv[1:]]\n"
                  "for n in numbers: signal.signal(n, told)\n"
                  "print('ready', flush=True)\n"
                  "while True: signal.pause()\n")
        numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1,
                   signal.SIGUSR2, signal.SIGWINCH, signal.SIGTSTP, signal.SIGALRM, signal.SIGCHLD,
                   signal.SIGPIPE]
        process = self.start("run", "--memory", "2M", "--", sys.executable, "-c", script,
                             *[str(int(n)) for n in numbers])
        self.assertEqual(process.stdout.readline(), "ready\n")
        for number in numbers:
            process.send_signal(number)
            self.assertEqual(process.stdout.readline(), f"{int(number)}\n")
        process.kill()

    def test_dispositions_are_left_alone(self):
        def states(command):
            done = subprocess.run(command, env=self.environment, text=True, capture_output=True,
                                  check=True, preexec_fn=lambda: signal.signal(signal.SIGHUP,
                                                                               signal.SIG_IGN))
            return re.findall("^Sig(?:Blk|Ign|Cgt):.*", done.stdout, re.MULTILINE)
        show = ["cat", "/proc/self/status"]
        self.assertEqual(states([PREZERO, "run", "--memory", "2M", "--", *show]),
                         states(["env", *show]))

    def test_job_control(self):
        """Ctrl-Z, fg and Ctrl-\\, under a shell that controls jobs."""
        script = ('set -m; ulimit -c 0; "$0" run --memory 2M -- sh -c '
                  '"echo ready; read line; echo got \\$line; while :; do sleep 0.05; done"; '
                  'echo "first $?"; fg; echo "second $?"')
        terminal = Terminal(["bash", "--norc", "-c", script, PREZERO], self.environment)
        terminal.read_until(b"ready")
        terminal.type(b"\x1a")
        terminal.read_until(b"first %d" % (128 + signal.SIGTSTP))
        self.assertTrue(self.fake.is_held(self.fake.only_lease()))
        terminal.type(b"text\n")
        terminal.read_until(b"got text")
        terminal.type(b"\x1c")
        terminal.read_until(b"second %d" % (128 + signal.SIGQUIT))
        terminal.finish()

    # The lease lives as long as the command.

    def wait_held(self):
        return wait_until(lambda: self.fake.leases and self.fake.is_held(self.fake.only_lease()),
                          "the lease")

    def wait_free(self):
        path = self.fake.only_lease()
        wait_until(lambda: not self.fake.is_held(path), "the end of the lease", 5)

    def test_lease_ends_with_the_command(self):
        for number in (signal.SIGKILL, signal.SIGTERM):
            self.fake.leases.clear()
            process = self.start("run", "--memory", "2M", "--", "sleep", "100")
            self.wait_held()
            process.send_signal(number)
            process.communicate()
            self.assertEqual(process.returncode, -number)
            self.wait_free()

    def test_killed_with_children(self):
        """What the command started may use the memory too: the lease ends with the last of them."""
        process = self.start("run", "--memory", "2M", "--", "sh", "-c",
                             "sleep 100 >&- 2>&- <&- & echo $!; wait")
        child = int(process.stdout.readline())
        process.kill()
        process.communicate()
        self.assertTrue(self.fake.is_held(self.fake.only_lease()))
        os.kill(child, signal.SIGKILL)
        self.wait_free()

    def test_killed_while_it_waits(self):
        never = threading.Event()
        self.addCleanup(never.set)

        def one_and_no_more(parameters):
            if self.fake.leases:
                never.wait()
            return self.fake.take(parameters)
        self.fake.on_take = one_and_no_more
        process = self.start("run", "--memory", "2M", "--memory", "2M", "--", "true")
        self.wait_held()
        wait_until(lambda: len(self.fake.calls) == 2, "the second call")
        process.kill()
        process.communicate()
        self.wait_free()

    def test_daemon_death_changes_nothing(self):
        process = self.start("run", "--memory", "2M", "--", "sh", "-c",
                             "echo ready; read line; stat -L -c %s /proc/self/fd/$PREZERO_FD",
                             stdin=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), "ready\n")
        self.fake.close()
        self.assertEqual(process.communicate("go\n")[0], f"{2 * MIB}\n")

    def test_memory_is_the_segment(self):
        script = ("import mmap, os\n"
                  "a = mmap.mmap(int(os.environ['PREZERO_FD']), 0)\n"
                  "f = open(os.environ['PREZERO_MEMORY'], 'r+b')\n"
                  "b = mmap.mmap(f.fileno(), 0)\n"
                  "b[4096] = 77\n"
                  "print(len(a), a[4096])\n")
        self.assertEqual(self.run_command(sys.executable, "-c", script).out, f"{4 * MIB} 77\n")

    def test_as_an_unprivileged_user(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to become another user")
        self.fake.owner = UNPRIVILEGED
        script = ('id -u; dd if=/dev/zero of="{memory}" bs=4096 count=1 conv=notrunc status=none '
                  '&& dd if=/proc/self/fd/{fd} bs=4096 count=1 status=none | wc -c')
        done = run_as(UNPRIVILEGED, [PREZERO, "run", "--memory", "2M", "--", "sh", "-c", script],
                      env=self.environment)
        self.assertEqual((done.returncode, done.stdout), (0, f"{UNPRIVILEGED}\n4096\n"),
                         done.stderr)
        self.assertFalse(self.fake.is_held(self.fake.only_lease()))


if __name__ == "__main__":
    main()
