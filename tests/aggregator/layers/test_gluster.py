"""Latency counters of gluster volumes: captures with and without a slow brick."""

from pathlib import Path

import pytest

from laggard_aggregator.cli.main import main
from tests.aggregator.layers.analysed import analysed
from tests.support.shared_data import shared

PROFILE = """\
Brick: host:/b0
----------------------------------------
Cumulative Stats:
   Block Size:              65536b+
 No. of Reads:                  100
 %-latency   Avg-latency   Min-Latency   Max-Latency   No. of calls         Fop
 ---------   -----------   -----------   -----------   ------------        ----
     50.00   {0}.00 ns   10000.00 ns  900000.00 ns            100        READ
 \n    Duration: 63 seconds
   Data Read: 6553600 bytes
Data Written: 0 bytes
 \nInterval 1 Stats:
 \n    Duration: 0 seconds
   Data Read: 0 bytes
Data Written: 0 bytes
 \n"""


def profile(folder: Path, *means: int) -> Path:
    path = folder / "profile.txt"
    path.write_text("".join(PROFILE.format(mean).replace("/b0", f"/b{at}") for at, mean in enumerate(means)))
    return path


def test_a_slow_brick_and_its_twin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = analysed(profile(tmp_path, 500_000, 600_000, 9_000_000, 550_000))
    assert found.findings == [("slow", "brick host:/b2")]
    assert [r["bytes"] for r in found.records if r["record"] == "layer"] == [6553600] * 4
    assert analysed(profile(tmp_path, 5_000_000, 6_000_000, 9_000_000, 5_500_000)).findings == []
    assert main(["layers", str(profile(tmp_path, 500_000, 600_000, 9_000_000))]) == 0
    assert "Candidate: brick host:/b2 (slow)" in capsys.readouterr().out


OLD = """\
Brick: {0}
----------------------------------------
Cumulative Stats:
 %-latency   Avg-latency   Min-Latency   Max-Latency   No. of calls         Fop
 ---------   -----------   -----------   -----------   ------------        ----
      0.00       0.00 us       0.00 us       0.00 us             81     RELEASE
      0.06      36.03 us       7.00 us      82.00 us            104     READDIR
     99.94 {1:8.2f} us   32866.00 us   44116.00 us            300       WRITE
 \n    Duration: 63 seconds
   Data Read: 0 bytes
Data Written: 1033611264 bytes
 \n"""


def test_microseconds_of_glusterfs_8(tmp_path: Path) -> None:
    path = tmp_path / "profile.txt"
    means = {"srv1:/b": 1200.5, "srv2:/b": 38491.0, "srv3:/b": 1190.25}
    path.write_text("".join(OLD.format(*each) for each in means.items()))
    found = analysed(path)
    assert [r["write_us"] for r in found.records if r["record"] == "layer"] == list(means.values())
    assert found.findings == [("slow", "brick srv2:/b")]


FOP = "<fop><name>WRITE</name><hits>100</hits><avgLatency>{}</avgLatency><minLatency>{}</minLatency></fop>"
STATS = "<cumulativeStats><fopStats>{}</fopStats>{}</cumulativeStats>"


@pytest.mark.parametrize(("shortest", "mean_us"), [("42.000000", 9000.5), ("42053.000000", 9.0005)])
def test_the_unit_of_xml_is_told_by_the_shortest_call(tmp_path: Path, shortest: str, mean_us: float) -> None:
    brick = STATS.format(FOP.format("9000.500000", shortest), "<totalRead>1</totalRead>")
    path = tmp_path / "profile.xml"
    path.write_text(f"<volProfile><brick><brickName>a:/b</brickName>{brick}</brick></volProfile>")
    layer = analysed(path).layer("brick")
    assert layer["write_us"] == pytest.approx(mean_us)
    assert layer["bytes"] is None, "of which no totalWrite is known"


def test_operations_of_unknown_latency_are_left_out_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = profile(tmp_path, 500_000, 600_000, 550_000)
    odd = "     50.00       -nan ns   10000.00 ns  900000.00 ns            100       WRITE\n"
    path.write_text(path.read_text().replace(" \n    Duration: 63", odd + " \n    Duration: 63", 1))
    found = analysed(path)
    first = "50.00 -nan ns 10000.00 ns 900000.00 ns 100 WRITE"
    about = f"1 rows of operations were not understood and are left out, the first: '{first}'"
    assert found.remarks == f"profile.txt: {about}"
    assert [r["requests"] for r in found.records if r["record"] == "layer"] == [100] * 3
    assert main(["layers", str(path)]) == 0
    assert f"note: profile.txt: {about}\n" in capsys.readouterr().out


