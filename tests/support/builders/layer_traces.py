"""Traces of layers in Laggard's neutral CSV, row by row; shares nothing with the readers or the analysis."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

HEADER = "layer,event,request,time_us,file,offset,bytes,operation"


@dataclass
class TraceBuilder:
    """Collects rows. Times are microseconds."""

    rows: list[str] = field(default_factory=list)

    def event(
        self, layer: str, event: str, request: int, time: float, *, offset: int, size: int, op: str, file: str
    ) -> None:
        """One row."""
        self.rows.append(f"{layer},{event},{request},{time},{file},{offset},{size},{op}")

    def request(
        self,
        layer: str,
        request: int,
        begin: float | None,
        end: float | None,
        *,
        offset: int,
        size: int = 65536,
        op: str = "READ",
        file: str = "data",
        issue: float | None = None,
        complt: float | None = None,
        done: int | None = None,
    ) -> None:
        """ADMIT, ISSUE, COMPLT and CALLBACK of a request, those that are given."""
        times = (("ADMIT", begin), ("ISSUE", issue), ("COMPLT", complt), ("CALLBACK", end))
        for event, time in times:
            if time is not None:
                moved = done if done is not None and event == "CALLBACK" else size
                self.event(layer, event, request, time, offset=offset, size=moved, op=op, file=file)

    def write(self, path: Path) -> Path:
        """Writes the CSV."""
        path.write_text("\n".join([HEADER, *self.rows]) + "\n")
        return path


def in_turns(sequences: int, length: int, size: int) -> Iterable[int]:
    """Offsets of `sequences` readers, each in order in a part of its own, one request each in turn."""
    for at in range(length):
        for reader in range(sequences):
            yield (reader * length + at) * size
