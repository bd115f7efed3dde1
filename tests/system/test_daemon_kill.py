#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""kill -9 of prezerod at any system call of fill, lend, cut, give and return; and of its consumers.

After each: the next daemon takes over, what was lent is untouched, what is taken is zero, no page is
missing. PREZERO_TEST_LONG=1 tries every instant instead of a spread of them.
"""

import os
import random
import signal
import subprocess
import time

from prezero_test import (BUILD, MIB, PYTHON, SystemTest, VarlinkError, dirty, first_nonzero,
                          hugetlb_count, main, mapped, wait_until)

PAGE = 2 * MIB
KILL_AT = str(BUILD / "tests/system/kill_at")
LONG = bool(os.environ.get("PREZERO_TEST_LONG"))
CONFIG = ("[daemon]\nthreads = 2\n[stock a]\npage = 2M\nsegment = 4M\nkeep = 2\n"
          "[stock b]\npage = base\nsegment = 1M\nkeep = 1\n")


def scenario(daemon, keep):
    """Takes of every kind, until the daemon dies; descriptors of what was lent go to `keep`."""
    with daemon.connect() as client:
        try:
            client.socket.settimeout(20)
            for round_ in range(3):
                for request in ({"bytes": 4 * MIB, "page": "2M"}, {"bytes": MIB, "page": "base"},
                                {"bytes": 2 * MIB, "page": "2M", "name": f"n{round_}"},
                                {"bytes": 6 * MIB, "page": "2M", "partial": True},
                                {"bytes": 2 * MIB, "page": "thp"}):
                    reply = client.call("Take", request)
                    fd = client.fds.pop()
                    length = reply["bytes"]
                    if first_nonzero(fd, length) is not None:
                        raise AssertionError(f"not zero: {reply}")
                    dirty(fd, length)
                    if request.get("name"):
                        keep.append((reply, fd))
                    else:
                        os.close(fd)
                client.call("Give", {"lease": f"n{round_}"})
                client.list()
                client.call("Status")
        finally:
            keep += [(None, fd) for fd in client.fds]
            client.fds = []


class Kill(SystemTest):
    def check_after(self, daemon, keep):
        """A new daemon on what the dead one left."""
        for reply, fd in keep:
            if reply is not None:
                with mapped(fd, reply["bytes"]) as memory:
                    self.assertEqual(memory[:MIB], b"\xa5" * MIB, "a lease lost its content")
        daemon.start()
        status = daemon.wait_ready()
        with daemon.connect() as client:
            for segment in client.list("lent"):
                self.assertIn(segment["id"], [r["id"] for r, _ in keep if r] +
                              [segment["id"]] * ("name" in segment))
            for segment in client.list("lent"):
                if segment.get("name"):
                    client.call("Give", {"lease": segment["id"]})
            for _ in range(2):
                _, fd = client.take(4 * MIB, page="2M", wait_ms=20000)
                self.assertIsNone(first_nonzero(fd, 4 * MIB), "not zero after a kill")
                os.close(fd)
            for _, fd in keep:
                os.close(fd)
            keep.clear()
            wait_until(lambda: not client.list("lent"), "all leases to end")
        self.assertEqual(len(status["stocks"]), 2)
        daemon.stop()

    def kill_at(self, daemon, n):
        """True when it was killed there; False when the scenario ended before."""
        keep = []
        plain = daemon.command
        daemon.command = lambda *more: [KILL_AT, str(n)] + plain(*more)
        try:
            try:
                daemon.start()
                scenario(daemon, keep)
                survived = True
            except (OSError, VarlinkError, AssertionError, TypeError) as error:
                if "not zero" in str(error) or daemon.process.poll() not in (None, 0):
                    if daemon.process.poll() is None or "not zero" in str(error):
                        raise
                survived = False
            if survived:
                daemon.process.kill()  # the tracer: its tracee goes too
            status = daemon.process.wait(30)
            self.assertIn(status, (0, -signal.SIGKILL), daemon.log())
        finally:
            daemon.command = plain
        self.wait_gone(daemon)
        self.check_after(daemon, keep)
        return not survived

    def wait_gone(self, daemon):
        lock = daemon.runtime / "lock"
        if lock.exists():
            wait_until(lambda: subprocess.run(["flock", "-n", str(lock), "true"], check=False)
                       .returncode == 0, "the dead daemon's lock to go")

    def test_every_system_call(self):
        self.grow(PAGE, 24)
        daemon = self.daemon(CONFIG, start=False)
        source = random.Random(int(time.time()))
        # Two stops a call: starting takes some hundred, the scenario some thousand.
        if LONG:
            instants = source.sample(range(20, 20000), 19980)
        else:
            instants = source.sample(range(20, 8000), 40)
        patience, tried = time.monotonic() + (3600 if LONG else 60), 0
        for n in instants:
            if time.monotonic() > patience:
                break
            tried += self.kill_at(daemon, n)
        self.assertGreater(tried, 5)
        print(f"# killed at {tried} instants", flush=True)

    def test_random_instants(self):
        """At full speed: instants between system calls, with threads in the middle of a populate."""
        self.grow(PAGE, 64)
        daemon = self.daemon("[stock a]\npage = 2M\nsegment = 16M\nkeep = 4\n", start=False)
        source = random.Random(int(time.time()))
        for _ in range(60 if LONG else 12):
            daemon.start()
            held = []
            with daemon.connect() as client:
                until = time.monotonic() + source.random() * 0.2
                try:
                    while time.monotonic() < until:
                        _, fd = client.take(16 * MIB, page="2M")
                        self.assertIsNone(first_nonzero(fd, 16 * MIB))
                        dirty(fd, 16 * MIB)
                        if len(held) < 2:
                            held.append(fd)
                        else:
                            os.close(fd)
                finally:
                    daemon.kill()
            for fd in held:
                with mapped(fd, 16 * MIB) as memory:
                    self.assertEqual(memory[-4:], b"\xa5" * 4)
                os.close(fd)
        daemon.start()
        daemon.wait_ready()
        with daemon.connect() as client:
            self.assertEqual(client.list("lent"), [])
        self.assertEqual(hugetlb_count(PAGE), hugetlb_count(PAGE, "nr_hugepages") - 32)

    def test_consumers(self):
        """Fork-happy, passing on and dying, opening and closing in a loop, growing: each ends alone."""
        self.grow(PAGE, 32)
        daemon = self.daemon("[stock a]\npage = 2M\nsegment = 4M\nkeep = 2\n")
        daemon.wait_ready()
        with daemon.connect() as client:
            # The last of many forks holds it.
            lease, fd = client.take(4 * MIB, page="2M")
            children = []
            for i in range(30):
                child = os.fork()
                if not child:
                    time.sleep(0.02 * i)
                    os._exit(0)
                children.append(child)
            os.close(fd)
            for child in children[:-1]:
                os.waitpid(child, 0)
            self.assertEqual(len(client.list("lent")), 1, "the last fork holds it still")
            os.waitpid(children[-1], 0)
            wait_until(lambda: not client.list("lent"), "the lease of the forks to end")

            # Passed on in flight: sent, the sender dead, not yet received.
            import socket
            ours, theirs = socket.socketpair()
            child = os.fork()
            if not child:
                other = daemon.connect()
                _, fd = other.take(4 * MIB, page="2M")
                dirty(fd, 4 * MIB)
                socket.send_fds(theirs, [b"x"], [fd])
                os.kill(os.getpid(), signal.SIGKILL)
            os.waitpid(child, 0)
            time.sleep(0.3)
            self.assertEqual(len(client.list("lent")), 1, "a descriptor in flight holds it")
            _, [fd], _, _ = socket.recv_fds(ours, 1, 1)
            with mapped(fd, 4 * MIB) as memory:
                self.assertEqual(memory[:1], b"\xa5")
            os.close(fd)
            wait_until(lambda: not client.list("lent"), "the lease that was passed on to end")
            ours.close()
            theirs.close()

            # Opens and closes its path as fast as it can: the daemon stays idle enough to serve.
            lease, fd = client.take(4 * MIB, page="2M")
            child = os.fork()
            if not child:
                while True:
                    os.close(os.open(lease["path"], os.O_RDWR))
            time.sleep(0.5)
            ticks = os.sysconf("SC_CLK_TCK")

            def cpu():
                fields = open(f"/proc/{daemon.process.pid}/stat").read().rsplit(")", 1)[1].split()
                return (int(fields[11]) + int(fields[12])) / ticks
            before = cpu()
            time.sleep(2)
            self.assertLess(cpu() - before, 0.5, "a consumer keeps the daemon busy")
            self.assertEqual(len(client.list("lent")), 1)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(fd)
            wait_until(lambda: not client.list("lent"), "the lease to end")

            # Grows its file to the end of what is free: its own, and gone with it.
            lease, fd = client.take(4 * MIB, page="2M")
            length = 4 * MIB
            with self.assertRaises(OSError):
                while True:
                    os.ftruncate(fd, length + PAGE)
                    os.posix_fallocate(fd, length, PAGE)
                    length += PAGE
            [listed] = client.list("lent")
            self.assertEqual(listed["allocated_bytes"], length)
            self.assertGreater(length, 16 * MIB)
            os.close(fd)
            wait_until(lambda: not client.list("lent"), "the grown lease to end")
            wait_until(lambda: not client.call("Status")["pinned"], "nothing to be pinned", 10)

            # Shrinks it to nothing.
            lease, fd = client.take(4 * MIB, page="2M", wait_ms=20000)
            os.ftruncate(fd, 0)
            os.close(fd)
            wait_until(lambda: not client.list("lent"), "the cut lease to end")

            # Opened a second time, the first closed: it goes on until the second is.
            lease, fd = client.take(4 * MIB, page="2M", wait_ms=20000)
            second = os.open(lease["path"], os.O_RDWR)
            os.close(fd)
            time.sleep(0.3)
            self.assertEqual(len(client.list("lent")), 1)
            with mapped(second, 4 * MIB) as memory:
                memory[0] = 1
            os.close(second)
            wait_until(lambda: not client.list("lent"), "the lease to end")
        daemon.wait_ready()

    def test_a_walker(self):
        """An unprivileged user in the run-time directory: sees names of leases at most, opens nothing,
        makes nothing, and cannot keep the daemon from its work."""
        self.grow(PAGE, 16)
        daemon = self.daemon("[stock a]\npage = 2M\nsegment = 4M\nkeep = 2\n")
        daemon.wait_ready()
        with daemon.connect() as client:
            lease, fd = client.take(4 * MIB, page="2M", name="secret")
            script = f"""
import os, sys
opened = []
for top, dirs, files in os.walk({str(daemon.runtime)!r}):
    for name in dirs + files:
        path = os.path.join(top, name)
        for flags in (os.O_RDONLY, os.O_RDWR):
            try:
                opened.append((path, os.open(path, flags)))
            except OSError:
                pass
        try:
            os.unlink(path)
            print("removed", path)
        except OSError:
            pass
    for name in ("new", "lock2"):
        try:
            os.open(os.path.join(top, name), os.O_CREAT | os.O_RDWR)
            print("made", top, name)
        except OSError:
            pass
for path in ({lease["path"]!r}, {str(daemon.runtime / "lock")!r}):
    try:
        os.open(path, os.O_RDONLY)
        print("opened", path)
    except OSError:
        pass
print([p for p, f in opened if not os.path.isdir(p)])
"""
            result = subprocess.run(["setpriv", "--reuid=4321", "--regid=4321", "--clear-groups",
                                     PYTHON, "-c", script],
                                    capture_output=True, text=True, check=False)
            os.close(fd)
            self.assertEqual(result.stdout.strip(), "[]", result.stderr)
            client.call("Give", {"lease": "secret"})
        daemon.wait_ready()


if __name__ == "__main__":
    main()
