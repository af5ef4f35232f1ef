"""The collector `ceph` over admin sockets, and over answers that are cut off, empty or hostile."""

import errno
import json
import random
import re
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from laggard_agent.collectors.ceph.collector import HISTOGRAMS_EVERY_NS, WAIT_NS, Ceph, CephSettings
from laggard_agent.collectors.ceph.perf_dump import FIELDS, NotPerfDumpError, parse, parse_latency_bins
from tests.support.builders.ceph_admin import FSID, AdminSocket, listening
from tests.support.sampled import Sampled, surroundings

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "ceph"
OLD, REAL, NEW = (
    (FIXTURES / name).read_bytes() for name in ("osd-10.json", "osd-16.2.15.json", "osd-18.json")
)
HISTOGRAMS = (FIXTURES / "histograms-16.2.15.json").read_bytes()
PAIR = re.compile(r'"(\w+)": \{\s*"avgcount": (\d+),\s*"sum": (\d+)\.(\d{1,9})')
NUMBER = re.compile(r'^        "(\w+)": (\d+),?$', re.MULTILINE)


@pytest.fixture
def run() -> Iterator[Path]:
    """A folder whose sockets have short names, as /run/ceph."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="lg-") as folder:
        yield Path(folder)


def sampled(folder: Path, **settings: object) -> Sampled[Ceph]:
    chosen = CephSettings(directory=folder, **settings)  # type: ignore[arg-type]
    return Sampled(lambda now, monotonic: Ceph(chosen, surroundings(now, monotonic)))


def section(text: str, name: str) -> str:
    """The text of a top-level section."""
    return (
        text.split(f'    "{name}": {{\n', 1)[1].split("\n    }", 1)[0] if f'    "{name}": {{' in text else ""
    )


def by_text(text: str) -> dict[str, int]:
    """The counters of a dump by regular expressions on its text."""
    found = {}
    for prefix, part in (("", section(text, "osd")), ("bluestore_", section(text, "bluestore"))):
        for name, count, whole, rest in PAIR.findall(part):
            field = {"txc_commit_lat": "commit_lat", "state_aio_wait_lat": "aio_wait_lat"}.get(name, name)
            found[f"{prefix}{field}_count"] = int(count)
            found[f"{prefix}{field}_us"] = int(f"{whole}{rest.ljust(6, '0')[:6]}")
        if not prefix:
            found |= {name: int(value) for name, value in NUMBER.findall(part)}
    return {field.name: found[field.name] for field in FIELDS if field.name in found}


@pytest.mark.parametrize(("dump", "values"), [(OLD, 27), (REAL, 45), (NEW, 45)])
def test_every_number_is_that_of_an_independent_parse(dump: bytes, values: int) -> None:
    counters, not_understood = parse(dump)
    assert counters == by_text(dump.decode())
    assert (len(counters), not_understood) == (values, 0)


def test_osds_of_both_layouts_have_rows(run: Path) -> None:
    osds = AdminSocket(3, NEW), AdminSocket(12, OLD, folder=FSID)
    agent = sampled(run)
    with listening(run, *osds):
        agent.sample()
        assert agent.ids("ceph_osd") == ["osd.3", "osd.12"]
        agent.sample()
    assert agent.row("ceph", "ceph") == {
        "osds": 2,
        "osds_failed": 0,
        "osds_left_out": 0,
        "values_not_understood": 0,
    }
    assert agent.row("ceph_osd", "osd.3") == {field.name: None for field in FIELDS} | parse(NEW)[0]
    assert agent.row("ceph_osd", "osd.12")["bluestore_read_lat_us"] is None
    assert [dict(one.labels) for one in agent.readings["ceph_osd"].components] == [{"fsid": FSID}] * 2
    assert osds[0].questions == ["status", "perf dump", "perf histogram dump", "perf dump"]


def test_requests_by_latency(run: Path) -> None:
    """Row by row of the text: the first two are below 100 us, each other up to twice the one before."""
    osd = AdminSocket(3, REAL, histograms=HISTOGRAMS)
    agent = sampled(run)
    with listening(run, osd):
        row = agent.sample().row("ceph_osd", "osd.3")
        agent.sample(HISTOGRAMS_EVERY_NS / 1e9)
    assert osd.questions[-2:] == ["perf dump", "perf histogram dump"]
    assert agent.row("ceph", "ceph")["values_not_understood"] == 0
    text = HISTOGRAMS.decode().split('"op_w_latency_in_bytes_histogram"')[1].split('"values":[')[1]
    counts = [sum(map(int, part.split(","))) for part in re.findall(r"\[([0-9,]+)\]", text)]
    assert len(counts) == 32
    wanted = {f"op_w_within_us_{100 * 2**power}": counts[power + 1] for power in range(21)}
    assert sum(counts) == sum(wanted.values()) > 20_000
    assert {name: row[name] for name in wanted} == wanted
    assert {value for name, value in row.items() if name.startswith("op_r_within")} == {0}


def test_histograms_of_another_form_have_no_bins() -> None:
    document = json.loads(HISTOGRAMS)
    reads, writes = document["osd"].values()
    reads["axes"][0]["quant_size"] = 100
    writes["values"][7][3] = -1
    assert parse_latency_bins(json.dumps(document).encode()) == ({}, 2)
    others: list[object] = [None, [], {}, {"axes": [{}]}, {"axes": reads["axes"], "values": [[1]]}, 7]
    for value in others:
        document["osd"] = {"op_r_latency_out_bytes_histogram": value}
        assert parse_latency_bins(json.dumps(document).encode()) == ({}, 1)


def test_an_osd_that_does_not_answer_costs_no_other_and_is_asked_again_later(run: Path) -> None:
    dead, alive = AdminSocket(1, NEW, sent=b"\0\0\0\x10half"), AdminSocket(2, NEW)
    agent = sampled(run)
    with listening(run, dead, alive):
        agent.sample()
        assert "ceph-osd.1.asok: an answer that ends too early" in agent.error
        assert agent.ids("ceph_osd") == ["osd.2"]
        agent.sample()
        assert (agent.error, agent.row("ceph", "ceph")["osds_failed"]) == ("", 1)
        assert len(dead.questions) == 1
        dead.sent = None
        agent.sample(WAIT_NS / 1e9)
        assert agent.ids("ceph_osd") == ["osd.1", "osd.2"]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (struct.pack(">I", 2**31), "an answer of 2147483648 bytes"),
        (struct.pack(">I", 2) + b"{}", "without a section osd"),
        (struct.pack(">I", 4) + b"\xff\0\0\0", "not JSON"),
        (b"", "an answer that ends too early"),
    ],
)
def test_answers_that_are_none(run: Path, sent: bytes, said: str) -> None:
    agent = sampled(run)
    with listening(run, AdminSocket(1, NEW, sent=sent)):
        agent.sample()
    assert said in agent.error
    assert "ceph_osd" not in agent.readings


def test_a_silent_osd_and_one_too_many(run: Path) -> None:
    agent = sampled(run, timeout_seconds=0.05, max_osds=1)
    (run / "ceph-osd.9.asok").touch()
    with listening(run, AdminSocket(1, NEW)):
        agent.sample()
    assert agent.ids("ceph_osd") == ["osd.1"]
    assert agent.row("ceph", "ceph")["osds_left_out"] == 1


def test_a_folder_of_a_cluster_that_cannot_be_listed_hides_no_osd(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Path.iterdir

    def refused(path: Path) -> Iterator[Path]:
        if path.name.startswith("0"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refused)
    for name in (f"0{FSID[1:]}", f"f{FSID[1:]}"):
        (run / name).mkdir()
    (run / f"f{FSID[1:]}").rmdir()
    (run / f"f{FSID[1:]}").write_text("")
    agent = sampled(run)
    with listening(run, AdminSocket(3, NEW), AdminSocket(12, OLD, folder=FSID)):
        agent.sample()
    assert agent.ids("ceph_osd") == ["osd.3", "osd.12"]
    assert "Permission denied" in agent.error


def test_without_a_socket_nothing_is_found(run: Path) -> None:
    agent = sampled(run / "none").sample()
    assert agent.error == ""
    assert agent.row("ceph", "ceph")["osds"] == 0


@pytest.mark.parametrize("dump", [OLD, REAL, NEW])
def test_hostile_answers(dump: bytes) -> None:
    names, chance = {field.name for field in FIELDS}, random.Random(1)
    for end in range(0, len(dump), 7):
        with pytest.raises(NotPerfDumpError):
            parse(dump[:end].rstrip())
    for _ in range(2000):
        spoilt = bytearray(dump)
        for _ in range(chance.randrange(1, 8)):
            spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
        try:
            counters, _ = parse(bytes(spoilt))
        except NotPerfDumpError:
            continue
        assert counters.keys() <= names
        assert all(type(value) is int and 0 <= value < 2**64 for value in counters.values())


@pytest.mark.parametrize("value", [-1, 2**64, "12", None, True, 1.5, [], {"avgcount": 1}, float("nan")])
def test_values_that_are_no_counts(value: object) -> None:
    document = json.loads(NEW)
    document["osd"]["op_r"] = value
    document["osd"]["op_r_latency"] = {"avgcount": 5, "sum": value if value != 1.5 else -1.5}
    document["osd"]["subop_w_latency"] = {"avgcount": value, "sum": 1.0}
    counters, not_understood = parse(json.dumps(document).encode())
    assert not {"op_r", "op_r_latency_us", "op_r_latency_count", "subop_w_latency_us"} & counters.keys()
    assert not_understood == 5


def test_an_exponent_beyond_all_costs_its_value_alone() -> None:
    document = NEW.replace(b'"op_r":', b'"odd": 1e9223372036854775808, "op_r":', 1)
    assert parse(document) == parse(NEW)


def test_absurd_numbers() -> None:
    text = b'{"osd": {"op_r": ' + b"9" * 5000 + b', "op_r_latency": {"avgcount": 1, "sum": 1e999999999}}}'
    try:
        counters, _ = parse(text)
    except NotPerfDumpError:
        return
    assert counters == {}
