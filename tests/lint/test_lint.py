#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Plants faults and checks that each lint finds its own, and that it finds nothing in a clean tree.
The same for what runs the fuzzers and counts the tests of ./check."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
GPL = "/* SPDX-License-Identifier: GPL-2.0-or-later */\n"
LGPL = "/* SPDX-License-Identifier: LGPL-2.1-or-later */\n"
TABLE = """| directory | role | may use | may not use |
|---|---|---|---|
| `src/base` | parsing | libc | pages |
| `src/host` | look | base | siblings |
| `src/policy` | decide; pure | base | files |
| `src/daemon` | connects | all of the above | client |
| `src/client` | takes | base | threads |
"""
CLEAN = {
    "ARCHITECTURE.md": TABLE,
    "LICENSES/GPL-2.0-or-later.txt": "text\n",
    "LICENSES/LGPL-2.1-or-later.txt": "text\n",
    "src/base/base.h": LGPL + "#include <fcntl.h>\nint base(void);\n",
    "src/host/host.c": GPL + '#include "base/base.h"\n#include "host/internal.h"\n',
    "src/host/internal.h": GPL,
    "src/policy/policy.c": GPL + '#include "base/base.h"\n#include <string.h>\n#include <sys/types.h>\n',
    "src/daemon/main.c": GPL + '#include "host/host.h"\n#include "policy/policy.h"\n',
    "src/client/client.c": LGPL + '#include "prezero.h"\n#include "base/base.h"\n',
    "include/prezero.h": LGPL + "#include <stdint.h>\n",
    "tool": "#!/bin/sh\n# SPDX-License-Identifier: GPL-2.0-or-later\n",
    "tests/fuzz/corpus/x/long": "/work" + "/x\n" * 900,
}
# (lint, {path: content}, what it says)
FAULTS = [
    ("layers", {"src/host/bad.c": GPL + '#include "policy/policy.h"\n'}, "host may not use policy"),
    ("layers", {"src/host/bad.c": GPL + '\t# include <daemon/x.h>\n'}, "host may not use daemon"),
    ("layers", {"src/client/bad.c": LGPL + '#include "host/host.h"\n'}, "client may not use host"),
    ("layers", {"src/daemon/bad.c": GPL + '#include "client/x.h"\n'}, "daemon may not use client"),
    ("layers", {"src/daemon/bad.c": GPL + '#include "host/internal.h"\n'}, "internal to host"),
    ("layers", {"src/base/bad.h": LGPL + '#include "host/host.h"\n'}, "base may not use host"),
    ("layers", {"include/bad.h": LGPL + '#include "base/base.h"\n'}, "include may not use base"),
    ("layers", {"src/policy/bad.c": GPL + "#include <time.h>\n"}, "policy is pure"),
    ("layers", {"src/policy/bad.c": GPL + "#include <sys/stat.h>\n"}, "policy is pure"),
    ("layers", {"src/host/bad.c": GPL + '#include "../base/base.h"\n'}, "from the root of src/"),
    ("layers", {"src/other/new.c": GPL}, "src/other is not in the table"),
    ("layers", {"ARCHITECTURE.md": "# nothing\n"}, "there is no table"),
    ("spdx", {"src/host/bad.c": "int x;\n"}, "src/host/bad.c:1: no SPDX"),
    ("spdx", {"src/host/bad.c": LGPL}, "licence LGPL-2.1-or-later, not GPL-2.0-or-later"),
    ("spdx", {"src/base/bad.c": GPL}, "licence GPL-2.0-or-later, not LGPL-2.1-or-later"),
    ("spdx", {"bad": "#!/bin/sh\n"}, "bad:1: no SPDX"),
    ("spdx", {"meson.build": "project('x')\n"}, "meson.build:1: no SPDX"),
    ("spdx", {"late.py": "\n" * 5 + "# SPDX-License-Identifier: GPL-2.0-or-later\n"}, "no SPDX"),
    ("spdx", {"LICENSES/LGPL-2.1-or-later.txt": None}, "is not in LICENSES"),
    ("words", {"doc.md": "see /work" + "/main/x\n"}, "doc.md:1: a path of somebody's machine"),
    ("words", {"doc.md": "see '/home" + "/joe'\n"}, "a path of somebody's machine"),
    ("words", {"doc.md": "from deb" + ".debian.org\n"}, "the host of a package registry"),
    ("words", {"doc.md": "from https://files.python" + "hosted.org/x\n"}, "a package registry"),
    ("words", {"doc.md": "run issues " + "show 2\n"}, "a tool of one workplace"),
    ("file-length", {"src/host/long.c": GPL + "\n" * 800}, "801 lines"),
    ("format", {"src/host/bad.c": GPL + "int  x;\n"}, "src/host/bad.c:2"),
]


