"""What is fuzzed: each target takes any bytes, and raises on nothing but what it says that it raises."""

import contextlib
import io
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

from bench.fuzz.jobs_targets import JOBS
from bench.fuzz.layers_targets import LAYERS
from bench.fuzz.system_targets import SYSTEM
from laggard_agent.collectors.cgroup import counters as cgroup
from laggard_agent.collectors.diskerrors.collector import parse_count
from laggard_agent.collectors.diskstats import collector
from laggard_agent.collectors.diskstats.identities import is_placeholder
from laggard_agent.collectors.fnprofile import address_spaces, records
from laggard_agent.collectors.fntrace import shm_layout
from laggard_agent.collectors.gluster import dump
from laggard_agent.collectors.infiniband.collector import parse_counter, parse_rate, parse_state
from laggard_agent.collectors.lnet import parse as lnet
from laggard_agent.collectors.lnet import report as lnet_report
from laggard_agent.collectors.lustre import param_paths
from laggard_agent.collectors.lustre import parse as lustre
from laggard_agent.collectors.lwfs.trace import parse_trace
from laggard_agent.collectors.mmpmon import report as mmpmon
from laggard_agent.collectors.mountstats import parse as mountstats
from laggard_agent.collectors.net import parse as net
from laggard_agent.collectors.smart import report as smart
from laggard_agent.collectors.zfs import kstat
from laggard_agent.collectors.zfs import report as zfs_report
from laggard_agent.spool.decode import unpack
from laggard_agent.spool.recovery import recover
from laggard_agent.tools.iotrace import text as trace_text
from laggard_agent.tools.iotrace.fold import fold
from laggard_aggregator.ingest.admission import Admission
from laggard_aggregator.ingest.decode import Decoder
from laggard_aggregator.ingest.mqtt import packets
from laggard_aggregator.log import journal_codec as journal
from laggard_aggregator.log.entries import LogSequence
from laggard_aggregator.offline.csv_columns import CsvColumns
from laggard_aggregator.offline.csv_input import read_csv
from laggard_aggregator.offline.pcp_input import read_pcp
from laggard_aggregator.offline.run import kind_of
from laggard_aggregator.offline.sysstat.disk_sample import DiskSample, NotMeasuredError, measured
from laggard_aggregator.offline.sysstat.printed_text import read_text
from laggard_aggregator.offline.sysstat.report import Report
from laggard_aggregator.offline.sysstat.sadf_json import read_json
from laggard_aggregator.offline.sysstat.sadf_xml import read_xml
from laggard_common import segment_log, wire
from laggard_common.errors import InputError, LaggardError, MqttError, StateError, WireError
from laggard_common.trace_formats.dxt import DxtParser
from laggard_common.trace_formats.line_reader import TraceReader
from laggard_common.trace_formats.strace import StraceParser
from laggard_common.wire import Envelope, Kind, codec, topics, trace_document
from laggard_common.wire.schema import Component, Field, Schema
from tests.support.builders import sysstat

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures"
SECOND = 10**9
NOW = 1_800_000_000 * SECOND
STREAM = bytes(16)


@dataclass(frozen=True, slots=True)
class Target:
    """`run` is called with bytes; `seeds` are good ones to begin with."""

    run: Callable[[bytes], object]
    seeds: tuple[bytes, ...]


def messages(data: bytes) -> None:
    """Bodies of every kind of MQTT message."""
    for decode in (wire.decode_envelope, wire.decode_schema, wire.decode_ack, wire.decode_state):
        with contextlib.suppress(WireError):
            decode(data)


def intake(data: bytes) -> None:
    """A message on a node's topics, after its schema and beside good batches, which still count."""
    taker = Admission("site", LogSequence())
    for topic, payload in (
        (SCHEMA_TOPIC, SCHEMA),
        (DATA_TOPIC, data),
        (STATUS_TOPIC, data),
        (SCHEMA_TOPIC, data),
    ):
        list(taker.receive(((topic, payload, NOW + SECOND),)))
    taker.acks.messages()
    taker.sweep(NOW + 2 * SECOND)


def payloads(data: bytes) -> None:
    """Payloads of counters and joined, not compressed; the first byte is the number of ticks."""
    ticks, payload = (data[0] % 8 + 1, data[1:]) if data else (1, data)
    whole = Envelope(Kind.COUNTERS, "n", "s", STREAM, 0, 1, NOW, SECOND, ticks, codec.RAW, payload)
    for decode in (Decoder().decode, unpack, wire.split_joined):
        with contextlib.suppress(WireError):
            decode(whole)


def aggregators_packets(data: bytes) -> None:
    """What a broker sends to the aggregator, in pieces."""
    incoming = packets.PacketParser()
    with contextlib.suppress(MqttError):
        incoming.feed(data[:7])
        incoming.feed(data[7:])


