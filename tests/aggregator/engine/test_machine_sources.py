"""From raw counters of Lustre, GlusterFS and TCP to the alarm on the one component that is slow."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.detect import LEVEL_OF_SPLITS
from laggard_aggregator.detect.interface import GroupWindow
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.engine.routes import START_TIME
from laggard_aggregator.groups.membership import ConfiguredMembership
from laggard_aggregator.groups.topology import ToldAttributes
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.log.entries import WindowClose
from laggard_aggregator.metrics.registry import SOURCES
from laggard_common.wire.schema import Component, Field, Schema
from tests.aggregator.engine.test_machine import DETECT, START, play
from tests.support.builders.batches import SECOND, batch_of, stored

Grown = Callable[[np.random.Generator, bool], Mapping[str, int]]
"""How much counters grow in a second, of a component that is slow or not."""


LWFS = SOURCES["lwfs"]


def schema_of(
    source: str, node: str, components: Sequence[str], fields: Sequence[str], **labels: str
) -> Schema:
    return Schema(
        node=node,
        source=source,
        stream=b"s" * 16,
        epoch=1,
        interval_ns=SECOND,
        batch_ticks=5,
        fields=tuple(Field(name) for name in fields),
        components=tuple(Component(name, name, tuple(labels.items())) for name in components),
    )


def run_of(schemas: Sequence[Schema], grown: Grown, slow: tuple[str, str]) -> Iterator[Batch]:
    """Ten minutes, five ticks a message; `slow` (node or *, id) is so from the fifth minute on."""
    chance = np.random.default_rng(2)
    totals = [np.zeros((len(s.components), len(s.fields)), dtype=np.int64) for s in schemas]
    for begin in range(0, 600, 5):
        for at, schema in enumerate(schemas):
            ticks = []
            for second in range(begin, begin + 5):
                rows = []
                for component in schema.components:
                    is_slow = slow in ((schema.node, component.id), ("*", component.id)) and second >= 300
                    rises = grown(chance, is_slow)
                    rows.append([rises.get(field.name, 0) for field in schema.fields])
                totals[at] = totals[at] + np.array(rows)
                ticks.append(totals[at])
            yield batch_of(schema, np.array(ticks), START + (begin + 1) * SECOND, seq=begin // 5)


def make(detect: DetectSettings = DETECT) -> Machine:
    return Machine(ConfiguredMembership((), detect), lateness_seconds=2.0)


def alarms_of(batches: Iterator[Batch]) -> dict[tuple[str, str, str], float]:
    """Every alarm that was ever raised, by group, component and metric: how many times slower in the end."""
    pipeline = Machine(ConfiguredMembership((), DETECT), lateness_seconds=2.0)
    judged, _ = play(pipeline, batches)
    raised = {transition.alarm.key for judgement in judged for transition in judgement.transitions}
    last = pipeline.judge.alarms.standing
    return {key: last[key].observed / last[key].reference for key in raised}


def test_one_slow_ost_among_eight() -> None:
    def grown(chance: np.random.Generator, slow: bool) -> Mapping[str, int]:
        reads, writes = int(chance.integers(80, 120)), int(chance.integers(30, 60))
        return {
            "read_samples": reads,
            "read_sum": int(reads * 2_000 * chance.uniform(0.9, 1.1)),
            "read_bytes_samples": reads,
            "read_bytes_sum": reads * 2**20,
            "write_samples": writes,
            "write_sum": int(writes * 5_000 * chance.uniform(0.9, 1.1) * (3 if slow else 1)),
            "write_bytes_samples": writes,
            "write_bytes_sum": writes * 2**20,
        }

    fields = list(grown(np.random.default_rng(0), slow=False))
    schemas = [
        schema_of(
            "lustre_ost",
            f"oss-{n}",
            [f"scratch-OST000{2 * n}", f"scratch-OST000{2 * n + 1}"],
            fields,
            scope="site",
            fs="scratch",
        )
        for n in range(4)
    ]
    assert alarms_of(run_of(schemas, grown, ("oss-2", "scratch-OST0005"))) == {
        ("storage/lustre_ost/scratch", "scratch-OST0005", "write_latency"): pytest.approx(3.0, rel=0.1)
    }


def test_disks_of_one_firmware_are_told_along_it() -> None:
    """Agents send the firmware as a label; a checkpoint keeps it."""

    def grown(chance: np.random.Generator, slow: bool) -> Mapping[str, int]:
        reads = int(chance.integers(80, 120))
        busy = int(reads * 4 * chance.uniform(0.9, 1.1) * (3 if slow else 1))
        return {"rd_ios": reads, "rd_sectors": reads * 8, "rd_ms": busy}

    fields = ["rd_ios", "wr_ios", "rd_sectors", "wr_sectors", "rd_ms", "wr_ms", "io_ms"]
    schemas = []
    for n in range(6):
        schema = schema_of("diskstats", f"oss-{n}", ["sda", "sdb"], fields)
        disks = (
            Component("a", "sda", (("firmware", "SN05"),)),
            Component("b", "sdb", (("firmware", "SN\t06"),)),
        )
        schemas.append(replace(schema, components=disks))
    machine = make()
    judged, _ = play(machine, run_of(schemas, grown, ("*", "b")))
    raised = [(t.alarm.component, t.alarm.level) for judgement in judged for t in judgement.transitions]
    assert raised == [("all of SN?06", LEVEL_OF_SPLITS)]
    split = judged[-1].split
    assert split is not None
    assert (split.attribute, split.other, split.members) == ("firmware", "SN05", 6)
    kept = ToldAttributes()
    kept.restore(next(machine.state())["attributes"])
    assert kept.state() == {
        f"oss-{n}/{disk}": {"firmware": firmware}
        for n in range(6)
        for disk, firmware in (("a", "SN05"), ("b", "SN?06"))
    }


def test_one_slow_brick_among_six() -> None:
    def grown(chance: np.random.Generator, slow: bool) -> Mapping[str, int]:
        reads, lookups = int(chance.integers(80, 120)), int(chance.integers(5, 10))
        return {
            "bytes_read": reads * 131_072,
            "bytes_written": 0,
            "fop_read_count": reads,
            "fop_read_latency_ns": int(reads * 900_000 * chance.uniform(0.9, 1.1) * (2.5 if slow else 1)),
            "fop_write_count": 0,
            "fop_write_latency_ns": 0,
            "fop_lookup_count": lookups,
            "fop_lookup_latency_ns": lookups * 50_000,
        }

    fields = list(grown(np.random.default_rng(0), slow=False))
    schemas = [schema_of("gluster_brick", f"gl-{n}", ["/srv/b"], fields, volume="data") for n in range(1, 7)]
    assert alarms_of(run_of(schemas, grown, ("gl-4", "/srv/b"))) == {
        ("storage/gluster_brick/data", "gl-4//srv/b", "read_latency"): pytest.approx(2.5, rel=0.1)
    }


def test_one_slow_forwarding_server_among_five() -> None:
    def grown(chance: np.random.Generator, slow: bool) -> Mapping[str, int]:
        rises = {f"read_exe_{b}": int(chance.poisson(1000 >> b)) for b in range(8)}
        slower = {f"read_exe_{b}": int(chance.poisson(100)) for b in range(4, 8)} if slow else {}
        return {name: rise + slower.get(name, 0) for name, rise in rises.items()}

    schemas = [
        schema_of("lwfs", f"fwd-{n}", ["lwfs"], LWFS.counters(tuple(LWFS.metrics))[0]) for n in range(5)
    ]
    assert alarms_of(run_of(schemas, grown, ("fwd-2", "lwfs"))) == {
        ("storage/lwfs", "fwd-2/lwfs", "read_exe_slow"): pytest.approx(4.0, rel=0.2)
    }


def sending(chance: np.random.Generator, slow: bool) -> Mapping[str, int]:
    """Some 5,000 segments a second with data, and twice as many without."""
    data = int(chance.integers(4_000, 6_000))
    lost = int(chance.binomial(data, 0.05 if slow else 1e-4))
    return {
        "tx_bytes": data * 1514 + 2 * data * 66,
        "tx_packets": 3 * data,
        "rx_bytes": data * 1514,
        "RetransSegs": lost,
        "total_retrans": lost,
        "data_segs_out": data,
        "rd_sectors": data * 1448 // 512,
        "wr_sectors": 0,
    }


NET = ("rx_bytes", "tx_bytes", "tx_packets")
DISK = ("rd_sectors", "wr_sectors")


def test_one_host_of_six_sends_5_percent_again() -> None:
    nodes = [f"oss-{n}" for n in range(1, 7)]
    schemas = [schema_of("tcp", node, ["tcp"], ("RetransSegs",)) for node in nodes]
    schemas += [schema_of("net", node, ["eth0"], NET) for node in nodes]
    found = alarms_of(run_of(schemas, sending, ("oss-3", "tcp")))
    assert found == {("storage/tcp", "oss-3/tcp", "retransmits"): pytest.approx(0.051 / 0.0011, rel=0.15)}


def test_loss_towards_one_server_is_summed_over_the_clients_that_send_to_it() -> None:
    """Each of eight clients sends 20 segments a second to each of six servers; one server loses 5 %."""

    def grown(chance: np.random.Generator, slow: bool) -> Mapping[str, int]:
        return {"total_retrans": int(chance.binomial(20, 0.05 if slow else 1e-4)), "data_segs_out": 20}

    servers = [f"10.1.0.{n}" for n in range(1, 7)]
    fields = ("total_retrans", "data_segs_out")
    schemas = [schema_of("tcp_destination", f"cn-{n}", servers, fields) for n in range(8)]
    batches = (replace(batch, role="compute") for batch in run_of(schemas, grown, ("*", "10.1.0.4")))
    (key,) = alarms_of(batches)
    assert key == ("compute/tcp_destination", "*/10.1.0.4", "retransmits")


def test_foreign_traffic_is_what_disks_do_not_explain() -> None:
    """oss-2 has three times its peers' work, and oss-5 a stream of half a link: only that is foreign."""

    def grown(chance: np.random.Generator, slow: bool) -> Mapping[str, int]:
        found = dict(sending(chance, slow=False))
        found["rx_bytes"] = found["rd_sectors"] * 512 * 3 // 100 + (60_000_000 if slow else 0)
        return found

    nodes = [f"oss-{n}" for n in range(1, 7)]
    schemas = [schema_of("net", node, ["eth0"], NET) for node in nodes]
    schemas += [
        schema_of("diskstats", node, ["sda", "sdb", "sdc"] if node == "oss-2" else ["sda"], DISK)
        for node in nodes
    ]
    schemas[1] = schema_of("net", "oss-2", ["eth0", "eth1", "eth2"], NET)
    machine = make()
    judged, _ = play(machine, run_of(schemas, grown, ("oss-5", "eth0")))
    assert persistent(judged) == {("storage/server", "oss-5/server", "rx_per_moved")}
    assert not machine.judge.alarms.standing, "it explains, and nobody waits for it"


