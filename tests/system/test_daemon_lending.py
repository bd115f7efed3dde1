#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""prezerod lends: every way a request can be met, waited for or refused.

The oracle everywhere: what comes is all zero, what goes back is dirty on every page.
"""

import mmap
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from prezero_test import (BUILD, GIB, MIB, PYTHON, SystemTest, VarlinkError, dirty, first_nonzero,
                          hugetlb_count, is_sanitized, main, mapped, wait_until)

PAGE = 2 * MIB
QUIET = "[daemon]\nthreads = 2\n"


def stock(name, page, segment, keep, node="any"):
    return f"[stock {name}]\npage = {page}\nnode = {node}\nsegment = {segment}\nkeep = {keep}\n"


class Lending(SystemTest):
    def grow_to(self, pages):
        """Exactly so many free pages, whatever others left on this machine."""
        free = hugetlb_count(PAGE)
        self.grow(PAGE, pages - free)
        self.assertEqual(hugetlb_count(PAGE), pages)

    def daemon_tree(self, own):
        """This machine's /proc and /sys as a tree, in which one file of /sys is the test's to replace."""
        tree = pathlib.Path(tempfile.mkdtemp(prefix="prezero-tree-"))
        self.addCleanup(shutil.rmtree, tree)
        (tree / "proc").symlink_to("/proc")
        for parent in reversed(pathlib.Path("sys", own).parents[:-1]):
            (tree / parent).mkdir()
            for entry in pathlib.Path("/", parent).iterdir():
                if entry.name not in own.split("/")[:-1] or entry.is_symlink():
                    (tree / parent / entry.name).symlink_to(entry)
        return tree, tree / "sys" / own

    def check_and_dirty(self, fd, length):
        self.assertEqual(os.fstat(fd).st_size, length)
        self.assertIsNone(first_nonzero(fd, length), "a page that was lent is not zero")
        dirty(fd, length)

    def assert_refused(self, reason, call):
        with self.assertRaises(VarlinkError) as caught:
            call()
        self.assertEqual(caught.exception.error, "io.prezero.Pool.Refused", caught.exception)
        self.assertEqual(caught.exception.parameters["reason"], reason, caught.exception)
        return caught.exception.parameters

    def test_exact(self):
        self.grow_to(32)
        daemon = self.daemon(QUIET + stock("a", "2M", "16M", 2))
        daemon.wait_ready()
        self.assertRegex(daemon.wait_log("filled 2M@0") and daemon.log(),
                         r"filled 2M@0: 2 segments, 16 pages, 32.0M in [0-9.]+ s, [0-9.]+ GB/s, [12] threads")
        with daemon.connect() as client:
            before = client.list("ready")
            lease, fd = client.take(16 * MIB, page="2M")
            self.assertIn(lease["id"], [s["id"] for s in before])
            self.assertFalse(lease["filling"])
            self.assertEqual((lease["page"], lease["page_bytes"], lease["bytes"], lease["node"]),
                             ("2M", PAGE, 16 * MIB, 0))
            self.assertTrue(os.path.samestat(os.fstat(fd), os.stat(lease["path"])))
            self.check_and_dirty(fd, 16 * MIB)
            [listed] = client.list("lent")
            self.assertEqual((listed["id"], listed["uid"], listed["allocated_bytes"]),
                             (lease["id"], os.getuid(), 16 * MIB))
            os.close(fd)
            wait_until(lambda: not client.list("lent"), "the lease to end")
            self.assertFalse(os.path.exists(lease["path"]))
        daemon.wait_ready()

    def test_pages_come_back_zero_in_every_class(self):
        self.grow_to(24)
        daemon = self.daemon(QUIET + stock("h", "2M", "8M", 2) + stock("t", "thp", "8M", 2) +
                             stock("b", "base", "8M", 2))
        daemon.wait_ready()
        with daemon.connect() as client:
            for page in ("2M", "thp", "base"):
                for _ in range(12):
                    lease, fd = client.take(8 * MIB, page=page)
                    self.assertEqual(lease["page"], page)
                    self.check_and_dirty(fd, 8 * MIB)
                    os.close(fd)
        daemon.wait_ready()

    def test_cut(self):
        self.grow_to(16)
        daemon = self.daemon(QUIET + stock("a", "2M", "32M", 1))
        daemon.wait_ready()
        with daemon.connect() as client:
            [whole] = client.list("ready")
            lease, fd = client.take(10 * MIB, page="2M")
            self.assertEqual(lease["id"], whole["id"], "the ready segment was to be cut")
            self.check_and_dirty(fd, 10 * MIB)
            self.assertEqual(os.fstat(fd).st_blocks * 512, 10 * MIB)
            self.assertEqual(hugetlb_count(PAGE), 16 - 5, "what was cut off goes back")
            os.close(fd)
        daemon.wait_ready()

    def test_fill_on_demand(self):
        self.grow_to(16)
        daemon = self.daemon(QUIET)
        with daemon.connect() as client:
            for page in ("2M", "thp", "base"):
                lease, fd = client.take(24 * MIB, page=page)
                self.check_and_dirty(fd, 24 * MIB)
                os.close(fd)
            wait_until(lambda: not client.list(), "all leases to end")

    def test_default_page_is_the_hosts(self):
        self.grow_to(4)
        daemon = self.daemon(QUIET)
        with daemon.connect() as client:
            lease, fd = client.take(4 * MIB)
            self.assertEqual(lease["page"], "2M")
            os.close(fd)

    def test_release_and_fill(self):
        self.grow_to(16)
        daemon = self.daemon(QUIET + stock("a", "2M", "8M", 4))
        daemon.wait_ready()
        self.assertEqual(hugetlb_count(PAGE), 0)
        with daemon.connect() as client:
            lease, fd = client.take(20 * MIB, page="2M")
            self.check_and_dirty(fd, 20 * MIB)
            os.close(fd)
        daemon.wait_ready()

    def test_stock_being_filled_goes_to_who_waits(self):
        self.grow_to(128)
        daemon = self.daemon("[daemon]\nthreads = 1\nrate = 16M\n" + stock("a", "2M", "256M", 1))
        wait_until(lambda: daemon.status()["fills"], "the fill to begin")
        with daemon.connect() as client:
            began = time.monotonic()
            lease, fd = client.take(256 * MIB, page="2M")
            self.assertLess(time.monotonic() - began, 10, "a request is not under the rate cap")
            self.check_and_dirty(fd, 256 * MIB)
            os.close(fd)

    def test_partial(self):
        self.grow_to(256)
        daemon = self.daemon("[daemon]\nthreads = 1\n")
        with daemon.connect() as client:
            lease, fd = client.take(512 * MIB, page="2M", partial=True)
            self.check_and_dirty(fd, 512 * MIB)
            if lease["filling"]:
                wait_until(lambda: not daemon.status()["fills"], "the fill to end")
            self.assertEqual(os.fstat(fd).st_blocks * 512, 512 * MIB)
            os.close(fd)
            wait_until(lambda: not client.list(), "the lease to end")
            # Given up before it is whole: the fill stops and the pages go back.
            lease, fd = client.take(512 * MIB, page="2M", partial=True)
            os.close(fd)
            wait_until(lambda: not client.list(), "the partial lease to end")
            self.assertEqual(hugetlb_count(PAGE), hugetlb_count(PAGE, "nr_hugepages"))

    def test_partial_where_it_cannot_be(self):
        """tmpfs pages that are missing cannot be promised: the request waits for the whole."""
        daemon = self.daemon(QUIET)
        with daemon.connect() as client:
            lease, fd = client.take(64 * MIB, page="base", partial=True)
            self.assertFalse(lease["filling"])
            self.check_and_dirty(fd, 64 * MIB)
            os.close(fd)

    def test_named(self):
        self.grow_to(8)
        daemon = self.daemon(QUIET)
        with daemon.connect() as client:
            lease, fd = client.take(4 * MIB, page="2M", name="vm-7")
            self.assertTrue(lease["path"].endswith("=vm-7"))
            with self.assertRaises(VarlinkError) as caught:
                client.take(2 * MIB, page="base", name="vm-7")
            self.assertEqual(caught.exception.error, "io.prezero.Pool.NameTaken")
            self.check_and_dirty(fd, 4 * MIB)
            os.close(fd)
            time.sleep(0.1)
            [listed] = client.list("lent")
            self.assertEqual(listed["name"], "vm-7")
            self.assertTrue(client.call("Give", {"lease": "vm-7"})["completed"])
            self.assertEqual(client.list("lent"), [])
            with self.assertRaises(VarlinkError) as caught:
                client.call("Give", {"lease": "vm-7"})
            self.assertEqual(caught.exception.error, "io.prezero.Pool.NoSuchLease")

    def test_give_names_the_holders(self):
        self.grow_to(8)
        daemon = self.daemon(QUIET)
        with daemon.connect() as client:
            for how in ("id", "path", "name"):
                lease, fd = client.take(4 * MIB, page="2M", name="x" if how == "name" else None)
                text = "x" if how == "name" else lease[how]
                reply = client.call("Give", {"lease": text})
                self.assertFalse(reply["completed"])
                self.assertEqual([h["pid"] for h in reply["holders"]], [os.getpid()])
                os.close(fd)
                wait_until(lambda: not client.list("lent"), f"the lease to end, given by {how}")

    def test_give_waits(self):
        self.grow_to(8)
        daemon = self.daemon(QUIET)
        with daemon.connect() as client, daemon.connect() as other:
            lease, fd = client.take(4 * MIB, page="2M", name="a")
            began = time.monotonic()
            reply = client.call("Give", {"lease": "a", "wait_ms": 300})
            self.assertFalse(reply["completed"])
            self.assertGreaterEqual(time.monotonic() - began, 0.29)
            other.send("Give", {"lease": lease["id"], "wait_ms": 30000})
            time.sleep(0.05)
            os.close(fd)
            self.assertTrue(other.receive()["parameters"]["completed"])

    def test_a_holder_without_the_lock_counts(self):
        """Who opened the path of a named lease has no lock: give must find it all the same."""
        self.grow_to(8)
        daemon = self.daemon(QUIET)
        with daemon.connect() as client:
            lease, fd = client.take(4 * MIB, page="2M", name="a")
            opened = os.open(lease["path"], os.O_RDWR)
            os.close(fd)
            reply = client.call("Give", {"lease": "a"})
            self.assertFalse(reply["completed"])
            self.assertEqual([h["pid"] for h in reply["holders"]], [os.getpid()])
            with mapped(opened, 4 * MIB) as memory:
                os.close(opened)
                time.sleep(0.3)
                self.assertEqual(len(client.list("lent")), 1)
                memory[0] = 1
            wait_until(lambda: not client.list("lent"), "the lease to end")

    def test_where_the_kernel_refuses_file_leases(self):
        """Then /proc says who has a lease open: ever more seldom, and a lease in use never ends."""
        if is_sanitized():
            self.skipTest("a sanitizer does not go with a preloaded library")
        self.grow_to(8)
        daemon = self.daemon(QUIET, environment={"LD_PRELOAD": str(BUILD / "tests/system/no_file_leases.so")})

        def system_calls():
            """Of reading alone: a look through /proc makes hundreds."""
            text = pathlib.Path("/proc", str(daemon.process.pid), "io").read_text()
            return int(text.split("syscr: ")[1].split()[0])

        with daemon.connect() as client:
            lease, fd = client.take(4 * MIB, page="2M", name="a")
            opened = os.open(lease["path"], os.O_RDWR)
            os.close(fd)
            reply = client.call("Give", {"lease": "a"})
            self.assertFalse(reply["completed"])
            self.assertEqual([h["pid"] for h in reply["holders"]], [os.getpid()])
            time.sleep(1.2)  # looked at after 40 ms, 160 ms, 640 ms, and then 2.6 s
            before = system_calls()
            time.sleep(1.5)
            self.assertLess(system_calls() - before, 50)
            self.assertEqual(len(client.list("lent")), 1)
            os.close(opened)
            wait_until(lambda: not client.list("lent"), "the lease to end")

    def test_wait_queue(self):
        self.grow_to(8)
        daemon = self.daemon(QUIET)
        with daemon.connect() as client, daemon.connect() as other:
            lease, fd = client.take(16 * MIB, page="2M")
            began = time.monotonic()
            self.assert_refused("deadline", lambda: other.take(4 * MIB, page="2M", wait_ms=200))
            self.assertGreaterEqual(time.monotonic() - began, 0.19)
            # Without a bound: not for others to give back.
            refusal = self.assert_refused("pages", lambda: other.take(4 * MIB, page="2M"))
            self.assertIn(os.getpid(), [h["pid"] for h in refusal["holders"]])
            other.send("Take", {"bytes": 4 * MIB, "page": "2M", "wait_ms": 30000})
            time.sleep(0.1)
            self.assertEqual(len(client.list()), 1)
            dirty(fd, 16 * MIB)
            os.close(fd)
            reply = other.receive()
            self.assertNotIn("error", reply)
            self.check_and_dirty(other.fds[-1], 4 * MIB)

    def test_a_look_that_took_long_keeps_nobody_waiting(self):
        """The daemon rests after a look for as long as it computed, however long it stood still."""
        self.grow_to(8)
        tree, shmem = self.daemon_tree("kernel/mm/transparent_hugepage/shmem_enabled")
        daemon = self.daemon(QUIET, sysroot=tree)
        with daemon.connect() as client, daemon.connect() as other:
            _, fd = client.take(16 * MIB, page="2M")
            other.send("Take", {"bytes": 4 * MIB, "page": "2M", "wait_ms": 60000})
            os.mkfifo(tree / "pipe")
            os.rename(tree / "pipe", shmem)
            with open(shmem, "w") as pipe:  # the next look has begun, and stands still
                shmem.unlink()
                shmem.symlink_to("/sys" / shmem.relative_to(tree / "sys"))
                time.sleep(2)
                pipe.write("always within_size [advise] never deny force\n")
            os.close(fd)
            began = time.monotonic()
            self.assertNotIn("error", other.receive())
            self.assertLess(time.monotonic() - began, 10)

    def test_new_pages_reach_who_waits(self):
        """Nobody tells the daemon of them: it looks by itself, also when it was quiet before."""
        self.grow_to(8)
        daemon = self.daemon(QUIET)
        with daemon.connect() as client, daemon.connect() as other:
            _, fd = client.take(16 * MIB, page="2M")
            time.sleep(0.5)
            other.send("Take", {"bytes": 4 * MIB, "page": "2M", "wait_ms": 30000})
            time.sleep(0.5)
            self.grow(PAGE, 2)
            self.assertNotIn("error", other.receive())
            os.close(fd)

    def test_who_waits_and_goes_leaves_nothing(self):
        self.grow_to(8)
        daemon = self.daemon(QUIET)
        with daemon.connect() as client:
            lease, fd = client.take(16 * MIB, page="2M")
            for _ in range(20):
                other = daemon.connect()
                other.send("Take", {"bytes": 4 * MIB, "page": "2M", "wait_ms": 60000})
                time.sleep(0.01)
                other.close()
            os.close(fd)
            wait_until(lambda: not client.list(), "nothing to be left")
            # Gone while it is being filled for it.
            for _ in range(20):
                other = daemon.connect()
                other.send("Take", {"bytes": 16 * MIB, "page": "2M"})
                other.close()
            wait_until(lambda: not client.list(), "nothing to be left of fills")
        wait_until(lambda: hugetlb_count(PAGE) == 8, "all pages free")

    def test_only_what_is_ready(self):
        self.grow_to(16)
        daemon = self.daemon(QUIET + stock("a", "2M", "8M", 1))
        daemon.wait_ready()
        with daemon.connect() as client:
            self.assert_refused("deadline", lambda: client.take(16 * MIB, page="2M", wait_ms=0))
            lease, fd = client.take(8 * MIB, page="2M", wait_ms=0)
            os.close(fd)

    def test_refusals(self):
        self.grow_to(8)
        total = hugetlb_count(PAGE, "nr_hugepages")
        daemon = self.daemon(QUIET + "[leave_free]\n2M = 4M\n")
        with daemon.connect() as client:
            refused = self.assert_refused
            refused("class", lambda: client.take(4 * MIB, page="4M"))
            refused("class", lambda: client.take(4 * MIB, page="huge"))
            refused("class", lambda: client.take(4 * MIB, page=""))
            refused("node", lambda: client.take(4 * MIB, page="2M", node=5))
            refused("node", lambda: client.take(4 * MIB, page="2M", node=63))
            self.assertIn("ask for 4M", refused("multiple",
                                                lambda: client.take(3 * MIB, page="2M"))["fix"])
            refused("machine", lambda: client.take(1 << 50, page="2M"))
            refused("machine", lambda: client.take((1 << 63) - PAGE, page="2M"))
            short = refused("leave_free", lambda: client.take(16 * MIB, page="2M", node=0))
            self.assertEqual((short["have_bytes"], short["need_bytes"]), (12 * MIB, 16 * MIB))
            self.assertEqual(short["fix"], f"echo {total + 2} > /sys/devices/system/node/node0/"
                                           "hugepages/hugepages-2048kB/nr_hugepages")
            subprocess.run(["sh", "-c", short["fix"]], check=True)
            lease, fd = client.take(16 * MIB, page="2M", node=0)
            self.check_and_dirty(fd, 16 * MIB)
            os.close(fd)
            for bad in ({"bytes": 0}, {"bytes": -PAGE}, {"bytes": PAGE, "name": "../x"},
                        {"bytes": PAGE, "name": ""}, {"bytes": PAGE, "name": "a" * 65},
                        {"bytes": PAGE, "wait_ms": -1}, {"bytes": PAGE, "node": -2}):
                with self.assertRaises(VarlinkError) as caught:
                    client.call("Take", bad)
                self.assertTrue(caught.exception.error.endswith("InvalidParameter") or
                                caught.exception.parameters["reason"] == "node", caught.exception)

    def test_floor(self):
        daemon = self.daemon(QUIET)
        available = daemon.status()["available_bytes"]
        daemon.configure(f"[daemon]\nfloor = {(available - 256 * MIB) // MIB}M\n" +
                         stock("b", "base", "64M", 20))
        daemon.reload()
        daemon.wait_log("stock b")
        self.assertIn("memory floor", daemon.log())
        with daemon.connect() as client:
            refusal = self.assert_refused("floor", lambda: client.take(1 * GIB, page="base"))
            self.assertIn("floor=", refusal["fix"])
        status = daemon.status()
        self.assertGreater(status["available_bytes"], status["floor_bytes"] - 192 * MIB)
        self.assertEqual(status["stocks"][0]["short_of"], "floor")

    def test_limits(self):
        self.grow_to(16)
        user = 12345
        daemon = self.daemon(QUIET + f"[limits]\nuser.{user} = 8M\n")
        os.chmod(daemon.socket_path, 0o666)
        script = (
            "import os, sys; sys.path.insert(0, %r)\n"
            "from prezero_test import *; os.setgid(%d); os.setuid(%d); c = Client(%r)\n"
            "a, fd = c.take(6 << 20, page='2M'); assert os.fstat(fd).st_uid == %d\n"
            "def limit(n):\n"
            "    try: c.take(n, page='2M')\n"
            "    except VarlinkError as e: return e.parameters['reason']\n"
            "assert limit(4 << 20) == 'limit'\n"
            "b, fd2 = c.take(2 << 20, page='2M'); os.close(fd2)\n"
            "import time; time.sleep(0.2)\n"
            # Grown by what is free of its limit: nothing is left of it.
            "os.ftruncate(fd, 8 << 20); os.posix_fallocate(fd, 6 << 20, 2 << 20); time.sleep(1.1)\n"
            "assert limit(2 << 20) == 'limit', 'growth counts'\n"
            "os.close(fd); time.sleep(0.2)\n"
            "b, fd2 = c.take(8 << 20, page='2M')\n"
            # Opened once more and the first closed: still its own, still counted.
            "fd3 = os.open(b['path'], os.O_RDWR); os.close(fd2); time.sleep(0.3)\n"
            "assert limit(2 << 20) == 'limit', 'what was opened again counts'\n"
            "os.close(fd3); time.sleep(0.5)\n"
            "b, fd2 = c.take(8 << 20, page='2M'); os.close(fd2)\n"
            % (os.path.dirname(os.path.abspath(__file__)), user, user, daemon.socket_path, user))
        result = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr + daemon.log())

    def test_limits_of_what_waits(self):
        """Requests of one user that wait together: each fits its limit, all of them do not."""
        self.grow_to(16)
        user = 12345
        daemon = self.daemon(QUIET + f"[limits]\nuser.{user} = 8M\n")
        os.chmod(daemon.socket_path, 0o666)
        with daemon.connect() as client:
            _, fd = client.take(hugetlb_count(PAGE) * PAGE, page="2M")
            script = (
                "import os, sys; sys.path.insert(0, %r)\n"
                "from prezero_test import *; os.setgid(%d); os.setuid(%d)\n"
                "cs = [Client(%r) for i in range(3)]\n"
                "for c in cs: c.send('Take', {'bytes': 6 << 20, 'page': '2M', 'partial': True,"
                " 'wait_ms': 20000})\n"
                "print('asked', flush=True)\n"
                "replies = [c.receive() for c in cs]\n"
                "print(sorted(r.get('error', 'lent') for r in replies))\n"
                % (os.path.dirname(os.path.abspath(__file__)), user, user, daemon.socket_path))
            with subprocess.Popen([PYTHON, "-c", script], stdout=subprocess.PIPE, text=True) as asking:
                asking.stdout.readline()
                time.sleep(0.3)
                os.close(fd)
                self.assertEqual(asking.stdout.read().strip(), "['io.prezero.Pool.Refused', "
                                 "'io.prezero.Pool.Refused', 'lent']", daemon.log())

    def test_a_holders_name_is_any_bytes(self):
        self.grow_to(16)
        daemon = self.daemon(QUIET)
        with daemon.connect() as client:
            _, fd = client.take(hugetlb_count(PAGE) * PAGE, page="2M")
            script = ("import sys; open('/proc/self/comm', 'wb').write(b'\\xff\\n\\xc3'); "
                      "print('named', flush=True); sys.stdin.read()")
            with subprocess.Popen([PYTHON, "-c", script], pass_fds=[fd], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True) as holder:
                holder.stdout.readline()
                with self.assertRaises(VarlinkError) as refused:
                    client.take(PAGE, page="2M")
                names = {h["pid"]: h["command"] for h in refused.exception.parameters["holders"]}
                self.assertEqual(names[holder.pid], "???")
                holder.stdin.close()
            os.close(fd)

    def test_a_lease_is_its_users(self):
        self.grow_to(8)
        daemon = self.daemon(QUIET)
        os.chmod(daemon.socket_path, 0o666)
        with daemon.connect() as client:
            lease, fd = client.take(4 * MIB, page="2M", name="roots")
            script = ("import os, sys; sys.path.insert(0, %r)\n"
                      "from prezero_test import *; os.setgid(1234); os.setuid(1234); c = Client(%r)\n"
                      "try: c.call('Give', {'lease': 'roots'})\n"
                      "except VarlinkError as e: assert e.error.endswith('NotYours'), e\n"
                      "else: assert 0\n"
                      "try: os.open(%r, os.O_RDONLY)\n"
                      "except PermissionError: pass\n"
                      "else: assert 0\n"
                      % (os.path.dirname(os.path.abspath(__file__)), daemon.socket_path,
                         lease["path"]))
            result = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True,
                                    check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            os.close(fd)
            client.call("Give", {"lease": "roots"})

    def test_many_clients_at_once(self):
        self.grow_to(64)
        daemon = self.daemon(QUIET + stock("a", "2M", "2M", 32))
        daemon.wait_ready()
        failures = []

        def trips():
            try:
                with daemon.connect() as client:
                    for _ in range(50):
                        _, fd = client.take(PAGE, page="2M", wait_ms=30000)
                        if first_nonzero(fd, PAGE) is not None:
                            failures.append("not zero")
                        dirty(fd, PAGE)
                        os.close(fd)
            except Exception as error:  # pylint: disable=broad-except
                failures.append(repr(error))

        threads = [threading.Thread(target=trips) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        daemon.wait_ready()
        self.assertEqual(daemon.status()["takes"], 400)

    def test_hugetlb_pages_that_vanish(self):
        """Somebody lowers nr_hugepages while segments are filled: no crash, and the reason is told."""
        self.grow_to(128)
        daemon = self.daemon("[daemon]\nthreads = 1\nrate = 64M\n" + stock("a", "2M", "128M", 2))
        wait_until(lambda: daemon.status()["fills"], "the fill to begin")
        path = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
        total = hugetlb_count(PAGE, "nr_hugepages")
        with open(path, "w") as file:
            file.write(str(total - 100))
        daemon.wait_log("stock a")
        self.assertIn("too few free huge pages", daemon.log())
        self.assertIsNone(daemon.process.poll())
        with open(path, "w") as file:
            file.write(str(total))
        daemon.configure(stock("a", "2M", "128M", 2))
        daemon.reload()
        daemon.wait_ready()

    def test_leave_free_holds_while_it_fills(self):
        """Others take pages in the middle of a fill that was ordered when there were enough."""
        self.grow_to(64)
        daemon = self.daemon("[daemon]\nthreads = 2\nrate = 32M\n[leave_free]\n2M = 32M\n" +
                             stock("a", "2M", "96M", 1))
        wait_until(lambda: daemon.status()["fills"], "the fill to begin")
        hugetlb = 0x40000
        with mmap.mmap(-1, 10 * PAGE, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | hugetlb) as others:
            for offset in range(0, 10 * PAGE, PAGE):
                others[offset] = 1
            daemon.wait_log("stock a")
            self.assertGreaterEqual(hugetlb_count(PAGE), 16, "leave_free= was crossed")
            wait_until(lambda: hugetlb_count(PAGE) == 54, "what was begun in vain to be given back")
            wait_until(lambda: daemon.status()["stocks"][0].get("short_of") == "leave_free",
                       "the reason to be told")
        daemon.wait_ready()

    def test_a_consumer_killed(self):
        self.grow_to(8)
        daemon = self.daemon(QUIET + stock("a", "2M", "8M", 1))
        daemon.wait_ready()
        with daemon.connect() as client:
            for delay in (0, 0.001, 0.005, 0.02):
                child = os.fork()
                if not child:
                    other = daemon.connect()
                    _, fd = other.take(8 * MIB, page="2M")
                    dirty(fd, 8 * MIB)
                    time.sleep(60)
                time.sleep(0.05 + delay)
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                wait_until(lambda: not client.list("lent"), "the lease to end")
                daemon.wait_ready()


if __name__ == "__main__":
    main()