def segment_files(data: bytes) -> None:
    """A segment of a spool and of a journal."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "0000000001.segment"
        path.write_bytes(data)
        for record in segment_log.scan(path):
            with contextlib.suppress(StateError):
                journal.decode(record, "fuzz")
        recover(Path(folder), "n")


def journal_records(data: bytes) -> None:
    """Records whose checksum is right."""
    if data:
        with contextlib.suppress(StateError):
            journal.decode(segment_log.Record(data[0], data[1:], 0, len(data)), "fuzz")


def kernel_files(data: bytes) -> None:
    """What block devices, interfaces, TCP and RDMA ports say."""
    collector.parse(data, collector.parse(data[: len(data) // 2], {}))
    for parse in (net.parse_interfaces, net.parse_pairs, net.parse_softnet):
        parse(data)
    for parse_one in (parse_count, parse_counter, parse_state, parse_rate):
        parse_one(data)


def file_systems(data: bytes) -> None:
    """What Lustre, LNet, GlusterFS and LWFS say."""
    for parse in (
        lustre.parse_stats,
        lustre.parse_histograms,
        lustre.parse_import,
        lustre.parse_job,
    ):
        parse(data)
    param_paths.parse_dump(data)
    with contextlib.suppress(dump.NotADumpError):
        dump.parse_dump(data)
    for parse_lnet in (lnet.parse_stats, lnet.parse_nis, lnet.parse_peers, lnet_report.parse_report):
        parse_lnet(data)
    for line in data.splitlines():
        parse_trace(line)


def reports(data: bytes) -> None:
    """ZFS's kstats, and reports of its tools, of Storage Scale's and of smartctl."""
    for parse_kstat in (kstat.parse_tx_assign, kstat.parse_io, kstat.parse_dataset):
        with contextlib.suppress(kstat.NotKstatError):
            parse_kstat(data)
    for parse in (zfs_report.parse_report, mmpmon.parse_report, smart.parse_report):
        parse(data)


def control_groups(data: bytes) -> None:
    """Counters of jobs, with and without odd lines."""
    for parse in (
        lambda text: cgroup.parse_io_stat(text, lambda _: True),
        lambda text: cgroup.parse_blkio(text, lambda _: True),
        cgroup.parse_cpu_stat,
        cgroup.parse_cpuacct,
        cgroup.parse_number,
    ):
        with contextlib.suppress(cgroup.NotUnderstoodError):
            parse(data)
    is_placeholder(data.decode("ascii", "replace"))


def mounts(data: bytes) -> None:
    """/proc/self/mountstats, and again with what was known of it."""
    with contextlib.suppress(mountstats.NotMountstatsError):
        known, _ = mountstats.parse(data)
        mountstats.parse(data[: len(data) // 2], known)


def trace_documents(data: bytes) -> None:
    """Documents of folded traces."""
    with contextlib.suppress(WireError):
        trace_document.decode_document(data)


def io_traces(data: bytes) -> None:
    """Logs of I/O traces in each format, folded."""
    for parse in (trace_text.parse, StraceParser("n").parse, DxtParser().parse):
        list(fold(TraceReader(parse).read(io.BytesIO(data))))


def sysstats_files(data: bytes) -> None:
    """Text, JSON and XML of sysstat's programs, also as the other one."""
    report = Report(Path("fuzz"), ZoneInfo("Europe/Berlin"))
    readers: tuple[Callable[[], Iterator[DiskSample]], ...] = (
        lambda: read_text(data.decode(errors="replace"), report),
        lambda: read_json(data, report),
        lambda: read_xml(data, report),
    )
    for read in readers:
        with contextlib.suppress(InputError):
            for sample in read():
                with contextlib.suppress(NotMeasuredError):
                    measured(sample, 60.0)
    list(report.remarks())


def tables(data: bytes) -> None:
    """CSV of PCP and others, whatever the content says that it is."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm", suffix=".csv") as file:
        file.write(data)
        file.flush()
        path = Path(file.name)
        with contextlib.suppress(InputError):
            if kind_of([path]) == "pcp":
                list(read_pcp([path], CsvColumns(), 60.0, []))
            else:
                list(read_csv([path], CsvColumns(), []))


def functions(data: bytes) -> None:
    """What perf's ring, /proc/PID/maps and tables of traced processes hold."""
    records.parse(data)
    address_spaces.parse_maps(data)
    with contextlib.suppress(LaggardError):
        shm_layout.parse_head(data, "fuzz")
    shm_layout.parse_modules(data)


def _of(*paths: str) -> tuple[bytes, ...]:
    """Fixtures of the tests, their beginnings; those that match."""
    found = [path for pattern in paths for path in sorted(FIXTURES.glob(pattern)) if path.is_file()]
    return tuple(path.read_bytes()[:4096] for path in found[:40])


