"""Subscribes to the site's topics and reconnects; the only user of MQTT in the aggregator.

With a journal, messages are acknowledged to the broker once they are durable (`done`), so the broker
redelivers them after a crash. A lost broker is logged as one WARNING, a found one as one INFO.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from itertools import compress

from laggard_aggregator.ingest.ingest_queue import IngestQueue
from laggard_aggregator.ingest.mqtt.connection import MqttReader
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
    """Puts every message of the site into `queue`.

    `hold_back`: with a persistent session the broker keeps messages until `done`. `arguments` reads the TLS
    and password files, and is called for each connection, so renewed files need no restart. `identifier`:
    the client id.
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
        self._connection: MqttReader | None = None
        self.connected = False
        """Whether the broker granted the subscription of the current connection."""
        self._warned = False
        self._clean_session = settings.clean_session or settings.embedded
        self._hold_back = hold_back and not self._clean_session
        self._not_done: deque[tuple[MqttReader | None, int]] = deque()  # and packet identifiers

    async def run(self) -> None:
        """Connects and reconnects until cancelled, with exponential back-off and jitter.

        A short connection counts as a failure: another client may use the same client id. Without a broker,
        `connected` all the time.
        """
        if not self._settings.enabled:
            self.connected = True
            await asyncio.Event().wait()
        failures = 0
        while True:
            begun_ns = self._clock.monotonic_ns()
            connection = self._connection = MqttReader(self._on_messages)
            try:
                await self._listen(connection)
            except (MqttError, ConfigError, OSError) as exc:
                self._warn_once(exc)
            finally:
                lasted = self.connected and self._clock.monotonic_ns() - begun_ns > _LASTING_NS
                self.connected = False
                connection.close()
            failures = 0 if lasted else min(failures + 1, 10)
            ceiling = min(_RECONNECT_MOST_SECONDS, _RECONNECT_LEAST_SECONDS * 2**failures)
            await asyncio.sleep(ceiling * self._rng.uniform(0.5, 1.0))

    async def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Publishes acknowledgements at QoS 1. Drops them on failure: agents redeliver."""
        if self._connection is None or not self.connected:
            return
        try:
            await self._connection.publish(messages, _TIMEOUT_SECONDS)
        except MqttError as exc:
            _log.debug("acknowledgements could not be published: %s", exc)

    def done(self, messages: int) -> None:
        """Acknowledges the oldest `messages` that left the queue to the broker."""
        if not self._hold_back:
            return
        oldest = [self._not_done.popleft() for _ in range(messages)]
        if self._connection is not None:
            current = self._connection
            self._connection.acknowledge(
                [number for connection, number in oldest if connection is current and number]
            )

    def _on_messages(self, messages: list[Message]) -> None:
        now_ns, connection = self._clock.wall_ns(), self._connection
        in_front = self._queue.put([(topic, payload, now_ns) for topic, payload, _ in messages])
        if self._hold_back:
            self._not_done.extend([(connection, number) for _, _, number in compress(messages, in_front)])
            # Deferred messages may exceed the broker's in-flight limit; their agents still have them.
            messages = [message for message, front in zip(messages, in_front, strict=True) if not front]
        if connection is not None:
            connection.acknowledge([number for _, _, number in messages if number])

    async def _listen(self, connection: MqttReader) -> None:
        """Subscribes, and waits until the connection is lost. Raises MqttError."""
        await connection.open(
            self._arguments(), self.identifier, clean=self._clean_session, seconds=_TIMEOUT_SECONDS
        )
        refused = await connection.subscribe(self._topics, _TIMEOUT_SECONDS)
        if refused:
            raise MqttError(f"the broker denies the subscription to {', '.join(refused)}")
        self.connected = True
        self._warned = False
        _log.info("connected to the broker at %s", self._settings.address)
        await connection.lost()

    def _warn_once(self, exc: Exception) -> None:
        if self._warned:
            _log.debug("no connection to the broker: %s", exc)
            return
        self._warned = True
        _log.warning("no connection to the broker at %s: %s", self._settings.address, exc)
