#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""prezero: what --help says, the manual and the completion agree, in both directions."""

import re
import subprocess

from cli_test import CliTest
from fake_daemon import page_class, status
from prezero_test import PREZERO, ROOT, main

MANUAL = ROOT / "man/prezero.1.scd"
COMPLETION = ROOT / "data/completion/prezero"
COMMON = {"--json", "--socket", "--help", "--usage", "--version"}
NO_SOCKET = {"zero", "reserve", "boot-args", "bench"}  # need no daemon, or start one of their own


def find(pattern, text):
    return re.findall(pattern, text, re.MULTILINE)


class Docs(CliTest):
    def setUp(self):
        super().setUp()
        help_text = self.prezero("--help").out
        self.commands = find(r"^  ([a-z-]+)  ", help_text.partition("Commands:")[2])
        self.manual = MANUAL.read_text(encoding="utf-8")

    def help_options(self, *command):
        """The options that the program says it has."""
        help_text = self.prezero(*command, "--help").out
        return set(find(r"^ +(?:-., +|-. +)?(--[a-z][a-z-]*)", help_text))

    def section(self, command):
        """The manual's section of a command."""
        return re.search(rf"^## prezero {command}\b(.*?)(?=^##? )", self.manual,
                         re.MULTILINE | re.DOTALL).group(1)

    def test_the_program_says_something(self):
        self.assertGreaterEqual(len(self.commands), 6)
        for command in self.commands:
            missing = COMMON - self.help_options(command)
            self.assertEqual(missing, {"--socket"} if command in NO_SOCKET else set(), command)
        self.assertIn("--memory", self.help_options("run"))

    def test_every_command_is_in_the_manual_and_no_other(self):
        self.assertEqual(find(r"^## prezero ([a-z-]+)", self.manual), self.commands)
        synopsis = self.manual.partition("# SYNOPSIS")[2].partition("# DESCRIPTION")[0]
        self.assertEqual(find(r"^\*prezero\* \*([a-z-]+)\*", synopsis), self.commands)

    def test_every_option_is_in_the_manual_and_no_other(self):
        option = r"\*(--[a-z][a-z-]*)\*"
        common = self.manual.partition("# OPTIONS")[2].partition("\n# ")[0]
        self.assertEqual(set(find(option, common)), COMMON)
        for command in self.commands:
            with self.subTest(command=command):
                heads = "\n".join(find(r"^\*--.*", self.section(command)))
                self.assertEqual(set(find(option, heads)), self.help_options(command) - COMMON)

    def test_every_exit_status_is_in_the_manual(self):
        header = (ROOT / "src/cli/cli.h").read_text(encoding="utf-8")
        numbers = set(re.findall(r"STATUS_[A-Z_]+ = (\d+)", header))
        statuses = self.manual.partition("# EXIT STATUS")[2].partition("\n# ")[0]
        self.assertEqual(set(re.findall(r"\b(\d+)\b", statuses)), numbers)

    def test_every_error_code_is_in_the_manual_and_no_other(self):
        source = (ROOT / "src/cli/session.c").read_text(encoding="utf-8")
        codes = set(re.findall(r'STATUS_[A-Z_]+, "([a-z-]+)"', source))
        listed = re.search(r"with a _code_\s+\((.*?)\)", self.manual, re.DOTALL).group(1)
        self.assertEqual(set(re.findall(r"_([a-z-]+)_", listed)), codes)

    def test_manual_has_no_faults(self):
        roff = subprocess.run(["scdoc"], input=self.manual, capture_output=True, text=True,
                              check=True)
        self.assertIn(".TH", roff.stdout)

    # The completion.

    def complete(self, *words):
        """What bash offers for the last word."""
        script = (f'source "{COMPLETION}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _prezero; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "--norc", "-u", "-c", script, "bash", PREZERO, *words],
                              text=True, capture_output=True, env=self.environment, check=True)
        self.assertEqual(done.stderr, "")
        return set(done.stdout.split())

    def test_commands_are_completed(self):
        self.assertEqual(self.complete(""), set(self.commands))
        self.assertEqual(self.complete("st"), {"status"})

    def test_options_are_completed(self):
        self.assertEqual(self.complete("--"), self.help_options())
        for command in self.commands:
            self.assertEqual(self.complete(command, "-"), self.help_options(command))
        self.assertEqual(self.complete("take", "2M", "--pa"), {"--page", "--partial"})

    def test_values_are_completed(self):
        self.fake.status = status(classes=[page_class(page, node) for node in (0, 1, 12)
                                           for page in ("2M", "1G", "thp", "base")])
        for command in ("take", "run"):
            self.assertEqual(self.complete(command, "--page", ""), {"2M", "1G", "thp", "base"})
            self.assertEqual(self.complete(command, "--node", ""), {"any", "0", "1", "12"})
            self.assertEqual(self.complete(command, "--node", "1"), {"1", "12"})
        self.assertEqual(self.complete("list", "--state", ""), {"filling", "ready", "lent"})
        self.assertEqual(self.complete("zero", ""), {"max"})

    def test_leases_are_completed(self):
        self.fake.segments = [{"id": "00000000000000ab", "name": "vm7", "path": "/x", "page": "2M",
                               "node": 0, "bytes": 1, "state": "lent", "age_ms": 1, "uid": 0},
                              {"id": "00000000000000cd", "path": "/y", "page": "2M",
                               "node": 0, "bytes": 1, "state": "lent", "age_ms": 1, "uid": 0}]
        self.assertEqual(self.complete("give", ""), {"vm7", "00000000000000ab", "00000000000000cd"})
        self.assertEqual(self.complete("give", "v"), {"vm7"})
        self.assertEqual(self.fake.parameters_of("List"), [{"state": "lent"}] * 4)

    def test_socket_is_honoured(self):
        path, self.environment["PREZERO_SOCKET"] = self.fake.socket_path, "/nonexistent"
        self.assertEqual(self.complete("take", "--page", ""), set())
        self.assertEqual(self.complete("take", "--socket", path, "--page", ""), {"2M"})

    def test_names_cannot_run_anything(self):
        evil = "$(touch${IFS}" + str(self.fake.directory / "evil") + ")"
        self.fake.segments = [{"id": evil, "name": evil, "path": "/x", "page": "2M", "node": 0,
                               "bytes": 1, "state": "lent", "age_ms": 1, "uid": 0}]
        self.complete("give", "")
        self.assertFalse((self.fake.directory / "evil").exists())


if __name__ == "__main__":
    main()
