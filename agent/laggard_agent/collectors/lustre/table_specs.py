"""Tables of the collector: one source each, with its devices and files.

README.md lists them for operators; a test holds the two together.

Component identities are unchanged by remount and failover. Targets (`<fs>-OSTxxxx`, `<fs>-MDTxxxx`) move
between servers in a failover and are the same everywhere: their label `scope` is `site`. A client's devices
end in the address of their mount (`-ffff88105db50000`), which changes with every mount: it is omitted, but
kept where one file system is mounted twice.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from laggard_agent.collectors.lustre.parse import parse_histograms, parse_import, parse_scalar, parse_stats
from laggard_agent.collectors.lustre.template_cache import Found, Shapes
from laggard_common.wire.limits import MAX_NAME_CHARS
from laggard_common.wire.schema import Component, Field, FieldKind

SLOW = 5
"""Histograms are read in one of this many samples."""
SLOWER = 10
"""Job statistics are read in one of this many samples: by far the longest files, and slow to change."""

_TARGET = re.compile(r"(?:(?P<fs>.+)-)?(?P<target>(?:OST|MDT)[0-9a-fA-F]{4})")
_MOUNT = re.compile(r"(?P<stem>.+)-(?P<mount>[0-9a-f]{8,16})")
_CLIENT = re.compile(r"(?P<fs>.+)-(?P<target>(?:OST|MDT)[0-9a-fA-F]{4})-(?:osc|mdc)(?:-.*)?")

Labels = tuple[tuple[str, str], ...]
Identify = Callable[[Iterable[str]], dict[str, Component]]
Read = Callable[[bytes], Found]


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A source. `kinds`: folders of its devices, the first that has a file counts; `files`: of each device.

    The first file defines the table: if it is `essential` and no device has it, that is an error. `every`: a
    device is read in one of this many samples, in rotation, because its files are long and change little.
    """

    source: str
    kinds: tuple[str, ...]
    files: tuple[str, ...]
    identify: Callable[[], Identify]
    devices: re.Pattern[str] = re.compile(r".*")
    essential: bool = True
    every: int = 1


def target(name: str) -> Component:
    """An OST or MDT of the file system `fs`, known to the whole site."""
    match = _TARGET.fullmatch(name)
    labels: Labels = (("scope", "site"),)
    if match:
        labels += _some(fs=match["fs"], target=match["target"])
    return Component(name[:MAX_NAME_CHARS], name[:MAX_NAME_CHARS], labels)


def service(name: str) -> Component:
    """A service of a server's threads, such as `ost_io`."""
    return Component(name[:MAX_NAME_CHARS], name[:MAX_NAME_CHARS], _some(service=name))


def job(device: Component, name: str) -> Component:
    """A job's share of a target's work, as one server counted it."""
    labels = tuple(label for label in device.labels if label[0] != "scope")
    known = f"{device.id}:{name}"[:MAX_NAME_CHARS]
    return Component(known, known, (*labels, *_some(job=name)))


class Mounts:
    """Components of a client's devices (`llite`, `osc`, `mdc`), stable while a device exists."""

    def __init__(self) -> None:
        self._known: dict[str, Component] = {}

    def __call__(self, names: Iterable[str]) -> dict[str, Component]:
        """Components by device name. Of two mounts of one file system the later keeps its address."""
        present = sorted(names)
        self._known = {name: self._known[name] for name in present if name in self._known}
        taken = {component.id for component in self._known.values()}
        for name in present:
            if name not in self._known:
                self._known[name] = component = _client(name, taken)
                taken.add(component.id)
        return {name: self._known[name] for name in present}


def each(make: Callable[[str], Component]) -> Callable[[Iterable[str]], dict[str, Component]]:
    """Components of devices that are identified by their names alone."""
    return lambda names: {name: make(name) for name in sorted(names)}


def _client(name: str, taken: set[str]) -> Component:
    match = _MOUNT.fullmatch(name)
    stem = match["stem"] if match else name
    known = stem if stem not in taken else name
    client = _CLIENT.fullmatch(stem)
    labels = _some(fs=client["fs"], target=client["target"]) if client else _some(fs=stem)
    return Component(known[:MAX_NAME_CHARS], name[:MAX_NAME_CHARS], labels)


def _some(**labels: str | None) -> Labels:
    return tuple((key, value[:MAX_NAME_CHARS]) for key, value in labels.items() if value)


_TARGETS = re.compile(r"(?:.*-)?(?:OST|MDT)[0-9a-fA-F]{4}")
_CLIENTS = re.compile(r".+-(?:OST|MDT)[0-9a-fA-F]{4}-(?:osc|mdc)-[0-9a-f]{8,16}")  # not those of an MDS


_targets = partial(each, target)
_services = partial(each, service)

TABLES = (
    TableSpec("lustre_ost", ("obdfilter",), ("stats",), _targets),
    TableSpec(
        "lustre_brw", ("osd-ldiskfs", "osd-zfs", "obdfilter"), ("brw_stats",), _targets, _TARGETS, every=SLOW
    ),
    TableSpec("lustre_oss_service", ("ost/OSS",), ("stats", "threads_started"), _services),
    TableSpec("lustre_mdt", ("mdt",), ("md_stats",), _targets),
    TableSpec("lustre_mds_service", ("mds/MDS",), ("stats", "threads_started"), _services),
    TableSpec("lustre_llite", ("llite",), ("stats",), Mounts),
    TableSpec(
        "lustre_osc", ("osc",), ("stats", "import", "cur_dirty_bytes", "cur_grant_bytes"), Mounts, _CLIENTS
    ),
    TableSpec("lustre_osc_rpc", ("osc",), ("rpc_stats",), Mounts, _CLIENTS, every=SLOW),
    TableSpec("lustre_mdc", ("mdc",), ("stats", "import"), Mounts, _CLIENTS),
    TableSpec("lustre_mdc_rpc", ("mdc",), ("rpc_stats",), Mounts, _CLIENTS, essential=False, every=SLOW),
)
JOB_TABLES = (
    TableSpec("lustre_job_ost", ("obdfilter",), ("job_stats",), _targets, essential=False, every=SLOWER),
    TableSpec("lustre_job_mdt", ("mdt",), ("job_stats",), _targets, essential=False, every=SLOWER),
)

_SCALARS = {
    "threads_started": Field("threads_started", FieldKind.GAUGE),
    "cur_dirty_bytes": Field("cur_dirty_bytes", FieldKind.GAUGE, "bytes"),
    "cur_grant_bytes": Field("cur_grant_bytes", FieldKind.GAUGE, "bytes"),
}


def reader_of(file: str) -> Read:
    """A caching reader for the files of that name."""
    if file in ("brw_stats", "rpc_stats"):
        return Shapes(parse_histograms).read
    if file == "import":
        return Shapes(parse_import).read_plain
    if file in _SCALARS:
        return Shapes(partial(parse_scalar, _SCALARS[file])).read
    return Shapes(parse_stats).read
