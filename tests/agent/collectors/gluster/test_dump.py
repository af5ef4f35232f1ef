"""The parser of one dump, and the sums of latencies."""

import re
from itertools import pairwise

import pytest

from laggard_agent.collectors.gluster.dump import Fop, NotADumpError, ProcessDump, parse_dump
from laggard_agent.collectors.gluster.process import LatencySums
from tests.support.builders.gluster import brick, client

QUOTED = re.compile(r'": ?([0-9.]+)')


def parsed(text: str) -> ProcessDump:
    dump = parse_dump(text.encode())
    assert dump is not None
    return dump


def test_a_brick() -> None:
    dump = parsed(brick())
    assert (dump.name, dump.is_brick, dump.uptime_s, dump.interval_s) == ("_srv_gl_b_1_rep", True, 95, 1.0)
    assert dump.leftovers == ()
    assert dump.fops["write"] == Fop(134, 273171.03, 30.0, 220776.2)
    assert dump.fops["release"] == Fop(134, None, 30.0, None)  # no latency is measured for it
    assert not {"null", "upcall", "rmdir"} & dump.fops.keys()
    assert {name: n for name, n in dump.counts.items() if n and name.startswith("write")} == {
        "write_64kb": 67,
        "write_128kb": 67,
    }
    assert dump.counts["bytes_read"] == 0
    assert dump.counts["bytes_written"] == 13179436
    assert dump.gauges["fds.open_count"] == 1


def test_a_client() -> None:
    dump = parsed(client())
    assert (dump.name, dump.is_brick, dump.leftovers) == ("rep", False, ())
    assert dump.fops["lookup"].calls == 211


def test_numbers_in_quotes_as_older_versions_print_them() -> None:
    assert parsed(QUOTED.sub(r'": "\1"', brick())) == parsed(brick())


MEAN = re.compile(r'(latency_(?:min|max|ave)_usec": ?)([0-9.]+)')


@pytest.mark.parametrize("text", [brick(), client()])
def test_microseconds_of_old_releases_are_nanoseconds(text: str) -> None:
    """As GlusterFS up to 8 prints them; its smallest latency is 0.5 us."""
    old = MEAN.sub(lambda found: f"{found[1]}{float(found[2]) / 1000:.4f}", text)
    before, now = parsed(text), parsed(old)
    assert before.fops.keys() == now.fops.keys()
    for name, fop in before.fops.items():
        assert now.fops[name].mean_ns == pytest.approx(fop.mean_ns, abs=0.1)
        assert now.fops[name].interval_mean_ns == pytest.approx(fop.interval_mean_ns, abs=0.1)


def test_an_interval_without_length_divides_by_zero() -> None:
    text = brick().replace('sample_interval_sec": 1.00', 'sample_interval_sec": 0.00')
    text = re.sub(r'per_sec": [0-9.]+', 'per_sec": -nan', text)
    fop = parsed(text).fops["write"]
    assert fop == Fop(134, 273171.03, 0.0, None)


@pytest.mark.parametrize("value", ["-1", "18446744073709551616", "1e3", "0x1", "inf", "", "12 us", "1_000"])
def test_a_count_that_is_none(value: str) -> None:
    dump = parsed(brick().replace('fop.write.count": 134', f'fop.write.count": {value}'))
    assert "write" not in dump.fops
    assert dump.leftovers == (f"fop.write.count: {value}",)


@pytest.mark.parametrize("value", ["-1.00", "inf", "nan", "1,5", "", "3 ms"])
def test_a_mean_that_is_none(value: str) -> None:
    dump = parsed(brick().replace('latency_ave_usec": 273171.03', f'latency_ave_usec": {value}'))
    assert dump.fops["write"] == Fop(134, None, 30.0, 220776.2)
    assert len(dump.leftovers) >= 1


def test_the_greatest_count_there_is() -> None:
    dump = parsed(brick().replace('bytes_written": 13179436', f'bytes_written": {2**64 - 1}'))
    assert dump.counts["bytes_written"] == 2**64 - 1


