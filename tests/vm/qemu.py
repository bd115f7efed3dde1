# SPDX-License-Identifier: GPL-2.0-or-later
# Role: one guest, from its start to its end, under TCG.
# Guarantees: a guest never runs longer than its time limit; no process is left behind;
# nothing that QEMU itself says (its exit status least of all) is taken for a verdict.
"""Boots a guest and gives back what it wrote on its console and on its result channel.

The result channel is the second serial port: every kernel has the driver built in, and what is
written there is on our side at once, whatever happens to the guest afterwards.
"""

import pathlib
import subprocess
import time
from dataclasses import dataclass, field

QEMU = "qemu-system-x86_64"
# panic=-1 reboots at once and -no-reboot makes of that the end. A guest has no clock to trust but
# TCG's, and no RNG to wait for.
COMMAND_LINE = "console=ttyS0 panic=-1 loglevel=6 tsc=reliable random.trust_cpu=on"
# TCG runs the kernel's byte-wise string instructions a byte at a time. Without them the kernel uses
# the eight-byte ones, and everything that copies or zeroes huge pages takes an eighth of the time.
FAST_CPU = "max,-erms,-fsrm"
PLAIN_CPU = "max"
KILL_WAIT_S = 20


@dataclass
class Machine:
    """What the guest is given."""

    node_bytes: tuple
    cpus: int = 2
    cpu: str = FAST_CPU
    command_line: list = field(default_factory=list)

    def arguments(self):
        sockets = f",sockets={self.cpus},cores=1" if len(self.node_bytes) > 1 else ""
        words = [QEMU, "-machine", "pc", "-accel", "tcg,thread=multi", "-cpu", self.cpu,
                 "-smp", f"{self.cpus}{sockets}", "-m", f"{sum(self.node_bytes) >> 20}M"]
        for node, size in enumerate(self.node_bytes):
            cpus = ",".join(f"cpus={cpu}" for cpu in range(self.cpus)
                            if cpu % len(self.node_bytes) == node)
            words += ["-object", f"memory-backend-ram,id=m{node},size={size}",
                      "-numa", f"node,nodeid={node},memdev=m{node},{cpus}"]
        return words + ["-display", "none", "-vga", "none", "-nic", "none", "-monitor", "none",
                        "-no-reboot", "-no-user-config"]


@dataclass
class Outcome:
    """What came of a boot."""

    channel: str
    console: str
    log: str  # QEMU's own words
    seconds: float
    timed_out: bool


def boot(machine, vmlinuz, initramfs, folder, limit_s):
    """Boot a guest, wait for its end, and return the Outcome; its files are kept in `folder`."""
    folder = pathlib.Path(folder)
    words = machine.arguments()
    words += ["-serial", f"file:{folder / 'console'}", "-serial", f"file:{folder / 'channel'}",
              "-kernel", vmlinuz, "-initrd", initramfs,
              "-append", " ".join([COMMAND_LINE, *machine.command_line])]
    # Whatever ends us, a guest does not outlive us.
    words = ["setpriv", "--pdeathsig", "KILL", *map(str, words)]
    (folder / "command").write_text("\n".join(words) + "\n", encoding="utf-8")
    timed_out = False
    with open(folder / "qemu.log", "wb") as log:
        start = time.monotonic()
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as qemu:
            try:
                qemu.wait(limit_s)
            except subprocess.TimeoutExpired:
                timed_out = True
            finally:
                _end(qemu)
        seconds = time.monotonic() - start
    return Outcome(_text(folder / "channel"), _text(folder / "console"),
                   _text(folder / "qemu.log"), seconds, timed_out)


def _end(qemu):
    if qemu.poll() is None:
        qemu.terminate()
        try:
            qemu.wait(KILL_WAIT_S)
        except subprocess.TimeoutExpired:
            qemu.kill()


def _text(path):
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
