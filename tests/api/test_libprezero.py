#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The public face of libprezero: its header in every dialect, its symbols, and the manual's example.

The library is installed into a folder of the test's own, and used from there.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import prezero_test  # pylint: disable=wrong-import-position
from prezero_test import BUILD, ROOT

HEADER = ROOT / "include" / "prezero.h"
PAGE = ROOT / "man" / "libprezero.3.scd"
SHARED = BUILD / "src" / "client" / "libprezero.so.0"
STATIC = BUILD / "src" / "client" / "libprezero.a"
CC = shlex.split(os.environ.get("CC", "cc"))
WARNINGS = ["-Wall", "-Wextra", "-pedantic", "-Werror"]


def output(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise AssertionError(f"{shlex.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def is_sanitized():
    return "-fsanitize=" in (BUILD / "build.ninja").read_text()


class Installed:
    """The library as a package would hold it, under a directory."""

    def __init__(self, directory):
        output("meson", "install", "-C", str(BUILD), "--no-rebuild", "--destdir", directory,
               "--tags", "runtime,devel")
        self.directory = directory
        self.pc_file = next(pathlib.Path(directory).rglob("libprezero.pc"))
        self.library_path = str(self.pc_file.parents[1])

    def pkg_config(self, *options):
        environment = dict(os.environ, PKG_CONFIG_SYSROOT_DIR=self.directory,
                           PKG_CONFIG_PATH=str(self.pc_file.parent))
        return shlex.split(output("pkg-config", *options, "libprezero", env=environment))


def example():
    """The C program in the manual page: the last block of literal text."""
    return PAGE.read_text().split("\n```\n")[-2] + "\n"


def declared():
    """Every function that the header declares."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    return set(re.findall(r"\b(prezero_\w+)\(", text))


class Header(unittest.TestCase):
    def compile(self, compiler, language, *options):
        source = '#include "prezero.h"\n#include "prezero.h"\n' \
                 "struct prezero_request prezero_test_request = PREZERO_REQUEST_INIT;\n"
        output(*compiler, "-x", language, *options, *WARNINGS, "-I", str(HEADER.parent),
               "-fsyntax-only", "-", input=source)

    def test_c(self):
        for standard in ("c99", "c11", "c17", "gnu99"):
            with self.subTest(standard):
                self.compile(CC, "c", "-std=" + standard, "-Wstrict-prototypes",
                             "-Wmissing-field-initializers")

    def test_cxx(self):
        for standard in ("c++11", "c++17", "c++20"):
            with self.subTest(standard):
                self.compile(["c++"], "c++", "-std=" + standard)

    def test_comments_name_only_what_exists(self):
        named = set(re.findall(r"\b(prezero_\w+)\(\)", HEADER.read_text()))
        self.assertLessEqual(named, declared())


class Symbols(unittest.TestCase):
    def test_exactly_the_header(self):
        lines = output("nm", "-D", "--defined-only", str(SHARED)).splitlines()
        names = {line.split()[-1] for line in lines}
        self.assertEqual(names - {"PREZERO_0.1"}, {f"{name}@@PREZERO_0.1" for name in declared()})

    def test_soname(self):
        self.assertIn("[libprezero.so.0]", output("readelf", "-d", str(SHARED)))

    def test_links_only_what_it_needs(self):
        if is_sanitized():
            self.skipTest("a sanitizer brings libraries of its own")
        needed = re.findall(r"NEEDED.*\[(\w+)", output("readelf", "-d", str(SHARED)))
        self.assertEqual(sorted(needed), ["libc", "libjansson"])

    def test_static_has_all(self):
        lines = output("nm", "--defined-only", str(STATIC)).splitlines()
        names = {line.split()[2] for line in lines if len(line.split()) == 3}
        self.assertLessEqual(declared(), names)


class Manual(unittest.TestCase):
    def test_synopsis_is_the_header(self):
        def prototypes(text):
            text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
            return {re.sub(r"\s+", " ", found) for found in
                    re.findall(r"^[a-z][^;{}#]*\bprezero_\w+\([^;{}]*\);", text, flags=re.MULTILINE)}

        synopsis = PAGE.read_text().split("\n```\n")[1]
        self.assertEqual(prototypes(synopsis), prototypes(HEADER.read_text()))
        self.assertEqual(len(prototypes(synopsis)), len(declared()))

    def build_example(self, directory, *options):
        source = pathlib.Path(directory) / "example.c"
        source.write_text(example())
        program = str(pathlib.Path(directory) / "example")
        output(*CC, *WARNINGS, "-std=gnu99", str(source), "-o", program, *options)
        return program

    def check_without_daemon(self, program, **environment):
        """I4: with no daemon the program behaves as without prezero."""
        environment = dict(os.environ, PREZERO_SOCKET="/nonexistent/socket", **environment)
        self.assertEqual(output(program, env=environment), "67108864 bytes from the kernel\n")

    def test_example(self):
        if is_sanitized():
            self.skipTest("a program without the sanitizer cannot load the library")
        with tempfile.TemporaryDirectory() as directory:
            installed = Installed(directory)
            program = self.build_example(directory, *installed.pkg_config("--cflags", "--libs"))
            self.check_without_daemon(program, LD_LIBRARY_PATH=installed.library_path)
            self.assertIn("libprezero.so.0", output("readelf", "-d", program))

    def test_example_static(self):
        if is_sanitized():
            self.skipTest("a program without the sanitizer cannot link the library")
        with tempfile.TemporaryDirectory() as directory:
            installed = Installed(directory)
            flags = installed.pkg_config("--cflags", "--libs", "--static")
            flags = ["-l:libprezero.a" if flag == "-lprezero" else flag for flag in flags]
            program = self.build_example(directory, *flags)
            self.check_without_daemon(program)
            self.assertNotIn("libprezero.so.0", output("readelf", "-d", program))


if __name__ == "__main__":
    prezero_test.main()