class LintTest(unittest.TestCase):
    def lint(self, name, files):
        with tempfile.TemporaryDirectory(prefix="prezero-lint-") as root:
            for path, content in {**CLEAN, **files}.items():
                if content is None:
                    continue
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as file:
                    file.write(content)
            shutil.copy(os.path.join(ROOT, ".clang-format"), root)
            for command in (["init", "-q"], ["add", "-A"]):
                subprocess.run(["git", "-C", root, *command], check=True)
            done = subprocess.run([os.path.join(HERE, name), root], text=True, capture_output=True,
                                  check=False)
            if done.returncode == 77:
                self.skipTest(done.stdout.strip())
            return done.returncode, done.stdout + done.stderr

    def test_clean_tree_passes(self):
        for name in ("layers", "spdx", "words", "file-length", "format"):
            with self.subTest(name):
                self.assertEqual(self.lint(name, {}), (0, ""))

    def test_planted_faults_are_found(self):
        for name, files, says in FAULTS:
            with self.subTest(lint=name, says=says):
                status, output = self.lint(name, files)
                self.assertEqual(status, 1, output)
                self.assertIn(says, output)

    def test_a_folder_without_git_is_skipped_with_a_reason(self):
        with tempfile.TemporaryDirectory(prefix="prezero-lint-") as root:
            environment = {**os.environ, "GIT_CEILING_DIRECTORIES": os.path.dirname(root)}
            done = subprocess.run([os.path.join(HERE, "words"), root], text=True, env=environment,
                                  capture_output=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (77, "skipped: not a git checkout\n"))


class FuzzTest(unittest.TestCase):
    """tests/fuzz/run hides no fault: libFuzzer says 77, which a test runner takes for a skip."""

    def test_a_fault_is_a_failure(self):
        for status in (0, 1, 77):
            with tempfile.TemporaryDirectory() as folder:
                target = os.path.join(folder, "target")
                with open(target, "w", encoding="utf-8") as out:
                    out.write(f"#!/bin/sh\nexit {status}\n")
                os.chmod(target, 0o755)
                done = subprocess.run([os.path.join(ROOT, "tests", "fuzz", "run"), target, folder,
                                       os.path.join(folder, "found")], check=False)
                self.assertEqual(done.returncode, 1 if status else 0)


class CountTest(unittest.TestCase):
    """tools/count-tests on reports as Meson writes them."""

    def count(self, *cases, suite="host / fill", errors=0, options=()):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as report:
            report.write(f'<testsuites><testsuite name="{suite}" errors="{errors}" failures="0">'
                         + "".join(f'<testcase name="{i} - test">{case}</testcase>'
                                   for i, case in enumerate(cases)) + "</testsuite></testsuites>")
            report.flush()
            done = subprocess.run([os.path.join(ROOT, "tools", "count-tests"), *options,
                                   report.name], text=True, capture_output=True, check=False)
        return done.returncode, done.stdout.replace(report.name, "REPORT").splitlines()

    def test_each_ending(self):
        skip = "<skipped/><system-out>no 1G pages\n</system-out>"
        self.assertEqual(self.count("", skip, ""), (0, [
            "skipped 1: no 1G pages (host / fill: 1 - test)", "2 passed, 0 failed, 1 skipped"]))
        self.assertEqual(self.count("", "<skipped/>"), (1, [
            "skipped 1: no reason given (host / fill: 1 - test)",
            "FAILED: host / fill: 1 - test: skipped without a reason",
            "1 passed, 1 failed, 1 skipped"]))
        for bad in ("<failure/>", "<error/>"):
            self.assertEqual(self.count("", bad), (1, [
                "FAILED: REPORT: host / fill: 1 - test", "1 passed, 1 failed, 0 skipped"]))

    def test_what_has_no_case_of_its_own(self):
        self.assertEqual(self.count("", errors=1), (1, [
            "FAILED: REPORT: host / fill", "1 passed, 1 failed, 0 skipped"]))
        self.assertEqual(self.count("", options=("--plus-failed", "build")), (1, [
            "FAILED: build", "1 passed, 1 failed, 0 skipped"]))
        self.assertEqual(self.count(), (1, ["0 passed, 0 failed, 0 skipped"]))
        self.assertEqual(self.count("", options=("absent.xml",))[0], 1)

    def test_a_broken_build_has_to_fail(self):
        self.assertEqual(self.count("", "<failure/>", suite="unit / broken_mark"),
                         (0, ["1 passed, 0 failed, 0 skipped"]))
        self.assertEqual(self.count("", "", suite="unit / broken_mark"), (1, [
            "FAILED: REPORT: unit / broken_mark was not caught", "0 passed, 1 failed, 0 skipped"]))


if __name__ == "__main__":
    sys.exit(unittest.main())
