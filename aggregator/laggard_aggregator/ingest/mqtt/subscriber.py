"""The connection to the broker. Nothing else in the aggregator knows that there is MQTT.

With a journal, messages are acknowledged to the broker once they are in it (`done`), so that the broker, and
not only their agents, has what a crash takes. Losing the broker is one WARNING, finding it one INFO.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from itertools import compress

from laggard_aggregator.ingest.ingest_queue import IngestQueue
from laggard_aggregator.ingest.mqtt.connection import Connection
from laggard_aggregator.ingest.mqtt.packets import Message
from laggard_aggregator.settings.aggregator import BrokerSettings
from laggard_common.clock import Clock
from laggard_common.errors import ConfigError, MqttError
from laggard_common.mqtt.settings import ClientArguments
from laggard_common.wire.topics import PREFIX

_log = logging.getLogger(__name__)

_RECONNECT_LEAST_SECONDS = 0.5
_RECONNECT_MOST_SECONDS = 30.0
_LASTING_NS = 10 * 1_000_000_000
_TIMEOUT_SECONDS = 5.0
_CHANNELS = ("data/+", "schema/+", "status")


class Subscriber:
    """Puts every message of the site into `inbox`, over as many connections as it takes, until cancelled.

    `hold_back`: the broker keeps messages until they are `done`, where it keeps a session for us. `arguments`
    makes address, credentials and TLS for each connection: files may be renewed meanwhile. `identifier`: its
    client id.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        site: str,
        arguments: Callable[[], ClientArguments],
        *,
        queue: IngestQueue,
        clock: Clock,
        rng: random.Random,
        hold_back: bool = False,
    ) -> None:
        self._settings = settings
        self._arguments = arguments
        self.identifier = settings.client_id or f"laggard-aggregator-{site}"
        self._topics = settings.topics or tuple(f"{PREFIX}/{site}/+/+/{channel}" for channel in _CHANNELS)
        self._queue = queue
        self._clock = clock
        self._rng = rng
        self._connection: Connection | None = None
        self._listening = False
        self._warned = False
        self._clean_session = settings.clean_session or settings.embedded
        self._hold_back = hold_back and not self._clean_session
        self._not_done: deque[tuple[Connection | None, int]] = deque()  # and MQTT's number of each message

    @property
    def connected(self) -> bool:
        """Whether there is a connection, and the subscription was granted."""
        return self._listening

    async def run(self) -> None:
        """Connects, listens, and connects again, with jittered pauses that grow.

        They grow too when connections end at once: somebody else may be using our client id.
        """
        failures = 0
        while True:
            begun_ns = self._clock.monotonic_ns()
            connection = self._connection = Connection(self._take)
            try:
                await self._listen(connection)
            except (MqttError, ConfigError, OSError) as exc:
                self._warn_once(exc)
            finally:
                lasted = self._listening and self._clock.monotonic_ns() - begun_ns > _LASTING_NS
                self._listening = False
                connection.close()
            failures = 0 if lasted else min(failures + 1, 10)
            ceiling = min(_RECONNECT_MOST_SECONDS, _RECONNECT_LEAST_SECONDS * 2**failures)
            await asyncio.sleep(ceiling * self._rng.uniform(0.5, 1.0))

    async def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Publishes topics and payloads at QoS 1. What fails is left: agents ask for it by sending again."""
        if self._connection is None or not self._listening:
            return
        try:
            await self._connection.publish(messages, _TIMEOUT_SECONDS)
        except MqttError as exc:
            _log.debug("acknowledgements could not be published: %s", exc)

    def done(self, messages: int) -> None:
        """The oldest `messages` that were taken out of the inbox need not come again."""
        if not self._hold_back:
            return
        oldest = [self._not_done.popleft() for _ in range(messages)]
        if self._connection is not None:
            current = self._connection
            self._connection.acknowledge(
                [number for connection, number in oldest if connection is current and number]
            )

    def _take(self, messages: list[Message]) -> None:
        now_ns, connection = self._clock.wall_ns(), self._connection
        in_front = self._queue.put([(topic, payload, now_ns) for topic, payload, _ in messages])
        if self._hold_back:
            self._not_done.extend([(connection, number) for _, _, number in compress(messages, in_front)])
            # Of the others there may be more than the broker lets be under way; their agents have them.
            messages = [message for message, front in zip(messages, in_front, strict=True) if not front]
        if connection is not None:
            connection.acknowledge([number for _, _, number in messages if number])

    async def _listen(self, connection: Connection) -> None:
        """Until the connection is lost, which raises MqttError."""
        await connection.open(
            self._arguments(), self.identifier, clean=self._clean_session, seconds=_TIMEOUT_SECONDS
        )
        refused = await connection.subscribe(self._topics, _TIMEOUT_SECONDS)
        if refused:
            raise MqttError(f"the broker refuses the subscription to {', '.join(refused)}")
        self._listening = True
        self._warned = False
        _log.info("connected to the broker at %s", self._settings.address)
        await connection.lost()

    def _warn_once(self, exc: Exception) -> None:
        if self._warned:
            _log.debug("no connection to the broker: %s", exc)
            return
        self._warned = True
        _log.warning("no connection to the broker at %s: %s", self._settings.address, exc)
