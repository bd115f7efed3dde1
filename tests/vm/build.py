# SPDX-License-Identifier: GPL-2.0-or-later
# Role: builds what goes into a guest: kernel modules against its headers, and the test program.
# Guarantees: a module is built with the compiler that its kernel's headers ask for, from a copy,
# so the source folder stays clean; a failed build ends with the compiler's own words.
"""Builds for the guest."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from kernels import CACHE, REPOSITORY

GUEST = pathlib.Path(__file__).resolve().parent / "guest"
MODULE = REPOSITORY / "module"
# What `ninja` made for the machine; the tests that need it say when it is not there.
PROGRAMS = pathlib.Path(os.environ.get("PREZERO_BUILD") or REPOSITORY / "build")
FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-static", "-pthread", "-Wall", "-Wextra", "-Werror",
         "-Wshadow", "-Wstrict-prototypes", "-Wmissing-prototypes")


class BuildError(Exception):
    """A build that failed; the text is the tool's own."""


def run_in(tools, words):
    """Run a command in the folder of unpacked tools as its root."""
    # objtool reads /proc; a mount namespace of the build's own lets that mount end with it.
    inside = ["unshare", "--mount", "--pid", "--fork", "--kill-child",
              f"--mount-proc={tools / 'proc'}", "chroot", tools, *words]
    return subprocess.run([str(word) for word in inside], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False,
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"})


def _make(kernel, source, variables):
    """Run the kernel's build on a copy of `source`: what it said, its status, file name -> content."""
    tools = kernel.fetch_headers()
    with tempfile.TemporaryDirectory(dir=tools / "tmp", prefix="build-") as scratch:
        inside = pathlib.Path("/") / pathlib.Path(scratch).relative_to(tools) / "module"
        copy = pathlib.Path(scratch) / "module"
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("*.o", "*.ko", ".*.cmd"))
        done = run_in(tools, ["make", f"-j{os.cpu_count()}", "-C", kernel.headers,
                              f"CC={kernel.compiler}", f"M={inside}", *variables, "modules"])
        modules = {path.name: path.read_bytes() for path in copy.rglob("*.ko")}
    return done.stdout.replace(f"{inside}/", ""), done.returncode, modules


def build_modules(kernel, source, variables=()):
    """Build the kernel modules in the folder `source`: file name -> content."""
    said, status, modules = _make(kernel, source, variables)
    if status or not modules:
        raise BuildError(f"{source} for {kernel.release}:\n{said[-4000:]}")
    return modules


def module_warnings(kernel, source):
    """What the compiler with the kernel's extra warnings, and sparse, have to say of our own files."""
    variables = ["W=1"]
    # W=1 has kernel-doc read the comments.
    kernel.apt.unpack_tools(("perl", "sparse"))
    # sparse 0.6.4 does not read the headers of 7.x (__typeof_unqual__).
    if kernel.line.startswith("6."):
        variables.append("C=2")
    said, status, modules = _make(kernel, source, variables)
    lines = said.splitlines()
    ours = [line for line in lines
            if re.match(r"[\w/]+\.[ch]:\d+:(\d+:)? (warning|error):", line)]
    if status or not modules or ("C=2" in variables) != ("  CHECK   mark.c" in lines):
        ours += lines[-20:]
    return ours


def build_guest():
    """Compile the static test program, when a source is newer than it; returns its path."""
    program = CACHE / "guest"
    sources = sorted(GUEST.glob("*.c"))
    newest = max(path.stat().st_mtime for path in GUEST.glob("*.[ch]"))
    if program.exists() and program.stat().st_mtime > newest:
        return program
    CACHE.mkdir(parents=True, exist_ok=True)
    fresh = program.with_suffix(f".{os.getpid()}")
    words = [os.environ.get("CC", "cc"), *FLAGS, "-o", fresh, *sources]
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise BuildError(done.stdout)
    fresh.rename(program)
    return program


def built_programs():
    """prezero and prezerod, when they were built, with the libraries they need: name -> content."""
    files = {}
    for name in ("prezero", "prezerod"):
        program = PROGRAMS / name
        if not program.exists():
            continue
        files[f"bin/{name}"] = program.read_bytes()
        needed = subprocess.run(["ldd", program], stdout=subprocess.PIPE, text=True, check=True)
        for library in re.findall(r"(/\S+) \(0x", needed.stdout):
            files[library.lstrip("/")] = pathlib.Path(library).read_bytes()
    return files