def test_servers_that_serve_from_their_page_caches_raise_no_alarm() -> None:
    """Of eight healthy servers, four read a third to all of what their clients ask for from their disks."""
    nodes = [f"oss-{n}" for n in range(1, 9)]
    from_disk = dict(zip(nodes, (1.0, 0.33, 1.0, 0.5, 1.0, 0.4, 1.0, 1.0), strict=True))

    chance = np.random.default_rng(2)
    schemas = [schema_of("net", node, ["eth0"], NET) for node in nodes]
    schemas += [schema_of("diskstats", node, ["sda"], DISK) for node in nodes]

    def counters() -> Iterator[Batch]:
        totals = [np.zeros((1, len(s.fields)), dtype=np.int64) for s in schemas]
        for begin in range(0, 600, 5):
            ticks: list[list[NDArray[np.int64]]] = [[] for _ in schemas]
            for _ in range(5):
                for at, schema in enumerate(schemas):
                    rises = dict(sending(chance, slow=False))
                    rises["rx_bytes"] = rises["rd_sectors"] * 512 * 3 // 100
                    rises["rd_sectors"] = int(rises["rd_sectors"] * from_disk[schema.node])
                    totals[at] = totals[at] + np.array([[rises[field.name] for field in schema.fields]])
                    ticks[at].append(totals[at])
            for at, schema in enumerate(schemas):
                yield batch_of(schema, np.array(ticks[at]), START + (begin + 1) * SECOND, seq=begin // 5)

    machine = make()
    judged, _ = play(machine, counters())
    assert ("storage/server", "oss-2/server", "tx_per_moved") in persistent(judged), "judged as before"
    assert not [event for one in judged for event in one.transitions]


def persistent(judged: Sequence[Judgement]) -> set[tuple[str, str, str]]:
    """What was ever confirmed, by group, component and metric."""
    return {
        (one.group, one.components[c], one.metric) for one in judged for c in np.flatnonzero(one.straggler)
    }


def test_disks_alone_make_no_group_of_servers_and_are_in_it_once_there_are_networks() -> None:
    """The order in which a node's sources come decides nothing."""
    nodes = [f"oss-{n}" for n in range(1, 5)]
    disks = [schema_of("diskstats", node, ["sda"], DISK) for node in nodes]
    networks = [schema_of("net", node, ["eth0"], NET) for node in nodes]
    first, second = make(), make()
    for pipeline, schemas in ((first, [*disks, *networks]), (second, [*networks, *disks])):
        for at, schema in enumerate(schemas):
            counters = np.zeros((5, 1, len(schema.fields)), dtype=np.int64)
            stored(pipeline, batch_of(schema, counters, START + SECOND))
            assert ("storage/server" in pipeline.stores) == any(one in networks for one in schemas[: at + 1])
        for schema in disks:
            counters = np.ones((5, 1, len(schema.fields)), dtype=np.int64)
            stored(pipeline, batch_of(schema, counters, START + 6 * SECOND, seq=1))
    compared = {f"{node}/server" for node in nodes}
    assert set(first.stores["storage/server"].compared) == compared
    assert set(second.stores["storage/server"].compared) == compared


READS = ("read_samples", "read_sum", "read_bytes_samples", "read_bytes_sum")
WRITES = tuple(name.replace("read", "write") for name in READS)
PER_SECOND = {"read_samples": 10, "read_sum": 20_000, "read_bytes_samples": 10, "read_bytes_sum": 40_960}
PER_SECOND |= {name.replace("read", "write"): 2 * rise for name, rise in PER_SECOND.items()}


def steady(seconds: range, fields: Sequence[str], components: int = 1) -> NDArray[np.int64]:
    """Counters (n, c, f) that grow as PER_SECOND says."""
    return np.array([[[PER_SECOND.get(f, 1) * s for f in fields]] * components for s in seconds])


def told(pipeline: Machine, metric: str, seconds: int = 30) -> dict[str, list[float]]:
    """A metric of each component in the window that ends at `seconds`, intervals without data left out."""
    (group,) = pipeline.groups
    end = START / 1e9 + seconds
    window = pipeline.seal(WindowClose(10, group, end - 60, end, end))
    if window is None:
        return {}
    assert isinstance(window, GroupWindow)
    values = {**window.metrics, **{f"load.{name}": load for name, load in window.load.items()}}[metric]
    rows = zip(window.components, values.tolist(), strict=True)
    return {name: [value for value in row if value == value] for name, row in rows}


def ost(fields: Sequence[str], components: Sequence[str] = ("a",)) -> Schema:
    return schema_of("lustre_ost", "oss-1", components, fields, scope="site", fs="scratch")


def test_an_ost_that_was_never_written_is_compared_by_its_reads() -> None:
    pipeline = make()
    stored(pipeline, batch_of(ost(READS), steady(range(1, 11), READS), START + SECOND))
    assert list(pipeline.groups) == ["storage/lustre_ost/scratch"]
    assert told(pipeline, "read_latency") == {"a": [2_000.0] * 9}


def test_what_was_never_written_has_a_write_latency_of_zero() -> None:
    pipeline = make()
    stored(pipeline, batch_of(ost(READS), steady(range(1, 11), READS), START + SECOND))
    assert told(pipeline, "write_latency") == {"a": [0.0] * 9}


def test_an_ost_without_times_is_not_compared() -> None:
    pipeline = make()
    fields = (
        "read_bytes_samples",
        "read_bytes_sum",
        "write_bytes_samples",
        "write_bytes_sum",
        "punch_samples",
    )
    stored(pipeline, batch_of(ost(fields), steady(range(1, 11), fields), START + SECOND))
    assert told(pipeline, "read_latency") == {}


def test_the_first_write_costs_an_interval_and_is_no_spike() -> None:
    pipeline = make()
    stored(pipeline, batch_of(ost(READS), steady(range(1, 11), READS), START + SECOND))
    grown = replace(ost((*READS, *WRITES)), epoch=2)
    values = steady(range(11, 21), (*READS, *WRITES))
    values[:, :, len(READS) :] += 10**9
    stored(pipeline, batch_of(grown, values, START + 11 * SECOND, seq=1))
    assert told(pipeline, "load.throughput") == {"a": [40_960.0] * 9 + [3 * 40_960.0] * 9}


def test_a_file_that_is_not_understood_for_a_while_is_no_spike() -> None:
    """Then all of its counters are absent, or those that follow the odd line."""
    fields = (*READS, *WRITES)
    for absent in (fields, WRITES):
        pipeline = make()
        schema = ost(fields, ("a", "b"))
        for seq, begin in enumerate((1, 11, 21)):
            taken = batch_of(
                schema, steady(range(begin, begin + 10), fields, 2), START + begin * SECOND, seq=seq
            )
            if begin == 11:
                present = np.ones((2, len(fields)), dtype=np.bool_)
                present[0, [fields.index(name) for name in absent]] = False
                values = np.where(present, taken.counters.values, 0)
                taken = replace(taken, counters=replace(taken.counters, present=present, values=values))
            stored(pipeline, taken)
        found = told(pipeline, "load.throughput", seconds=60)
        assert found["b"] == [3 * 40_960.0] * 29
        partly = [40_960.0] * 9 if absent == WRITES else []
        assert found["a"] == [3 * 40_960.0] * 9 + partly + [3 * 40_960.0] * 9


def test_a_reset_cuts_its_interval_out() -> None:
    pipeline = make()
    values = steady(range(1, 11), READS)
    values[5:] -= values[5] - 1
    stored(pipeline, batch_of(ost(READS), values, START + SECOND))
    assert told(pipeline, "read_latency") == {"a": [2_000.0] * 8}


@pytest.mark.parametrize("restart", range(1, 10))
@pytest.mark.parametrize("size", [1, 3, 10])
@pytest.mark.parametrize("grown", [True, False])
def test_counters_that_began_anew_and_passed_what_they_were_are_no_spike(
    restart: int, size: int, grown: bool
) -> None:
    """A remount between two samples after which much was done: nothing falls, but `start_time` differs."""
    fields = (*READS, START_TIME)
    values = steady(range(1, 11), fields, 2)
    values[:, :, -1] = 1_700_000_000
    values[restart:, 0, :-1] += 10**9 if grown else -values[restart, 0, :-1]
    values[restart:, 0, -1] += 5
    pipeline = make()
    for seq, first in enumerate(range(0, 10, size)):
        some = values[first : first + size]
        stored(pipeline, batch_of(ost(fields, ("a", "b")), some, START + (1 + first) * SECOND, seq=seq))
    (store,) = pipeline.stores.values()
    assert store.counts.resets == 1
    assert told(pipeline, "load.throughput") == {"a": [40_960.0] * 8, "b": [40_960.0] * 9}


def test_a_start_time_that_is_not_told_for_a_while_is_no_reset() -> None:
    fields = (*READS, START_TIME)
    pipeline = make()
    for seq, started in enumerate((1_700_000_000, 0, 1_700_000_000, 1_700_000_005)):
        begin = 1 + 5 * seq
        values = steady(range(begin, begin + 5), fields)
        values[:, :, -1] = started
        stored(pipeline, batch_of(ost(fields), values, START + begin * SECOND, seq=seq))
    (store,) = pipeline.stores.values()
    assert store.counts.resets == 1
    assert told(pipeline, "load.throughput") == {"a": [40_960.0] * 18}


@pytest.mark.parametrize("size", [1, 5])
def test_a_start_time_that_comes_after_samples_without_one_is_a_reset(size: int) -> None:
    """Another device came under an identity, with greater counters: the agent begins to send `start_time`."""
    pipeline = make()
    stored(pipeline, batch_of(ost(READS, ("a", "b")), steady(range(1, 6), READS, 2), START + SECOND))
    fields = (*READS, START_TIME)
    values = steady(range(6, 11), fields, 2)
    values[:, :, -1] = (1_700_000_000, 0)
    values[:, 0, :-1] += 10**9
    for seq, first in enumerate(range(0, 5, size), start=1):
        some = values[first : first + size]
        stored(pipeline, batch_of(ost(fields, ("a", "b")), some, START + (6 + first) * SECOND, seq=seq))
    (store,) = pipeline.stores.values()
    assert store.counts.resets == 1
    assert told(pipeline, "load.throughput") == {"a": [40_960.0] * 8, "b": [40_960.0] * 9}


def test_groups_of_single_nodes_leave_room_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laggard_aggregator.engine.routing.MAX_GROUPS", 4)
    monkeypatch.setattr("laggard_aggregator.engine.routing.MAX_ONE_NODE_GROUPS", 2)
    pipeline = make()
    for n in range(4):
        fields = ("ost_read_samples", "ost_read_sum")
        schema = schema_of("lustre_osc", f"c-{n}", ["a"], fields, fs="scratch")
        stored(pipeline, batch_of(schema, steady(range(1, 6), fields), START + SECOND, role="compute"))
    stored(pipeline, batch_of(ost(READS), steady(range(1, 6), READS), START + SECOND))
    assert list(pipeline.groups) == [
        "compute/lustre_osc/c-0/scratch",
        "compute/lustre_osc/c-1/scratch",
        "storage/lustre_ost/scratch",
    ]
    assert pipeline.refused == {"groups": 2}
