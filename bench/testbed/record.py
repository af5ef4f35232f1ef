"""Record real LUNs with one of them slow: `python -m bench.testbed.record --output FILE`.

Builds the LUNs, puts the same load on each, and samples their rows of /proc/diskstats at every whole second
through a healthy phase, a fault on one LUN, and a recovery. Needs root and cgroup v1; without them one line
and exit 2.
"""

from __future__ import annotations

import argparse
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from bench.testbed import recording
from bench.testbed.load import fio_load, profile
from bench.testbed.luns import (
    Lun,
    TestbedError,
    disk_hog,
    ignore_signals,
    loop_luns,
    process,
    stop_on_signals,
    throttled,
)

SADC = "/usr/lib/sysstat/sadc"
DISKSTATS = Path("/proc/diskstats")
MAX_PHASE_SECONDS = 3600
LUN_BYTES = 512 << 20
SLACK_SECONDS = 30


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when the recording is written, 2 when the machine cannot make it."""
    options = _parser().parse_args(arguments)
    stop_on_signals()
    try:
        record(options)
    except TestbedError as exc:
        print(f"bench.testbed.record: {exc}", file=sys.stderr)
        return 2
    return 0


def record(options: argparse.Namespace) -> None:
    """Make the recording that the options describe, and write its file or files. Raises TestbedError."""
    if not 0 <= options.fault_lun < options.luns:
        raise TestbedError(f"--fault-lun: expected 0-{options.luns - 1}, got {options.fault_lun}")
    if options.sysstat is not None and not Path(SADC).exists():
        raise TestbedError(f"--sysstat: no {SADC}; install sysstat")
    seconds = options.healthy + options.fault + options.recover
    samples: list[recording.Sample] = []
    with ExitStack() as stack:
        luns = stack.enter_context(loop_luns(options.luns, options.scratch, LUN_BYTES, options.cap_bps))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="record-", dir=options.scratch)))
        fio = stack.enter_context(fio_load(luns, folder, seconds + SLACK_SECONDS))
        sampler = Sampler(frozenset(lun.sampled.encode() for lun in luns), fio, samples)
        sampler.wait_for_second()
        if options.sysstat is not None:
            stack.enter_context(sadc(folder / "sa", seconds + SLACK_SECONDS, options.sysstat))
        sampler.run(options.healthy)
        with fault(options, luns[options.fault_lun]):
            start = time.time()
            sampler.run(options.fault)
        end = time.time()
        sampler.run(options.recover, last=True)
        ignore_signals()
    recording.write(options.output, header(options, luns, start, end), samples)
    print(f"{options.output}: {len(samples)} samples of {len(luns)} LUNs")


class Sampler:
    """Reads the LUNs' rows at every whole second of the wall clock into `samples`."""

    def __init__(
        self, names: frozenset[bytes], fio: subprocess.Popen[bytes], samples: list[recording.Sample]
    ) -> None:
        self._names = names
        self._fio = fio
        self._samples = samples
        self._next_second = 0

    def wait_for_second(self) -> None:
        """Sleep to the next whole second, which becomes the first to be sampled."""
        self._next_second = int(time.time()) + 1
        time.sleep(max(0.0, self._next_second - time.time()))

    def run(self, seconds: int, *, last: bool = False) -> None:
        """Take a sample a second; a second that went by unsampled stays missing.

        `last` takes the sample that closes the last second, which the next phase takes otherwise. Raises
        TestbedError when the load has ended.
        """
        end = self._next_second + seconds + (1 if last else 0)
        while self._next_second < end:
            time.sleep(max(0.0, self._next_second - time.time()))
            time_ns = time.time_ns()
            rows = recording.select_rows(DISKSTATS.read_bytes(), self._names)
            self._samples.append(recording.Sample(time_ns, rows))
            self._next_second = max(self._next_second, time_ns // 1_000_000_000) + 1
            if self._fio.poll() is not None:
                raise TestbedError(f"fio ended early with {self._fio.returncode}")


@contextmanager
def sadc(activity: Path, seconds: int, compressed: Path) -> Iterator[None]:
    """Run sysstat's collector once a second while the context lasts, then write its file to `compressed`.

    The collector gets a host name of its own in a UTS namespace, as the file's header carries one.
    """
    named = ["unshare", "--uts", "sh", "-c", 'hostname testbed && exec "$@"', "sh"]
    with process([*named, SADC, "-S", "DISK", "1", str(seconds), str(activity)]) as running:
        yield
        time.sleep(0.5)  # it ticks some milliseconds after the sampler; let it take the last second too
        if running.poll() is not None:
            raise TestbedError(f"sadc ended early with {running.returncode}")
    recording.write_xz(compressed, activity.read_bytes())


def fault(options: argparse.Namespace, lun: Lun) -> AbstractContextManager[None]:
    """Return the context in which `lun` is slow."""
    if options.fault_kind == "throttle":
        return throttled(lun, options.fault_bps)
    return disk_hog(lun)


def header(options: argparse.Namespace, luns: Sequence[Lun], start: float, end: float) -> dict[str, str]:
    """Return the recording's header; `start` and `end` are the fault's, in epoch seconds."""
    release = re.match(r"[0-9.]*[0-9]", platform.release())
    kind = options.fault_kind
    if kind == "throttle":
        kind += f" to {options.fault_bps} bytes/s each way"
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime(start)),
        "kernel": release.group() if release else "unknown",
        "luns": " ".join(lun.sampled for lun in luns),
        "cap": f"{options.cap_bps} bytes/s each way on every LUN",
        "faulty": luns[options.fault_lun].sampled,
        "fault": kind,
        "fault_start": f"{start:.3f}",
        "fault_end": f"{end:.3f}",
        "fio": profile(),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.testbed.record", description=__doc__)
    parser.add_argument("--luns", type=int, default=12)
    for name, default in (("healthy", 180), ("fault", 300), ("recover", 180)):
        parser.add_argument(f"--{name}", type=_phase, default=default, metavar="SECONDS")
    parser.add_argument("--fault-kind", choices=("throttle", "disk-hog"), default="throttle")
    parser.add_argument("--fault-lun", type=int, default=7, metavar="N", help="from 0")
    parser.add_argument(
        "--fault-bps", type=int, default=3_000_000, metavar="BYTES", help="of a throttle fault"
    )
    parser.add_argument(
        "--cap-bps", type=int, default=40_000_000, metavar="BYTES", help="of every LUN, always"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="xz is what it will be")
    parser.add_argument(
        "--sysstat", type=Path, metavar="FILE", help="sadc's file of the same period, also xz"
    )
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()), metavar="DIR")
    return parser


def _phase(text: str) -> int:
    seconds = int(text)
    if not 1 <= seconds <= MAX_PHASE_SECONDS:
        raise argparse.ArgumentTypeError(f"expected 1-{MAX_PHASE_SECONDS} seconds, got {seconds}")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