def _batch(codec_: int) -> Envelope:
    rows = [[(100 + t, 7), (3, None)] for t in range(3)]
    payload = codec.Encoder(codec_).encode([0, 1], rows, [150] * 3)
    return Envelope(Kind.COUNTERS, "n", "diskstats", STREAM, 0, 1, NOW, SECOND, 3, codec_, payload)


def _bodies() -> Iterator[bytes]:
    for number in (codec.RAW, codec.DELTA_ZSTD):
        batch = _batch(number)
        yield wire.encode_envelope(batch)
        joined = wire.join_payload([1, 2], batch.payload)
        yield wire.encode_envelope(
            Envelope(Kind.JOINED, "n", "diskstats", STREAM, 0, 1, NOW, SECOND, 3, number, joined)
        )
    yield SCHEMA
    yield wire.encode_ack([wire.Ack(STREAM, "diskstats", ((0, 7), (9, 9)))])
    state = wire.encode_state({"state": "up", "collectors": {"net": {"success": True}}, "spool_bytes": 1})
    yield wire.encode_envelope(Envelope(Kind.STATE, "n", "agent", STREAM, 0, 0, NOW, 0, 1, 0, state))


def _segment() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "1.segment"
        with contextlib.closing(segment_log.SegmentWriter(path)) as writer:
            for type_, body in enumerate(_bodies(), start=1):
                writer.append(type_, body)
        return path.read_bytes()


_fields = (Field("a"), Field("b"))
_components = (Component("x", "sdx"), Component("y", "sdy"))
SCHEMA = wire.encode_schema(Schema("n", "diskstats", STREAM, 1, SECOND, 5, _fields, _components))
DATA_TOPIC = topics.data_topic("site", "storage", "n", "diskstats")
SCHEMA_TOPIC = topics.schema_topic("site", "storage", "n", "diskstats")
STATUS_TOPIC = topics.status_topic("site", "storage", "n")
_PACKETS = (
    b"\x20\x02\x00\x00\x90\x03\x00\x01\x01\x40\x02\x00\x01\xd0\x00",
    packets.publish(DATA_TOPIC, b"x", 1),
    b"\x40\x02\x00\x03",
)

_CONTROL_GROUPS = (
    b"8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n(unknown) rbytes=1 wbytes=0 rios=1 wios=0\n252:0 ",
    b"7:7 7:4 rbytes=1 wbytes=2 rios=3 wios=4 cost.usage=5 depth=max\n",
    b"8:0 Read 1\n8:0 Write 2\n(unknown) Read 1\nTotal 3\n",
    b"usage_usec 5\nuser_usec 1\n",
)
_LINES = sysstat.steady(["sda", "dev8-1"], 2, {})
_FORMS = (
    *(sysstat.sadf_json, sysstat.sadf_x, sysstat.sadf_d, sysstat.sadf_dh, sysstat.sar_d),
    *(sysstat.iostat_x, sysstat.iostat_json),
)
_TABLES = (
    b'Time,"disk.dev.read[sda](count)","disk.dev.read_rawactive[sda](millisec)"\n2027-01-15 08:00:00,1,2\n',
    b"#\nHost,Interval,Time,disk.dev.await-sda\na,1,2027-01-15 08:00:00 UTC+2,1\n",
    b"ts,disk_id,latency\n1800000000,sda,1.5\n1800000001,sda,-1\n1800000002,s",
)

TARGETS = {
    "messages": Target(messages, tuple(_bodies())),
    "intake": Target(intake, tuple(_bodies())),
    "payloads": Target(payloads, (b"\x02" + _batch(codec.RAW).payload,)),
    "aggregator's MQTT": Target(aggregators_packets, _PACKETS),
    "segments": Target(segment_files, (_segment(),)),
    "journal": Target(journal_records, ()),
    "kernel's files": Target(kernel_files, _of("net/softnet*", "infiniband/*.txt")),
    "file systems": Target(file_systems, _of("lnet/**/*", "lustre/**/*", "gluster/**/*", "lwfs/*.log")),
    "reports": Target(reports, _of("zfs/kstat*/*/*", "zfs/*.txt", "mmpmon/*.txt", "smart/*.json")),
    "functions": Target(functions, ()),
    "control groups": Target(control_groups, _CONTROL_GROUPS),
    "mounts": Target(mounts, _of("mountstats/*")),
    "trace documents": Target(trace_documents, ()),
    "I/O traces": Target(io_traces, _of("iotrace/*.log", "iotrace/*.txt")),
    "sysstat": Target(sysstats_files, tuple(form(_LINES).encode() for form in _FORMS)),
    "PCP and CSV": Target(tables, _TABLES),
    **{name: Target(*each) for name, each in (LAYERS | JOBS | SYSTEM).items()},
}
