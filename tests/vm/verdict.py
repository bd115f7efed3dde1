# SPDX-License-Identifier: GPL-2.0-or-later
# Role: reads the result channel and says how a run ended.
# Guarantees: pass is only what the guest reported record by record to the last; the console can
# explain why a verdict is missing, and can never supply one.
"""The record format: one JSON object a line, numbered by `seq` from 0.

  begin   kernel, tests (how many are planned)
  start   test                     what runs now: where a panic or a hang struck
  test    test, ending, ms, notes, kernel   ending: pass, fail, skip, hang; kernel: log lines
  figure  name, value              a measurement
  end     taint                    the last record of a complete run
"""

import json
from dataclasses import dataclass, field

PASS, FAIL, HANG, PANIC, WARN, LOST = "pass", "fail", "hang", "panic", "warn", "lost"
# Out-of-tree (4096) and unsigned (8192), which a module that is not the distribution's has.
ALLOWED_TAINT = 12288
PANIC_TEXT = "Kernel panic - not syncing"


@dataclass
class Verdict:
    """How a run ended, and why."""

    ending: str
    reason: str = ""
    kernel: str = ""
    tests: list = field(default_factory=list)
    figures: dict = field(default_factory=dict)
    seconds: float = 0.0

    def leaked(self):
        """Did every test find a leak? One that could not is blind where it should see."""
        tests = [test for test in self.tests if test["test"] != "module_load"]
        return bool(tests) and all(any("LEAK" in note for note in test["notes"])
                                   for test in tests)

    def as_dict(self):
        return dict(vars(self))


def _records(channel):
    """The records up to the first that is damaged or missing, and whether there was such a one."""
    records = []
    for line in channel.split("\n"):
        line = line.strip()
        if not line:
            continue
        try:
            record = json.loads(line)
            sequential = record["seq"] == len(records) and isinstance(record["record"], str)
        except (ValueError, KeyError, TypeError):
            sequential = False
        if not sequential:
            return records, True
        records.append(record)
    return records, False


def judge(outcome):
    """The verdict on a qemu.Outcome."""
    records, damaged = _records(outcome.channel)
    verdict = Verdict(LOST, seconds=round(outcome.seconds, 1))
    running = planned = end = None
    for record in records:
        match record["record"]:
            case "begin":
                verdict.kernel, planned = record["kernel"], record["tests"]
            case "start":
                running = record["test"]
            case "test":
                verdict.tests.append(record)
                running = None
            case "figure":
                verdict.figures[record["name"]] = record["value"]
            case "end":
                end = record
    where = f" in {running}" if running else ""
    if not end or damaged:
        if PANIC_TEXT in outcome.console:
            at = outcome.console.index(PANIC_TEXT)
            verdict.ending = PANIC
            verdict.reason = outcome.console[at:].split("\n")[0].strip() + where
        elif outcome.timed_out:
            verdict.ending, verdict.reason = HANG, f"no end within the time limit{where}"
        else:
            verdict.reason = f"the guest ended without its last record{where}"
            if outcome.log.strip():
                verdict.reason += f"; QEMU: {outcome.log.strip()[-300:]}"
        return verdict
    by_ending = {}
    for test in verdict.tests:
        by_ending.setdefault(test["ending"], []).append(test["test"])
    unknown = set(by_ending) - {PASS, FAIL, HANG, "skip"}
    warned = [f"{test['test']}: {test['kernel'][0]}" for test in verdict.tests if test["kernel"]]
    if len(verdict.tests) != planned or unknown:
        verdict.reason = f"{len(verdict.tests)} results of {planned} tests"
    elif HANG in by_ending:
        verdict.ending, verdict.reason = HANG, ", ".join(by_ending[HANG])
    elif warned or end["taint"] & ~ALLOWED_TAINT:
        verdict.ending = WARN
        verdict.reason = "; ".join(warned) or f"taint {end['taint']}"
    elif FAIL in by_ending:
        verdict.ending, verdict.reason = FAIL, ", ".join(by_ending[FAIL])
    else:
        verdict.ending = PASS
    return verdict
