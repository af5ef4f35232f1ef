"""A node with valid credentials changes no verdict about others, whatever it publishes.

Its values may count among those of their peers, which moves scores and references a little; the verdicts,
evidence and alarms stay.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import count
from typing import NamedTuple

import msgpack
import pytest

from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.engine.machine import Machine
from laggard_common import wire
from laggard_common.errors import WireError
from laggard_common.wire import Kind, codec, topics
from laggard_common.wire.schema import Component, Schema
from tests.support.builders import site
from tests.support.builders.site import SECOND, START, Message, close, new_core, receive, steps

EVIL = "evil"
BATCHES = 40
SCHEMA = site.schema(EVIL)
DATA_TOPIC = topics.data_topic("site", "storage", EVIL, "diskstats")
DAY = 86_400 * SECOND

Attack = Callable[[int, int], Iterator[Message]]
"""Messages of the hostile node in the step with this number, at this time."""


def batch(seq: int, t0_ns: int, **changes: object) -> bytes:
    rows = [[[1000 * tick + place for place in range(8)] for _ in range(2)] for tick in range(5)]
    payload = codec.Encoder().encode(range(2), rows, [0] * 5)
    made = wire.Envelope(
        Kind.COUNTERS, EVIL, "diskstats", SCHEMA.stream, seq, 1, t0_ns, SECOND, 5, codec.DELTA_ZSTD, payload
    )
    return wire.encode_envelope(replace(made, **changes))  # type: ignore[arg-type]


def announced(at: int, now_ns: int) -> Iterator[Message]:
    if at == 0:
        yield site.schema_message(SCHEMA, now_ns)


def of_the_future(at: int, now_ns: int) -> Iterator[Message]:
    for seq, ahead in enumerate((5 * SECOND, 60 * SECOND, 3600 * SECOND, DAY - 60 * SECOND, 2 * DAY, 2**62)):
        yield DATA_TOPIC, batch(10 * at + seq, min(now_ns + ahead, 2**63 - DAY)), now_ns


def of_the_past(at: int, now_ns: int) -> Iterator[Message]:
    for seq, ago in enumerate((60 * SECOND, 3600 * SECOND, DAY, 365 * DAY, 400 * DAY, now_ns - 1)):
        yield DATA_TOPIC, batch(10 * at + seq, now_ns - ago), now_ns


def of_wrapped_sequences(at: int, now_ns: int) -> Iterator[Message]:
    for seq in (2**64 - 1 - at, 2**63 + at, 0, at * 2**40, 2**64 - 1):
        yield DATA_TOPIC, batch(seq, now_ns - 3600 * SECOND), now_ns


def of_one_name_a_hundred_times(at: int, now_ns: int) -> Iterator[Message]:
    """In the schema of a stream of its own, under names of others, and as a hundred streams."""
    same = (Component("wwn-0", "sd0"),) * 100
    stream = at.to_bytes(16, "big")
    for each in (
        replace(SCHEMA, stream=stream, components=same),
        replace(SCHEMA, stream=stream, components=(Component("../oss-5/wwn-0", "oss-5/sd0"),)),
        replace(SCHEMA, stream=stream, node="oss-5"),
        *(replace(SCHEMA, stream=(1000 * at + n).to_bytes(16, "little")) for n in range(100)),
    ):
        try:
            yield topics.schema_topic("site", "storage", EVIL, "diskstats"), wire.encode_schema(each), now_ns
        except WireError:  # not even to be written
            continue


def of_nested_items(at: int, now_ns: int) -> Iterator[Message]:
    deep = b"\x91" * 500_000 + b"\xc0"
    wide = msgpack.packb([[None]] * 100_000)
    for payload in (deep, wide, b"\xdd\xff\xff\xff\xff", batch(at, now_ns)[:-3]):
        for channel in (DATA_TOPIC, topics.status_topic("site", "storage", EVIL)):
            yield channel, payload, now_ns
        yield topics.schema_topic("site", "storage", EVIL, "diskstats"), payload, now_ns
        yield (
            DATA_TOPIC,
            batch(at, now_ns - 3600 * SECOND, payload=payload[:100_000], codec=codec.RAW),
            now_ns,
        )


def of_a_trickle(at: int, now_ns: int) -> Iterator[Message]:
    """Announces that its next batch takes a week, and sends a tick in each step."""
    if at == 0:
        slow = replace(SCHEMA, stream=b"w" * 16, interval_ns=3600 * SECOND, batch_ticks=168)
        yield site.schema_message(slow, now_ns)
    rows = [[[at] * 8] * 2]
    payload = codec.Encoder().encode(range(2), rows, [0])
    yield DATA_TOPIC, batch(at, now_ns - 3600 * SECOND, n=1, dt_ns=0, payload=payload), now_ns


INVENTED = 1000


def of_invented_components(at: int, now_ns: int) -> Iterator[Message]:
    """A thousand disks from the third step on, at the right times, all as slow as the one that is."""
    many = replace(site.schema(EVIL, disks=INVENTED), stream=b"i" * 16)
    if at == 2:
        yield site.schema_message(many, now_ns)
    if at >= 2:
        ticks = range(5 * at - 4, 5 * at + 1)
        rows = [[[100 * t, 12_800 * t, 5000 * t, 3 * t, 24 * t, 4 * t, 900 * t, 5000 * t]] for t in ticks]
        payload = codec.Encoder().encode(range(INVENTED), [row * INVENTED for row in rows], [0] * 5)
        yield (
            DATA_TOPIC,
            batch(at, START + ticks[0] * SECOND, stream=b"i" * 16, payload=payload),
            now_ns,
        )


class Said(NamedTuple):
    """A window's verdicts about others, by component, and the changes of alarms."""

    window: tuple[str, str, float, float]
    rows: dict[str, tuple[bytes, ...]]
    transitions: list[tuple[str, float, str]]


