"""Counters of whole clients and bricks: `gluster volume profile VOL info` and a client's io-stats dump.

Text or `--xml`, with or without `incremental`. GlusterFS 10 and later print nanoseconds everywhere, also
under "us".
"""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from laggard_aggregator.layers.gluster.counters import GlusterLayer
from laggard_common.errors import InputError

_BRICK = re.compile(r"Brick: (\S.*)")
_BRICK_FOP = re.compile(
    r" *[0-9.]+ +([0-9.]+) (ns|us) +[0-9.]+ (?:ns|us) +[0-9.]+ (?:ns|us) +([0-9]{1,15}) +([A-Z_]{1,40}) *"
)
_CLIENT_FOP = re.compile(r"([A-Z_]{1,40}) +([0-9]{1,15}) +([0-9.]{1,30}) us +[0-9.]+ us +[0-9.]+ us *")
_BRICK_BYTES = re.compile(r" *Data (Read|Written): ([0-9]{1,19}) bytes *")
_CLIENT_BYTES = re.compile(r" *Bytes(Read|Written) : ([0-9]{1,19}) *")


def matches(first: bytes) -> bool:
    """True when the first bytes are of one of these formats."""
    return (
        b"<volProfile>" in first
        or first.lstrip().startswith(b"Brick: ")
        or b"=== Cumulative stats ===" in first[:200]
    )


def layers(text: str, path: Path) -> Iterator[GlusterLayer]:
    """The clients and bricks in a file. Raises InputError."""
    if "<volProfile>" in text:
        yield from _from_xml(text, path)
    elif "=== Cumulative stats ===" in text[:200]:
        yield _client(text, path)
    else:
        yield from _from_text(text)


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
            layers[-1].bytes = (layers[-1].bytes or 0) + int(found[2])
        if len(layers) == 2 and layers[-1].calls == 0 and line.startswith("Data Written"):
            layers = layers[:1]
    yield from layers[-1:]


def _client(text: str, path: Path) -> GlusterLayer:
    layer = GlusterLayer("client", path.name)
    for line in text.partition("=== Interval")[0].splitlines():
        if found := _CLIENT_FOP.fullmatch(line):
            layer.fops[found[1]] = (int(found[2]), _number(found[3]))
        elif found := _CLIENT_BYTES.fullmatch(line):
            layer.bytes = (layer.bytes or 0) + int(found[2])
    return layer
