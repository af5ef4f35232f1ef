"""One io-stats dump of GlusterFS (`diagnostics.stats-dump-interval`, format json), as values by name.

A dump is two JSON objects in a row, one line per value: the first counts since the process started (`aggr`),
the second since the previous dump (`inter`). It is parsed by lines, not as JSON, because older versions quote
their numbers, and an interval of no length divides by zero and prints `inf` and `nan`.

A dump's name has the brick's path with `_` for every `/`; glusterd's `vols/<volume>/bricks/<host>:<path>` has
it with `-` for every `/`. Where one has `_` and the other `-`, the path has a `/`. So root is not needed.

Latencies are nanoseconds, although the keys end in `usec`, but microseconds up to GlusterFS 8. The smallest
latency of the process tells: no call passes through its translators in less than 200 ns. The
dump has no sums of latencies: it has means, printed with the 24 bits of a C float.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from laggard_agent.collectors.interface import printable
from laggard_common.trace_formats.kernel_text import number

_ENTRY = re.compile(r'^"([^"\n]+)": ?"?([^",\n]*)"?,?$', re.MULTILINE)
_ZERO = re.compile(r'^"(?:fop\.|read_\d|write_\d)[^"\n]*": ?"?0(?:\.0+)?"?,?\n', re.MULTILINE)
_SIZE = re.compile(r"(?:read|write)_\d+[kmg]?b")
_TOTALS = ("bytes_read", "bytes_written")
_GAUGES = ("fds.open_count", "LEAST.queue_size", "LOW.queue_size", "NORMAL.queue_size", "HIGH.queue_size")
_FOP = "fop."
_NAME = re.compile(r"[a-z0-9_]{1,64}")
_NOT_READ = {
    "fds.max_open_count",
    "fop.weighted_fop_count",
    "fop.weighted_latency_ave_usec",
    "fop.weighted_latency_ave_usec_nozerofill",
    "fop.unweighted_latency_ave_usec",
}
_LEAST = "latency_min_usec"
_NOT_READ_OF_A_FOP = (_LEAST, "latency_max_usec")
_LEAST_NS = 200
_NS_OF_USEC = 1000
_NO_FOP = "null"
_PARTS = 3  # two objects and the rest
_MOST_LEFTOVERS = 100
_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class Fop:
    """A file operation with calls: `calls` since the process started, and their mean latency in ns.

    `interval_calls` and `interval_mean_ns`: the same for the interval before the dump, which is shorter after
    a `gluster volume profile`. A mean is None where nothing was measured.
    """

    calls: int
    mean_ns: float | None
    interval_calls: float
    interval_mean_ns: float | None


@dataclass(frozen=True, slots=True)
class ProcessDump:
    """A whole dump. `name`: the brick's path with `_` for `/`, or the volume of a client.

    `counts`: calls by block size (`read_64kb`) and bytes; `gauges`: both by the names of the dump. Most of a
    dump is zeros; zero values are not in `fops` or among the sizes. `leftovers`: unparsed lines, truncated,
    at most 100; without any the dump is complete.
    """

    name: str
    is_brick: bool
    uptime_s: int
    interval_s: float
    fops: dict[str, Fop]
    counts: dict[str, int]
    gauges: dict[str, int]
    leftovers: tuple[str, ...]


class NotADumpError(Exception):
    """The file is complete but not a JSON io-stats dump; the text gives the reason."""


def parse_dump(data: bytes) -> ProcessDump | None:
    """Parses the dump in a file; None while it is incomplete or empty, as in a rewrite.

    Raises NotADumpError for a file that does not start like a dump, or is too short.
    """
    if not data.strip():
        return None
    objects = data.decode("utf-8", "replace").split("\n}")
    begins = all(part.lstrip()[:1] == "{" for part in objects[:2] if part.strip())
    if begins and len(objects) < _PARTS:
        return None
    if not begins or len(objects) > _PARTS or objects[2].strip():
        raise NotADumpError("not the two JSON objects of io-stats; is diagnostics.stats-dump-format json?")
    return _DumpParser().dump(*(part.lstrip()[1:].lstrip() for part in objects[:2]))


class _DumpParser:
    """Sorts the lines of the two objects."""

    def __init__(self) -> None:
        self._leftovers: list[str] = []
        self._calls: dict[str, int] = {}
        self._means: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._gauges: dict[str, int] = {}
        self._least = math.inf

    def dump(self, aggregate: str, interval: str) -> ProcessDump:
        """The dump of the two objects' lines. Raises NotADumpError."""
        prefix, separator, _ = aggregate.partition(".aggr.")
        scope, _, name = prefix.partition(".")
        if not separator or scope != '"gluster' or not name or "\n" in name:
            raise NotADumpError("no gluster.<name>.aggr.<value> in the first object")
        totals = self._entries(_ZERO.sub("", aggregate.replace(f"{prefix}.aggr.", '"')))
        recent = self._entries(_ZERO.sub("", interval.replace(f"{prefix}.inter.", '"')))
        uptime = number(totals.pop("uptime", ""))
        seconds = _real(recent.get("sample_interval_sec", ""))
        if uptime is None or seconds is None or totals.keys().isdisjoint(_TOTALS):
            raise NotADumpError("uptime, sample_interval_sec or bytes_read is missing")
        for key, text in totals.items():
            if not self._take(key, text) and key not in _NOT_READ:
                self._left_over(f"{key}: {text}")
        scale = _NS_OF_USEC if self._least < _LEAST_NS else 1
        kind, _, brick = name.partition(".")
        is_brick = kind == "brick" and bool(brick)
        return ProcessDump(
            name=brick if is_brick else name,
            is_brick=is_brick,
            uptime_s=uptime,
            interval_s=seconds,
            fops={fop: self._fop(fop, recent, seconds, scale) for fop in self._calls},
            counts=self._counts,
            gauges=self._gauges,
            leftovers=tuple(self._leftovers),
        )

    def _entries(self, lines: str) -> dict[str, str]:
        entries = _ENTRY.findall(lines)
        if lines.count("\n") + 1 != len(entries):
            for line in lines.split("\n"):
                if not _ENTRY.fullmatch(line):
                    self._left_over(line)
        return dict(entries)

    def _take(self, key: str, text: str) -> bool:
        """Adds a value of the first object if it is known and valid."""
        if key.startswith(_FOP):
            fop, _, what = key[len(_FOP) :].rpartition(".")
            if what == _LEAST:
                self._least = min(self._least, _real(text) or math.inf)
            if what in _NOT_READ_OF_A_FOP or fop == _NO_FOP:
                return True
            if not _NAME.fullmatch(fop):
                return False
            if what == "latency_ave_usec":
                mean = _real(text)
                if mean is not None:
                    self._means[fop] = mean
                return mean is not None
            into, place = (self._calls, fop) if what == "count" else (None, "")
        elif key in _GAUGES:
            into, place = self._gauges, key
        else:
            into, place = (self._counts, key) if key in _TOTALS or _SIZE.fullmatch(key) else (None, "")
        value = number(text)
        if into is None or value is None:
            return False
        into[place] = value
        return True

    def _fop(self, fop: str, recent: dict[str, str], seconds: float, scale: int) -> Fop:
        rate = _real(recent.get(f"fop.{fop}.per_sec", ""))
        mean = _real(recent.get(f"fop.{fop}.latency_ave_usec", "")) if rate is not None else None
        means = (None if value is None else value * scale for value in (self._means.get(fop), mean))
        return Fop(self._calls[fop], next(means), (rate or 0.0) * seconds, next(means))

    def _left_over(self, line: str) -> None:
        if len(self._leftovers) < _MOST_LEFTOVERS:
            self._leftovers.append(printable(line[:_SHOWN_CHARS]))


