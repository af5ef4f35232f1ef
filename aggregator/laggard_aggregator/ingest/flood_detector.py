"""Who sends so fast that it is no agent: its certificate is one to revoke."""

import logging
from collections import Counter
from typing import NamedTuple

from laggard_common.wire.topics import is_level

_log = logging.getLogger(__name__)

FLOOD_PER_SECOND = 200.0
"""Ten collectors at 0.05 s, each sample a message of its own: no agent is configured to send more."""

MAX_SENDERS = 65_536


class Flooding(NamedTuple):
    """A node, and how many messages a second came of it on average since the turn before."""

    node: str
    messages_per_second: float


class Senders:
    """Counts messages by the node that their topic names. `flooding`: the fastest, if it is too fast.

    For two periods in a row: what a broker kept while nobody listened comes at once, and then no more.
    """

    def __init__(self) -> None:
        self.flooding: Flooding | None = None
        self._fast: str | None = None  # in the period before
        self._came: Counter[str] = Counter()

    def add(self, node: str) -> None:
        """Takes in that a message came; what is no name, and names beyond MAX_SENDERS, are not counted."""
        if node in self._came or (len(self._came) < MAX_SENDERS and is_level(node)):
            self._came[node] += 1

    def turn(self, seconds: float) -> None:
        """Ends a period that was so long. Logs who floods, once, and that nobody does any more."""
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
