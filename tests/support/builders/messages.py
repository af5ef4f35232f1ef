"""Messages as an agent sends them, for tests of the intake."""

from collections.abc import Sequence
from dataclasses import replace

from laggard_common import wire
from laggard_common.wire import Envelope, Kind, codec, topics
from laggard_common.wire.schema import Component, Field, Schema

SECOND = 1_000_000_000
NOW = 1_800_000_000 * SECOND
STREAM = b"stream-number-01"
FIELDS = ("rd_ios", "rd_ms")


def schema(
    node: str = "oss-1", stream: bytes = STREAM, epoch: int = 1, components: Sequence[str] = ("a", "b")
) -> Schema:
    """A diskstats schema with two fields."""
    return Schema(
        node=node,
        source="diskstats",
        stream=stream,
        epoch=epoch,
        interval_ns=SECOND,
        batch_ticks=5,
        fields=tuple(Field(name) for name in FIELDS),
        components=tuple(Component(name, f"sd{name}") for name in components),
    )


def schema_message(of: Schema, site: str = "site", role: str = "storage") -> tuple[str, bytes]:
    """Topic and payload of a schema."""
    return topics.schema_topic(site, role, of.node, of.source), wire.encode_schema(of)


def envelope(
    seq: int = 0,
    node: str = "oss-1",
    stream: bytes = STREAM,
    epoch: int = 1,
    ticks: int = 5,
    components: int = 2,
    t0_ns: int = NOW,
) -> Envelope:
    """A message of `ticks` seconds with rising counters."""
    rows = [[[100 * seq + t, 7 * t] for _ in range(components)] for t in range(ticks)]
    return Envelope(
        kind=Kind.COUNTERS,
        node=node,
        source="diskstats",
        stream=stream,
        seq=seq,
        schema_epoch=epoch,
        t0_ns=t0_ns,
        dt_ns=SECOND,
        n=ticks,
        codec=codec.DELTA_ZSTD,
        payload=codec.Encoder().encode(range(components), rows, [0] * ticks),
    )


def data_message(of: Envelope, site: str = "site", role: str = "storage") -> tuple[str, bytes]:
    """Topic and payload of a data message."""
    return topics.data_topic(site, role, of.node, of.source), wire.encode_envelope(of)


def status_message(
    state: dict[str, object], node: str = "oss-1", made_ns: int = NOW, role: str = "storage"
) -> tuple[str, bytes]:
    """Topic and payload of a status."""
    made = replace(
        envelope(node=node, t0_ns=made_ns),
        kind=Kind.STATE,
        source="agent",
        dt_ns=0,
        n=1,
        codec=codec.RAW,
        payload=wire.encode_state(state),
    )
    return topics.status_topic("site", role, node), wire.encode_envelope(made)
