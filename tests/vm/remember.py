# SPDX-License-Identifier: GPL-2.0-or-later
# Role: keeps how guests ended, so that a campaign of an hour can be stopped and started at will.
# Guarantees: what is remembered was run on just this module, by just these tests, in just this way.
"""Verdicts that still hold."""

import hashlib
import json
import os

from build import GUEST, MODULE, REPOSITORY, built_programs
from verdict import Verdict

STARTERS = ("campaign.py", "qemu.py")


def hash_sources():
    """Changes when the module does, or the tests in the guest, or how a guest is started."""
    files = [path for folder in (MODULE, GUEST) for path in folder.rglob("*")
             if path.suffix in (".c", ".h", ".sh") or path.name in ("Kbuild", "init")]
    files += [REPOSITORY / "tests" / "vm" / name for name in STARTERS]
    total = hashlib.sha256()
    for path in sorted(files):
        total.update(f"{path.relative_to(REPOSITORY)}\0".encode() + path.read_bytes())
    # Without the programs some tests skip.
    total.update("\0".join(sorted(built_programs())).encode())
    return total.hexdigest()


def remembered(record, key, passed, run):
    """The verdict in the file `record` if it has this key and passed(verdict); else that of run()."""
    if record.exists():
        kept = json.loads(record.read_text(encoding="utf-8"))
        verdict = Verdict(**kept["verdict"])
        if kept["key"] == key and passed(verdict):
            return verdict
    verdict = run()
    record.parent.mkdir(parents=True, exist_ok=True)
    fresh = record.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps({"key": key, "verdict": verdict.as_dict()}), encoding="utf-8")
    fresh.rename(record)
    return verdict
