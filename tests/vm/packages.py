# SPDX-License-Identifier: GPL-2.0-or-later
# Role: Debian packages of any release, unpacked into folders and never installed.
# Guarantees: the machine's own apt configuration, lists and packages stay as they are; what is
# unpacked was verified by apt against Debian's archive keys; a folder is whole or not there.
"""A private apt root for each Debian release.

The sources list is made at run time from the mirror that this machine itself is configured with,
and so are proxies; everything else of the machine's apt configuration is left out.
"""

import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import time
from contextlib import contextmanager

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
LISTS_MAX_AGE_S = 7 * 24 * 3600
# On a merged-/usr Debian these are links, which no package that we unpack brings by itself.
MERGED_USR = ("bin", "sbin", "lib", "lib64")


class PackageError(Exception):
    """A package or a mirror that cannot be had; the text names it and what to do."""


def _run(command, **kwargs):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **kwargs)
    if done.returncode:
        words = " ".join(map(str, command))
        raise PackageError(f"{words}: exit {done.returncode}\n{done.stdout[-2000:]}")
    return done.stdout


@contextmanager
def locked(path):
    """Hold the lock file `path`, which another run may share, for the length of a with block."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _mirrors():
    """The machine's own mirror of each Debian archive: label -> address."""
    listing = _run(["apt-get", "indextargets", "--format", "$(LABEL)|$(REPO_URI)",
                    "Created-By: Packages"])
    mirrors = {}
    for line in listing.splitlines():
        label, _, address = line.partition("|")
        if label in ("Debian", "Debian-Security"):
            mirrors.setdefault(label, address)
    if "Debian" not in mirrors:
        raise PackageError("no Debian mirror in this machine's apt lists; run: apt-get update")
    return mirrors


class AptRoot:
    """One Debian release: its package lists, its downloads, and a folder of unpacked tools."""

    def __init__(self, folder, suites):
        self.folder = pathlib.Path(folder)
        self.suites = suites
        self.tools = self.folder / "tools"

    def _environment(self):
        return {**os.environ, "APT_CONFIG": str(self.folder / "apt.conf"), "LC_ALL": "C.UTF-8"}

    def _apt(self, *command, **kwargs):
        return _run(command, env=self._environment(), **kwargs)

    def refresh(self, force=False):
        """Bring the package lists when there are none, they are a week old, or `force` is set."""
        stamp = self.folder / "lists.stamp"
        if not force and stamp.exists() and time.time() - stamp.stat().st_mtime < LISTS_MAX_AGE_S:
            return
        with locked(self.folder / "lock"):
            self._configure()
            self._apt("apt-get", "update", "-q")
            stamp.touch()

    def _configure(self):
        mirrors = _mirrors()
        sources = []
        for suite in self.suites:
            label = "Debian-Security" if suite.endswith("-security") else "Debian"
            if label in mirrors:
                sources.append(f"deb [signed-by={KEYRING}] {mirrors[label]} {suite} main\n")
        for name in ("lists/partial", "cache/archives/partial", "empty"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        (self.folder / "sources.list").write_text("".join(sources), encoding="ascii")
        transport = [line for line in _run(["apt-config", "dump"]).splitlines()
                     if re.match(r"Acquire::(https?::|Check-Valid-Until|Retries)", line)]
        settings = {
                "Dir::Etc::main": "/dev/null",
                "Dir::Etc::parts": self.folder / "empty",
                "Dir::Etc::preferences": "/dev/null",
                "Dir::Etc::preferencesparts": self.folder / "empty",
                "Dir::Etc::sourceparts": self.folder / "empty",
                "Dir::Etc::sourcelist": self.folder / "sources.list",
                "Dir::State::lists": self.folder / "lists",
                "Dir::State::status": self.folder / "status",
                "Dir::Cache": self.folder / "cache",
                "APT::Sandbox::User": "root",
                "APT::Install-Recommends": "false",
                "Acquire::Languages": "none",
        }
        own = [f'{name} "{value}";' for name, value in settings.items()]
        (self.folder / "apt.conf").write_text("\n".join(own + transport) + "\n", encoding="utf-8")

    def names(self, prefix):
        """Every package name of the release that starts with `prefix`."""
        return self._apt("apt-cache", "pkgnames", prefix).split()

    def candidate(self, package):
        """The newest version of `package` in the release."""
        listing = self._apt("apt-cache", "show", "--no-all-versions", package)
        return re.search(r"^Version: (\S+)$", listing, re.M)[1]

    def parts(self, package, ending):
        """`package` and those that it depends on directly whose names have this `ending`."""
        listing = self._apt("apt-cache", "depends", package)
        return [package, *re.findall(rf"^ .?Depends: (\S+{re.escape(ending)})$", listing, re.M)]

    def unpack(self, packages, folder):
        """Unpack `packages` alone, once, into `folder`."""
        folder = pathlib.Path(folder)
        with locked(self.folder / "lock"):
            if folder.exists():
                return
            partial = folder.with_name(folder.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            (partial / ".deb").mkdir(parents=True)
            self._apt("apt-get", "download", "-q", *packages, cwd=partial / ".deb")
            for deb in (partial / ".deb").glob("*.deb"):
                _run(["dpkg", "-x", deb, partial])
            shutil.rmtree(partial / ".deb")
            partial.rename(folder)

    def unpack_tools(self, packages):
        """Unpack `packages` with all they depend on into `tools`, a folder to chroot into."""
        done = self.tools / ".unpacked"
        with locked(self.folder / "lock"):
            have = set(done.read_text(encoding="utf-8").split()) if done.exists() else set()
            if have.issuperset(packages):
                return
            for name in MERGED_USR:
                (self.tools / "usr" / name).mkdir(parents=True, exist_ok=True)
                if not (self.tools / name).is_symlink():
                    (self.tools / name).symlink_to(f"usr/{name}")
            self._apt("apt-get", "install", "-q", "-y", "--download-only", *packages)
            for deb in sorted((self.folder / "cache/archives").glob("*.deb")):
                if deb.name not in have:
                    self._unpack_tool(deb)
                    have.add(deb.name)
                deb.unlink()
            self._finish_tools()
            done.write_text("\n".join(sorted(have.union(packages))) + "\n", encoding="utf-8")

    def _unpack_tool(self, deb):
        """As dpkg -x does, but through the links of a merged /usr, where dpkg -x replaces them."""
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as tar:
            _run(["tar", "-x", "--keep-directory-symlink", "-C", self.tools], stdin=tar.stdout)
        if tar.returncode:
            raise PackageError(f"{deb}: damaged; remove it and run again")

    def _finish_tools(self):
        """What maintainer scripts would have done, as far as a kernel build needs it."""
        links = {"usr/bin/awk": "mawk", "usr/bin/sh": "dash"}
        for name, target in links.items():
            if not os.path.lexists(self.tools / name):
                (self.tools / name).symlink_to(target)
        for name in ("dev", "tmp", "proc"):
            (self.tools / name).mkdir(exist_ok=True)
        if not (self.tools / "dev/null").exists():
            os.mknod(self.tools / "dev/null", 0o20666, os.makedev(1, 3))
            os.chmod(self.tools / "dev/null", 0o666)
