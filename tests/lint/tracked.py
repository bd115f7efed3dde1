# SPDX-License-Identifier: GPL-2.0-or-later
"""What the lints share: the files that git tracks, and how a lint ends.

A lint is run as `tests/lint/NAME [ROOT]`, prints a line "PATH:LINE: what is wrong" for every fault, and
exits with 1 if there was one. Without git there is nothing to go by: it exits with 77, skipped.
"""

import os
import subprocess
import sys

CORPORA = "tests/fuzz/corpus/"


def root():
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    return os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else default)


def files():
    """Yields (path below the root, lines) of every tracked text file; fuzz input is left out."""
    done = subprocess.run(["git", "-C", root(), "ls-files", "-z"], capture_output=True, check=False)
    if done.returncode:
        print("skipped: not a git checkout")
        sys.exit(77)
    for path in done.stdout.decode().split("\0"):
        full = os.path.join(root(), path)
        # A file that is deleted in the working tree is still tracked.
        if not path or path.startswith(CORPORA) or not os.path.isfile(full):
            continue
        try:
            with open(full, encoding="utf-8") as file:
                yield path, file.read().splitlines()
        except UnicodeDecodeError:
            continue


def finish(faults):
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)