def test_what_is_not_known_is_left_over() -> None:
    text = brick().replace("aggr.fop.write.latency_ave_usec", "aggr.fop.write.latency_ave_msec")
    assert parsed(text).leftovers == ("fop.write.latency_ave_msec: 273171.03",)
    assert parsed(text).fops["write"].mean_ns is None
    text = brick().replace(
        'aggr.uptime"', 'aggr.moon": 3,\nnonsense\n"gluster.brick._srv_gl_b_1_rep.aggr.uptime"'
    )
    assert parsed(text).leftovers == ("nonsense", "moon: 3")


def test_truncated_at_every_byte() -> None:
    data = brick().encode()
    for end in range(len(data.rstrip())):
        assert parse_dump(data[:end]) is None
    assert parse_dump(data.rstrip()) == parsed(brick())  # only the last newline is missing


@pytest.mark.parametrize(
    "text",
    [
        b"=== Cumulative stats ===\n      Duration : 89 secs\n",
        b"\0" * 5000,
        bytes(range(256)) * 20,
        b"{\n}\n{\n}\n",
        b'{\n"a": 1\n}\n{\n"b": 2\n}\n',
        b'{\n"gluster.v.aggr.uptime": 1\n}\n{\n"gluster.v.inter.sample_interval_sec": 1.00\n}\n',
        brick().encode() * 2,
        brick().encode() + b"more",
    ],
)
def test_what_is_no_dump(text: bytes) -> None:
    with pytest.raises(NotADumpError):
        parse_dump(text)


@pytest.mark.parametrize("text", [b"", b"\n\n", b"{", b"{" * 1000, b"{\n" + b"x" * 200_000])
def test_what_may_become_one(text: bytes) -> None:
    assert parse_dump(text) is None


def test_real_dumps_a_second_apart_grow_by_what_their_intervals_say() -> None:
    sums = LatencySums()
    dumps = [parsed(brick(number)) for number in range(4)]
    before = sums.add(dumps[0].fops)
    assert before["write"] == round(134 * 273171.03)
    for old, dump in pairwise(dumps):
        now = sums.add(dump.fops)
        for name, fop in dump.fops.items():
            calls = fop.calls - old.fops[name].calls if name in old.fops else fop.calls
            assert calls == round(fop.interval_calls), name
            if fop.mean_ns is None:
                assert now[name] is None
                continue
            rise = (now[name] or 0) - (before[name] or 0)
            assert rise == pytest.approx(calls * (fop.interval_mean_ns or 0), abs=2)
            # Both ways to the sum agree within what the printed mean allows.
            exact = fop.calls * fop.mean_ns - old.fops[name].calls * (old.fops[name].mean_ns or 0)
            assert rise == pytest.approx(exact, abs=fop.calls * max(fop.mean_ns * 2.0**-22, 0.02))
        before = now


def grown(*fops: Fop) -> list[int | None]:
    sums = LatencySums()
    return [sums.add({"read": fop})["read"] for fop in fops]


def test_an_interval_that_is_not_what_lies_between_is_not_used() -> None:
    # Two dumps were missed, or somebody asked for a profile: 30 calls since, of which the interval has 10.
    assert grown(Fop(100, 50.0, 1, 1.0), Fop(130, 60.0, 10, 999.0)) == [5000, 7800]


def test_the_sum_does_not_fall_when_a_mean_is_rounded_down() -> None:
    assert grown(Fop(10**9, 1000000.0625, 1, 1.0), Fop(10**9 + 50, 1000000.0, 5, 1.0)) == [
        1000000062500000,
        1000000062500000,
    ]


def test_the_sum_of_a_year_takes_in_a_second_exactly() -> None:
    first, second = grown(
        Fop(10**11, 2_000_000.0, 0, 0.0), Fop(10**11 + 1000, 2_000_000.0, 1000, 5_000_000.0)
    )
    assert (second or 0) - (first or 0) == 1000 * 5_000_000


def test_a_mean_that_is_missing_for_once_loses_nothing_for_good() -> None:
    values = grown(Fop(100, 50.0, 0, 0.0), Fop(110, None, 10, 60.0), Fop(120, 51.0, 10, 70.0))
    assert values == [5000, None, 5000 + 600 + 700]