def _real(text: str) -> float | None:
    """A finite number of at least 0; None for anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def brick_path(dump_name: str, bricks: Iterable[tuple[str, str]]) -> tuple[str, str | None]:
    """Path and volume of the brick with this dump name; `bricks`: volume and name of each brick file.

    Without a match, or with matches of different paths, the path is the dump's, with `_`; with matches of
    several volumes (the same path on several servers) the volume is None.
    """
    fitting = {(path, volume) for volume, name in bricks if (path := _merged(dump_name, name)) is not None}
    paths = {path for path, _ in fitting}
    volumes = {volume for _, volume in fitting}
    if len(paths) != 1:
        return dump_name, None
    return paths.pop(), volumes.pop() if len(volumes) == 1 else None


def _merged(dump_name: str, brick_name: str) -> str | None:
    """The path that yields both names; None without one."""
    dashed = brick_name.partition(":-")[2]
    if brick_name.count(":") > 1:  # an IPv6 address
        dashed = brick_name.rpartition(":-")[2]
    if len(dashed) + 1 != len(dump_name):
        return None
    path = []
    for in_dump, in_brick in zip(dump_name, f"-{dashed}", strict=True):
        if in_dump == in_brick:
            path.append(in_dump)
        elif in_dump == "_" and in_brick == "-":
            path.append("/")
        else:
            return None
    return "".join(path)
