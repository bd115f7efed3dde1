# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures for tests of whole programs: a host that is put back, a daemon, a raw client.

Guarantees: tests that touch the host's memory run one at a time (a lock file), every setting is put
back after each class and a difference fails the class; after each test no page is missing.
"""

import contextlib
import fcntl
import json
import mmap
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PREZERO_BUILD", ROOT / "build")).resolve()
PREZEROD = str(BUILD / "prezerod")
PREZERO = str(BUILD / "prezero")
PYTHON = "/usr/bin/python3"  # one that every user may run, wherever the one in PATH lies
LOCK_FILE = "/run/lock/prezero-tests.lock"
NODES = pathlib.Path("/sys/devices/system/node")
THP = pathlib.Path("/sys/kernel/mm/transparent_hugepage")
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# A program under a sanitizer is slower; waits are bounds, never measurements.
PATIENCE_S = float(os.environ.get("PREZERO_TEST_PATIENCE_S", "60"))
PATTERN = b"\xa5" * MIB
ZEROS = bytes(MIB)


def is_sanitized(program=PREZEROD):
    """Whether a program carries a sanitizer: its memory then says nothing."""
    text = pathlib.Path(program).read_bytes()
    return b"__asan_init" in text or b"__tsan_init" in text


def pages_name(page_bytes):
    return f"hugepages-{page_bytes // KIB}kB"


def host_has_page(page_bytes):
    return pathlib.Path("/sys/kernel/mm/hugepages", pages_name(page_bytes)).is_dir()


def hugetlb_count(page_bytes, what="free_hugepages", node=0):
    return int((NODES / f"node{node}/hugepages" / pages_name(page_bytes) / what).read_text())


def wait_until(condition, what, patience_s=None):
    """Polls until condition() is true and returns its value; fails naming `what`."""
    deadline = time.monotonic() + (patience_s or PATIENCE_S)
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain for {what() if callable(what) else what}")
        time.sleep(0.01)


def remove_what_dead_runs_left():
    """A test run that was killed leaves its daemon, mounts and pages; its process id says it is dead."""
    for directory in pathlib.Path("/run").glob("prezero-test-*"):
        owner = directory.name.split("-")[2]
        if owner.isdigit() and pathlib.Path("/proc", owner).exists():
            continue
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if str(directory) + "/" in (process / "cmdline").read_text().replace("\0", " "):
                    os.kill(int(process.name), signal.SIGKILL)
        unmount_below(directory)
        shutil.rmtree(directory, ignore_errors=True)


def unmount_below(directory):
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        where = line.split()[1]
        if where.startswith(str(directory) + "/"):
            subprocess.run(["umount", "--lazy", where], check=False)


def own_pages(directory):
    """The pages that writing nr_hugepages sets: reading it shows the surplus too, which goes by itself."""
    total, surplus = (int((directory / name).read_text()) for name in ("nr_hugepages", "surplus_hugepages"))
    return total - surplus


class HostState:
    """Every setting of the host that a test may change, read at one moment."""

    def __init__(self):
        self.settings = {}
        for path in sorted(NODES.glob("node*/hugepages/*/nr_hugepages")):
            self.settings[path] = str(own_pages(path.parent))
        for path in sorted(pathlib.Path("/sys/kernel/mm/hugepages").glob("*/nr_overcommit_hugepages")):
            self.settings[path] = path.read_text().strip()
        for name in ("enabled", "shmem_enabled", "defrag"):
            path = THP / name
            if path.exists():
                self.settings[path] = path.read_text().split("[")[1].split("]")[0]
        self.mounts = pathlib.Path("/proc/self/mounts").read_text().splitlines()

    def restore(self):
        for path, value in self.settings.items():
            with contextlib.suppress(OSError):
                path.write_text(value)

    def differences(self):
        now = HostState()
        found = [f"{path}: {value} -> {now.settings.get(path)}"
                 for path, value in self.settings.items() if now.settings.get(path) != value]
        found += [f"mount left behind: {line}" for line in now.mounts if line not in self.mounts]
        return found


class Daemon:
    """A prezerod of the test's own: runtime directory, configuration, log, notifications."""

    def __init__(self, config="", sysroot=None, arguments=(), environment=None, program=PREZEROD):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=f"prezero-test-{os.getpid()}-", dir="/run"))
        self.directory.chmod(0o755)
        self.runtime = self.directory / "run"
        self.config_file = self.directory / "prezerod.conf"
        self.log_file = self.directory / "log"
        self.socket_path = str(self.runtime / "socket")
        self.sysroot, self.arguments, self.environment = sysroot, arguments, environment
        self.program = program
        self.process = None
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self.notify.bind(str(self.directory / "notify"))
        self.notified = []
        self.configure(config)

    def configure(self, text):
        self.config_file.write_text(text)

    def command(self, *more):
        line = [self.program, "--config", str(self.config_file), "--runtime-dir", str(self.runtime)]
        if self.sysroot:
            line += ["--sysroot", str(self.sysroot)]
        return line + list(self.arguments) + list(more)

    def start(self, wait=True):
        environment = dict(os.environ, NOTIFY_SOCKET=str(self.directory / "notify"))
        environment.pop("JOURNAL_STREAM", None)
        environment.update(self.environment or {})
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env=environment)
        if wait:
            self.wait_notified("READY=1")
        return self

    def wait_notified(self, what):
        """Waits for a notification line such as READY=1; fails with the log when the daemon ends."""
        deadline = time.monotonic() + PATIENCE_S
        self.notify.settimeout(0.05)
        while time.monotonic() < deadline:
            try:
                lines = self.notify.recv(4096).decode().splitlines()
            except socket.timeout:
                if self.process.poll() is not None:
                    raise AssertionError(f"prezerod ended with {self.process.returncode}:\n{self.log()}")
                continue
            self.notified += lines
            if what in lines:
                return
        raise AssertionError(f"no {what} from prezerod:\n{self.log()}")

    def log(self):
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def wait_log(self, text):
        return wait_until(lambda: text in self.log(), lambda: f"{text!r} in the log:\n{self.log()}")

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def stop(self):
        """SIGTERM; returns the exit status."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S) if self.process else None

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def release(self):
        """Gives everything back, as an administrator would."""
        return subprocess.run(self.command("--release"), capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)

    def connect(self):
        return Client(self.socket_path)

    def status(self):
        with self.connect() as client:
            return client.call("Status")

    def wait_ready(self, stock=None):
        """Until every stock (or the named one) stands as configured; returns the status."""
        def stands():
            status = self.status()
            return status if all(s["ready"] >= s["keep"] for s in status["stocks"]
                                 if stock in (None, s["name"])) else None
        return wait_until(stands, lambda: f"stock {stock or 'all'}:\n{self.log()}")

    def cleanup(self):
        self.kill()
        released = self.release()
        self.notify.close()
        unmount_below(self.directory)
        shutil.rmtree(self.directory, ignore_errors=True)
        return released

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.cleanup()


class VarlinkError(Exception):
    def __init__(self, reply):
        super().__init__(json.dumps(reply))
        self.error = reply["error"]
        self.parameters = reply.get("parameters", {})


class Client:
    """Varlink by hand, so that the library is not what tests the wire."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(path)
        self.buffer = b""
        self.fds = []

    def send(self, method, parameters=None, **flags):
        name = method if "." in method else "io.prezero.Pool." + method
        message = {"method": name, "parameters": parameters or {}, **flags}
        self.send_raw(json.dumps(message).encode() + b"\0")

    def send_raw(self, data):
        self.socket.sendall(data)

    def receive(self):
        """The next reply as a dictionary, its descriptors added to self.fds; None at end of file."""
        while b"\0" not in self.buffer:
            data, ancillary, _, _ = self.socket.recvmsg(65536, socket.CMSG_SPACE(16))
            for level, kind, content in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    self.fds += struct.unpack(f"{len(content) // 4}i", content)
            if not data:
                return None
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, parameters=None, **flags):
        self.send(method, parameters, **flags)
        reply = self.receive()
        if reply is None:
            raise ConnectionError("the daemon closed the connection")
        if "error" in reply:
            raise VarlinkError(reply)
        return reply.get("parameters", {})

    def list(self, state=None):
        self.send("List", {"state": state} if state else {}, more=True)
        found = []
        while True:
            reply = self.receive()
            if "error" in reply:
                raise VarlinkError(reply)
            parameters = reply.get("parameters", {})
            found += parameters.get("segments") or [s for s in [parameters.get("segment")] if s]
            if not reply.get("continues"):
                return found

    def take(self, segment_bytes, **parameters):
        """Returns (reply, descriptor)."""
        reply = self.call("Take", {"bytes": segment_bytes, **parameters})
        return reply, self.fds.pop()

    def close(self):
        self.socket.close()
        for fd in self.fds:
            os.close(fd)
        self.fds = []

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