def honest(judged: list[Judgement]) -> list[Said]:
    """The verdicts about others: judged, anomalous, observed, evidence, straggler and since when."""
    told = []
    for each in judged:
        v = each.verdicts
        parts = (v.judged, v.anomalous, v.observed, each.persistence, each.straggler, each.since)
        rows = {
            name: tuple(part[n].tobytes() for part in parts)
            for n, name in enumerate(each.components)
            if not name.startswith(EVIL)
        }
        transitions = [(str(t.kind), t.at, t.alarm.component) for t in each.transitions]
        told.append(Said((each.group, each.metric, each.start, each.end), rows, transitions))
    return told


def run(core: Machine, attack: Attack) -> list[Judgement]:
    found: list[Judgement] = []
    for at, (messages, now_ns) in zip(count(), steps(BATCHES)):
        receive(core, list(announced(at, now_ns)))
        for message in attack(at, now_ns):
            list(core.receive((message,)))
        receive(core, messages)
        core.sweep(now_ns)
        found += close(core, now_ns)
    return found


@cache
def without_it() -> list[Said]:
    """The verdicts of a site without the hostile node."""
    return honest(run(new_core(), lambda *_: iter(())))


@pytest.mark.parametrize(
    "attack",
    [
        of_the_future,
        of_the_past,
        of_wrapped_sequences,
        of_one_name_a_hundred_times,
        of_nested_items,
        of_a_trickle,
    ],
)
def test_verdicts_about_others_are_those_without_it(attack: Attack) -> None:
    expected = without_it()
    assert [kind for said in expected for kind, *_ in said.transitions] == ["raised"]
    core = new_core()
    assert honest(run(core, attack)) == expected
    counts, stores = core.admission.counts, [store.counts for store in core.stores.values()]
    counted = core.admission.refused.total() + core.admission.wire_errors.total() + counts.gaps
    assert counted + sum(store.late + store.future for store in stores), "it is counted"


def test_a_node_that_invents_components_outvotes_nobody() -> None:
    """A thousand of them hid a slow disk; they are compared with each other."""
    expected = without_it()
    core = new_core()
    found = run(core, of_invented_components)
    (base, own) = core.groups
    assert own == f"{base}@{EVIL}"
    assert honest([each for each in found if each.group == base]) == expected
    assert len(core.stores[own].compared) == INVENTED
    restored = new_core()
    for part in core.state():
        if "group" in part:
            restored.restore_group(core.groups[part["group"]], part)
        else:
            restored.restore(part)
    assert [len(store.compared) for store in restored.stores.values()] == [17, INVENTED]


@pytest.mark.parametrize("disks", [2, 7, 40])
def test_equal_nodes_are_one_group_in_any_order(disks: int) -> None:
    core = new_core()
    for node in site.NODES:
        of = site.schema(node, disks=disks)
        receive(core, [site.schema_message(of), site.data_message(of, 0)])
    assert [len(store.compared) for store in core.stores.values()] == [disks * len(site.NODES)]


def moving(node: str) -> Schema:
    """Two targets of a server, which may move to another one."""
    first = 2 * site.NODES.index(node)
    targets = (Component(f"OST{first + n}", f"OST{first + n}", (("scope", "site"),)) for n in range(2))
    return replace(site.schema(node), components=tuple(targets))


@cache
def run_with_claims(claimed: str, values: int) -> tuple[Machine, list[Judgement]]:
    """The targets of all servers; from the fourth batch on another node sends those of one of them, too."""
    core, found = new_core(), list[Judgement]()
    claim = replace(moving(claimed), node=EVIL)
    receive(core, [site.schema_message(moving(node)) for node in site.NODES])
    for seq in range(BATCHES):
        now_ns = START + (5 * seq + 7) * SECOND
        receive(core, [site.data_message(moving(node), seq) for node in site.NODES[:4]])
        if values and seq >= 4:
            receive(core, [site.schema_message(claim)] if seq == 4 else [])
            rows = [[[values * tick] * 8] * 2 for tick in range(5 * seq + 1, 5 * seq + 6)]
            payload = codec.Encoder().encode(range(2), rows, [0] * 5)
            list(
                core.receive(
                    ((DATA_TOPIC, batch(seq, START + (5 * seq + 1) * SECOND, payload=payload), now_ns),)
                )
            )
        receive(core, [site.data_message(moving(node), seq) for node in site.NODES[4:]])
        found += close(core, now_ns)
    return core, found


@pytest.mark.parametrize("values", [1, 10**6])
@pytest.mark.parametrize("claimed", ["oss-5", "oss-2"])
def test_a_target_that_its_server_sends_cannot_be_claimed_by_another_node(claimed: str, values: int) -> None:
    """Before, each batch was of another origin, and the target had no verdict."""
    _, expected = run_with_claims(claimed, 0)
    assert [t.alarm.component for each in expected for t in each.transitions] == ["OST8", "OST9"]
    core, found = run_with_claims(claimed, values)
    assert honest(found) == honest(expected)
    assert core.refused["claimed"] == 2 * (BATCHES - 4)
    assert {core.hosts().get(f"OST{n}") for n in (8, 9)} <= {None, "oss-5"}
