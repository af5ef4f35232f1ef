"""Filters of a job list and the cursor of its pages."""

import base64
import binascii
import hashlib
import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from laggard_aggregator.jobs.access.principals import Principal
from laggard_aggregator.jobs.index.schema import LARGE_NODES
from laggard_common.errors import ConfigError

_WITH_KIND: Final = "exists (select 1 from findings f where f.job = j.id and f.kind = :finding)"
_KINDS: Final = (
    *("straggler", "slow component", "neighbour", "own change", "shared file", "single process"),
    *("small writes", "small reads", "metadata rate", "opens", "striping", "re-reads", "small files"),
)
FINDINGS: Final = {
    "slow": "+v.verdict = 'slow'",
    "different work": "+v.verdict = 'different work'",
    "amplification": f"(+s.amplification > 1.5 or {_WITH_KIND})",
    **dict.fromkeys(_KINDS, _WITH_KIND),
}
"""Conditions on the verdict, the summary and the findings of a job by the name of the finding."""
MAX_PAGE: Final = 1000
_MAX_CURSOR: Final = 4096
_DIGEST_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class JobSelection:
    """Conditions that all hold of a job; empty or None holds of every job.

    `after`, `before`: seconds; jobs that ran, or waited from their submission, within them. `component`: name
    of a forwarder or an OST that carried I/O of the job. `below_history`: rate below this share of the median
    of the same user, project, application and number of nodes. Raises ConfigError for an unknown finding.
    """

    user: str = ""
    project: str = ""
    application: str = ""
    state: str = ""
    min_nodes: int | None = None
    max_nodes: int | None = None
    after: float | None = None
    before: float | None = None
    node: str = ""
    component: str = ""
    finding: str = ""
    below_history: float | None = None

    def __post_init__(self) -> None:
        if self.finding and self.finding not in FINDINGS:
            known = ", ".join(FINDINGS)
            raise ConfigError("", [f"finding: expected one of {known}, got {self.finding[:40]!r}"])
        for name, value in asdict(self).items():
            if isinstance(value, str) and not _is_utf8(value):
                raise ConfigError("", [f"{name}: is not UTF-8"])

    def sql(self) -> tuple[list[str], dict[str, Any]]:
        """Conditions on the tables `j` (jobs), `s` (summaries) and `v` (verdicts), and their parameters."""
        equal = {"user": "user", "project": "account", "application": "application"}
        conditions = [f"j.{column} = :{name}" for name, column in equal.items() if getattr(self, name)]
        values: dict[str, Any] = {name: getattr(self, name) for name in equal if getattr(self, name)}
        optional = (
            ("j.node_count >= :min_nodes", "min_nodes", self.min_nodes),
            ("j.node_count <= :max_nodes", "max_nodes", self.max_nodes),
            ("coalesce(j.end, 9e15) >= :after", "after", self.after),
            ("j.at < :before", "before", self.before),
            ("+s.ratio < :below_history", "below_history", self.below_history),
            ("j.state = :state", "state", self.state.upper() or None),
            (_ON_NODE, "node", self.node or None),
            (_ON_COMPONENT, "component", self.component or None),
        )
        for condition, name, value in optional:
            if value is not None:
                conditions.append(condition)
                values[name] = value
        if self.min_nodes is not None and self.min_nodes >= LARGE_NODES:
            conditions.append(f"j.node_count >= {LARGE_NODES}")  # for an index of these
        if self.finding:
            conditions.append(FINDINGS[self.finding])
            values |= {"finding": self.finding} if _WITH_KIND in FINDINGS[self.finding] else {}
        return conditions, values


_ON_NODE: Final = """exists (
    select 1 from nodes n join members m on m.job = j.id and m.low <= n.number and m.high >= n.number
    where n.name = :node and (m.observed or m.revision_at = j.revision_at))"""
_ON_COMPONENT: Final = """exists (
    select 1 from components c join uses u on u.job = j.id and u.component = c.id
    where c.name = :component)"""


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class CursorError(ConfigError):
    """A cursor that no page of this list gave."""

    def __init__(self) -> None:
        super().__init__("", ["cursor: not of this list: ask for its first page"])


def cursor(principal: Principal, selection: JobSelection, at: float, job_key: str) -> str:
    """Opaque text that continues a list after a job that the principal has seen."""
    payload = json.dumps([at, job_key]).encode()
    return base64.urlsafe_b64encode(_digest(principal, selection, payload) + payload).decode().rstrip("=")


def position(principal: Principal, selection: JobSelection, text: str) -> tuple[float, str]:
    """Time and key that `cursor` got. Raises CursorError for another principal's or list's, or none."""
    try:
        if len(text) > _MAX_CURSOR:
            raise CursorError
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        digest, payload = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
        if digest != _digest(principal, selection, payload):
            raise CursorError
        at, job_key = json.loads(payload)
    except (binascii.Error, ValueError, UnicodeError, RecursionError) as exc:
        raise CursorError from exc
    if not isinstance(at, float) or not isinstance(job_key, str):
        raise CursorError
    return at, job_key


def _digest(principal: Principal, selection: JobSelection, payload: bytes) -> bytes:
    """Binds a cursor to its list. It is no secret: the conditions of access hold on every page."""
    who = [principal.name, principal.role, sorted(principal.projects), sorted(principal.scopes)]
    text = json.dumps([who, asdict(selection)], sort_keys=True).encode()
    return hashlib.blake2b(text + b"\0" + payload, digest_size=_DIGEST_BYTES).digest()


class GroupBy(StrEnum):
    """Columns that jobs are grouped by."""

    USER = "user"
    PROJECT = "project"
    APPLICATION = "application"
