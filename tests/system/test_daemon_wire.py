#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""prezerod and its peers: whatever they send, and however slowly they read, it serves the others."""

import json
import os
import random
import signal
import socket
import struct
import subprocess
import time

from prezero_test import MIB, PYTHON, SystemTest, is_sanitized, main, run_as, wait_until

PAGE = 2 * MIB
INFO = b'{"method":"org.varlink.service.GetInfo"}\0'


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat", encoding="ascii").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_private(pid):
    """Bytes of its own memory: what no file and no other process backs."""
    for line in open(f"/proc/{pid}/smaps_rollup", encoding="ascii"):
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no Anonymous: in smaps_rollup")


class Wire(SystemTest):
    def setUp(self):
        super().setUp()
        self.server = self.daemon()

    def tearDown(self):
        # Whatever a test did, others are served, and the daemon did not spin.
        self.assertIsNone(self.server.process.poll(), self.server.log())
        self.assertGreater(self.server.status()["total_bytes"], 0)
        super().tearDown()

    def assert_comes_to_rest(self, daemon):
        def rests():
            before = cpu_seconds(daemon.process.pid)
            time.sleep(0.5)
            return cpu_seconds(daemon.process.pid) == before
        wait_until(rests, "the daemon to use no CPU: it spins")

    def assert_is_small(self):
        if not is_sanitized():
            self.assertLess(rss_private(self.server.process.pid), 10 * MIB)

    def hung_up_on(self, data):
        with self.server.connect() as client:
            try:
                client.send_raw(data)
                return client.receive() is None
            except (BrokenPipeError, ConnectionResetError):
                return True

    def test_what_is_no_call(self):
        for data in (b"\0", b"x\0", b"[]\0", b"1\0", b'"a"\0', b"null\0",
                     b'{"method":"a.b.C","method":"a.b.D"}\0', b'{"method":\0',
                     b'{"method":"io.prezero.Pool.Status"} x\0', b"\xff\xfe\0",
                     b'{"method":"io.prezero.Pool.Status","parameters":{"a":1,"a":2}}\0',
                     b"{" * 3000 + b"\0", b"[" * 60000 + b"\0"):
            with self.subTest(data[:40]):
                self.assertTrue(self.hung_up_on(data))

    def test_errors_that_are_answers(self):
        def error_of(message):
            with self.server.connect() as client:
                client.send_raw(json.dumps(message).encode() + b"\0")
                return client.receive()["error"]
        self.assertEqual(error_of({"method": "io.prezero.Pool.Nothing"}),
                         "org.varlink.service.MethodNotFound")
        self.assertEqual(error_of({"method": "no.such.Thing"}), "org.varlink.service.InterfaceNotFound")
        for message in ({}, {"method": 1}):
            self.assertEqual(error_of(message), "org.varlink.service.InvalidParameter")
        for parameters in ({"bytes": "x"}, {}, {"bytes": 1.5}, {"bytes": 1 << 70},
                           {"bytes": PAGE, "more": 1}):
            with self.subTest(parameters):
                self.assertEqual(error_of({"method": "io.prezero.Pool.Take", "parameters": parameters}),
                                 "org.varlink.service.InvalidParameter")
        self.assertEqual(error_of({"method": "io.prezero.Pool.List"}), "org.varlink.service.ExpectedMore")
        self.assertEqual(error_of({"method": "io.prezero.Pool.List", "more": True,
                                   "parameters": {"state": "odd"}}),
                         "org.varlink.service.InvalidParameter")

    def test_interface(self):
        with self.server.connect() as client:
            info = client.call("org.varlink.service.GetInfo")
            self.assertEqual(info["interfaces"], ["org.varlink.service", "io.prezero.Pool"])
            for name in info["interfaces"]:
                text = client.call("org.varlink.service.GetInterfaceDescription", {"interface": name})
                self.assertIn("interface " + name, text["description"])

    def test_too_long(self):
        self.assertTrue(self.hung_up_on(b'{"method":"' + b"a" * (1 << 20) + b'"}\0'))
        with self.server.connect() as client:
            client.socket.settimeout(10)
            with self.assertRaises(OSError):  # never ends: it hangs up, and keeps little
                while True:
                    client.send_raw(b"a" * 65536)
        self.assert_is_small()

    def test_a_byte_at_a_time(self):
        with self.server.connect() as client:
            for byte in INFO * 3:
                client.send_raw(bytes([byte]))
            for _ in range(3):
                self.assertIn("parameters", client.receive())

    def test_pipelined(self):
        with self.server.connect() as client:
            client.send_raw(INFO * 500)
            for _ in range(500):
                self.assertIn("parameters", client.receive())

    def test_pipelined_calls_take_turns(self):
        """A hundred calls that came at once from one peer, then one of another: it does not come last."""
        bad = json.dumps({"method": "io.prezero.Pool.Take",
                          "parameters": {"bytes": 1, "page": "base"}}).encode() + b"\0"
        with self.server.connect() as client, self.server.connect() as other:
            self.server.process.send_signal(signal.SIGSTOP)
            client.send_raw(bad * 100)
            other.send("Status")
            self.server.process.send_signal(signal.SIGCONT)
            self.assertLess(other.receive()["parameters"]["refusals"], 10)
            for _ in range(100):
                self.assertEqual(client.receive()["parameters"]["reason"], "multiple")

    def test_one_user_has_a_quarter_of_the_connections(self):
        self.server.configure("[daemon]\nclients_max = 8\n")
        self.server.reload()
        self.server.wait_log("read anew")
        os.chmod(self.server.socket_path, 0o666)
        script = (
            "import os, sys; sys.path.insert(0, %r)\n"
            "from prezero_test import *; os.setgid(4321); os.setuid(4321)\n"
            "cs = [Client(%r) for i in range(2)]; [c.call('Status') for c in cs]\n"
            # Refused whether it asks before or after the daemon has hung up.
            "for patience_s in (0, 0.2) * 10:\n"
            "    with Client(%r) as c:\n"
            "        time.sleep(patience_s)\n"
            "        try: c.send('Status')\n"
            "        except BrokenPipeError: pass\n"
            "        print(json.dumps(c.receive()))\n"
            "        try: assert c.receive() is None\n"
            "        except ConnectionResetError: pass\n"
            "os.environ['PREZERO_SOCKET'] = %r\n"
            "print(subprocess.run([PREZERO, 'status'], capture_output=True, text=True))\n"
            "cs[0].close(); time.sleep(0.2); Client(%r).call('Status')\n"
            % (os.path.dirname(os.path.abspath(__file__)), *[self.server.socket_path] * 4))
        result = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        *replies, program = result.stdout.splitlines()
        for reply in map(json.loads, replies):
            self.assertEqual((reply["error"], reply["parameters"]["reason"]),
                             ("io.prezero.Pool.Refused", "limit"))
        for word in ("user 4321 has 2 connections", "raise clients_max in"):
            self.assertIn(word, program)
        with self.server.connect() as client:  # root
            client.call("Status")

    def test_cut_off(self):
        for end in range(0, len(INFO), 5):
            client = self.server.connect()
            client.send_raw(INFO[:end])
            client.close()

    def test_half_closed(self):
        """A peer that says no more is still answered."""
        with self.server.connect() as client:
            client.send_raw(INFO * 2)
            client.socket.shutdown(socket.SHUT_WR)
            self.assertIn("parameters", client.receive())
            self.assertIn("parameters", client.receive())
            self.assertIsNone(client.receive())

    def test_oneway(self):
        with self.server.connect() as client:
            client.send("Status", oneway=True)
            client.send("Take", {"bytes": MIB, "page": "base"}, oneway=True)
            client.send_raw(INFO)
            self.assertIn("vendor", client.receive()["parameters"])
            wait_until(lambda: not client.list(), "the lease that nobody got to end")

    def test_descriptors_sent_to_it(self):
        """They are not kept."""
        count = len(os.listdir(f"/proc/{self.server.process.pid}/fd"))
        with self.server.connect() as client:
            for _ in range(100):
                client.socket.sendmsg([INFO], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                                struct.pack("3i", 0, 1, 2))])
                client.receive()
            self.assertLessEqual(len(os.listdir(f"/proc/{self.server.process.pid}/fd")), count + 1)

    def test_peers_that_do_not_read(self):
        stopped = []
        for _ in range(10):
            client = self.server.connect()
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.socket.setblocking(False)
            try:
                for _ in range(3000):
                    client.socket.send(b'{"method":"io.prezero.Pool.Status"}\0')
            except BlockingIOError:
                pass
            stopped.append(client)
        self.assert_comes_to_rest(self.server)
        self.assert_is_small()
        for client in stopped:
            client.close()

    def test_more_clients_than_descriptors(self):
        self.server.stop()
        limited = self.daemon(start=False)
        limited.configure("[daemon]\nthreads = 1\n")
        plain = limited.command
        limited.command = lambda *more: ["prlimit", "--nofile=256:256"] + plain(*more)
        limited.start()
        self.server = limited
        clients = []
        for _ in range(400):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.setblocking(False)
            try:
                client.connect(limited.socket_path)
            except BlockingIOError:
                client.close()
                break
            clients.append(client)
        self.assertGreater(len(clients), 100)
        limited.wait_log("new connections wait")
        self.assert_comes_to_rest(limited)
        self.assertEqual(limited.log().count("new connections wait"), 1)
        # Those who were let in can still take.
        clients[0].setblocking(True)
        clients[0].settimeout(30)
        clients[0].sendall(b'{"method":"io.prezero.Pool.Take","parameters":{"bytes":4096,"page":"base"}}\0')
        self.assertIn(b'"fd"', clients[0].recv(4096))
        # The last one comes in as others go.
        for client in clients[:-1]:
            client.close()
        clients[-1].setblocking(True)
        clients[-1].settimeout(30)
        clients[-1].sendall(INFO)
        self.assertIn(b"prezerod", clients[-1].recv(4096))
        clients[-1].close()

    def test_list_streams(self):
        """A thousand segments, a reader that stops midway, the pool changing meanwhile: no repeats."""
        self.grow(PAGE, 4)
        self.server.configure("[stock many]\npage = base\nsegment = 4K\nkeep = 1000\n")
        self.server.reload()
        self.server.wait_ready()
        with self.server.connect() as client, self.server.connect() as other:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.send("List", {"state": "ready"}, more=True)
            first = client.receive()
            taken = [other.take(4096, page="base") for _ in range(100)]
            found = [s["id"] for s in first["parameters"]["segments"]]
            reply = first
            while reply.get("continues"):
                reply = client.receive()
                found += [s["id"] for s in reply["parameters"].get("segments", [])]
            self.assertEqual(len(found), len(set(found)))
            self.assertGreaterEqual(len(found), 800)
            self.assertEqual(len(taken), 100)
            # And one that goes away in the middle.
            client.send("List", more=True)
        self.server.wait_ready()

    def test_random_bytes(self):
        """Not a fuzzer (there is one for the decoder): that the connection survives what it refuses."""
        source = random.Random(1)
        for _ in range(300):
            client = self.server.connect()
            try:
                client.send_raw(source.randbytes(source.randrange(1, 2000)))
                if source.random() < 0.5:
                    client.send_raw(b"\0" + INFO)
            except OSError:
                pass
            client.close()

    def test_a_user_outside_the_group(self):
        result = run_as(4321, [PYTHON, "-c",
                               "import socket; s = socket.socket(socket.AF_UNIX); s.connect(%r)"
                               % self.server.socket_path])
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("PermissionError", result.stderr)


if __name__ == "__main__":
    main()
