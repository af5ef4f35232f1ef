"""The pure parsers on literals: what every version prints."""

import pytest

from laggard_agent.collectors.lustre.param_paths import parse_dump
from laggard_agent.collectors.lustre.parse import (
    STATES,
    Parsed,
    job_id,
    parse_histograms,
    parse_import,
    parse_job,
    parse_stats,
    split_jobs,
)
from laggard_common.wire.schema import Field, FieldKind

HEAD = b"snapshot_time             1510950459.772792457 secs.nsecs\n"


def values(parsed: Parsed) -> dict[str, int]:
    assert parsed.leftovers == ()
    assert parsed.complete
    return {field.name: value for field, value in zip(parsed.fields, parsed.values, strict=True)}


BIG = 2**64 - 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"open   136 samples [regs]", {"open_samples": 136}),
        (b"req_waittime 7 samples [usec] 6 9 11 83", {"req_waittime_samples": 7, "req_waittime_sum": 11}),
        (b"read_bytes 2 samples [bytes] 1 2 3", {"read_bytes_samples": 2, "read_bytes_sum": 3}),
        (b"req_waittime 7 samples [usec] 6 9 11 -83", {"req_waittime_samples": 7, "req_waittime_sum": 11}),
        (b"long_name_of_twenty_six_letters 7 samples [reqs] 1 1 7 7", None),
        (b"write_bytes 2 samples [bytes] 1 2 %d %d" % (BIG, BIG), None),
    ],
)
def test_a_line_of_statistics(line: bytes, expected: dict[str, int] | None) -> None:
    name, samples, *_, total, _ = (*line.decode().split(), "", "")[:8]
    expected = expected or {f"{name}_samples": int(samples), f"{name}_sum": int(total)}
    assert values(parse_stats(HEAD + line)) == expected


def test_units_are_told_alike_over_versions() -> None:
    lines = [b"%s 1 samples [%s] 1 1 1\n" % (unit, unit) for unit in (b"usec", b"usecs", b"sec", b"secs")]
    parsed = parse_stats(HEAD + b"".join(lines))
    assert [f.unit for f in parsed.fields if f.name.endswith("_sum")] == ["us", "us", "s", "s"]


@pytest.mark.parametrize(
    "line",
    [
        b"open 1 samples [furlongs] 1 1 1",
        b"open -1 samples [reqs]",
        b"open 1 samples [usecs] 1 1 -5 4",
        b"open 18446744073709551616 samples [reqs]",
        b"open 1 samples [usecs] 1 1",
        b"open one samples [reqs]",
        b"open",
        b"\xff\xfe\x00",
        b"open 1 samples reqs",
    ],
)
def test_a_line_that_is_not_understood_is_left_over(line: bytes) -> None:
    parsed = parse_stats(HEAD + b"close 4 samples [reqs]\n" + line + b"\n")
    assert parsed.leftovers == (line,)
    assert parsed.values == (4,)
    assert not parsed.complete


def test_without_its_header_a_file_is_not_complete() -> None:
    assert not parse_stats(b"").complete
    assert not parse_stats(b"open 1 samples [reqs]\n").complete
    assert not parse_histograms(b"").complete
    assert not parse_import(b"").complete


def test_start_time_in_whole_seconds() -> None:
    start = b"start_time                1704407718.813190064 secs.nsecs\nelapsed_time 1.2 secs.nsecs\n"
    assert values(parse_stats(HEAD + start)) == {"start_time": 1704407718}


BRW = b"""snapshot_time:         1510782606.797216394 (secs.nsecs)

                           read      |     write
pages per bulk r/w     rpcs  % cum % |  rpcs        % cum %
1:\t\t        13  56  56   |  153   0   0
1K:\t\t         0   0 100   | 4059303  94 100

                           read      |     write
I/O time (1/1000s)     ios   % cum % |  ios         % cum %
4:\t\t         1 100 100   |    0   0   0

                           read      |     write
block maps msec        maps  % cum % |  maps        % cum %
"""


def test_brw_stats() -> None:
    parsed = parse_histograms(BRW)
    assert values(parsed) == {
        "pages_per_bulk_r_w_read_1": 13,
        "pages_per_bulk_r_w_write_1": 153,
        "pages_per_bulk_r_w_read_1024": 0,
        "pages_per_bulk_r_w_write_1024": 4059303,
        "io_time_ms_read_4": 1,
        "io_time_ms_write_4": 0,
    }
    assert {field.kind for field in parsed.fields} == {FieldKind.HISTOGRAM}


def test_rpc_stats_of_a_client() -> None:
    text = b"""snapshot_time:            1790276932.813193116 secs.nsecs
read RPCs in flight:  2
DIO RPCs in flight: 0
modify_RPCs_in_flight:  1

\t\t\tread\t\t\twrite
RPC latency (us)       count   % cum % |       count   % cum %
0:\t\t         4   0   0   |          5   0   0

\t\t\tmodify
rpcs in flight        rpcs   % cum %
1:\t\t      1079 100 100
"""
    parsed = parse_histograms(text)
    assert values(parsed) == {
        "read_rpcs_in_flight": 2,
        "dio_rpcs_in_flight": 0,
        "modify_rpcs_in_flight": 1,
        "rpc_latency_us_read_0": 4,
        "rpc_latency_us_write_0": 5,
        "rpcs_in_flight_modify_1": 1079,
    }
    assert parsed.fields[0].kind is FieldKind.GAUGE


