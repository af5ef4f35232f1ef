"""Statedumps of glusterfs and glusterfsd: the latency of each translator of a client or brick.

A call's latency at a translator is the time until the translators below it have answered. `kill -USR2 PID`
switches the measurement on and off, `kill -USR1 PID` writes a dump of the calls since the one before
(GlusterFS 7 and later).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from laggard_common.errors import InputError

_LATENCY = re.compile(r"\[(\S.*)\.latency\]")
_FOP = re.compile(r"\.latency\.([A-Z_]{1,40})=AVG:[0-9.]{1,30} CNT:([0-9]{1,18}) TOTAL:([0-9]{1,18}) MIN:.*")
_KIND = re.compile(r"\[([a-z]{1,32}/[a-z0-9-]{1,64}|meta)\.(\S+)(?: - Memory usage)?\]")
_BRICK_PATH = re.compile(r"base_path=(/.*)")
_NAME = re.compile(r"(.+)\.dump\.[0-9]+(?:\.[a-z]+)?")
MAX_TRANSLATORS = 10_000


@dataclass(slots=True)
class Translator:
    """A translator of a process. `kind`: such as `storage/posix`. `fops`: calls and their nanoseconds."""

    name: str
    kind: str
    fops: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class GlusterProcess:
    """A client or a brick, its translators from the top."""

    name: str
    is_brick: bool
    taken: str
    translators: dict[str, Translator]


def matches(first: bytes) -> bool:
    """True when the first bytes are of a statedump."""
    return first.startswith(b"DUMP-START-TIME: ")


def processes(dumps: Sequence[tuple[Path, str]]) -> Iterator[GlusterProcess]:
    """The processes, clients first, each by its last dump, which has the calls since the one before.

    Dumps are of one process when their files are in one folder and have its name: `NAME.dump.TIME`.
    """
    latest: dict[object, GlusterProcess] = {}
    for path, text in dumps:
        name, dumped = _NAME.fullmatch(path.name), _process(path, text)
        key = (path.parent, name[1]) if name else path
        if key not in latest or latest[key].taken < dumped.taken:
            latest[key] = dumped
    yield from sorted(latest.values(), key=lambda process: process.is_brick)


def _process(path: Path, text: str) -> GlusterProcess:
    translators: dict[str, Translator] = {}
    current: Translator | None = None
    brick = ""
    lines = text.splitlines()
    for line in lines:
        if line.startswith("["):
            current = None
            if latency := _LATENCY.fullmatch(line):
                translators.pop(latency[1], None)  # of a graph before
                current = translators.setdefault(latency[1], Translator(latency[1], ""))
            elif (kind := _KIND.fullmatch(line)) and (named := translators.get(kind[2])):
                named.kind = kind[1]
        elif current is not None:
            fop = _FOP.fullmatch(line, len(current.name)) if line.startswith(current.name) else None
            if fop:
                current.fops[fop[1]] = (int(fop[2]), int(fop[3]))
        elif at := _BRICK_PATH.fullmatch(line):
            brick = at[1]
        if len(translators) > MAX_TRANSLATORS:
            raise InputError(str(path), f"has more than {MAX_TRANSLATORS} translators")
    if not any(translator.fops for translator in translators.values()):
        raise InputError(
            str(path), "has no latencies: is the measurement on (kill -USR2), GlusterFS 7 or later?"
        )
    known = {name: translator for name, translator in translators.items() if translator.kind}
    is_brick = any(translator.kind == "protocol/server" for translator in known.values())
    stem = _NAME.fullmatch(path.name)
    name = brick if is_brick and brick else stem[1] if stem else path.name
    return GlusterProcess(name, is_brick, lines[0], known)
