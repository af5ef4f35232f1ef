"""Tables of the collector: one source each, with its devices and files.

README.md lists them for operators; a test holds the two together.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from laggard_agent.collectors.lustre.devices import Mounts, each, service, target
from laggard_agent.collectors.lustre.parse import parse_histograms, parse_import, parse_scalar, parse_stats
from laggard_agent.collectors.lustre.template_cache import Found, Shapes
from laggard_common.wire.schema import Component, Field, FieldKind

SLOW = 5
"""Histograms are read in one of this many samples."""
SLOWER = 10
"""Job statistics are read in one of this many samples: by far the longest files, and slow to change."""

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
        return Shapes(parse_import, learns=False).read
    if file in _SCALARS:
        return Shapes(partial(parse_scalar, _SCALARS[file])).read
    return Shapes(parse_stats).read