def test_time_above_the_bricks(tmp_path: Path) -> None:
    client = tmp_path / "client.txt"
    client.write_text(
        "\n=== Cumulative stats ===\n      BytesRead : 6553600\n  BytesWritten : 0\n"
        "READ                 100  8000000.00 us   100000.00 us 9000000.00 us\n"
    )
    found = analysed(client, profile(tmp_path, 500_000, 600_000, 550_000))
    assert found.findings == [("slow", "between client and brick")]
    assert found.layer("client")["mean_residence_us"] == 8000.0


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><volProfile></volProfile>", "document type"),
        ("<volProfile>", "is no XML"),
        ("<volProfile></volProfile>", "no reads or writes"),
        ("Brick: x\nnothing\n", "no reads or writes"),
    ],
)
def test_what_is_no_profile(
    tmp_path: Path, content: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    assert main(["layers", str(path)]) == 2
    assert problem in capsys.readouterr().err


Means = dict[str, tuple[int, float]]
"""Calls and mean milliseconds by operation."""


def statedump(path: Path, *translators: tuple[str, str, Means], at: int = 0, brick: str = "") -> Path:
    """As GlusterFS 10 writes it, translators from the top."""
    lines = [f"DUMP-START-TIME: 2026-11-23 05:00:{at:02}.000000 +0000", "", "[active graph - 1]", ""]
    for name, kind, fops in translators:
        lines.append(f"[{name}.latency]")
        for fop, (calls, ms) in fops.items():
            total = round(calls * ms * 1e6)
            mean = total / max(calls, 1)
            lines.append(f"{name}.latency.{fop}=AVG:{mean:f} CNT:{calls} TOTAL:{total} MIN:0 MAX:{total}")
        lines += ["", f"[{kind}.{name} - Memory usage]", "num_types=112", ""]
        if kind == "storage/posix":
            lines += [f"[{kind}.{name}]", f"base_path={brick}", ""]
    path.write_text("\n".join(lines))
    return path


def brick(folder: Path, name: str, locks_ms: float, posix_ms: float, calls: int = 100) -> Path:
    return statedump(
        folder / f"bricks-{name}.7.dump.1",
        ("server", "protocol/server", {"WRITE": (calls, locks_ms + 0.1)}),
        ("locks", "features/locks", {"WRITE": (calls, locks_ms)}),
        ("posix", "storage/posix", {"WRITE": (calls, posix_ms)}),
        brick=f"/bricks/{name}",
    )


def client(folder: Path, top_ms: float, *connections: tuple[int, float]) -> Path:
    return statedump(
        folder / "glusterdump.9.dump.1",
        ("fuse", "mount/fuse", {"WRITE": (100, top_ms + 0.1)}),
        ("vol-disperse-0", "cluster/disperse", {"WRITE": (100, top_ms)}),
        *(
            (f"vol-client-{at}", "protocol/client", {"WRITE": (calls, ms)})
            for at, (calls, ms) in enumerate(connections)
        ),
    )


@pytest.mark.parametrize(
    ("top_ms", "locks_ms", "posix_ms", "candidate"),
    [
        (31, 1.2, 1.0, "cluster/disperse of client glusterdump.9"),
        (21, 1.2, 1.0, "between client and brick"),
        (21, 19.0, 1.0, "features/locks of brick /bricks/b0"),
        (21, 19.0, 18.0, "storage/posix of brick /bricks/b0"),
        (8, 7.0, 6.5, None),
    ],
)
def test_the_translator_that_holds_a_call(
    tmp_path: Path, top_ms: float, locks_ms: float, posix_ms: float, candidate: str | None
) -> None:
    """A disperse volume waits for the slowest of its connections, here of 1, 1 and `top_ms` - 1 or 10."""
    slowest = 10.0 if candidate and candidate.startswith("cluster") else top_ms - 1
    paths = [
        client(tmp_path, top_ms, (100, 1.0), (100, slowest), (100, 1.0)),
        brick(tmp_path, "b0", locks_ms, posix_ms),
    ]
    found = analysed(*paths)
    assert [name for _, name in found.findings] == ([candidate] if candidate else [])
    held = found.layer("cluster/disperse")["write_held_us"]
    assert held == pytest.approx((top_ms - slowest) * 1000)
    assert [
        r["write_us"] for r in found.records if r["record"] == "layer" and r["layer"] == "protocol/client"
    ] == [
        1000.0,
        pytest.approx(slowest * 1000),
        1000.0,
    ]


def test_the_last_dump_of_a_process_counts(tmp_path: Path) -> None:
    """Each begins to count anew."""

    def posix(at: int, calls: int, ms: float) -> Path:
        fops = {"READ": (calls, ms)}
        path = tmp_path / f"glusterdump.7.dump.{at}"
        kinds = [("server", "protocol/server"), ("posix", "storage/posix")]
        return statedump(path, *((name, kind, fops) for name, kind in kinds), at=at, brick="/b")

    paths = [posix(9, 30, 20.0), posix(10, 40, 12.0), posix(8, 200, 15.0)]
    record = analysed(*paths).layer("storage/posix")
    assert (record["requests"], record["read_us"], record["device"]) == (40, 12_000.0, "/b")


def test_writes_that_are_answered_before_they_are_passed_on(tmp_path: Path) -> None:
    path = statedump(
        tmp_path / "client.dump.1",
        ("behind", "performance/write-behind", {"WRITE": (400, 0.01)}),
        ("vol-client-0", "protocol/client", {"WRITE": (100, 40.0)}),
    )
    found = analysed(path)
    assert found.layer("performance/write-behind")["write_held_us"] == 0
    assert found.findings == [("slow", "below protocol/client of client client")]


def diskstats(path: Path, **disks: tuple[int, int]) -> Path:
    """Writes and their milliseconds by disk."""
    path.write_text(
        "".join(
            f"   8  0 {name} 5 0 40 3 {writes} 0 {writes * 8} {ms} 0 9 9\n"
            for name, (writes, ms) in disks.items()
        )
    )
    return path


def test_the_disk_below_a_brick(tmp_path: Path) -> None:
    paths = [
        brick(tmp_path, "b0", 20.1, 20.0),
        diskstats(tmp_path / "after", sda=(700, 4_900), sdb=(350, 90)),
        diskstats(tmp_path / "before", sda=(500, 3_000), sdb=(300, 50)),
    ]
    found = analysed(*paths)
    assert found.findings == [("slow", "disk sda below brick /bricks/b0")]
    record = found.layer("disk", "sda")
    assert (record["requests"], record["bytes"], record["write_us"]) == (200, 200 * 8 * 512, 9_500.0)


def test_a_device_whose_requests_have_no_times_is_told_and_no_fast_disk(tmp_path: Path) -> None:
    paths = [
        brick(tmp_path, "b0", 20.1, 20.0),
        diskstats(tmp_path / "before", sda=(500, 3_000), md0=(0, 0)),
        diskstats(tmp_path / "after", sda=(1_600, 24_900), md0=(1_100, 0)),
    ]
    found = analysed(*paths)
    assert found.findings == [("slow", "disk sda below brick /bricks/b0")]
    assert not any(record.get("device") == "md0" for record in found.records)
    assert "md0: 1,100 requests without times" in found.remarks


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("DUMP-START-TIME: 1\n[x.latency]\n[a/b.x - Memory usage]\n", "has no latencies"),
        ("DUMP-START-TIME: 1\n" + "".join(f"[x{at}.latency]\n" for at in range(10_002)), "more than 10000"),
        ("   8  0 sda 5 0 40 3 1 0 8 1 0 9 9\n", "two copies"),
    ],
)
def test_dumps_and_copies_that_cannot_be_used(
    tmp_path: Path, content: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    assert main(["layers", str(path)]) == 2
    assert problem in capsys.readouterr().err


def test_a_hostile_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names act on no terminal; numbers beyond all bounds are no numbers."""
    name = "a\x1b]0;b\x07"
    path = statedump(
        tmp_path / "x.dump.1", (name, "debug/io-stats", {"READ": (50, 2.0), "WRITE": (10**30, 1.0)})
    )
    assert main(["layers", str(path)]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert analysed(path).layer("debug/io-stats")["write_us"] == 0


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "findings"),
    [
        ("profile_incr_healthy.xml", []),
        ("profile_incr_slowbrick3.xml", [("slow", "brick 10.99.0.1:/bricks/b3/bd/b")]),
        ("disperse_healthy.xml", []),
        ("disperse_slowbrick3.xml", [("slow", "brick 10.99.0.1:/bricks/b3/be/b")]),
    ],
)
def test_captures(name: str, findings: list[tuple[str, str]]) -> None:
    found = analysed(shared(f"gluster/{name}"))
    assert found.findings == findings
    assert len([r for r in found.records if r["record"] == "layer"]) == 6


@pytest.mark.shared_data
def test_a_captured_client_above_its_bricks() -> None:
    found = analysed(shared("gluster/io-stats-dump.client.txt"), shared("gluster/profile_info_both.txt"))
    assert found.layer("client")["requests"] == 4331 + 4359
    assert found.records[0]["layer"] == "client"
