"""The grant to look at a job: a job together with the principal who may see it."""

from collections.abc import Iterator, Mapping
from typing import Any

from laggard_aggregator.jobs.access.principals import Principal
from laggard_aggregator.jobs.index.reader import Row


class VisibleJob(Mapping[str, Any]):
    """A job that `principal` may see, by the names of its columns.

    Made by `JobQueries` alone, after its condition of access: whoever has one may read whatever is the job's
    own, and no later question checks again or names a principal.
    """

    __slots__ = ("_row", "principal")

    def __init__(self, row: Row, principal: Principal) -> None:
        self._row = row
        self.principal = principal

    def __getitem__(self, name: str) -> Any:
        return self._row[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)

    def so_far(self, summary: Mapping[str, Any]) -> "VisibleJob":
        """The same job with a summary of its I/O until now."""
        numbers = {f"s_{name}": value for name, value in summary.items() if f"s_{name}" in self._row}
        return VisibleJob({**self._row, **numbers, "rate": summary["mib_per_second"]}, self.principal)

    @property
    def key(self) -> str:
        """Its key."""
        return str(self._row["job_key"])
