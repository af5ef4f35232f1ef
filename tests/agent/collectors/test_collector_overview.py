"""What docs/collectors/README.md says was found in captures and fixtures is what collectors find there."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from laggard_agent.collectors import registry
from laggard_agent.collectors.diskstats.collector import parse
from laggard_agent.collectors.lustre.param_paths import ParamDump
from laggard_agent.collectors.mountstats.collector import Mountstats, MountstatsSettings
from laggard_common.wire.codec import Row
from tests.support.builders.gluster import Folder
from tests.support.builders.lustre import Watched, trees
from tests.support.builders.lwfs import Log
from tests.support.builders.slurm_cgroups import Host
from tests.support.sampled import Sampled, surroundings
from tests.support.shared_data import shared

PROJECT = Path(__file__).resolve().parents[3]
PAGE = (PROJECT / "docs/collectors/README.md").read_text()
ROWS = re.findall(r"^\| (\S.*?) \| (.*?) \| (.*?) \| (.*?) \| (.*?) ?\|$", PAGE, re.MULTILINE)[1:]
PATH = re.compile(r"`((?:tests/fixtures|diskstats|lustre|gluster|beacon)/[^`]+)`")


def diskstats(path: Path, _: Path) -> str:
    data = path.read_bytes()
    disks = [row for name, row in parse(data, {}).values() if name]
    known = Counter(sum(value is not None for value in row) for row in disks)
    counters = ", ".join(f"{count} with {number} counters" for number, count in sorted(known.items()))
    return f"{len(disks)} devices ({counters}); lines left over: {len(data.splitlines()) - len(disks)}"


def lustre(path: Path, _: Path) -> str:
    watched = Watched(trees(path) if path.is_dir() else ParamDump(path), job_stats=True).sample()
    assert watched.error == ""
    tables = [reading for source, reading in watched.readings.items() if source != "lustre"]
    rows = [row for reading in tables for row in reading.rows]
    values = sum(value is not None for row in rows for value in row)
    left = watched.node("lines_not_understood")
    return f"sources: {len(tables)}, rows: {len(rows)}, values: {values:,}; lines left over: {left}"


def gluster(path: Path, folder: Path) -> str:
    glusterd = Folder(folder).write(path.read_bytes(), path.name)
    glusterd.sampled.sample()
    rows = [row for source in ("gluster_brick", "gluster_client") for row in rows_of(glusterd, source)]
    values = sum(value is not None for row in rows for value in row)
    return f"rows: {len(rows)}, values: {values}; lines left over: {glusterd.node('lines_not_understood')}"


def rows_of(glusterd: Folder, source: str) -> Sequence[Row]:
    readings = glusterd.sampled.readings
    return readings[source].rows if source in readings else ()


def lwfs(path: Path, folder: Path) -> str:
    log = Log(folder / "log").sample().append(path.read_bytes()).sample()
    traces, servers, left = map(log.count, ("traces", "servers", "lines_not_understood"))
    return f"traces: {traces:,}, servers: {servers}; lines left over: {left}"


def mountstats(path: Path, folder: Path) -> str:
    file = folder / "self" / "mountstats"
    file.parent.mkdir()
    file.write_bytes(path.read_bytes())
    sampled = Sampled(
        lambda now, _: Mountstats(MountstatsSettings(), surroundings(now, procfs=folder))
    ).sample()
    rows = sampled.readings["nfs_mount"].rows
    values = sum(value is not None for row in rows for value in row)
    left = sampled.row("mountstats", "mountstats")["lines_not_understood"]
    return f"rows: {len(rows)}, values: {values}; lines left over: {left}"


def cgroup(path: Path, folder: Path) -> str:
    host = Host(folder, path.stem).sample()
    values = sum(value is not None for row in host.sampled.readings["cgroup"].rows for value in row)
    left = host.node()["values_not_understood"]
    return f"jobs: {len(host.ids())}, values: {values}; not understood: {left}"


FIND: dict[str, Callable[[Path, Path], str]] = {
    "cgroup": cgroup,
    "diskstats": diskstats,
    "lustre": lustre,
    "gluster": gluster,
    "lwfs": lwfs,
    "mountstats": mountstats,
}


def read_from() -> list[tuple[str, str, str]]:
    """Source, path and what the page says was found there, of the rows whose paths a collector can read."""
    found = []
    for source, _, capture, said, _ in ROWS:
        name = source.partition("]")[0].strip("[`")
        if (path := PATH.fullmatch(capture)) and name in FIND:
            found.append((name, path[1], said))
    return found


@pytest.mark.shared_data
@pytest.mark.parametrize(("source", "path", "said"), read_from())
def test_what_was_found(source: str, path: str, said: str, tmp_path: Path) -> None:
    capture = PROJECT / path if path.startswith("tests/") else shared(path)
    found = FIND[source](capture, tmp_path)
    print(f"{source}: {path}: {found}")
    assert found == said


@pytest.mark.shared_data
def test_no_capture_of_counters_is_missing() -> None:
    told = {path for _, path, _ in read_from()}
    snapshots = sorted(shared("diskstats").glob("*/diskstats*"))
    trees_of = [path.parent for path in shared("lustre").glob("*/proc")]
    dumps = shared("gluster").glob("glusterfsd_*.dump")
    logs = shared("beacon").glob("lwfs*.txt")
    root = shared("")
    assert {str(p.relative_to(root)) for p in (*snapshots, *trees_of, *dumps, *logs)} <= told


def test_every_collector_has_its_rows_and_says_what_it_does_not_read() -> None:
    for name in (*registry.names(), "iotrace"):
        own = [row for row in ROWS if row[0].startswith((f"[`{name}`]", f"`{name}`"))]
        assert own, name
        assert own[0][4], name
        link = re.fullmatch(rf"\[`{name}`\]\((\S+?)(?:#\S+)?\)", own[0][0])
        assert link, name
        assert (PROJECT / "docs/collectors" / link[1]).is_file()
