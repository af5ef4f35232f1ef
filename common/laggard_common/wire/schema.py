"""Schema of a source: its fields and components, as an append-only dictionary.

A *source* is one table of numbers, such as `diskstats`: rows are components (disks), columns are fields.
Data messages name components by their position in the dictionary, so position and field order never change
within a stream; every addition raises the epoch. A batch of epoch 3 is therefore readable with the
dictionary of epoch 3 or of any later one.
"""

from dataclasses import dataclass
from enum import IntEnum


class FieldKind(IntEnum):
    """Behaviour of a field over time. Only counters and histogram buckets can be reset."""

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2


class FieldType(IntEnum):
    """Interpretation of a value's 64-bit lane."""

    U64 = 0
    I64 = 1
    F64 = 2


@dataclass(frozen=True, slots=True)
class Field:
    """One column: `unit` is the unit of the raw value (`ms`, `sectors`, `bytes`, `1`)."""

    name: str
    kind: FieldKind = FieldKind.COUNTER
    unit: str = "1"
    type: FieldType = FieldType.U64


@dataclass(frozen=True, slots=True)
class Component:
    """One row. `id` is stable across reboots (WWID, UUID); `name` is the current name (`sda`).

    Labels give the class of a component (`model`, `rotational`, `size`). The label `scope` with the value
    `site` marks a component that may move between nodes (an OST in a failover): it is compared without the
    prefix of its node.
    """

    id: str
    name: str
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Schema:
    """The dictionary of one source in one stream at one epoch.

    `interval_ns` and `batch_ticks` announce the sampling interval and the most ticks in a message; the
    aggregator derives from them how long to wait before it closes a window.
    """

    node: str
    source: str
    stream: bytes
    epoch: int
    interval_ns: int
    batch_ticks: int
    fields: tuple[Field, ...]
    components: tuple[Component, ...]
