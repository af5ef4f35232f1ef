"""Layers of a gluster volume by its own latency counters: client translators above, brick translators below.

Reads `gluster volume profile VOL info [incremental]` as text or `--xml`, and a client's io-stats dump.
These are totals, not events: requests, bytes and mean latencies. GlusterFS 10 and later print nanoseconds
everywhere, also under "us".
"""

import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from laggard_aggregator.layers.readers.text_lines import head
from laggard_aggregator.status.text_table import TableColumn, text_table
from laggard_common.errors import InputError

_LARGEST_BYTES = 64 << 20
_DATA = ("READ", "WRITE")
_BRICK = re.compile(r"Brick: (\S.*)")
_BRICK_FOP = re.compile(
    r" *[0-9.]+ +([0-9.]+) (ns|us) +[0-9.]+ (?:ns|us) +[0-9.]+ (?:ns|us) +([0-9]{1,15}) +([A-Z_]{1,40}) *"
)
_CLIENT_FOP = re.compile(r"([A-Z_]{1,40}) +([0-9]{1,15}) +([0-9.]{1,30}) us +[0-9.]+ us +[0-9.]+ us *")
_BRICK_BYTES = re.compile(r" *Data (Read|Written): ([0-9]{1,19}) bytes *")
_CLIENT_BYTES = re.compile(r" *Bytes(Read|Written) : ([0-9]{1,19}) *")
_NOT_COUNTED = (
    "streams",
    "runs",
    "max_request_bytes",
    "mean_concurrency",
    "mean_concurrency_busy",
    "max_concurrency",
    "busy_seconds",
    "mib_per_second_busy",
    "admit_issue_us",
    "issue_complt_us",
    "complt_callback_us",
    "unmatched_ratio",
)
"""Characteristics that totals do not tell, null in the records."""
SLOW_RATIO = 3.0
"""A brick this many times slower than the median of its peers is a finding, from 1 ms on."""
SLOW_NS = 1e6
MIN_CALLS = 20
MIN_PEERS = 2
ABOVE_SHARE = 0.5


@dataclass(slots=True)
class GlusterLayer:
    """Counters of one client or brick: calls and mean nanoseconds by operation; bytes read and written."""

    layer: str
    name: str
    fops: dict[str, tuple[int, float]] = field(default_factory=dict)
    bytes: int = 0

    @property
    def calls(self) -> int:
        """Reads and writes."""
        return sum(self.fops.get(fop, (0, 0.0))[0] for fop in _DATA)

    @property
    def mean_ns(self) -> float:
        """Mean latency of reads and writes."""
        total = sum(calls * mean for calls, mean in (self.fops.get(fop, (0, 0.0)) for fop in _DATA))
        return total / self.calls if self.calls else 0.0


@dataclass(frozen=True, slots=True)
class GlusterFinding:
    """A candidate among the layers of a volume."""

    candidate: str
    text: str
    advice: str
    share: float | None = None


def matches(first: bytes) -> bool:
    """True when the first bytes are of one of these formats."""
    return (
        b"<volProfile>" in first
        or first.lstrip().startswith(b"Brick: ")
        or b"=== Cumulative stats ===" in first[:200]
    )


def read(paths: Sequence[Path]) -> list[GlusterLayer]:
    """The layers in the files, clients first. Raises InputError."""
    found: list[GlusterLayer] = []
    for path in paths:
        raw = head(path, _LARGEST_BYTES + 1)
        if not matches(raw[:65536]) or len(raw) > _LARGEST_BYTES:
            raise InputError(str(path), "is no latency counters of gluster, as the other files are")
        text = raw.decode(errors="replace")
        if "<volProfile>" in text:
            found += _from_xml(text, path)
        elif "=== Cumulative stats ===" in text[:200]:
            found.append(_client(text, path))
        else:
            found += _from_text(text)
    if not any(layer.calls for layer in found):
        raise InputError(str(paths[0]), "has no reads or writes: was latency-measurement on?")
    return sorted(found, key=lambda layer: layer.layer != "client")


def _from_xml(text: str, path: Path) -> Iterator[GlusterLayer]:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise InputError(str(path), "has a document type, which gluster never writes")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - no entities, checked above
    except ElementTree.ParseError as exc:
        raise InputError(str(path), f"is no XML: {exc}") from None
    for brick in root.iter("brick"):
        stats = [
            node for name in ("intervalStats", "cumulativeStats") if (node := brick.find(name)) is not None
        ]
        made = [_stats_of(brick.findtext("brickName") or "brick", node) for node in stats]
        yield next(
            (layer for layer in made if layer.calls), made[0] if made else GlusterLayer("brick", "brick")
        )


def _stats_of(name: str, node: "ElementTree.Element[str]") -> GlusterLayer:
    layer = GlusterLayer("brick", name)
    for fop in node.iter("fop"):
        calls, mean = _number(fop.findtext("hits")), _number(fop.findtext("avgLatency"))
        layer.fops[fop.findtext("name") or ""] = (int(calls), mean)
    layer.bytes = int(_number(node.findtext("totalRead")) + _number(node.findtext("totalWrite")))
    return layer


def _number(text: str | None) -> float:
    return float(text) if text and re.fullmatch(r"[0-9]{1,19}(?:\.[0-9]{1,9})?", text.strip()) else 0.0


