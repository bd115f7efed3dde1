#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""prezerod starts, reloads, stops, is killed and comes back: nothing is lost, nothing left."""

import os
import pathlib
import signal
import socket
import subprocess
import time

from prezero_test import (MIB, PREZEROD, SystemTest, dirty, first_nonzero, hugetlb_count, main,
                          mapped, wait_until)

PAGE = 2 * MIB
STOCK = "[stock a]\npage = 2M\nsegment = 8M\nkeep = 2\n"


class Life(SystemTest):
    def test_restart_adopts(self):
        self.grow(PAGE, 32)
        daemon = self.daemon(STOCK)
        daemon.wait_ready()
        for how in ("stop", "kill"):
            with daemon.connect() as client:
                lease, fd = client.take(8 * MIB, page="2M")
                named, named_fd = client.take(8 * MIB, page="2M", name="n-" + how)
                lost, lost_fd = client.take(8 * MIB, page="2M")
            os.close(named_fd)
            daemon.wait_ready()
            with daemon.connect() as client:
                ready = {s["id"] for s in client.list("ready")}
            with mapped(fd, 8 * MIB) as memory:
                memory[:4] = b"mine"
                getattr(daemon, how)()
                os.close(lost_fd)  # its end is nobody's to see
                memory[4:8] = b"here"
                filled_before = 0
                daemon.start()
                with daemon.connect() as client:
                    self.assertEqual({s["id"] for s in client.list("ready")}, ready,
                                     "ready segments are adopted")
                    lent = {s["id"]: s for s in client.list("lent")}
                    self.assertIn(lease["id"], lent)
                    self.assertEqual(lent[named["id"]]["name"], "n-" + how)
                    self.assertNotIn(lost["id"], lent)
                    self.assertEqual(daemon.status()["filled_bytes"], filled_before)
                    self.assertEqual(memory[:8], b"minehere")
            os.close(fd)
            with daemon.connect() as client:
                wait_until(lambda: lease["id"] not in [s["id"] for s in client.list("lent")],
                           "the lease to end under the new daemon")
                self.assertTrue(client.call("Give", {"lease": "n-" + how})["completed"])
                # What was adopted is as good as new.
                for _ in range(2):
                    _, fd = client.take(8 * MIB, page="2M", wait_ms=0)
                    self.assertIsNone(first_nonzero(fd, 8 * MIB))
                    dirty(fd, 8 * MIB)
                    os.close(fd)
            daemon.wait_ready()

    def test_release(self):
        self.grow(PAGE, 16)
        daemon = self.daemon(STOCK)
        daemon.wait_ready()
        refused = daemon.release()
        self.assertEqual(refused.returncode, 1)
        self.assertIn(f"pid {daemon.process.pid}", refused.stderr)
        with daemon.connect() as client:
            lease, fd = client.take(8 * MIB, page="2M")
            _, named_fd = client.take(8 * MIB, page="2M", name="x")
        os.close(named_fd)
        daemon.stop()
        released = daemon.release()
        self.assertEqual(released.returncode, 0, released.stderr)
        self.assertIn("1 of them are still in use", released.stderr)
        self.assertFalse(daemon.runtime.exists())
        dirty(fd, 8 * MIB)  # the holder notices nothing
        self.assertEqual(hugetlb_count(PAGE), hugetlb_count(PAGE, "nr_hugepages") - 4)
        os.close(fd)
        wait_until(lambda: hugetlb_count(PAGE) == hugetlb_count(PAGE, "nr_hugepages"), "all free")
        self.assertEqual(daemon.release().returncode, 0, "nothing to release is fine")

    def test_one_daemon_a_directory(self):
        daemon = self.daemon()
        second = subprocess.run(daemon.command(), capture_output=True, text=True, check=False)
        self.assertEqual(second.returncode, 1)
        self.assertIn(f"in use by prezerod with pid {daemon.process.pid}", second.stderr)
        self.assertEqual(daemon.status()["pid"], daemon.process.pid, "the first is unharmed")

    def test_side_by_side(self):
        self.grow(PAGE, 16)
        daemons = [self.daemon(STOCK) for _ in range(2)]
        for daemon in daemons:
            daemon.wait_ready()
        for daemon in daemons:
            with daemon.connect() as client:
                lease, fd = client.take(8 * MIB, page="2M")
                self.assertTrue(lease["path"].startswith(str(daemon.runtime)))
                os.close(fd)

    def test_stops_in_time(self):
        """SIGTERM while it fills base pages, with requests waiting and peers connected."""
        for page, segment in (("base", "2G"), ("thp", "1G")):
            daemon = self.daemon(f"[stock b]\npage = {page}\nsegment = {segment}\nkeep = 1\n")
            wait_until(lambda: daemon.status()["fills"], "the fill to begin")
            clients = [daemon.connect() for _ in range(20)]
            for client in clients:
                client.send("Take", {"bytes": 1 << 40, "page": "2M", "wait_ms": 60000})
            began = time.monotonic()
            self.assertEqual(daemon.stop(), 0, daemon.log())
            self.assertLess(time.monotonic() - began, 1)
            for client in clients:
                client.close()

    def test_reload(self):
        self.grow(PAGE, 16)
        daemon = self.daemon(STOCK)
        daemon.wait_ready()
        with daemon.connect() as client:
            before = {s["id"] for s in client.list("ready")}
            bad = ("[stock a]\npage = 2M\nsegment = 8M\nkeep = 1\n[daemon]\nthreads = 3\n\nrate = fast\n")
            daemon.configure(bad)
            daemon.reload()
            daemon.wait_log(f"{daemon.config_file}:8: rate must be a size")
            self.assertEqual({s["id"] for s in client.list("ready")}, before, "nothing changed")
            self.assertEqual(daemon.status()["stocks"][0]["keep"], 2)
            check = subprocess.run(daemon.command("--check-config"), capture_output=True, text=True,
                                   check=False)
            self.assertEqual(check.returncode, 2)
            self.assertIn(f"{daemon.config_file}:8: rate", check.stderr)
            daemon.notified.clear()
            daemon.configure("[daemon]\nthreads = 3\n[stock a]\npage = 2M\nsegment = 8M\nkeep = 1\n"
                             "[stock b]\npage = 2M\nsegment = 4M\nkeep = 2\n")
            daemon.reload()
            daemon.wait_notified("RELOADING=1")
            daemon.wait_notified("READY=1")
            daemon.wait_ready("b")
            wait_until(lambda: len(client.list("ready")) == 3, "what is too much to go")
            self.assertEqual(daemon.status()["threads"], 3)
            self.assertEqual(subprocess.run(daemon.command("--check-config"), check=False).returncode, 0)
            daemon.configure("")
            daemon.reload()
            wait_until(lambda: not client.list("ready"), "all stock to be released")
        self.assertEqual(hugetlb_count(PAGE), hugetlb_count(PAGE, "nr_hugepages"))

    def test_bad_configuration_at_start(self):
        daemon = self.daemon("[stock a]\n", start=False)
        result = subprocess.run(daemon.command(), capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn(f"{daemon.config_file}:1: stock a lacks page=", result.stderr)
        self.assertFalse(daemon.runtime.exists(), "nothing was done")
        daemon.config_file.unlink()
        result = subprocess.run(daemon.command(), capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn(str(daemon.config_file), result.stderr)

    def test_usage(self):
        for arguments in (["--nonsense"], ["x"], ["--config"]):
            result = subprocess.run([PREZEROD, *arguments], capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 2, result.stderr)
        result = subprocess.run([PREZEROD, "--help"], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0)
        result = subprocess.run(["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", PREZEROD,
                                 "--runtime-dir", "/tmp/prezero-nobody"],
                                capture_output=True, text=True, check=False)
        if result.returncode != 127:
            self.assertEqual(result.returncode, 1)
            self.assertIn("must run as root", result.stderr)

    def test_runtime_directory_of_others(self):
        daemon = self.daemon(start=False)
        daemon.runtime.mkdir()
        os.chmod(daemon.runtime, 0o777)
        result = subprocess.run(daemon.command(), capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("nobody else may write", result.stderr)
        os.chmod(daemon.runtime, 0o755)

    def test_socket_activation(self):
        daemon = self.daemon(start=False)
        path = daemon.directory / "activated"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen(5)
        os.chmod(path, 0o640)
        # A peer that comes before the daemon waits for it.
        early = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        early.connect(str(path))
        early.sendall(b'{"method":"org.varlink.service.GetInfo"}\0')
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.dup2(listener.fileno(), 3)
            os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
            os.execv(PREZEROD, daemon.command())
        os.close(read)
        os.close(write)
        try:
            early.settimeout(30)
            self.assertIn(b"prezerod", early.recv(4096))
            self.assertFalse((daemon.runtime / "socket").exists())
            self.assertEqual(path.stat().st_mode & 0o777, 0o640, "the service manager's mode stays")
            early.close()
        finally:
            os.kill(child, signal.SIGTERM)
            _, status = os.waitpid(child, 0)
        self.assertEqual(status, 0)
        listener.close()

    def test_watchdog(self):
        daemon = self.daemon(start=False, environment={"WATCHDOG_USEC": "200000"})
        daemon.start()
        for _ in range(3):
            daemon.wait_notified("WATCHDOG=1")
        daemon.stop()
        daemon.wait_notified("STOPPING=1")

    def test_unit(self):
        """Nothing in the unit gives the daemon a mount namespace, or a memory limit to be killed at."""
        unit = pathlib.Path(__file__).parents[2] / "data/prezerod.service.in"
        keys = {line.split("=")[0] for line in unit.read_text().splitlines()
                if "=" in line and not line.startswith("#")}
        for key in ("PrivateTmp", "PrivateDevices", "PrivateMounts", "PrivateNetwork", "PrivateUsers",
                    "ProtectSystem", "ProtectHome", "ProtectKernelTunables", "ProtectKernelModules",
                    "ProtectKernelLogs", "ProtectControlGroups", "ProtectHostname", "ProtectProc",
                    "ProcSubset", "ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths", "BindPaths",
                    "TemporaryFileSystem", "RootDirectory", "DynamicUser", "MountFlags", "MountAPIVFS",
                    "NoExecPaths", "MemoryMax", "MemoryHigh", "User"):
            self.assertNotIn(key, keys)
        self.assertIn("RuntimeDirectoryPreserve", keys)

    def test_without_a_service_manager(self):
        daemon = self.daemon(start=False)
        environment = {k: v for k, v in os.environ.items() if k != "NOTIFY_SOCKET"}
        with open(daemon.log_file, "ab") as log:
            daemon.process = subprocess.Popen(daemon.command(), stdout=log, stderr=log, env=environment)
        wait_until(lambda: os.path.exists(daemon.socket_path), "the socket")
        self.assertGreater(daemon.status()["total_bytes"], 0)

    def test_socket_and_group(self):
        daemon = self.daemon("[daemon]\ngroup = no-such-group-here\n")
        status = os.stat(daemon.socket_path)
        self.assertEqual((status.st_mode & 0o777, status.st_uid, status.st_gid), (0o600, 0, 0))
        self.assertIn("no group 'no-such-group-here'", daemon.log())
        daemon.configure("[daemon]\ngroup = daemon\n")
        daemon.reload()
        wait_until(lambda: os.stat(daemon.socket_path).st_mode & 0o777 == 0o660, "0660")
        self.assertNotEqual(os.stat(daemon.socket_path).st_gid, 0)

    def test_mount_that_is_missing(self):
        self.grow(PAGE, 16)
        daemon = self.daemon(STOCK)
        daemon.wait_ready()
        with daemon.connect() as client:
            lease, fd = client.take(8 * MIB, page="2M")
            subprocess.run(["umount", "--lazy", str(daemon.runtime / "2M")], check=True)
            dirty(fd, 8 * MIB)
            os.close(fd)  # wakes the daemon, which looks
            daemon.wait_log("was unmounted by somebody")
            daemon.wait_log("mounted anew")
            daemon.wait_ready()
            lease, fd = client.take(8 * MIB, page="2M")
            self.assertTrue(os.path.samestat(os.fstat(fd), os.stat(lease["path"])))
            self.assertIsNone(first_nonzero(fd, 8 * MIB))
            os.close(fd)
        daemon.stop()
        # And before a start: the mount point is there, the mount is not.
        subprocess.run(["umount", "--lazy", str(daemon.runtime / "2M")], check=True)
        daemon.start()
        daemon.wait_ready()

    def test_full_runtime_directory(self):
        daemon = self.daemon(start=False)
        small = daemon.directory / "small"
        small.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=3,mode=0755", "none",
                        str(small)], check=True)
        (small / "filler").write_bytes(b"x" * 4096)
        daemon.runtime = small / "run"
        result = subprocess.run(daemon.command(), capture_output=True, text=True, timeout=20, check=False)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("No space left", result.stderr)
        subprocess.run(["umount", str(small)], check=True)
        daemon.runtime = daemon.directory / "run"

    def test_foreign_files(self):
        """What does not belong in ready/ is not adopted."""
        self.grow(PAGE, 16)
        daemon = self.daemon(STOCK)
        daemon.wait_ready()
        daemon.stop()
        ready = daemon.runtime / "2M/ready"
        thp = daemon.runtime / "thp/ready"
        first, second = sorted(ready.iterdir())
        os.chown(first, 1234, 1234)
        os.truncate(second, 6 * MIB)
        (ready / "nonsense").touch()
        os.symlink("/etc/passwd", thp / "0-0123456789abcdef")
        (ready / "0-00000000000000ff").touch()
        os.mkfifo(thp / "0-00000000000000fe")
        daemon.start()
        with daemon.connect() as client:
            listed = client.list()
            self.assertNotIn(first.name[2:], [s["id"] for s in listed])
        daemon.wait_ready()
        self.assertEqual(len(list(ready.iterdir())), 2)
        self.assertEqual(list(thp.iterdir()), [])
        self.assertTrue(pathlib.Path("/etc/passwd").exists())

    def test_other_machines(self):
        """Below --sysroot stands another machine: it is shown, and what cannot be mounted here is not
        served."""
        imagine = pathlib.Path(__file__).parents[1] / "sysroots/imagine"
        for name, nodes in (("eight-nodes", 8), ("no-hugetlb", 1), ("no-numa", 1), ("sparse", None),
                            ("thp-denied", None), ("confined", None)):
            with self.subTest(name):
                daemon = self.daemon("[stock b]\npage = base\nnode = 0\nsegment = 4K\nkeep = 0\n",
                                     start=False)
                tree = daemon.directory / name
                subprocess.run([imagine, name, tree], check=True)
                daemon.sysroot = tree
                daemon.start()
                status = daemon.status()
                self.assertGreater(status["total_bytes"], 0)
                shown = {c["node"] for c in status["classes"]}
                if nodes:
                    self.assertEqual(len(shown), nodes)
                self.assertEqual(daemon.stop(), 0, daemon.log())

    def test_what_every_machine_has_is_missing(self):
        daemon = self.daemon(start=False)
        tree = daemon.directory / "empty"
        tree.mkdir()
        daemon.sysroot = tree
        result = subprocess.run(daemon.command(), capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot be looked at", result.stderr)
        daemon.sysroot = None


if __name__ == "__main__":
    main()
