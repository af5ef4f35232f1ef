"""The collector `mountstats`: operations and transports of each NFS mount of this node."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from laggard_agent.collectors.interface import Context, Reading, choice, read_file
from laggard_agent.collectors.mountstats.parse import (
    BYTE_COUNTERS,
    EVENTS,
    TRANSPORT_COUNTERS,
    Mount,
    NotMountstatsError,
    counters_of,
    parse,
)
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.rows import ColumnTable, OnceLogged, OwnRow, gauges
from laggard_common.config import between, checked, each, regex
from laggard_common.errors import CollectError
from laggard_common.wire.limits import MAX_COMPONENTS, MAX_FIELDS, MAX_NAME_CHARS
from laggard_common.wire.schema import Component, Field

NODE_FIELDS = gauges("mounts", "mounts_left_out", "lines_not_understood")
ALWAYS = ("READ", "WRITE", "GETATTR")
"""Operations with columns from the first sample on; others have columns once they have counted."""

_UNITS = {"ms": "ms", "bytes": "bytes", "sent": "bytes", "recv": "bytes"}


@dataclass(frozen=True, slots=True)
class MountstatsSettings:
    """`[mountstats]`: regular expressions on `server:/export`; an empty `include` means every NFS mount."""

    include: tuple[str, ...] = field(default=(), metadata=checked(each(regex)))
    exclude: tuple[str, ...] = field(default=(), metadata=checked(each(regex)))
    max_mounts: int = field(default=256, metadata=checked(between(1, MAX_COMPONENTS)))


@lru_cache(512)
def fields_of(operation: str) -> tuple[Field, ...]:
    """The columns of an operation."""
    return tuple(map(_counter, counters_of(operation)))


def _counter(name: str) -> Field:
    return Field(name, unit=_UNITS.get(name.rpartition("_")[2], "1"))


BASE_FIELDS = tuple(map(_counter, (*BYTE_COUNTERS, *TRANSPORT_COUNTERS, *EVENTS)))


@register
class Mountstats:
    """Reads `<procfs>/self/mountstats`: a row for each NFS super block that this node has mounted.

    A row's id is `server:/export`; further super blocks of the same export have ` on PATH` behind it, and
    keep it while they are mounted there. Columns only grow. A mount with lines that were not understood keeps
    the values of the others.
    """

    name = "mountstats"
    settings = MountstatsSettings
    sources: ClassVar = {"nfs_mount": BASE_FIELDS, "mountstats": NODE_FIELDS}

    def __init__(self, settings: MountstatsSettings, context: Context) -> None:
        self._path = context.roots.procfs / "self" / "mountstats"
        self._mountinfo_path = context.roots.procfs / "self" / "mountinfo"
        self._most = settings.max_mounts
        self._choice = choice(settings.include, settings.exclude)
        self._now = context.now
        self._mounts: list[Mount] = []
        self._ids: dict[tuple[bytes, bytes], str] = {}
        always = (column for name in ALWAYS for column in fields_of(name))
        self._rows = ColumnTable("nfs_mount", (*BASE_FIELDS, *always))
        self._own = OwnRow(self.name, NODE_FIELDS)
        self._nothing = OnceLogged(self.name)

    def read(self) -> Iterator[Reading]:
        """Mounts, then the node's own row. Raises CollectError."""
        at = self._now()
        try:
            self._mounts, leftovers = parse(read_file(self._path), self._mounts, self._mountinfo)
        except NotMountstatsError as exc:
            raise CollectError(str(self._path), str(exc)) from exc
        chosen, left_out = self._chosen(self._mounts)
        if chosen:
            for _, mount in chosen.values():
                for name in mount.operations:
                    if len(self._rows.fields) + len(more := fields_of(name)) <= MAX_FIELDS:
                        self._rows.grow(more)
            yield self._rows.table(at, ((component, m.values, False) for component, m in chosen.values()))
        leftovers += sum(mount.leftovers for mount in self._mounts)
        yield self._own.of(at, len(chosen), left_out, leftovers)
        self._nothing.update(not chosen, f"no NFS mount in {self._path}")

    def _chosen(self, mounts: Sequence[Mount]) -> tuple[dict[str, tuple[Component, Mount]], int]:
        """Mounts that have a row, by id, and the number of those that there was no room or no name for."""
        chosen: dict[str, tuple[Component, Mount]] = {}
        left_out = 0
        before, self._ids = self._ids, {}
        kept = {before[key] for mount in mounts if (key := (mount.device, mount.path)) in before}
        for mount in mounts:
            device, path = _text(mount.device), _text(mount.path)
            if device is not None and self._choice(device) is False:
                continue
            if device is None or path is None or len(chosen) >= self._most:
                left_out += 1
                continue
            key = mount.device, mount.path
            id_ = before.get(key)
            if id_ is None or id_ in chosen:  # two mounts over one another have one key
                id_ = f"{device} on {path}" if device in kept else device
            if id_ in chosen or len(id_) > MAX_NAME_CHARS:
                left_out += 1
            else:
                chosen[id_] = _component(id_, device, path, mount), mount
                self._ids.setdefault(key, id_)
                kept.add(id_)
        return chosen, left_out

    def _mountinfo(self) -> bytes:
        try:
            return read_file(self._mountinfo_path)
        except CollectError:
            return b""


def _component(id_: str, device: str, path: str, mount: Mount) -> Component:
    server, slash, export = device.partition(":/")
    if not slash:
        server, _, export = device.rpartition(":")
    labels = {"server": server, "export": slash[1:] + export, "path": path, **mount.details}
    return Component(id_, id_, tuple(labels.items()))


def _text(raw: bytes) -> str | None:
    """A name as text; None when it cannot be one."""
    text = raw.decode("utf-8", "backslashreplace")
    return text if text.isprintable() and len(text) <= MAX_NAME_CHARS else None
