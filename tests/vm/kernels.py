# SPDX-License-Identifier: GPL-2.0-or-later
# Role: which stock kernels the guests run, and where their parts lie once unpacked.
# Guarantees: a kernel line always means the newest package of that line that has headers too.
"""Stock Debian kernels by line ("6.1", "6.12", "7.3") or by rank ("newest", "newest-1")."""

import os
import pathlib
import re
from dataclasses import dataclass

from packages import PackageError, AptRoot

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("PREZERO_VM_CACHE") or REPOSITORY / "build" / "vm")

# In the order of preference for a line that several releases carry. Adding a release is one line.
RELEASES = {
        "bookworm": ("bookworm", "bookworm-updates", "bookworm-security"),
        "trixie": ("trixie", "trixie-updates", "trixie-security", "trixie-backports"),
        "testing": ("testing",),
        "unstable": ("unstable",),
}
# What ./check and the support matrix run, oldest first.
CHECKED = ("6.1", "6.12", "newest-1", "newest")

IMAGE = re.compile(r"linux-image-((\d+\.\d+)\.\d+(?:-\d+|\+deb\d+)-amd64)$")
# Packages that Debian calls essential are nobody's dependency, so the build's have to be named.
BUILD_TOOLS = ("make", "binutils", "dash", "coreutils", "sed", "grep", "mawk", "findutils",
               "diffutils")


@dataclass(frozen=True)
class Kernel:
    """One stock kernel, unpacked."""

    line: str
    release: str
    apt: AptRoot

    @property
    def folder(self):
        return self.apt.folder / "kernels" / self.release

    def _part(self, in_boot, in_modules):
        """A part of the kernel: packages before 7.x keep it in /boot, later ones by the modules."""
        places = [self.folder / "boot" / f"{in_boot}-{self.release}" if in_boot else None]
        places += [self.folder / lib / "modules" / self.release / in_modules
                   for lib in ("lib", "usr/lib")]
        for place in places:
            if place and place.exists():
                return place
        raise PackageError(f"{self.folder} has no {in_boot or 'modules'}; remove it and run again")

    @property
    def vmlinuz(self):
        return self._part("vmlinuz", "vmlinuz")

    @property
    def modules(self):
        """The folder of the kernel's own modules."""
        return self._part(None, "kernel")

    @property
    def config(self):
        """The kernel's configuration as a dictionary: CONFIG_X -> value."""
        text = self._part("config", "config").read_text(encoding="utf-8")
        return dict(line.split("=", 1) for line in text.splitlines() if line.startswith("CONFIG_"))

    @property
    def headers(self):
        """Where modules are built against, as seen from within the folder of tools."""
        return pathlib.Path("/usr/src") / f"linux-headers-{self.release}"

    @property
    def compiler(self):
        """The command that the kernel was compiled with."""
        return self.fetch().config["CONFIG_CC_VERSION_TEXT"].strip('"').split()[0]

    def fetch(self):
        """Unpack the kernel itself."""
        if not self.folder.exists():
            image = f"linux-image-{self.release}"
            self.apt.unpack(self.apt.parts(image, self.release), self.folder)
        return self

    def fetch_headers(self):
        """Unpack the headers and the compiler they want; returns the folder to chroot into."""
        self.apt.unpack_tools((f"linux-headers-{self.release}", *BUILD_TOOLS))
        return self.apt.tools


def _rank(release):
    return [int(part) for part in re.findall(r"\d+", release)]


def _available(root):
    """Kernels of one release: line -> newest kernel release that has an image and headers."""
    headers = {name.removeprefix("linux-headers-") for name in root.names("linux-headers-")}
    best = {}
    for name in root.names("linux-image-"):
        match = IMAGE.match(name)
        if match and match[1] in headers:
            best[match[2]] = max(best.get(match[2], "0"), match[1], key=_rank)
    return best


def available(refresh=False):
    """Every kernel line that can be had, oldest first: line -> Kernel (not yet unpacked)."""
    found = {}
    for name, suites in RELEASES.items():
        root = AptRoot(CACHE / name, suites)
        root.refresh(refresh)
        for line, release in _available(root).items():
            found.setdefault(line, Kernel(line, release, root))
    return dict(sorted(found.items(), key=lambda item: _rank(item[0])))


def select(names, refresh=False):
    """The kernels that `names` mean, each once, in the order asked for."""
    found = available(refresh)
    lines = list(found)
    chosen = {}
    for name in names:
        match = re.fullmatch(r"newest(?:-(\d+))?", name)
        line = lines[-1 - int(match[1] or 0)] if match else name
        if line not in found:
            raise PackageError(f"no stock kernel {name}; there are: {', '.join(lines)}")
        chosen.setdefault(line, found[line])
    return list(chosen.values())
