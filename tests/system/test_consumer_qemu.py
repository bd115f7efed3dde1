#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A real consumer: QEMU boots Debian's stock kernel to a shell on memory from the pool.

For every page size, as root and as an unprivileged user, and on two segments as two NUMA nodes. The
guest's memory is checked to be the segment, in pages of the size that was asked for.
"""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time
import unittest

import prezero_test
from prezero_test import GIB, MIB, PREZERO, ROOT, SystemTest

VM_RUN = ROOT / "tests/vm/run"
KERNEL = "6.1"
GUEST_BYTES = 256 * MIB
NOBODY = 65534
# To the shell prompt: some 6 s under TCG on an idle machine.
BOOT_PATIENCE_S = 10 * prezero_test.PATIENCE_S


def boot_files():
    """The stock kernel and an initramfs with a shell; raises SkipTest when they cannot be had."""
    if not shutil.which("qemu-system-x86_64"):
        raise unittest.SkipTest("no qemu-system-x86_64")
    if not VM_RUN.exists():
        raise unittest.SkipTest("no tests/vm/run to get a guest kernel from")
    found = subprocess.run([sys.executable, str(VM_RUN), "--print-boot-files", KERNEL],
                           capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise unittest.SkipTest(f"no guest kernel: {found.stderr.strip()[-200:]}")
    return json.loads(found.stdout.splitlines()[-1])


def mappings(pid):
    """{path: {field: bytes}} summed over the mappings of each file, from smaps."""
    found = {}
    fields = None
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        header = re.match(r"[0-9a-f]+-([0-9a-f]+) \S+ \S+ \S+ \d+ *(.*)", line)
        if header:
            fields = found.setdefault(header.group(2), {})
            continue
        value = re.match(r"(\w+): +(\d+) kB", line)
        if value and value.group(1) == "KernelPageSize":
            fields["KernelPageSize"] = int(value.group(2)) << 10
        elif value:
            fields[value.group(1)] = fields.get(value.group(1), 0) + (int(value.group(2)) << 10)
    return found


class Guest:
    """A QEMU on leases, and its serial console."""

    def __init__(self, command, log_path):
        self.console, theirs = socket.socketpair()
        self.text = ""
        self.log_path = log_path
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=log)
        theirs.close()

    def wait_for(self, pattern):
        deadline = time.monotonic() + BOOT_PATIENCE_S
        self.console.settimeout(1)
        while not re.search(pattern, self.text):
            try:
                data = self.console.recv(65536)
            except socket.timeout:
                data = None
            except ConnectionError:
                data = b""
            if data == b"" or time.monotonic() > deadline:
                log = pathlib.Path(self.log_path).read_text(errors="replace")
                raise AssertionError(f"no {pattern!r} from the guest:\n{self.text[-2000:]}\n{log}")
            self.text += (data or b"").decode(errors="replace")
        return re.search(pattern, self.text)

    def shell(self, command):
        """What a command prints. The echo of the line that is typed does not hold the marks."""
        self.text = ""
        self.console.sendall(f"echo BEG''IN; {command}; echo EN''D\n".encode())
        return self.wait_for(r"(?s)BEGIN\r*\n(.*?)END\r*\n").group(1)

    def stop(self):
        """May be called again."""
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(prezero_test.PATIENCE_S)
        self.console.close()


class QemuTest(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.files = boot_files()
        super().setUpClass()

    def setUp(self):
        super().setUp()
        self._guests = []

    def tearDown(self):
        for guest in self._guests:
            guest.stop()
        super().tearDown()

    def service(self, page, keep=1, segment_bytes=GUEST_BYTES):
        daemon = self.daemon(f"[daemon]\ngroup = nogroup\n[stock guests]\npage = {page}\nnode = 0\n"
                             f"segment = {segment_bytes}\nkeep = {keep}\n")
        daemon.wait_ready()
        # An unprivileged QEMU may not be able to reach the source tree.
        for name in ("vmlinuz", "initramfs"):
            copy = daemon.directory / name
            shutil.copyfile(self.files[name], copy)
            copy.chmod(0o644)
        return daemon

    def boot(self, daemon, page, user_id, segments=1, segment_bytes=GUEST_BYTES):
        """Boots on that many leases, each a NUMA node of the guest where there are several."""
        command = [PREZERO, "run", "--socket", daemon.socket_path, "--page", page]
        machine = ["-machine", "pc" if segments > 1 else "pc,memory-backend=m1",
                   "-m", f"{segments * segment_bytes // MIB}M",
                   "-smp", f"{segments},sockets={segments}"]
        for number in range(1, segments + 1):
            command += ["--memory", str(segment_bytes)]
            # Only where QEMU maps it at a multiple of the huge page can a PMD map it.
            align = ",align=2M" if page == "thp" else ""
            machine += ["-object", f"memory-backend-file,id=m{number},size={segment_bytes},"
                                   f"mem-path={{memory{number}}},share=on{align}"]
            if segments > 1:
                machine += ["-numa", f"node,nodeid={number - 1},memdev=m{number},cpus={number - 1}"]
        command += ["--", "qemu-system-x86_64", "-accel", "tcg", "-nodefaults", "-no-user-config",
                    "-display", "none", "-no-reboot", "-serial", "stdio",
                    "-kernel", str(daemon.directory / "vmlinuz"),
                    "-initrd", str(daemon.directory / "initramfs"),
                    "-append", self.files["append"], *machine]
        if user_id:
            command = ["setpriv", f"--reuid={user_id}", f"--regid={user_id}", "--clear-groups",
                       "--", *command]
        guest = Guest(command, daemon.directory / "qemu.log")
        self._guests.append(guest)
        guest.wait_for("prezero guest shell")
        self.assertIn("answer-42", guest.shell("echo answer-$((6 * 7))"))
        return guest

    def check_memory(self, daemon, guest, page, user_id, segments=1, segment_bytes=GUEST_BYTES):
        with daemon.connect() as client:
            leases = client.list("lent")
        self.assertEqual(len(leases), segments)
        maps = mappings(guest.process.pid)
        for lease in leases:
            self.assertEqual((lease["bytes"], lease["page"], lease.get("uid")),
                             (segment_bytes, page, user_id))
            found = maps.get(lease["path"])
            self.assertIsNotNone(found, f"{lease['path']} is not mapped by QEMU: {sorted(maps)}")
            self.assertEqual(found["Size"], segment_bytes)
            self.check_pages(page, found)
            # Shared, so nothing was copied: what the guest wrote is in the segment.
            self.assertEqual(found.get("Anonymous", 0), 0)
            self.assertIsNotNone(
                self.first_written(lease["path"], segment_bytes), "the guest wrote nothing to it")
        # And nowhere else is there memory for a guest of that size.
        others = sum(fields.get("Anonymous", 0) for fields in maps.values())
        self.assertLess(others, segment_bytes)

    def check_pages(self, page, found):
        touched = 16 * MIB  # the least that a kernel touches of its memory at boot
        if page in ("2M", "1G"):
            self.assertEqual(found["KernelPageSize"], {"2M": 2 * MIB, "1G": GIB}[page])
            self.assertGreaterEqual(found["Shared_Hugetlb"] + found["Private_Hugetlb"], touched)
        elif page == "thp":
            self.assertGreaterEqual(found["ShmemPmdMapped"], touched)
            self.assertEqual(found["ShmemPmdMapped"], found["Rss"])
        else:
            self.assertEqual(found["KernelPageSize"], os.sysconf("SC_PAGE_SIZE"))
            self.assertEqual(found["ShmemPmdMapped"], 0)
            self.assertGreaterEqual(found["Rss"], touched)

    def first_written(self, path, segment_bytes):
        fd = os.open(path, os.O_RDWR)
        try:
            return prezero_test.first_nonzero(fd, segment_bytes)
        finally:
            os.close(fd)

    def boots_from(self, page, user_id, segment_bytes=GUEST_BYTES):
        daemon = self.service(page, segment_bytes=segment_bytes)
        guest = self.boot(daemon, page, user_id, segment_bytes=segment_bytes)
        self.check_memory(daemon, guest, page, user_id, segment_bytes=segment_bytes)
        guest.stop()
        # The lease ends with QEMU, and a new segment takes its place, zero as the first one was.
        def is_over():
            with daemon.connect() as client:
                return not client.list("lent")
        prezero_test.wait_until(is_over, "the end of the lease")
        daemon.wait_ready()
        with daemon.connect() as client:
            _, fd = client.take(segment_bytes, page=page, wait_ms=0)
            self.assertIsNone(prezero_test.first_nonzero(fd, segment_bytes))
            os.close(fd)

    def test_2m_as_root(self):
        self.grow(2 * MIB, GUEST_BYTES // (2 * MIB))
        self.boots_from("2M", 0)

    def test_2m_as_nobody(self):
        self.grow(2 * MIB, GUEST_BYTES // (2 * MIB))
        self.boots_from("2M", NOBODY)

    def test_1g_as_root(self):
        self.grow(GIB, 1)
        self.boots_from("1G", 0, GIB)

    def test_1g_as_nobody(self):
        self.grow(GIB, 1)
        self.boots_from("1G", NOBODY, GIB)

    def test_thp_as_root(self):
        self.boots_from("thp", 0)

    def test_thp_as_nobody(self):
        self.boots_from("thp", NOBODY)

    def test_base_as_root(self):
        self.boots_from("base", 0)

    def test_base_as_nobody(self):
        self.boots_from("base", NOBODY)

    def test_two_numa_nodes(self):
        self.grow(2 * MIB, 2 * GUEST_BYTES // (2 * MIB))
        daemon = self.service("2M", keep=2)
        guest = self.boot(daemon, "2M", NOBODY, segments=2)
        self.check_memory(daemon, guest, "2M", NOBODY, segments=2)
        for node in (0, 1):
            text = guest.shell(f"cat /sys/devices/system/node/node{node}/meminfo")
            total = int(re.search(rf"Node {node} MemTotal: +(\d+) kB", text).group(1)) << 10
            self.assertTrue(GUEST_BYTES * 0.7 < total <= GUEST_BYTES, total)


if __name__ == "__main__":
    prezero_test.main()
