# SPDX-License-Identifier: GPL-2.0-or-later
"""What the tests of `prezero` share: the program, run against a scripted daemon or a real one.

Guarantees: the program sees no socket but the test's, no terminal unless the test gives it one, and
no locale but C.
"""

import json
import os
import pty
import select
import subprocess
import time
import unittest

from fake_daemon import FakeDaemon
from prezero_test import PATIENCE_S, PREZERO

DONE, FAILED, INPUT, REFUSED, NO_DAEMON, NO_LEASE, NOT_PERMITTED, TIMED_OUT = range(8)
RUN_FAILED, RUN_CANNOT, RUN_NOT_FOUND = 125, 126, 127


class RunsPrezero:
    """For a test case: the program, against the daemon at a socket."""

    def use_socket(self, path):
        self.environment = {**os.environ, "PREZERO_SOCKET": path, "LC_ALL": "C", "TERM": "xterm"}

    def start(self, *arguments, **options):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                   "stderr": subprocess.PIPE, "text": True, "env": self.environment, **options}
        process = subprocess.Popen([PREZERO, *arguments], **options)
        self.addCleanup(self._end, process)
        return process

    @staticmethod
    def _end(process):
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()

    def prezero(self, *arguments, status=DONE, **options):
        """Runs it to its end, which must be with that status; returns its output."""
        process = self.start(*arguments, **options)
        process.out, process.err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, status, f"{arguments}: {process.out}{process.err}")
        return process

    def json(self, command, *arguments, status=DONE):
        """The one JSON value on standard output."""
        return json.loads(self.prezero(command, "--json", *arguments, status=status).out)

    def fails(self, status, *arguments, says=()):
        """It must fail with that status, print nothing on standard output and say why."""
        process = self.prezero(*arguments, status=status)
        self.assertEqual(process.out, "")
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, process.err)
        return process.err


class CliTest(RunsPrezero, unittest.TestCase):
    longMessage = True

    def setUp(self):
        self.fake = FakeDaemon()
        self.addCleanup(self.fake.close)
        self.use_socket(self.fake.socket_path)


class Terminal:
    """A terminal of 100 columns, with a program as its foreground job."""

    def __init__(self, command, environment):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, {**environment, "COLUMNS": "100"})
        self.output = b""

    def read_until(self, text):
        """Reads on until the text came; everything so far."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.output:
            if time.monotonic() > deadline:
                raise AssertionError(f"waited in vain for {text!r} in {self.output!r}")
            if not self._read(0.1):
                raise AssertionError(f"ended without {text!r}: {self.output!r}")
        return self.output

    def _read(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return False
            self.output += data
            return bool(data)
        return True

    def type(self, data):
        os.write(self.master, data)

    def finish(self):
        """Reads to the end; the wait status."""
        while self._read(1):
            pass
        os.close(self.master)
        return os.waitpid(self.pid, 0)[1]
