"""The dumps of a real GlusterFS that lie beside the project are understood to the last line."""

import pytest

from laggard_agent.collectors.gluster.dump import NotADumpError, parse_dump
from tests.support.shared_data import shared


@pytest.mark.shared_data
@pytest.mark.parametrize(("name", "reads", "read_mean_ns"), [("b2", 401, 539287.44), ("b3", 512, 59620512.0)])
def test_no_line_is_left_over(name: str, reads: int, read_mean_ns: float) -> None:
    dump = parse_dump(shared(f"gluster/glusterfsd__bricks_{name}.dump").read_bytes())
    assert dump is not None
    assert dump.leftovers == ()
    assert (dump.is_brick, dump.name, dump.uptime_s) == (True, f"_bricks_{name}_mb_b", 26)
    assert (dump.fops["read"].calls, dump.fops["read"].mean_ns) == (reads, read_mean_ns)
    # What was read in calls of 64 KiB is what was read.
    assert dump.counts["read_64kb"] * 65536 == dump.counts["bytes_read"]


@pytest.mark.shared_data
@pytest.mark.parametrize(
    "name", ["io-stats-dump.client.txt", "profile_info_both.txt", "disperse_healthy.xml"]
)
def test_other_formats_are_refused(name: str) -> None:
    with pytest.raises(NotADumpError):
        parse_dump(shared(f"gluster/{name}").read_bytes())