@contextlib.contextmanager
def mapped(fd, length, writable=True):
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    memory = mmap.mmap(fd, length, mmap.MAP_SHARED, protection)
    try:
        yield memory
    finally:
        memory.close()


def first_nonzero(fd, length):
    """The offset of the first MiB with a byte that is not zero, or None: the oracle's reading half."""
    with mapped(fd, length) as memory:
        for offset in range(0, length, MIB):
            piece = memory[offset:offset + min(MIB, length - offset)]
            if piece != ZEROS[:len(piece)]:
                return offset
    return None


def dirty(fd, length):
    """Writes a pattern to every page: the oracle's writing half."""
    with mapped(fd, length) as memory:
        for offset in range(0, length, MIB):
            end = min(offset + MIB, length)
            memory[offset:end] = PATTERN[:end - offset]


class SystemTest(unittest.TestCase):
    """Base of every test that runs prezerod on the machine's own memory."""

    longMessage = True

    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root: it mounts and changes nr_hugepages")
        cls._lock = open(LOCK_FILE, "w")
        fcntl.flock(cls._lock, fcntl.LOCK_EX)
        remove_what_dead_runs_left()
        cls._host = HostState()

    @classmethod
    def tearDownClass(cls):
        cls._host.restore()
        found = cls._host.differences()
        cls._lock.close()
        if found:
            raise AssertionError("the host is not as it was:\n" + "\n".join(found))

    def setUp(self):
        self._daemons = []

    def daemon(self, config="", start=True, **options):
        daemon = Daemon(config, **options)
        self._daemons.append(daemon)
        return daemon.start() if start else daemon

    def grow(self, page_bytes, pages, node=0):
        """Adds free huge pages for this test; skips where the host has no such size."""
        if not host_has_page(page_bytes):
            self.skipTest(f"no {page_bytes // MIB}M pages on this machine")
        path = NODES / f"node{node}/hugepages" / pages_name(page_bytes) / "nr_hugepages"
        before = own_pages(path.parent)
        self.addCleanup(lambda: path.write_text(str(before)))
        path.write_text(str(before + pages))
        got = own_pages(path.parent) - before
        self.assertGreaterEqual(got, pages, "the host did not give the pages that the test needs")

    def tearDown(self):
        """Promises I2 and I3 after every test: nothing missing, nothing left."""
        for daemon in self._daemons:
            released = daemon.cleanup()
            self.assertEqual(released.returncode, 0, f"--release: {released.stderr}\n{daemon.log()}")
        for path in sorted(NODES.glob("node*/hugepages/*")):
            def counts(p=path):
                return [int((p / name).read_text()) for name in ("nr_hugepages", "free_hugepages")]
            wait_until(lambda: len(set(counts())) == 1,
                       lambda: f"all pages back in {path}: total, free = {counts()}", 10)


