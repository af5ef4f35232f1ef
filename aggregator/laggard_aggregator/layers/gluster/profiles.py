"""Counters of whole clients and bricks: `gluster volume profile VOL info` and a client's io-stats dump.

Text or `--xml`, with or without `incremental`. GlusterFS up to 8 counts microseconds and prints `us`, 9 and
later nanoseconds (gluster/glusterfs#1825), which 9 and all dumps of clients still call `us`, and XML has no
unit. Where the unit is not `ns`, the shortest call tells: none is shorter than 500 ns, and on GlusterFS up to
8 some call nearly always is shorter than 500 us.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from laggard_aggregator.layers.gluster.counters import GlusterLayer
from laggard_common.errors import InputError

_BRICK = re.compile(r"Brick: (\S.*)")
_LATENCY = r" +([0-9.]{1,30}) (ns|us)"
_BRICK_FOP = re.compile(
    rf" *[0-9.]+{_LATENCY}{_LATENCY} +[0-9.]+ (?:ns|us) +([0-9]{{1,15}}) +([A-Z_]{{1,40}}) *"
)
_LIKE_BRICK_FOP = re.compile(r" *[-0-9].* [A-Z_]{1,40} *")
_CLIENT_FOP = re.compile(rf"([A-Z_]{{1,40}}) +([0-9]{{1,15}}){_LATENCY}{_LATENCY} +[0-9.]+ us *")
_LIKE_CLIENT_FOP = re.compile(r"[A-Z_]{1,40} +[-0-9].*")
_BRICK_BYTES = re.compile(r" *Data (Read|Written): ([0-9]{1,19}) bytes *")
_CLIENT_BYTES = re.compile(r" *Bytes(Read|Written) : ([0-9]{1,19}) *")
_SHORTEST_NS = 500.0
_US = 1000.0


@dataclass(slots=True)
class _Profile:
    """What a file has: layers whose latencies have yet to be scaled, and rows that were not understood."""

    layers: list[GlusterLayer] = field(default_factory=list)
    shortest: float | None = None
    is_ns: bool = False
    odd: list[str] = field(default_factory=list)

    def add(self, layer: GlusterLayer, fop: str, calls: str | None, latencies: Sequence[str | None]) -> None:
        """Adds an operation. `latencies`: mean and shortest, as printed."""
        count, (mean, shortest) = _number(calls), map(_number, latencies)
        if count is None or (count and mean is None) or not fop:
            self.odd.append(f"{fop} {calls} {latencies[0]}")
            return
        layer.fops[fop] = (int(count), mean or 0.0)
        if shortest:
            self.shortest = min(shortest, self.shortest or shortest)

    def scaled(self) -> list[GlusterLayer]:
        """The layers, in nanoseconds."""
        if not self.is_ns and self.shortest is not None and self.shortest < _SHORTEST_NS:
            for layer in self.layers:
                layer.fops = {fop: (calls, mean * _US) for fop, (calls, mean) in layer.fops.items()}
        return self.layers


def matches(first: bytes) -> bool:
    """True when the first bytes are of one of these formats."""
    return (
        b"<volProfile>" in first
        or first.lstrip().startswith(b"Brick: ")
        or b"=== Cumulative stats ===" in first[:200]
    )


def layers(text: str, path: Path, remarks: list[str]) -> list[GlusterLayer]:
    """The clients and bricks in a file. `remarks` gets a line about rows left out. Raises InputError."""
    profile = _Profile()
    if "<volProfile>" in text:
        _from_xml(text, path, profile)
    elif "=== Cumulative stats ===" in text[:200]:
        _client(text, path, profile)
    else:
        profile.layers += _from_text(text, profile)
    if profile.odd:
        remarks.append(
            f"{path.name}: {len(profile.odd)} rows of operations were not understood and are left out, the "
            f"first: {' '.join(profile.odd[0].split())[:100]!r}"
        )
    return profile.scaled()


def _from_xml(text: str, path: Path, profile: _Profile) -> None:
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
        made = [_stats_of(brick.findtext("brickName") or "brick", node, profile) for node in stats]
        profile.layers.append(
            next(
                (layer for layer in made if layer.calls), made[0] if made else GlusterLayer("brick", "brick")
            )
        )


def _stats_of(name: str, node: "ElementTree.Element[str]", profile: _Profile) -> GlusterLayer:
    layer = GlusterLayer("brick", name)
    for fop in node.iter("fop"):
        latencies = fop.findtext("avgLatency"), fop.findtext("minLatency")
        profile.add(layer, fop.findtext("name") or "", fop.findtext("hits"), latencies)
    read, written = _number(node.findtext("totalRead")), _number(node.findtext("totalWrite"))
    layer.bytes = None if read is None or written is None else int(read + written)
    return layer


def _number(text: str | None) -> float | None:
    """A number as gluster prints it; None for other text, and without any."""
    is_one = text is not None and re.fullmatch(r"[0-9]{1,19}(?:\.[0-9]{1,9})?", text.strip())
    return float(text) if text is not None and is_one else None


def _from_text(text: str, profile: _Profile) -> Iterator[GlusterLayer]:
    """Of each brick the interval's counters if it had any calls, else the cumulative ones."""
    layers: list[GlusterLayer] = []
    name = ""
    for line in text.splitlines():
        if match := _BRICK.fullmatch(line):
            yield from layers[-1:]
            name, layers = match[1], []
        elif line.startswith(("Cumulative Stats", "Interval ")):
            if not layers or layers[-1].calls == 0:
                layers = [GlusterLayer("brick", name)]
            else:
                layers = [layers[-1], GlusterLayer("brick", name)]
        elif layers and (match := _BRICK_FOP.fullmatch(line)):
            profile.is_ns = profile.is_ns or match[2] == "ns"
            profile.add(layers[-1], match[6], match[5], (match[1], match[3]))
        elif layers and (match := _BRICK_BYTES.fullmatch(line)):
            layers[-1].bytes = (layers[-1].bytes or 0) + int(match[2])
        elif layers and _LIKE_BRICK_FOP.fullmatch(line):
            profile.odd.append(line)
        if len(layers) == 2 and layers[-1].calls == 0 and line.startswith("Data Written"):
            layers = layers[:1]
    yield from layers[-1:]


def _client(text: str, path: Path, profile: _Profile) -> None:
    layer = GlusterLayer("client", path.name)
    for line in text.partition("=== Interval")[0].splitlines():
        if match := _CLIENT_FOP.fullmatch(line):
            profile.is_ns = profile.is_ns or match[4] == "ns"
            profile.add(layer, match[1], match[2], (match[3], match[5]))
        elif match := _CLIENT_BYTES.fullmatch(line):
            layer.bytes = (layer.bytes or 0) + int(match[2])
        elif _LIKE_CLIENT_FOP.fullmatch(line):
            profile.odd.append(line)
    profile.layers.append(layer)