@pytest.mark.parametrize(
    "line", [b"2:  1 2 | 3 4 5", b"K:  1 2 3 | 3 4 5", b"2:  1 2 3 | -3 4 5", b"2:  x 2 3 | 3 4 5"]
)
def test_a_bin_that_is_not_understood(line: bytes) -> None:
    assert parse_histograms(BRW.replace(b"4:\t\t         1 100 100   |    0   0   0", line)).leftovers == (
        line,
    )


def test_a_bin_outside_a_section_is_left_over() -> None:
    assert parse_histograms(HEAD + b"1:  1 2 3 | 3 4 5\n").leftovers == (b"1:  1 2 3 | 3 4 5",)


@pytest.mark.parametrize("state", STATES)
def test_an_import(state: bytes) -> None:
    text = (
        b"import:\n    state: " + state + b"\n    rpcs:\n       inflight: 8\n       avg_waittime: 354 usec\n"
    )
    expected = {"import_state": STATES.index(state) + 1, "import_inflight": 8, "import_avg_waittime": 354}
    assert values(parse_import(text)) == expected


@pytest.mark.parametrize(
    "line", [b"    state: ASLEEP", b"       inflight: -1", b"   avg_waittime: 354 hours", b"no colon"]
)
def test_an_import_that_is_not_understood(line: bytes) -> None:
    assert parse_import(b"import:\n" + line + b"\n").leftovers == (line,)


JOB = b"""  snapshot_time:   1510782606
  write_bytes:     { samples:       64575, unit: bytes, min:12345678, max:87654321, sum:    215147593728 }
  punch:           { samples:           1, unit:  reqs }
"""


def test_a_job_with_glued_numbers() -> None:
    assert values(parse_job(JOB)) == {
        "write_bytes_samples": 64575,
        "write_bytes_sum": 215147593728,
        "punch_samples": 1,
    }


def test_a_job_of_2_16_with_a_histogram() -> None:
    text = (
        b"job_stats:\n- job_id:          cp.0\n  snapshot_time:   1704924080.123456789 secs.nsecs\n"
        b"  start_time:      1704924000.000000001 secs.nsecs\n"
        b"  read:            { samples: 640, unit: usecs, min: 1, max: 4, sum: 512, sumsq: -9, "
        b"hist: { 1: 2, 4K: 6 } }\n"
    )
    ((printed, lines),), leftovers = split_jobs(text)
    assert (job_id(printed), leftovers) == ("cp.0", ())
    assert values(parse_job(lines)) == {"start_time": 1704924000, "read_samples": 640, "read_sum": 512}
    assert Field("read_sum", unit="us") in parse_job(lines).fields


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"          24", "24"),
        (b"          kworker/86:1.0", "kworker/86:1.0"),
        (b"          ", ""),
        (b"", ""),
        (b'          ""', ""),
        (b'          "my\\x20job\\x3A7"', "my job:7"),
        (b'          "a\\x0Ab"', "a\\x0Ab"),
        (b'          "', '"'),
        (b"   a b", "a b"),
        (b"   \xff\x01", "??"),
    ],
)
def test_job_ids(line: bytes, expected: str) -> None:
    assert job_id(line) == expected.replace("??", "�?")


def test_a_job_id_longer_than_lustre_makes_them_is_left_over() -> None:
    entries, leftovers = split_jobs(
        b"job_stats:\n- job_id: " + b"x" * 1000 + b"\n" + JOB + b"- job_id: a\n" + JOB
    )
    assert [job_id(printed) for printed, _ in entries] == ["a"]
    assert leftovers == (b" " + b"x" * 199,)


@pytest.mark.parametrize("text", [b"", b"job_stats:\n", b"job_stats:"])
def test_no_jobs(text: bytes) -> None:
    assert split_jobs(text) == ([], ())


@pytest.mark.parametrize(
    "line",
    [
        b"read: { samples: 1",
        b"read: { samples: -1, unit: reqs }",
        b"read: { samples: 1, unit: days }",
        b"read: { samples: 1, unit: reqs, more: 2 }",
        b"read: { unit: reqs }",
        b"read",
    ],
)
def test_a_line_of_a_job_that_is_not_understood(line: bytes) -> None:
    assert parse_job(JOB + line).leftovers == (line,)


def test_a_dump_of_parameters() -> None:
    text = (
        b"health_check=healthy\nobdfilter.a-OST0000.exports.192.0.2.9@tcp.stats=\nx\n"
        b"obdfilter.a-OST0000.stats=\nsnapshot_time 1.2 secs.nsecs\nopen 1 samples [reqs]\nmemused=7"
    )
    assert parse_dump(text) == {
        "health_check": b"healthy\n",
        "obdfilter.a-OST0000.exports.192.0.2.9@tcp.stats": b"x\n",
        "obdfilter.a-OST0000.stats": b"snapshot_time 1.2 secs.nsecs\nopen 1 samples [reqs]\n",
        "memused": b"7",
    }
    assert parse_dump(b"") == {}
    assert parse_dump(b"no parameter\n") == {}