def run_as(user_id, command, **options):
    """Runs a command as an unprivileged user with that numeric id."""
    return subprocess.run(["setpriv", f"--reuid={user_id}", f"--regid={user_id}", "--clear-groups",
                           "--", *command], capture_output=True, text=True, timeout=PATIENCE_S,
                          check=False, **options)


class _TapResult(unittest.TestResult):
    """One TAP line a test, so that the build system counts tests and shows why one was skipped."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def _line(self, good, test, directive="", detail=""):
        self.count += 1
        name = test.id().replace("__main__.", "").replace("#", "")
        for line in detail.splitlines():
            print("# " + line)
        print(f"{'ok' if good else 'not ok'} {self.count} - {name}{directive}", flush=True)

    def addSuccess(self, test):
        self._line(True, test)

    def addSkip(self, test, reason):
        self._line(True, test, f" # SKIP {reason}")

    def _bad(self, test, error):
        self._line(False, test, detail="".join(traceback.format_exception(*error)))

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self._bad(test, error)

    def addError(self, test, error):
        super().addError(test, error)
        self._bad(test, error)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error:
            self._bad(subtest, error)


def main():
    """Runs the tests of the calling file; names on the command line narrow them down."""
    # A shell's background jobs ignore these, and so would every program that is started here.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    loader = unittest.TestLoader()
    module = sys.modules["__main__"]
    names = sys.argv[1:]
    suite = loader.loadTestsFromNames(names, module) if names else loader.loadTestsFromModule(module)
    result = _TapResult()
    print("TAP version 13")
    suite.run(result)
    print(f"1..{result.count}", flush=True)
    sys.exit(0 if result.wasSuccessful() else 1)
