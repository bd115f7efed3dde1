# SPDX-License-Identifier: GPL-2.0-or-later
# Role: one run of the guest tests, from names to a verdict.
# Guarantees: a test name that means nothing is refused before anything is booted; one guest runs at
# a time; what a run leaves (console, channel, command) lies in a folder that the caller is told.
"""Plans, packs, boots and judges a run."""

import fnmatch
import os
import pathlib
import shutil
import subprocess
from dataclasses import dataclass

import initramfs
import qemu
from build import MODULE, build_guest, build_modules, built_programs
from kernels import CACHE
from packages import locked
from verdict import judge

LOCK = pathlib.Path(os.environ.get("PREZERO_VM_LOCK") or CACHE / "guest.lock")
HELPER_MODULE = pathlib.Path(__file__).resolve().parent / "guest" / "kmod"
UNSAFE = ("PREZERO_UNSAFE_MARK=1",)
# A leak shows first where pages are filled by something else than the zeroing function.
LEAK_TESTS = ("fork_cow:2M", "uffdio_copy:2M", "move_pages:2M", "kprobes_off:2M", "ftrace_off:2M")
# Where a gigantic page takes a way of its own through the kernel, or through the module.
QUICK_1G = ("fault_private:1G", "fork_cow:1G", "memfd_fallocate:1G", "move_pages:1G", "demote:1G",
            "demote_dirty:1G", "dissolve_regrow:1G", "shrink_while_held:1G", "signal_eintr:1G",
            "signal_kill:1G", "zero_command_stop:1G", "free_count_stays:1G", "all_by_fault:1G")
NEEDED = {qemu.QEMU: "qemu-system-x86", initramfs.BUSYBOX: "busybox-static", "cc": "gcc",
          "apt-get": "apt", "dpkg-deb": "dpkg", "unshare": "util-linux", "tar": "tar"}
GIB = 1 << 30
# The kernel and its early allocations break the lowest and the highest 1G page of a node, and what
# nobody touches costs the host nothing.
PAGES_1G = {1: "2", 2: "0:2,1:1"}
NODE_BYTES = {1: (5 * GIB,), 2: (5 * GIB, 5 * GIB // 2)}
BOOT_S = 60


class PlanError(Exception):
    """A request that cannot be run; the text says what would be possible."""


@dataclass(frozen=True)
class Variant:
    """How a guest is configured beside its kernel."""

    nodes: int = 2
    init_on_alloc: int = 1
    hvo: bool = False

    def __str__(self):
        hvo = "on" if self.hvo else "off"
        nodes = f"{self.nodes} node{'s' if self.nodes > 1 else ''}"
        return f"{nodes}, init_on_alloc={self.init_on_alloc}, hvo={hvo}"

    def command_line(self):
        return [f"init_on_alloc={self.init_on_alloc}",
                f"hugetlb_free_vmemmap={'on' if self.hvo else 'off'}",
                "hugepagesz=1G", f"hugepages={PAGES_1G[self.nodes]}"]


def check_host():
    """Refuse with the packages to install, or who to be, where a run could not work."""
    missing = [package for program, package in NEEDED.items() if not shutil.which(program)]
    if missing:
        raise PlanError(f"missing packages; run: apt install {' '.join(sorted(set(missing)))}")
    if os.geteuid():
        raise PlanError("needs root: the compilers run in a chroot; run it with sudo")


def all_tests():
    """Every test of the guest's program, 2M first: name:size -> its properties."""
    listing = subprocess.run([build_guest(), "list"], stdout=subprocess.PIPE, text=True, check=True)
    words = [line.split() for line in listing.stdout.splitlines()]
    words.sort(key=lambda word: word[0].endswith(":1G"))
    return {word[0]: word[1:] for word in words}


def choose_tests(patterns, module, quick=False):
    """The tests that `patterns` mean (NAME, NAME:SIZE or a shell pattern); all without any."""
    known = all_tests()
    if not patterns:
        return [name for name, (when, what) in known.items()
                if when == "full" and (module or what == "control")
                and (not quick or name.endswith(":2M") or name in QUICK_1G)]
    chosen = {}
    for pattern in patterns:
        names = [name for name, (when, _) in known.items()
                 if pattern in (name, name.split(":")[0])
                 or when == "full" and fnmatch.fnmatch(name, pattern)]
        if not names:
            raise PlanError(f"no test {pattern}; see --list")
        chosen.update(dict.fromkeys(names))
    return list(chosen)


def module_content(kernel, module, unsafe=False):
    """The module under test: `module` is a .ko file, or a folder to build; None: no module."""
    if module is None:
        return None
    module = pathlib.Path(module)
    if not module.exists():
        raise PlanError(f"no module in {module}")
    if module.suffix == ".ko":
        return module.read_bytes()
    modules = build_modules(kernel, module, UNSAFE if unsafe else ())
    if "prezero.ko" not in modules:
        raise PlanError(f"{module} builds {', '.join(modules)}, not prezero.ko")
    return modules["prezero.ko"]


def run(kernel, tests, variant=Variant(), module=MODULE, unsafe=False, parameters="",
        command_line=(), settings=None, limit_s=1800, folder=None, cpu=qemu.FAST_CPU,
        node_bytes=None):
    """Boot `kernel`, run `tests` in it; returns the Verdict and the folder of the run's files."""
    check_host()
    kernel.fetch()
    files = {"guest": build_guest().read_bytes(), **built_programs()}
    plan = [f"{name}={value}" for name, value in (settings or {}).items()]
    content = module_content(kernel, module, unsafe)
    if content:
        files["prezero.ko"] = content
        plan += ["module=/prezero.ko", f"parameters={parameters}"]
    if HELPER_MODULE.is_dir():
        files["helper.ko"] = build_modules(kernel, HELPER_MODULE)["prezero_helper.ko"]
    plan += [f"test={name}" for name in tests]
    files["plan"] = ("\n".join(plan) + "\n").encode()

    machine = qemu.Machine(node_bytes or NODE_BYTES[variant.nodes], 2, cpu,
                           [*variant.command_line(), *command_line])
    folder = pathlib.Path(folder or CACHE / "runs" / kernel.release)
    with locked(LOCK):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        archive = initramfs.pack(folder / "initramfs", files)
        outcome = qemu.boot(machine, kernel.vmlinuz, archive, folder, limit_s + BOOT_S)
        archive.unlink()
    return judge(outcome), folder
