"""Access rules by the CN of a client's certificate; the same as `deploy/mosquitto/acl`."""

import re

from laggard_common.errors import WireError
from laggard_common.wire.topics import LEVEL, PREFIX, parse_topic

BROKER = "laggard-broker"
"""CN of the certificate of `laggard-ca broker`, used by the broker and the aggregator that runs it."""
_ACK = re.compile(f"{PREFIX}/{LEVEL.pattern}/ack/({LEVEL.pattern})", re.ASCII)


def is_aggregator(name: str) -> bool:
    """Whether `name` belongs to an aggregator; `laggard-ca` issues no node such a name."""
    return name == BROKER or name.startswith("laggard-aggregator")


def may_publish(name: str, topic: str) -> bool:
    """Nodes publish below their own name, aggregators publish acknowledgements."""
    if is_aggregator(name):
        return _acknowledged(topic) is not None
    try:
        return parse_topic(topic).node == name
    except WireError:
        return False


def may_receive(name: str, topic: str) -> bool:
    """Nodes receive their own acknowledgements, aggregators all topics of all nodes."""
    if not is_aggregator(name):
        return _acknowledged(topic) == name
    try:
        parse_topic(topic)
    except WireError:
        return False
    return True


def may_subscribe(name: str, pattern: str) -> bool:
    """Nodes subscribe to their acknowledgements, aggregators to any filter below `laggard/1/`."""
    if is_aggregator(name):
        return pattern.startswith("laggard/1/")
    return _acknowledged(pattern.replace("/+/", "/any/", 1)) == name


def _acknowledged(topic: str) -> str | None:
    """The node of an acknowledgement topic, None for any other topic."""
    match = _ACK.fullmatch(topic)
    return match[1] if match else None
