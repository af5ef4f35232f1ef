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
