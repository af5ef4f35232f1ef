"""Who may do what, by the name in a client's certificate: the rules of `deploy/mosquitto/acl`."""

from laggard_common.errors import WireError
from laggard_common.wire.topics import is_level, parse_topic

BROKER = "laggard-broker"
"""The certificate of the broker, and of the aggregator that hosts it, as `laggard-ca broker` makes it."""


def is_aggregator(name: str) -> bool:
    """Whether `name` reads all nodes and acknowledges; no node is given such a name."""
    return name == BROKER or name.startswith("laggard-aggregator")


def may_publish(name: str, topic: str) -> bool:
    """A node writes below its own name, an aggregator publishes acknowledgements."""
    if is_aggregator(name):
        return _acknowledged(topic) is not None
    try:
        return parse_topic(topic).node == name
    except WireError:
        return False


def may_receive(name: str, topic: str) -> bool:
    """A node reads its acknowledgements, an aggregator all topics of all nodes."""
    if not is_aggregator(name):
        return _acknowledged(topic) == name
    try:
        parse_topic(topic)
    except WireError:
        return False
    return True


def may_subscribe(name: str, pattern: str) -> bool:
    """A node to its acknowledgements, an aggregator to anything of Laggard's: it receives what it may."""
    if is_aggregator(name):
        return pattern.startswith("laggard/1/")
    return _acknowledged(pattern.replace("/+/", "/any/", 1)) == name


def _acknowledged(topic: str) -> str | None:
    """The node of a topic of acknowledgements, None for any other topic."""
    levels = topic.split("/")
    if len(levels) != 5 or levels[:2] != ["laggard", "1"] or levels[3] != "ack":
        return None
    return levels[4] if is_level(levels[2]) and is_level(levels[4]) else None
