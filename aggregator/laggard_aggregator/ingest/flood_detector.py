"""Detects a node whose message rate exceeds any agent's; its certificate should be revoked."""

import logging
from collections import Counter
from typing import NamedTuple

from laggard_common.wire.topics import is_level

_log = logging.getLogger(__name__)

FLOOD_PER_SECOND = 200.0
"""Ten collectors at 0.05 s with one message per sample: more than any agent's configuration."""

MAX_SENDERS = 65_536


class Flooding(NamedTuple):
    """A node and its mean message rate over a period."""

    node: str
    messages_per_second: float


class FloodDetector:
    """Counts messages by the node in their topic.

    `flooding`: the fastest node, if it is too fast. In two periods in a row: the broker's stored messages
    after an outage come in one burst.
    """

    def __init__(self) -> None:
        self.flooding: Flooding | None = None
        self._fast: str | None = None  # in the previous period
        self._came: Counter[str] = Counter()

    def add(self, node: str) -> None:
        """Counts a message, except those of invalid names and of names beyond MAX_SENDERS."""
        if node in self._came or (len(self._came) < MAX_SENDERS and is_level(node)):
            self._came[node] += 1

    def end_period(self, seconds: float) -> None:
        """Ends a period of `seconds`. Logs the start and the end of a flood once."""
        before, self.flooding = self.flooding, None
        fast_before, self._fast = self._fast, None
        for node, messages in self._came.most_common(1):
            if messages > FLOOD_PER_SECOND * seconds:
                self._fast = node
                if fast_before == node:
                    self.flooding = Flooding(node, messages / seconds)
        self._came.clear()
        if self.flooding is not None and (before is None or before.node != self.flooding.node):
            _log.warning("node %s sends %.0f messages a second: revoke its certificate?", *self.flooding)
        elif self.flooding is None and before is not None:
            _log.info("node %s does not flood any more", before.node)