def _from_text(text: str) -> Iterator[GlusterLayer]:
    """Of each brick the interval's counters if it had any calls, else the cumulative ones."""
    layers: list[GlusterLayer] = []
    name = ""
    for line in text.splitlines():
        if found := _BRICK.fullmatch(line):
            yield from layers[-1:]
            name, layers = found[1], []
        elif line.startswith(("Cumulative Stats", "Interval ")):
            if not layers or layers[-1].calls == 0:
                layers = [GlusterLayer("brick", name)]
            else:
                layers = [layers[-1], GlusterLayer("brick", name)]
        elif layers and (found := _BRICK_FOP.fullmatch(line)):
            layers[-1].fops[found[4]] = (int(found[3]), _number(found[1]))
        elif layers and (found := _BRICK_BYTES.fullmatch(line)):
            layers[-1].bytes += int(found[2])
        if len(layers) == 2 and layers[-1].calls == 0 and line.startswith("Data Written"):
            layers = layers[:1]
    yield from layers[-1:]


def _client(text: str, path: Path) -> GlusterLayer:
    layer = GlusterLayer("client", path.name)
    for line in text.partition("=== Interval")[0].splitlines():
        if found := _CLIENT_FOP.fullmatch(line):
            layer.fops[found[1]] = (int(found[2]), _number(found[3]))
        elif found := _CLIENT_BYTES.fullmatch(line):
            layer.bytes += int(found[2])
    return layer


def findings(layers: Sequence[GlusterLayer]) -> list[GlusterFinding]:
    """Bottom-up: a brick slower than its peers; else the time that clients wait and no brick works."""
    bricks = [layer for layer in layers if layer.layer == "brick"]
    found = [finding for fop in _DATA for finding in _slow_bricks(bricks, fop)]
    if found:
        worst: dict[str, GlusterFinding] = {}
        for each in found:
            worst.setdefault(each.candidate, each)
        return list(worst.values())
    above = []
    for client in (layer for layer in layers if layer.layer == "client"):
        for fop in _DATA:
            calls, mean = client.fops.get(fop, (0, 0.0))
            below = [b.fops[fop][1] for b in bricks if b.fops.get(fop, (0, 0.0))[0] >= MIN_CALLS]
            if calls < MIN_CALLS or not below or mean < SLOW_NS:
                continue
            share = 1 - max(below) / mean
            if share >= ABOVE_SHARE:
                above.append(
                    GlusterFinding(
                        "between client and brick",
                        f"A {fop} takes {mean / 1e6:.2f} ms at {client.name}, at most "
                        f"{max(below) / 1e6:.2f} ms at any brick.",
                        "Look at the network, the clients' threads and the translators between "
                        "(locks, healing).",
                        share,
                    )
                )
    return above[:1]


def _slow_bricks(bricks: Sequence[GlusterLayer], fop: str) -> Iterator[GlusterFinding]:
    known = [(b, b.fops[fop][1]) for b in bricks if b.fops.get(fop, (0, 0.0))[0] >= MIN_CALLS]
    for brick, mean in sorted(known, key=lambda each: -each[1]):
        others = [value for other, value in known if other is not brick]
        if len(others) < MIN_PEERS:
            return
        usual = statistics.median(others)
        if mean >= SLOW_NS and mean >= SLOW_RATIO * usual:
            yield GlusterFinding(
                f"brick {brick.name}",
                f"A {fop} takes {mean / 1e6:.2f} ms at brick {brick.name}, {usual / 1e6:.2f} ms at "
                f"the median of its {len(others)} peers.",
                "Look at the disk and the file system below this brick; record it with laggard "
                "layers record.",
            )


def records(layers: Sequence[GlusterLayer], found: Sequence[GlusterFinding]) -> Iterator[dict[str, Any]]:
    """Records of the layers and findings, with the names of those of traces."""
    for layer in layers:
        yield {
            "record": "layer",
            **dict.fromkeys(_NOT_COUNTED),
            "layer": layer.layer,
            "device": layer.name,
            "requests": layer.calls,
            "bytes": layer.bytes,
            "mean_request_bytes": layer.bytes / layer.calls if layer.calls else 0.0,
            "mean_residence_us": layer.mean_ns / 1000,
            "read_us": layer.fops.get("READ", (0, 0.0))[1] / 1000,
            "write_us": layer.fops.get("WRITE", (0, 0.0))[1] / 1000,
        }
    for each in found:
        yield {
            "record": "finding",
            "candidate": each.candidate,
            "kind": "slow",
            "share": each.share,
            "text": each.text,
            "advice": each.advice,
        }


def report_lines(
    layers: Sequence[GlusterLayer], found: Sequence[GlusterFinding], width: int | None
) -> Iterator[str]:
    """The report for a terminal."""
    columns = (
        TableColumn("layer"),
        TableColumn("name"),
        TableColumn("reads + writes", right=True),
        TableColumn("MiB", right=True),
        TableColumn("read ms", right=True),
        TableColumn("write ms", right=True),
    )
    rows = [
        [
            layer.layer,
            layer.name,
            f"{layer.calls:,}",
            f"{layer.bytes / (1 << 20):,.1f}",
            *(f"{layer.fops.get(fop, (0, 0.0))[1] / 1e6:,.3f}" for fop in _DATA),
        ]
        for layer in layers
    ]
    yield from text_table(columns, rows, width)
    yield ""
    if not found:
        yield "No candidate: no brick is slower than its peers, and clients wait for bricks alone."
    for each in found:
        yield f"Candidate: {each.candidate} (slow)"
        yield f"  {each.text}"
        yield f"  {each.advice}"
