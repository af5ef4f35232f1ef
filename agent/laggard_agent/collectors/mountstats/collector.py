"""The collector `mountstats`: operations and transports of each NFS mount of this node."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from laggard_agent.collectors.interface import Context, Now, Reading, read_file
from laggard_agent.collectors.mountstats.parse import (
    BYTE_COUNTERS,
    EVENTS,
    TRANSPORT_COUNTERS,
    Mount,
    NotMountstatsError,
    counters_of,
    parse,
)
from laggard_agent.collectors.name_filter import any_of
from laggard_agent.collectors.own_state import OnceLogged, OwnRow
from laggard_agent.collectors.registry import register
from laggard_common.config import between, checked, each, regex
from laggard_common.errors import CollectError
from laggard_common.wire.codec import Row
from laggard_common.wire.limits import MAX_COMPONENTS, MAX_FIELDS, MAX_NAME_CHARS
from laggard_common.wire.schema import Component, Field, FieldKind

_log = logging.getLogger(__name__)

NODE_FIELDS = tuple(
    Field(name, FieldKind.GAUGE) for name in ("mounts", "mounts_left_out", "lines_not_understood")
)
ALWAYS = ("READ", "WRITE", "GETATTR")
"""Operations with columns from the first sample on; others have columns once they have counted."""

_UNITS = {"ms": "ms", "bytes": "bytes", "sent": "bytes", "recv": "bytes"}


@dataclass(frozen=True, slots=True)
class MountstatsSettings:
    """`[mountstats]`: regular expressions on `server:/export`; an empty `include` means every NFS mount."""

    include: tuple[str, ...] = field(default=(), metadata=checked(each(regex())))
    exclude: tuple[str, ...] = field(default=(), metadata=checked(each(regex())))
    max_mounts: int = field(default=256, metadata=checked(between(1, MAX_COMPONENTS)))


def fields_of(operation: str) -> tuple[Field, ...]:
    """The columns of an operation."""
    return tuple(map(_counter, counters_of(operation)))


def _counter(name: str) -> Field:
    return Field(name, unit=_UNITS.get(name.rpartition("_")[2], "1"))


BASE_FIELDS = tuple(map(_counter, (*BYTE_COUNTERS, *TRANSPORT_COUNTERS, *EVENTS)))


@register
class Mountstats:
    """Reads `<procfs>/self/mountstats`: a row for each NFS super block that this node has mounted.

    A row's id is `server:/export`; further super blocks of the same export have ` on PATH` behind it. Columns
    only grow. A mount with lines that were not understood keeps the values of the others.
    """

    name = "mountstats"
    settings = MountstatsSettings
    sources: ClassVar = {"nfs_mount": BASE_FIELDS, "mountstats": NODE_FIELDS}

    def __init__(self, procfs: Path, settings: MountstatsSettings, now: Now) -> None:
        self._path = procfs / "self" / "mountstats"
        self._settings = settings
        self._include = any_of(settings.include)
        self._exclude = any_of(settings.exclude)
        self._now = now
        self._mounts: list[Mount] = []
        self._fields = (*BASE_FIELDS, *(column for name in ALWAYS for column in fields_of(name)))
        self._names = tuple(column.name for column in self._fields)
        self._operations = set(ALWAYS)
        self._components: tuple[Component, ...] = ()
        self._rows: dict[str, tuple[Mapping[str, int], Row]] = {}
        self._own = OwnRow(self.name, NODE_FIELDS)
        self._nothing = OnceLogged(_log, self.name)

    @classmethod
    def open(cls, settings: MountstatsSettings, context: Context) -> Self:
        """As `CollectorClass`."""
        return cls(context.roots.procfs, settings, context.now)

    def read(self) -> Iterator[Reading]:
        """Mounts, then the node's own row. Raises CollectError."""
        at = self._now()
        try:
            self._mounts, leftovers = parse(read_file(self._path), self._mounts)
        except NotMountstatsError as exc:
            raise CollectError(str(self._path), str(exc)) from exc
        chosen, left_out = self._chosen(self._mounts)
        if chosen:
            yield self._reading(at, chosen)
        row = (len(chosen), left_out, leftovers + sum(mount.leftovers for mount in self._mounts))
        yield self._own.reading(at, row)
        self._nothing.update(not chosen, f"no NFS mount in {self._path}")

    def _chosen(self, mounts: Sequence[Mount]) -> tuple[dict[str, tuple[Component, Mount]], int]:
        """Mounts that have a row, by id, and the number of those that there was no room or no name for."""
        chosen: dict[str, tuple[Component, Mount]] = {}
        left_out = 0
        for mount in mounts:
            device, path = _text(mount.device), _text(mount.path)
            if device is not None and self._excluded(device):
                continue
            if device is None or path is None or len(chosen) >= self._settings.max_mounts:
                left_out += 1
                continue
            id_ = f"{device} on {path}" if device in chosen else device
            if id_ in chosen or len(id_) > MAX_NAME_CHARS:
                left_out += 1
            else:
                chosen[id_] = _component(id_, device, path, mount), mount
        return chosen, left_out

    def _excluded(self, device: str) -> bool:
        if self._exclude is not None and self._exclude(device):
            return True
        return self._include is not None and not self._include(device)

    def _reading(self, at_ns: int, chosen: Mapping[str, tuple[Component, Mount]]) -> Reading:
        width = len(self._fields)
        self._grow([mount for _, mount in chosen.values()])
        rows = {}
        for id_, (_, mount) in chosen.items():
            before = self._rows.get(id_)
            if before is None or before[0] is not mount.values or width != len(self._fields):
                before = (mount.values, tuple(map(mount.values.get, self._names)))
            rows[id_] = before
        self._rows = rows
        components = tuple(component for component, _ in chosen.values())
        self._components = self._components if components == self._components else components
        return Reading("nfs_mount", self._fields, at_ns, self._components, [row for _, row in rows.values()])

    def _grow(self, mounts: Sequence[Mount]) -> None:
        for mount in mounts:
            for name in mount.operations:
                more = fields_of(name)
                if name not in self._operations and len(self._fields) + len(more) <= MAX_FIELDS:
                    self._operations.add(name)
                    self._fields += more
                    self._names += tuple(column.name for column in more)


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
