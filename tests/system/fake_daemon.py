# SPDX-License-Identifier: GPL-2.0-or-later
"""A prezerod of scripted answers, for tests of clients: refusals, slow fills, garbage, silence.

Guarantees: it lends real files with real descriptors, locked as prezerod does, so a test can tell
whether anybody still holds a lease. They are small files on tmpfs, whatever page was asked for, so
it runs anywhere, without privileges and without huge pages.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import socket
import tempfile
import threading

MIB = 1 << 20
POOL = "io.prezero.Pool."


def page_class(page, node, **members):
    """A class as Status reports it."""
    zero = dict.fromkeys(("total_bytes", "free_bytes", "headroom_bytes", "filling_bytes",
                          "ready_bytes", "lent_bytes", "segments_filling", "segments_ready",
                          "segments_lent"), 0)
    return {"page": page, "node": node, "page_bytes": 2 * MIB, **zero, **members}


def status(**members):
    """A whole reply of Status."""
    return {"version": "9.9", "pid": 4711, "uptime_ms": 3 * 86400 * 1000 + 7200 * 1000,
            "threads": 8, "floor_bytes": 2 << 30, "available_bytes": 12 << 30,
            "total_bytes": 24 << 30, "takes": 5, "gives": 4, "refusals": 1,
            "filled_bytes": 64 << 30, "classes": [page_class("2M", 0)], "stocks": [], "fills": [], "zeroing": [],
            "pinned": [], **members}


def fill(page="2M", node=0, done=3 << 30, total=8 << 30, **members):
    return {"page": page, "node": node, "done_bytes": done, "total_bytes": total,
            "bytes_per_second": 9_500_000_000, "eta_ms": 530, **members}


class Answer(Exception):
    """Raised by a handler: an error reply."""

    def __init__(self, error, **parameters):
        super().__init__(error)
        self.reply = {"error": error if "." in error else POOL + error, "parameters": parameters}


def refusal(reason, message, **members):
    return Answer("Refused", **{"reason": reason, "message": message, "page": "2M", "node": -1,
                                "have_bytes": 0, "need_bytes": 0, "holders": [], **members})


class FakeDaemon:
    """Set `on_take`, `on_give`, `on_status`, `on_list` to change an answer; each gets the
    parameters and returns those of the reply; on_list a list of segments for each of its replies.
    `raw` (bytes) answers everything with just that; b"" hangs up."""

    def __init__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="prezero-fake-", dir="/dev/shm"))
        self.directory.chmod(0o755)
        self.socket_path = str(self.directory / "socket")
        self.lent = self.directory / "lent"
        self.lent.mkdir(mode=0o711)
        self.calls = []
        self.leases = {}
        self.status, self.segments, self.raw = status(), [], None
        self.on_take, self.on_give = self.take, self.give
        self.on_status = lambda parameters: self.status
        self.on_list = lambda parameters: [[segment] for segment in self.segments]
        self.owner = None
        self.threads, self.connections = [], []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.socket_path)
        os.chmod(self.socket_path, 0o666)
        self.listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def parameters_of(self, method):
        """Those of every call of the method so far."""
        return [parameters for name, parameters in self.calls if name == method]

    # The ordinary answers.

    def take(self, parameters):
        name = parameters.get("name")
        if name in self.leases:
            raise Answer("NameTaken", name=name)
        lease_id = os.urandom(8).hex()
        path = self.lent / (f"0-{lease_id}" + (f"={name}" if name else ""))
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.ftruncate(fd, parameters["bytes"])
        fcntl.flock(fd, fcntl.LOCK_SH)
        if self.owner is not None:
            os.fchown(fd, self.owner, self.owner)
        self.leases[name or lease_id] = path
        reply = {"id": lease_id, "path": str(path), "page_bytes": 4096,
                 "page": "thp" if parameters.get("page") == "thp" else "base",
                 "node": max(parameters.get("node", 0), 0), "bytes": parameters["bytes"],
                 "filling": bool(parameters.get("partial")), "fd": 0}
        return reply, fd

    def give(self, parameters):
        lease = parameters["lease"]
        if lease not in self.leases:
            raise Answer("NoSuchLease", lease=lease)
        self.leases.pop(lease).unlink()
        return {"completed": True, "holders": []}

    def is_held(self, path):
        """Whether anybody still has the lease, as prezerod finds out."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(fd)

    def only_lease(self):
        [path] = self.leases.values()
        return path

    # The wire.

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        buffer = b""
        with contextlib.suppress(OSError), connection:
            while True:
                data = connection.recv(65536)
                if not data:
                    return
                buffer += data
                while b"\0" in buffer:
                    message, buffer = buffer.split(b"\0", 1)
                    if not self._answer(connection, json.loads(message)):
                        return

    def _answer(self, connection, call):
        method, parameters = call["method"].rpartition(".")[2], call.get("parameters", {})
        self.calls.append((method, parameters))
        if self.raw is not None:
            connection.sendall(self.raw)
            return False
        try:
            result = getattr(self, "on_" + method.lower())(parameters)
        except Answer as answer:
            self._send(connection, answer.reply)
            return True
        if method == "List":
            for segments in result:
                self._send(connection, {"parameters": {"segments": segments}, "continues": True})
            self._send(connection, {"parameters": {"segments": []}})
            return True
        reply, fd = result if isinstance(result, tuple) else (result, None)
        try:
            self._send(connection, {"parameters": reply}, fd)
        finally:
            if fd is not None:
                os.close(fd)
        return True

    @staticmethod
    def _send(connection, message, fd=None):
        data = json.dumps(message).encode() + b"\0"
        if fd is None:
            connection.sendall(data)
        else:
            sent = socket.send_fds(connection, [data], [fd])
            connection.sendall(data[sent:])
