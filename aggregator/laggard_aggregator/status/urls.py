"""URLs of the pages. Every view has a complete link that can be pasted into a ticket."""

from collections.abc import Mapping
from urllib.parse import quote, unquote_to_bytes, urlencode


def component(group: str, name: str, metric: str = "", act: str = "") -> str:
    """The page of a component, by its permanent ID; `act`: with the form of a decision open."""
    path = f"/component/{quote(group, safe='')}/{quote(name, safe='/')}"
    return path + _query({"metric": metric, "act": act}) + ("#act" if act else "")


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
    return "?" + urlencode(given) if given else ""


ENDPOINTS = (
    ("/metrics", "what matters now, for Prometheus"),
    ("/metrics/nodes", "what is known of every node, to be scraped rarely"),
    ("/api/v1/stragglers", "the stragglers, most persistent first"),
    ("/api/v1/alarms", "the alarms that stand, and those of the last 30 days"),
    ("/api/v1/groups", "the peer groups, and why one got no verdict"),
    ("/api/v1/nodes", "the nodes by role and state, and the unhealthy ones"),
    ("/api/v1/decisions", "what operators silenced, drained and commented"),
    ("/healthz", "whether the aggregator runs"),
    ("/readyz", "whether it is connected to the broker"),
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
