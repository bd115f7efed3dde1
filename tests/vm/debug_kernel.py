# SPDX-License-Identifier: GPL-2.0-or-later
# Role: a kernel that looks for faults in itself, built from Debian's source package.
# Guarantees: built by the compiler of Debian's own kernel of that line; what is in the cache is what
# the package and debug.config say now; an option that the kernel does not take ends the build.
"""The debug lane's kernel, which can be run and built against like a stock one."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess

from build import BuildError, run_in
from kernels import BUILD_TOOLS
from packages import locked

FRAGMENT = pathlib.Path(__file__).with_name("debug.config")
TOOLS = ("bison", "flex", "bc", "libelf-dev", "libc6-dev", "perl-base", "python3-minimal", "gzip")
# Everybody else's work comes first.
NICE = ("nice", "-n", "1")


def sections():
    """debug.config by its comments: what a part is for -> its lines."""
    found, heading = {}, ""
    for line in FRAGMENT.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line:
            found.setdefault(heading, []).append(line)
    return found


class DebugKernel:
    """The debug build of a stock kernel's line."""

    def __init__(self, stock):
        self.line = stock.line
        self.apt = stock.apt
        self.compiler = stock.compiler
        self._stock_headers = f"linux-headers-{stock.release}"
        self.package = f"linux-source-{stock.line}"
        self.version = self.apt.candidate(self.package)
        plain = re.sub(r"[^\w.]", "-", self.version)
        # As seen from within the folder of tools.
        self.headers = pathlib.Path("/usr/src") / f"debug-{plain}" / "linux"
        self._tree = self.apt.tools / self.headers.relative_to("/")

    @property
    def release(self):
        return (self._tree / "include/config/kernel.release").read_text(encoding="ascii").strip()

    @property
    def vmlinuz(self):
        return self._tree / "arch/x86/boot/bzImage"

    @property
    def recipe(self):
        """What it is built from, as a hash."""
        parts = (self.version, self.compiler, FRAGMENT.read_text(encoding="utf-8"))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def fetch(self):
        """Build the kernel, unless the one in the cache is just this one."""
        # The headers' package brings the compiler.
        self.apt.unpack_tools((self._stock_headers, *BUILD_TOOLS, *TOOLS))
        built = self._tree.with_name("built")
        with locked(self.apt.folder / "debug.lock"):
            if not built.exists() or built.read_text(encoding="ascii") != self.recipe:
                self._unpack()
                built.unlink(missing_ok=True)
                self._configure()
                self._make(f"-j{os.cpu_count()}", "bzImage", "modules")
                built.write_text(self.recipe, encoding="ascii")
        return self

    def fetch_headers(self):
        """What modules are built with; returns the folder to chroot into."""
        self.fetch()
        return self.apt.tools

    def _unpack(self):
        """Unpack the source, and remove what is left of older versions of the line."""
        folder = self._tree.parent
        for old in folder.parent.glob(f"debug-{self.line}.*"):
            if old != folder:
                shutil.rmtree(old)
        if self._tree.exists():
            return
        self.apt.unpack([self.package], folder)
        partial = folder / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        archive = folder / f"usr/src/{self.package}.tar.xz"
        subprocess.run(["tar", "-x", "--strip-components=1", "-C", partial, "-f", archive], check=True)
        partial.rename(self._tree)
        shutil.rmtree(folder / "usr")

    def _configure(self):
        shutil.copy(FRAGMENT, self._tree / FRAGMENT.name)
        self._make("allnoconfig", f"KCONFIG_ALLCONFIG={FRAGMENT.name}")
        taken = set((self._tree / ".config").read_text(encoding="utf-8").splitlines())
        refused = [line for lines in sections().values() for line in lines if line not in taken]
        if refused:
            raise BuildError(f"Linux {self.version} does not take from {FRAGMENT.name}: "
                             f"{', '.join(refused)}; look up what they depend on")

    def _make(self, *words):
        done = run_in(self.apt.tools, [*NICE, "make", "-C", self.headers, "ARCH=x86_64",
                                       f"CC={self.compiler}", f"HOSTCC={self.compiler}", *words])
        if done.returncode:
            raise BuildError(f"Linux {self.version}:\n{done.stdout[-4000:]}")
