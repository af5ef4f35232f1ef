"""The connection to the broker. Nothing else in the aggregator knows which MQTT library there is.

aiomqtt acknowledges a message before our code sees it and would queue without bound, so messages go past its
queue into ours. With a journal they are acknowledged to the broker once they are in it (`done`), so that the
broker, and not only their agents, has what a crash takes. Losing the broker is one WARNING, finding it one
INFO.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import aiomqtt
import paho.mqtt.client as paho

from laggard_aggregator.ingest.inbox import Inbox
from laggard_aggregator.settings import BrokerSettings
from laggard_common.clock import Clock
from laggard_common.mqtt import ClientArguments
from laggard_common.past_queue import PastQueue
from laggard_common.topics import PREFIX

_log = logging.getLogger(__name__)
_mqtt_log = logging.getLogger("laggard_aggregator.mqtt")
_mqtt_log.setLevel(logging.CRITICAL)  # what it says of lost connections is said here, once

_RECONNECT_LEAST_SECONDS = 0.5
_RECONNECT_MOST_SECONDS = 30.0
_LASTING_NS = 30 * 1_000_000_000
_TIMEOUT_SECONDS = 5.0
_PUBLISHES_AT_ONCE = 64
_CHANNELS = ("data/+", "schema/+", "status")


class Subscriber:
    """Puts every message of the site into `inbox`, over as many connections as it takes, until cancelled.

    `hold_back`: the broker keeps messages until they are `done`, where it keeps a session for us.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        site: str,
        arguments: ClientArguments,
        *,
        inbox: Inbox,
        clock: Clock,
        rng: random.Random,
        hold_back: bool = False,
    ) -> None:
        self._settings = settings
        self._arguments = arguments
        self._identifier = settings.client_id or f"laggard-aggregator-{site}"
        self._topics = settings.topics or tuple(f"{PREFIX}/{site}/+/+/{channel}" for channel in _CHANNELS)
        self._inbox = inbox
        self._clock = clock
        self._rng = rng
        self._client: aiomqtt.Client | None = None
        self._paho: paho.Client | None = None
        self._warned = False
        self._clean_session = settings.clean_session or settings.embedded
        self._hold_back = hold_back and not self._clean_session
        self._connection = 0
        self._not_done: deque[tuple[int, int]] = deque()  # connection and MQTT's number of each message

    @property
    def connected(self) -> bool:
        """Whether there is a connection, and the subscription was granted."""
        return self._client is not None

    async def run(self) -> None:
        """Connects, listens, and connects again, with jittered pauses that grow.

        They grow too when connections end at once: somebody else may be using our client id.
        """
        failures = 0
        while True:
            begun_ns = self._clock.monotonic_ns()
            self._connection += 1
            try:
                async with self._make_client() as client:
                    await self._subscribe(client)
                    await self._listen(client)
            except (aiomqtt.MqttError, OSError) as exc:
                self._warn_once(exc)
            finally:
                lasted = self._client is not None and self._clock.monotonic_ns() - begun_ns > _LASTING_NS
                self._client = None
            failures = 0 if lasted else min(failures + 1, 10)
            ceiling = min(_RECONNECT_MOST_SECONDS, _RECONNECT_LEAST_SECONDS * 2**failures)
            await asyncio.sleep(ceiling * self._rng.uniform(0.5, 1.0))

    async def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Publishes topics and payloads at QoS 1. What fails is left: agents ask for it by sending again."""
        client = self._client
        if client is None:
            return
        for first in range(0, len(messages), _PUBLISHES_AT_ONCE):
            some = messages[first : first + _PUBLISHES_AT_ONCE]
            sent = (client.publish(topic, payload, qos=1) for topic, payload in some)
            for result in await asyncio.gather(*sent, return_exceptions=True):
                if isinstance(result, aiomqtt.MqttError):
                    _log.debug("acknowledgements could not be published: %s", result)
                    return
                if isinstance(result, BaseException):
                    raise result

    def done(self, messages: int) -> None:
        """The oldest `messages` that were taken out of the inbox need not come again."""
        if not self._hold_back:
            return
        for _ in range(messages):
            connection, number = self._not_done.popleft()
            if number and connection == self._connection:
                self._acknowledge(number)

    def _make_client(self) -> aiomqtt.Client:
        client = aiomqtt.Client(
            **self._arguments,
            identifier=self._identifier,
            clean_session=self._clean_session,
            keepalive=30,
            timeout=_TIMEOUT_SECONDS,
            queue_type=cast(Any, partial(PastQueue, self._take)),
            logger=_mqtt_log,
        )
        self._paho = client._client  # aiomqtt has no way of its own to acknowledge
        self._paho.manual_ack_set(self._hold_back)
        return client

    def _acknowledge(self, number: int) -> None:
        if self._paho is not None and self._paho.is_connected():
            self._paho.ack(number, 1)

    def _take(self, message: aiomqtt.Message) -> None:
        payload = message.payload if isinstance(message.payload, bytes) else b""
        there_was_room = self._inbox.put(message.topic.value, payload, self._clock.wall_ns())
        if self._hold_back and there_was_room:
            self._not_done.append((self._connection, message.mid if message.qos else 0))
        elif self._hold_back and message.qos:
            self._acknowledge(message.mid)  # its agent sends it again

    async def _subscribe(self, client: aiomqtt.Client) -> None:
        granted = await client.subscribe([(topic, 1) for topic in self._topics])
        refused = [topic for topic, code in zip(self._topics, granted, strict=False) if _is_refusal(code)]
        if refused:
            raise aiomqtt.MqttError(f"the broker refuses the subscription to {', '.join(refused)}")

    async def _listen(self, client: aiomqtt.Client) -> None:
        """Until the connection is lost, which raises MqttError."""
        client.pending_calls_threshold = _PUBLISHES_AT_ONCE
        self._client = client
        self._warned = False
        _log.info("connected to the broker at %s", self._settings.address)
        async for _ in client.messages:
            pass  # messages go to the inbox; this only ends with the connection

    def _warn_once(self, exc: Exception) -> None:
        if self._warned:
            _log.debug("no connection to the broker: %s", exc)
            return
        self._warned = True
        _log.warning("no connection to the broker at %s: %s", self._settings.address, exc)


def _is_refusal(code: object) -> bool:
    """True for the return code 0x80 of a SUBACK, which aiomqtt hands on as a number or as an object."""
    value = getattr(code, "value", code)
    return isinstance(value, int) and value >= 0x80
