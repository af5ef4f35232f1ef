"""The demo's recording: real rows of /proc/diskstats with one LUN slow for five minutes.

The file is xz-compressed text: `# key: value` lines, then for every second a line `@ <epoch seconds>` and
the rows of the LUNs as the kernel printed them. `bench/testbed/` records it.
"""

import lzma
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from laggard_common.errors import InputError

PACKAGED = Path(__file__).with_name("recording.diskstats.xz")
"""The recording shipped with Laggard."""
SPEEDS = (1, 2, 5, 10, 20)
"""Allowed speeds of a replay; each makes a tick a whole number of milliseconds, 50 ms or more."""

MAX_TEXT_BYTES = 256 * 1024 * 1024
MAX_LUNS = 64
SETTLE_SECONDS = 10.0

_TIME = re.compile(rb"@ ([0-9]{1,12}(?:\.[0-9]{1,9})?)", re.ASCII)
_ROW = re.compile(rb" *[0-9]+ +[0-9]+ ([A-Za-z0-9._!-]{1,64})((?: [0-9]{1,20}){11,30})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Sample:
    """One second: `time` of the reading in epoch seconds, and each LUN's row with its newline."""

    time: float
    rows: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded run. `faulty` is the LUN that was made slow by `fault` from `fault_start` to `fault_end`.

    Times are epoch seconds of the recording; every sample has a row of every one of `luns`.
    """

    luns: tuple[str, ...]
    faulty: str
    fault: str
    fault_start: float
    fault_end: float
    samples: tuple[Sample, ...]

    @property
    def start(self) -> float:
        """Time of the first sample."""
        return self.samples[0].time

    @property
    def seconds(self) -> float:
        """From the first sample to the last."""
        return self.samples[-1].time - self.start

    def recovered(self) -> tuple[Sample, ...]:
        """The samples after the fault, without the time in which the LUN drains its queue."""
        return tuple(sample for sample in self.samples if sample.time > self.fault_end + SETTLE_SECONDS)


def read_recording(path: Path = PACKAGED) -> Recording:
    """Reads the recording at `path`. Raises InputError with a one-line reason."""
    header: dict[str, str] = {}
    samples: list[Sample] = []
    try:
        for number, line in enumerate(_text(path).split(b"\n"), 1):
            _take(line, header, samples, f"{path}:{number}")
    except OSError as exc:
        raise InputError(str(path), exc.strerror or str(exc)) from exc
    return _checked(path, header, samples)


def _text(path: Path) -> bytes:
    """The text in the xz file, never more than MAX_TEXT_BYTES of it in memory."""
    try:
        with lzma.open(path) as packed:
            text = packed.read(MAX_TEXT_BYTES + 1)
    except EOFError as exc:
        raise InputError(str(path), "truncated") from exc
    except lzma.LZMAError as exc:
        raise InputError(str(path), "not an xz file, or damaged") from exc
    if len(text) > MAX_TEXT_BYTES:
        raise InputError(str(path), f"more than {MAX_TEXT_BYTES} bytes of text")
    return text


def _take(line: bytes, header: dict[str, str], samples: list[Sample], where: str) -> None:
    """Parses one line of the text."""
    if line.startswith(b"# ") and not samples:
        key, _, value = line[2:].decode(errors="replace").partition(": ")
        header[key] = value
    elif time := _TIME.fullmatch(line):
        samples.append(Sample(float(time[1]), {}))
    elif samples and (row := _ROW.fullmatch(line)):
        rows = samples[-1].rows
        assert isinstance(rows, dict)
        rows[row[1].decode()] = line + b"\n"
    elif line:
        raise InputError(where, f"neither a time nor a row of /proc/diskstats: {line[:40]!r}")


def _checked(path: Path, header: Mapping[str, str], samples: list[Sample]) -> Recording:
    """The recording, after checking that its parts are consistent."""
    luns = tuple(header.get("luns", "").split())
    made = Recording(
        luns=luns,
        faulty=header.get("faulty", ""),
        fault=header.get("fault", ""),
        fault_start=_seconds(header.get("fault_start")),
        fault_end=_seconds(header.get("fault_end")),
        samples=tuple(samples),
    )
    for problem in _problems(made):
        raise InputError(str(path), problem)
    return made


def _problems(made: Recording) -> Iterator[str]:
    if not 4 <= len(made.luns) <= MAX_LUNS or len(set(made.luns)) != len(made.luns):
        yield f"header luns: expected 4-{MAX_LUNS} different names, got {len(made.luns)}"
    if made.faulty not in made.luns:
        yield f"header faulty: not one of the luns: {made.faulty!r}"
    if len(made.samples) < 2:
        yield f"{len(made.samples)} samples, expected at least 2"
    elif not made.start < made.fault_start < made.fault_end < made.samples[-1].time:
        yield "header fault_start, fault_end: not in order within the recording"
    elif len(made.recovered()) < 2:
        yield f"ends less than {SETTLE_SECONDS:.0f} s after the fault"
    for before, after in zip(made.samples, made.samples[1:], strict=False):
        if not before.time < after.time:
            yield f"time does not advance at {after.time}"
    columns = {len(row.split()) for sample in made.samples[:1] for row in sample.rows.values()}
    for sample in made.samples:
        if sample.rows.keys() != set(made.luns):
            yield f"the rows at {sample.time} are not those of the luns"
        if {len(row.split()) for row in sample.rows.values()} != columns:
            yield f"the rows at {sample.time} have other columns than those before"


def _seconds(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan
