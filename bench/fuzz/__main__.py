"""Everything that reads bytes from elsewhere, fuzzed by atheris for a bounded time.

    python -m bench.fuzz [--seconds 15] [--runs N] [--jobs N] [TARGET ...]

Each target runs in a process of its own, from good examples on, guided by coverage. An exception that it does
not say it raises, more than a few seconds for one input, or more than 1 GiB of memory is a finding: its input
is printed, and the exit status is 1. With `--runs` each target gets so many inputs, from a fixed seed: mostly
the same for the same code. Without atheris (it has no wheel for every Python) the exit status is 0, with a
line that says so.
"""

import argparse
import base64
import importlib.util
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.machine import machine

NAMES = (
    *("messages", "intake", "payloads", "aggregator's MQTT"),
    *("segments", "journal", "kernel's files", "file systems", "reports", "functions"),
    *("control groups", "mounts", "trace documents", "I/O traces", "sysstat", "PCP and CSV"),
    *(
        "layers of strace",
        "layers of DXT",
        "layers of the kernel",
        "layers of blkparse",
        "layers of DFTracer",
    ),
    *("layers of events", "layers of stamps", "layers as printed", "maps of layers", "gluster's layers"),
    *("jobs of Slurm", "jobs of PBS", "jobs of Flux", "jobs in JSON Lines", "inputs of the store"),
    *("records of Darshan", "documents", "Ceph's dumps", "sockets", "the host's files", "trees of devices"),
    *("ELF", "compressed files", "answers of Prometheus", "settings"),
)
LONGEST_INPUT = 4096
MOST_MIB = 1024
OVERDUE = 124
"""Exit code of a run that went on minutes after its time."""


def main() -> int:
    """Prints the table; 1 when something was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(NAMES)}; default all")
    parser.add_argument("--seconds", type=int, default=15, help="how long each target (default 15)")
    parser.add_argument("--runs", type=int, help="end after so many inputs, drawn from a fixed seed")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="targets at a time (default: one a CPU)"
    )
    parser.add_argument("--inside", metavar="CORPUS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.targets) - set(NAMES)
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}")
    if importlib.util.find_spec("atheris") is None:
        print("bench.fuzz: atheris is not installed for this Python; nothing was fuzzed")
        return 0
    if options.inside:
        from bench.fuzz.inside import FuzzLimits, fuzz  # noqa: PLC0415 - it instruments what it imports

        limits = FuzzLimits(options.seconds, options.runs, LONGEST_INPUT, MOST_MIB)
        fuzz(options.targets[0], Path(options.inside), limits)
        return 0
    print(machine("atheris"))
    print("\n| target | inputs | edges covered | findings |\n|---|---:|---:|---|", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = [pool.submit(_row, name, options.seconds, options.runs) for name in options.targets or NAMES]
        findings = 0
        for row in rows:
            line, is_finding = row.result()
            print(line, flush=True)
            findings += is_finding
    return 1 if findings else 0


def _row(name: str, seconds: int, runs: int | None, *, is_again: bool = False) -> tuple[str, bool]:
    """Fuzzes a target; the line of the table, and whether something was found.

    A run that ended by a signal and has no input to show is done again, once.
    """
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.fuzz", name, "--seconds", str(seconds), "--inside", folder]
        if runs is not None:
            command += ["--runs", str(runs)]
        code, said = _ended(command, Path(folder) / "said", seconds + 300)
        if code < 0 and not is_again and not list(Path(folder).glob("found-*")):
            print(f"{name}: ended by signal {-code} without an input; again", file=sys.stderr)
            return _row(name, seconds, runs, is_again=True)
        inputs = re.findall(r"^#(\d+)", said, re.MULTILINE)
        edges = re.findall(r"cov: (\d+)", said)
        crashes = sorted(Path(folder).glob("found-*"))
        if code:
            print(said[-4000:], file=sys.stderr)
            for crash in crashes:
                print(f"{name}: {base64.b64encode(crash.read_bytes()).decode()}", file=sys.stderr)
        outcome = "none" if code == 0 else f"exit status {code}"
        count = int(inputs[-1]) if inputs else 0
        return f"| {name} | {count:,} | {edges[-1] if edges else 0} | {outcome} |", code != 0


def _ended(command: list[str], said: Path, seconds: float) -> tuple[int, str]:
    """Exit code of a run, and its messages, which are kept in the file `said`.

    A run that has told its end and does not exit is ended, with code 0: libFuzzer exits with Python's lock
    held, for which a thread of Arrow may wait that the exit waits for. One that goes on ends as OVERDUE.
    """
    env = {**os.environ, "PYTHONHASHSEED": "0"}
    with said.open("w") as file:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file, env=env)
    end = time.monotonic() + seconds
    try:
        while True:
            is_done = re.search(r"^Done \d+ runs", said.read_text(errors="replace"), re.MULTILINE)
            try:
                return process.wait(10), said.read_text(errors="replace")
            except subprocess.TimeoutExpired:
                if is_done:
                    return 0, said.read_text(errors="replace")
                if time.monotonic() > end:
                    return OVERDUE, said.read_text(errors="replace")
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
