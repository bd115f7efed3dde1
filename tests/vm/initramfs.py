# SPDX-License-Identifier: GPL-2.0-or-later
# Role: the guest's whole file system as one cpio archive in memory.
# Guarantees: needs neither root nor a cpio program; the same input gives the same bytes.
"""An initramfs: busybox, our init, and whatever files a run wants."""

import lzma
import os
import pathlib
import stat

BUSYBOX = pathlib.Path("/bin/busybox")
INIT = pathlib.Path(__file__).resolve().parent / "guest" / "init"
FOLDERS = ("bin", "dev", "dev/shm", "proc", "sys", "tmp", "run", "root", "etc", "mnt")


class Archive:
    """A cpio archive in the kernel's `newc` format."""

    def __init__(self):
        self._parts = []
        self._entries = 0

    def _add(self, name, mode, data=b"", device=(0, 0)):
        self._entries += 1
        raw = name.encode() + b"\0"
        fields = (self._entries, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(raw), 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields) + raw
        self._parts += [header, bytes(-len(header) % 4), data, bytes(-len(data) % 4)]

    def folder(self, name):
        self._add(name, stat.S_IFDIR | 0o755)

    def file(self, name, data, mode=0o644):
        self._add(name, stat.S_IFREG | mode, data)

    def link(self, name, target):
        self._add(name, stat.S_IFLNK | 0o777, target.encode())

    def character_device(self, name, major, minor):
        self._add(name, stat.S_IFCHR | 0o600, device=(major, minor))

    def finish(self):
        self._add("TRAILER!!!", 0)
        return b"".join(self._parts)


def kernel_module(kernel, name):
    """The content of one of the kernel's own modules, uncompressed; None when it is built in."""
    for path in kernel.modules.rglob(f"{name}.ko*"):
        data = path.read_bytes()
        return lzma.decompress(data) if path.suffix == ".xz" else data
    return None


def pack(path, files, busybox=BUSYBOX):
    """Write an initramfs to `path`: busybox, our init, and `files` (name in the guest -> bytes)."""
    archive = Archive()
    for name in FOLDERS:
        archive.folder(name)
    archive.character_device("dev/console", 5, 1)
    archive.character_device("dev/null", 1, 3)
    archive.file("bin/busybox", busybox.read_bytes(), 0o755)
    archive.link("bin/sh", "busybox")
    archive.file("init", INIT.read_bytes(), 0o755)
    parents = {str(parent) for name in files for parent in pathlib.PurePath(name).parents}
    for name in sorted(parents - {".", *FOLDERS}):
        archive.folder(name)
    for name, data in sorted(files.items()):
        archive.file(name, data, 0o755)
    path = pathlib.Path(path)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_bytes(archive.finish())
    fresh.rename(path)
    return path
