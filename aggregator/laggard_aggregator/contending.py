"""The lease of two aggregators, contended for over the connection to the broker."""

import asyncio
import logging

from laggard_aggregator.ingest.subscriber import Subscriber
from laggard_aggregator.lease import Lease
from laggard_common.errors import WireError
from laggard_common.topics import lease_topic

_log = logging.getLogger(__name__)


class Contender:
    """Contends for the lease of a site on behalf of this aggregator."""

    def __init__(self, site: str, lease: Lease) -> None:
        self._lease = lease
        self.topic = lease_topic(site)

    @property
    def held(self) -> bool:
        """Whether this aggregator has the lease now."""
        return self._lease.held

    async def run(self, subscriber: Subscriber) -> None:
        """Says that this aggregator is there, or claims the lease, and logs when it gets or loses it."""
        held = False
        while True:
            message = self._lease.next_message(connected=subscriber.connected)
            if message is not None:
                await subscriber.publish([(self.topic, message)])
            if self._lease.held != held:
                held = not held
                does = "acknowledges and mails" if held else "leaves acknowledging and mailing to another"
                _log.warning("this aggregator %s from now on", does)
            await asyncio.sleep(self._lease.pause_seconds)

    def hear(self, payload: bytes) -> None:
        """Takes in what came on `topic`; what is none of ours is nothing."""
        try:
            self._lease.hear(payload)
        except WireError as exc:
            _log.debug("not a lease: %s", exc)
