"""What a site's nodes send: how many nodes of each kind, and what a message of theirs holds."""

from collections.abc import Iterator
from dataclasses import dataclass

from laggard_agent.settings import AgentSettings
from laggard_common.wire.schema import Component, Field, Schema

SITE = "site"
SOURCE = "diskstats"
SECOND = 1_000_000_000
FIELDS = (
    *("rd_ios", "rd_sectors", "rd_ms", "wr_ios", "wr_sectors", "wr_ms", "io_ms", "weighted_ms"),
    *("rd_merges", "wr_merges", "in_flight", "dc_ios", "dc_merges", "dc_sectors", "dc_ms", "fl_ios", "fl_ms"),
)
TAIHULIGHT = 41_538
TICKS = AgentSettings().batch_samples


@dataclass(frozen=True, slots=True)
class Shape:
    """Nodes of one role: how many, and `components` x `fields` counters in each of `ticks` a message."""

    role: str
    nodes: int
    components: int
    fields: int
    ticks: int

    def schema(self, node: str, stream: bytes) -> Schema:
        """The dictionary of one node: disks of one model."""
        labels = (("model", "ST4000NM0035"), ("rotational", "1"), ("size", "4000787030016"))
        return Schema(
            node=node,
            source=SOURCE,
            stream=stream,
            epoch=1,
            interval_ns=SECOND,
            batch_ticks=self.ticks,
            fields=tuple(Field(name) for name in FIELDS[: self.fields]),
            components=tuple(
                Component(f"wwn-0x5000c500{at:08x}", f"sd{at}", labels) for at in range(self.components)
            ),
        )

    def names(self) -> Iterator[str]:
        """The names of its nodes."""
        return (f"{self.role}-{number:05d}" for number in range(self.nodes))


def taihulight(nodes: int) -> tuple[Shape, ...]:
    """Sunway TaihuLight, or `nodes` of its 41,538 in the same proportions, 2 metadata servers always."""
    servers = max(round(288 * nodes / TAIHULIGHT), 1)
    return (
        Shape("compute", max(nodes - 2 * servers - 2, 1), 1, 8, TICKS),
        Shape("forwarding", servers, 64, 17, TICKS),
        Shape("storage", servers, 64, 17, TICKS),
        Shape("metadata", 2, 64, 17, TICKS),
    )
