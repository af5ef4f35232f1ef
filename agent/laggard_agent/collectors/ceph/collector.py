"""The collector `ceph`: a row for each OSD of this node."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from laggard_agent.collectors.ceph.admin_socket import ask
from laggard_agent.collectors.ceph.perf_dump import FIELDS, NotPerfDumpError, parse, parse_latency_bins
from laggard_agent.collectors.interface import ABSENT, Context, Reading, attribute, unreadable
from laggard_agent.collectors.registry import register
from laggard_agent.collectors.rows import ColumnTable, Counters, OnceLogged, OwnRow, gauges, raise_first
from laggard_common.config import between, checked
from laggard_common.errors import CollectError
from laggard_common.wire.schema import Component

NODE_FIELDS = gauges("osds", "osds_failed", "osds_left_out", "values_not_understood")
WAIT_NS = 30 * 1_000_000_000
"""Time for which an OSD that did not answer is not asked again."""
HISTOGRAMS_EVERY_NS = 60 * 1_000_000_000
"""An answer with histograms has 140 kB."""
_SOCKET = re.compile(r"(?P<cluster>[A-Za-z0-9_.-]{1,64})-osd\.(?P<number>[0-9]{1,9})\.asok")
_FSID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class CephSettings:
    """`[ceph]`. `directory`: of the admin sockets; `data_directory`: of OSDs, which tells their devices."""

    directory: Path = Path("/run/ceph")
    data_directory: Path = Path("/var/lib/ceph")
    timeout_seconds: float = field(default=0.5, metadata=checked(between(0.01, 60)))
    max_osds: int = field(default=128, metadata=checked(between(1, 4096)))


@dataclass(slots=True)
class _Osd:
    """An OSD's socket. `component` is None until its status is known; `bins`: of its latest histograms."""

    path: Path
    number: int
    component: Component | None = None
    asked_again_ns: int = 0
    bins: Counters = field(default_factory=dict)
    bins_odd: int = 0
    bins_at_ns: int = 0


@register
class Ceph:
    """Asks each `*-osd.<n>.asok` in the directory, and in folders below it named by a cluster's fsid."""

    name = "ceph"
    settings = CephSettings
    sources: ClassVar = {"ceph_osd": FIELDS, "ceph": NODE_FIELDS}

    def __init__(self, settings: CephSettings, context: Context) -> None:
        self._settings = settings
        self._sysfs = context.roots.sysfs
        self._now = context.now
        self._monotonic_ns = context.monotonic_ns
        self._osds: dict[Path, _Osd] = {}
        self._rows = ColumnTable("ceph_osd", FIELDS)
        self._own = OwnRow(self.name, NODE_FIELDS)
        self._nothing = OnceLogged(self.name)

    def read(self) -> Iterator[Reading]:
        """OSDs, then the node's own row. Raises CollectError after both."""
        at = self._now()
        failures: list[CollectError] = []
        paths, left_out = self._sockets(failures)
        self._osds = {path: self._osds.get(path) or _new(path) for path in paths}
        rows: dict[str, tuple[Component, Counters, bool]] = {}
        leftovers = waiting = 0
        for osd in self._osds.values():
            if self._monotonic_ns() < osd.asked_again_ns:
                waiting += 1
                continue
            try:
                component = osd.component or self._component(osd)
                counters, not_understood = self._counters(osd)
            except CollectError as exc:
                osd.asked_again_ns = self._monotonic_ns() + WAIT_NS
                osd.component = None
                failures.append(exc)
                continue
            osd.component = component
            leftovers += not_understood
            if component.id in rows:
                left_out += 1
            else:
                rows[component.id] = component, counters, False
        if rows:
            yield self._rows.table(at, rows.values())
        yield self._own.of(at, len(rows), len(failures) + waiting, left_out, leftovers)
        self._nothing.update(not self._osds, f"no admin socket of an OSD in {self._settings.directory}")
        raise_first(failures)

    def _sockets(self, failures: list[CollectError]) -> tuple[list[Path], int]:
        """The OSDs' sockets in order, and the number of those beyond the limit. Raises CollectError.

        The folder of a cluster that cannot be listed is one of `failures`.
        """
        folder = self._settings.directory
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            paths = [Path(entry.path) for entry in entries if _SOCKET.fullmatch(entry.name)]
        except OSError as exc:
            if exc.errno in ABSENT:
                return [], 0
            raise unreadable(folder, exc) from exc
        for below in (Path(entry.path) for entry in entries if _FSID.fullmatch(entry.name)):
            try:
                paths += sorted(path for path in below.iterdir() if _SOCKET.fullmatch(path.name))
            except OSError as exc:
                if exc.errno not in ABSENT:
                    failures.append(unreadable(below, exc))
        most = self._settings.max_osds
        return paths[:most], max(len(paths) - most, 0)

    def _counters(self, osd: _Osd) -> tuple[Counters, int]:
        seconds = self._settings.timeout_seconds
        try:
            counters, odd = parse(ask(osd.path, "perf dump", seconds))
        except NotPerfDumpError as exc:
            raise CollectError(str(osd.path), str(exc)) from exc
        if self._monotonic_ns() >= osd.bins_at_ns:
            osd.bins_at_ns = self._monotonic_ns() + HISTOGRAMS_EVERY_NS
            osd.bins, osd.bins_odd = {}, 0
            with suppress(NotPerfDumpError):  # old versions have none
                osd.bins, osd.bins_odd = parse_latency_bins(ask(osd.path, "perf histogram dump", seconds))
        return {**counters, **osd.bins}, odd + osd.bins_odd

    def _component(self, osd: _Osd) -> Component:
        """The OSD with the fsid of its cluster, and the kind of its device. Raises CollectError."""
        answer = ask(osd.path, "status", self._settings.timeout_seconds)
        fsid = ""
        with suppress(ValueError, RecursionError):
            document = json.loads(answer)
            identity = document.get("cluster_fsid") if isinstance(document, dict) else None
            fsid = identity if isinstance(identity, str) and _FSID.fullmatch(identity) else ""
        labels = {"fsid": fsid, "rotational": self._rotational(osd)}
        name = f"osd.{osd.number}"
        return Component(name, name, tuple((key, value) for key, value in labels.items() if value))

    def _rotational(self, osd: _Osd) -> str:
        """`1` for an OSD whose data are on a rotating disk, `0` for a flash one, empty for an unknown one."""
        data, fsid = self._settings.data_directory, osd.path.parent.name
        block = data / fsid / f"osd.{osd.number}" / "block"
        if not _FSID.fullmatch(fsid):
            cluster = osd.path.name.partition("-osd.")[0]
            block = data / "osd" / f"{cluster}-{osd.number}" / "block"
        try:
            device = block.stat().st_rdev
        except OSError:
            return ""
        if self._sysfs is None or not device:
            return ""
        folder = self._sysfs / "dev" / "block" / f"{os.major(device)}:{os.minor(device)}"
        text = attribute(str(folder / "queue" / "rotational"))
        return text if text in ("0", "1") else ""


def _new(path: Path) -> _Osd:
    match = _SOCKET.fullmatch(path.name)
    assert match is not None
    return _Osd(path, int(match["number"]))
