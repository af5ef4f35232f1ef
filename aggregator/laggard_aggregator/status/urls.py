"""URLs of the pages, and the ranges of time in them. Every view has a link for a ticket."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, unquote_to_bytes, urlencode

AROUND_SECONDS = 6 * 3600
"""A link to an alarm shows so much before its start, and after."""
DEFAULT_RANGE_SECONDS = 12 * 3600
MAX_RANGE_SECONDS = 400 * 86_400
_MAX_CHARS = 40
_DURATION = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)(s|m|min|h|d|w)", re.ASCII)
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LAST = 253_402_300_799  # of the year 9999


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A range of time, epoch seconds."""

    start: float
    end: float

    @classmethod
    def parse(cls, start: str, end: str, now: float) -> "TimeRange":
        """The range of the query parameters `from` and `to`; its end is not after `now`.

        A time is ISO 8601 (UTC without a zone), epoch seconds, or `-12h`: a duration before now.
        Without `from` 12 hours, without `to` until now. Raises ValueError with a sentence.
        """
        until = min(parse_time(end, now), now) if end else now
        first = parse_time(start, now) if start else until - DEFAULT_RANGE_SECONDS
        if first >= now:
            raise ValueError("the range begins in the future")
        if first >= until:
            raise ValueError("the range ends before it begins")
        if until - first > MAX_RANGE_SECONDS:
            raise ValueError(f"the range is longer than {MAX_RANGE_SECONDS // 86_400} days")
        return cls(first, until)


def parse_time(text: str, now: float) -> float:
    """Epoch seconds of a time in a URL, as in TimeRange. Raises ValueError with a sentence."""
    text = text.strip()
    try:
        if text.startswith("-"):
            return now - parse_duration(text[1:])
        if len(text) > _MAX_CHARS:
            raise ValueError
        if text.isascii() and text.replace(".", "", 1).isdigit() and len(text) != len("20270115"):
            at = float(text)
        else:
            moment = datetime.fromisoformat(text)
            at = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        if not 0 < at <= _LAST or not math.isfinite(at):
            raise ValueError
    except (ValueError, OverflowError):
        raise ValueError("a time is written as 2026-01-31T12:00, -12h or in epoch seconds") from None
    return at


def parse_duration(text: str) -> float:
    """Seconds, above 0, of `30s`, `90min` (also `90m`), `8h`, `2d` or `1w`. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if seconds <= 0:
        raise ValueError("a duration is written as 90min, 8h or 2d")
    return seconds


def component(group: str, name: str, metric: str = "", at: float = math.nan, act: str = "") -> str:
    """The page of a component, by its permanent ID.

    `at`: with the range around that time. `act`: with the form of a decision open.
    """
    path = f"/component/{quote(group, safe='')}/{quote(name, safe='/')}"
    return path + _query({"metric": metric, "act": act, **around(at)}) + ("#act" if act else "")


def around(at: float) -> dict[str, str]:
    """Query parameters of the range around a time; none for NaN."""
    if not math.isfinite(at):
        return {}
    ends = (at - AROUND_SECONDS, at + AROUND_SECONDS)
    return {name: _stamp(end) for name, end in zip(("from", "to"), ends, strict=True)}


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(min(max(at, 1), _LAST), UTC).strftime("%Y-%m-%dT%H:%MZ")


def group(name: str, **query: str | int) -> str:
    """The page of a peer group."""
    return f"/group/{quote(name, safe='')}" + _query(query)


def node(name: str) -> str:
    """The page of a node."""
    return f"/node/{quote(name, safe='')}"


def page(path: str, **query: str | int) -> str:
    """Another page of a list."""
    return path + _query(query)


def _query(query: Mapping[str, str | int]) -> str:
    given = {name: value for name, value in query.items() if value not in ("", None)}
    return "?" + urlencode(given, safe=":") if given else ""


ENDPOINTS = (
    ("/metrics", "what matters now, for Prometheus"),
    ("/metrics/nodes", "what is known of every node, to be scraped rarely"),
    ("/api/v1/stragglers", "the stragglers, most persistent first"),
    ("/api/v1/alarms", "the alarms that stand, and those of the last 30 days"),
    ("/api/v1/groups", "the peer groups, and why one got no verdict"),
    ("/api/v1/nodes", "the nodes by role and state, and the unhealthy ones"),
    ("/api/v1/decisions", "what operators silenced, drained and commented"),
    ("/api/v1/openapi.json", "what these answer, in OpenAPI 3.1"),
    ("/healthz", "whether the aggregator runs"),
    ("/readyz", "whether it is connected to the broker and the Prometheus servers"),
)
"""Endpoints for programs, listed on the pages."""


class NotKnownError(LookupError):
    """An unknown group or component; the text names it."""


def component_path(raw: bytes) -> tuple[str, str]:
    """Group and component of `<group>/<component>`, still percent-encoded; raises ValueError.

    A slash within the group must be encoded as %2F; within the component it may be.
    """
    group, slash, name = raw.partition(b"/")
    if not (group and slash and name):
        raise ValueError("expected <group>/<component>")
    try:
        return unquote_to_bytes(group).decode(), unquote_to_bytes(name).decode()
    except UnicodeDecodeError as exc:
        raise ValueError("not UTF-8 after percent-decoding") from exc
