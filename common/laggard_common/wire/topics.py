"""MQTT topics: `laggard/1/<site>/<role>/<node>/{data,schema}/<source>` and `.../status`, and acknowledgements
on `laggard/1/<site>/ack/<node>`.
"""

import re
from dataclasses import dataclass

from laggard_common.errors import WireError

ROLES = ("compute", "forwarding", "storage", "metadata")
PREFIX = "laggard/1"

LEVEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", re.ASCII)
"""One level of a topic: a site, node or source name."""

_ANY = f"({LEVEL.pattern})"
_TOPIC = re.compile(f"{PREFIX}/{_ANY}/({'|'.join(ROLES)})/{_ANY}/(?:(data|schema)/{_ANY}|status)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Topic:
    """A parsed topic. `channel` is `data`, `schema` or `status`; `source` is empty for `status`."""

    site: str
    role: str
    node: str
    channel: str
    source: str


def is_level(name: str) -> bool:
    """True when `name` can be a level of a topic (site, node or source name)."""
    return LEVEL.fullmatch(name) is not None


def data_topic(site: str, role: str, node: str, source: str) -> str:
    """The topic of a source's data."""
    return f"{PREFIX}/{site}/{role}/{node}/data/{source}"


def schema_topic(site: str, role: str, node: str, source: str) -> str:
    """The topic of a source's retained schema."""
    return f"{PREFIX}/{site}/{role}/{node}/schema/{source}"


def status_topic(site: str, role: str, node: str) -> str:
    """The topic of a node's retained status and last will."""
    return f"{PREFIX}/{site}/{role}/{node}/status"


def ack_topic(site: str, node: str) -> str:
    """The topic on which the aggregator acknowledges a node's batches."""
    return f"{PREFIX}/{site}/ack/{node}"


def parse_topic(topic: str) -> Topic:
    """Parses a topic that an agent publishes to. Raises WireError("topic") for any other."""
    match = _TOPIC.fullmatch(topic)
    if match is None:
        raise WireError("topic", topic[:200])
    site, role, node, channel, source = match.groups()
    return Topic(site, role, node, channel or "status", source or "")
