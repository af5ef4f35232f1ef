"""A simulated broker and its connections, in the place of both MQTT clients.

It keeps the promises of a broker as far as the product relies on them: order within a connection, QoS 1 with
a persistent session for the aggregator, retained messages, last wills. A fault breaks some of them.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.simulation.processes import Process, current
from laggard_common.errors import MqttError
from laggard_common.wire import VERSION, Kind

LATENCY_SECONDS = (0.001, 0.05)
TIMEOUT_SECONDS = 10.0
MAX_IN_FLIGHT = 5000
_JOINED = bytes((0x9C, VERSION, Kind.JOINED))
"""First bytes of a message with coalesced batches."""


@dataclass(slots=True)
class Faults:
    """Chances for each message: `lost` after it was confirmed, `doubled`, `delayed` by up to `delay_seconds`,
    which changes the order, `unconfirmed` although it arrived. `cut`: hosts that do not reach the broker;
    `silent`: hosts that get no answer from it.
    """

    lost: float = 0.0
    doubled: float = 0.0
    delayed: float = 0.0
    delay_seconds: float = 0.0
    unconfirmed: float = 0.0
    cut: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)


class SimulatedBroker:
    """The broker of one site. `up`: whether it takes connections."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(f"{seed}/broker")
        self.faults = Faults()
        self.up = True
        self.counts = {
            "published": 0,
            "lost": 0,
            "doubled": 0,
            "delayed": 0,
            "redelivered": 0,
            "coalesced": 0,
        }
        self._retained: dict[str, bytes] = {}
        self._agents: dict[str, AgentConnection] = {}  # by node
        self._reader: ReaderConnection | None = None
        self._waiting: deque[tuple[str, bytes]] = deque()  # of the aggregator's session
        self._in_flight: dict[int, tuple[str, bytes]] = {}
        self._session = False
        self._number = 0

    @property
    def held(self) -> int:
        """Messages for the aggregator that it did not acknowledge."""
        return len(self._waiting) + len(self._in_flight)

    def latency(self) -> float:
        """Time of one message on its way."""
        return self.rng.uniform(*LATENCY_SECONDS)

    def crash(self, kept: float) -> None:
        """Ends all connections; keeps the share `kept` of what it held for the aggregator."""
        self.up = False
        for agent in list(self._agents.values()):
            agent.drop()
        if self._reader is not None:
            self._reader.drop()
        held = [*self._in_flight.values(), *self._waiting]
        self._in_flight.clear()
        self._waiting = deque(held[: round(len(held) * kept)])
        if not kept:
            self._session = False
            self._retained.clear()

    def cut(self, host: str) -> None:
        """Ends the connections of a host."""
        if host in self._agents:
            self._agents[host].drop()
        if self._reader is not None and self._reader.process.host.name == host:
            self._reader.drop()

    def reachable(self, host: str) -> bool:
        """Whether a host can connect."""
        return self.up and host not in self.faults.cut

    # -- of agents

    def joined(self, agent: "AgentConnection") -> None:
        """A node's connection; it ends an earlier one of the same name."""
        before = self._agents.get(agent.node)
        if before is not None:
            before.drop()
        self._agents[agent.node] = agent

    def left(self, agent: "AgentConnection", *, in_order: bool) -> None:
        """A node's connection ended; without a DISCONNECT its last will is published."""
        if self._agents.get(agent.node) is agent:
            del self._agents[agent.node]
        if not in_order and agent.will is not None and self.up:
            self.publish(agent.will.topic, agent.will.payload, retain=agent.will.retain)

    def publish(self, topic: str, payload: bytes, *, retain: bool) -> None:
        """A message of an agent, which the broker has confirmed or will confirm."""
        self.counts["published"] += 1
        self.counts["coalesced"] += payload.startswith(_JOINED)
        if retain:
            self._retained[topic] = payload
        chance, faults = self.rng.random(), self.faults
        if chance < faults.lost:
            self.counts["lost"] += 1
            return
        times = 1
        if chance > 1 - faults.doubled:
            self.counts["doubled"] += 1
            times = 2
        for _ in range(times):
            if faults.delayed and self.rng.random() < faults.delayed:
                self.counts["delayed"] += 1
                delay = self.rng.uniform(0, faults.delay_seconds)
                asyncio.get_running_loop().call_later(delay, self._route, topic, payload)
            else:
                self._route(topic, payload)

    # -- of the aggregator

    def opened(self, reader: "ReaderConnection", *, clean: bool) -> None:
        """The aggregator's connection."""
        if self._reader is not None:
            self._reader.drop()
        self._reader = reader
        if clean:
            self._session = False
            self._waiting.clear()
            self._in_flight.clear()
            return
        self.counts["redelivered"] += len(self._in_flight)
        self._waiting.extendleft(reversed(self._in_flight.values()))
        self._in_flight.clear()

    def subscribed(self) -> None:
        """The aggregator's subscription: retained messages come first."""
        self._session = True
        retained = list(self._retained.items())
        self._waiting.extendleft(reversed(retained))
        self._deliver()

    def closed(self, reader: "ReaderConnection") -> None:
        """The aggregator's connection ended."""
        if self._reader is reader:
            self._reader = None

    def acknowledged(self, numbers: Sequence[int]) -> None:
        """PUBACKs of the aggregator."""
        for number in numbers:
            self._in_flight.pop(number, None)
        self._deliver()

    def to_agent(self, topic: str, payload: bytes) -> None:
        """An acknowledgement; dropped where the node has no connection."""
        agent = self._agents.get(topic.rpartition("/")[2])
        chance = self.rng.random()
        if agent is None or agent.subscribed_to != topic or chance < self.faults.lost:
            return
        agent.receive(payload)

    def _route(self, topic: str, payload: bytes) -> None:
        if self._session and self.up:
            self._waiting.append((topic, payload))
            self._deliver()

    def _deliver(self) -> None:
        reader = self._reader
        if reader is None or not reader.is_open or not self.up:
            return
        while self._waiting and len(self._in_flight) < MAX_IN_FLIGHT:
            self._number += 1
            self._in_flight[self._number] = message = self._waiting.popleft()
            reader.receive((*message, self._number))


class _Connection:
    """One connection: its process, and whether it is open."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self.broker = broker
        self.process: Process = current()
        self.is_open = False
        self._loop = asyncio.get_running_loop()
        self._arrival = 0.0

    async def _travel(self) -> None:
        """Waits until a packet has arrived, or times out where no answer comes. Raises MqttError."""
        broker, host = self.broker, self.process.host.name
        await asyncio.sleep(broker.latency())
        if host in broker.faults.silent:
            await asyncio.sleep(TIMEOUT_SECONDS)
            raise MqttError("the broker does not answer")

    def _later(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Calls back after the way from the broker, in order."""
        self._arrival = max(self._arrival + 1e-6, self._loop.time() + self.broker.latency())
        self._loop.call_at(self._arrival, callback, *arguments, context=None)


class AgentConnection(_Connection):
    """In the place of `MqttClient`."""

    def __init__(
        self,
        _arguments: Any,
        client_id: str,
        *,
        on_message: Callable[[bytes], None],
        on_lost: Callable[[], None],
        will: Any = None,
        broker: SimulatedBroker,
    ) -> None:
        super().__init__(broker)
        self.node = client_id.removeprefix("laggard-").partition("@")[0]
        self.will = will
        self.subscribed_to = ""
        self._on_message = on_message
        self._on_lost = on_lost
        self._lost = ""

    async def connect(self) -> None:
        """Connects. Raises MqttError."""
        await self._travel()
        if not self.broker.reachable(self.process.host.name):
            raise MqttError("connection refused")
        self.is_open = True
        self.process.on_death.append(self.drop)
        self.broker.joined(self)

    async def subscribe(self, topic: str) -> bool:
        """Subscribes to the node's acknowledgements."""
        await self._travel()
        self.check()
        self.subscribed_to = topic
        return True

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publishes. Raises MqttError, also where the message arrived."""
        await self._travel()
        self.check()
        self.broker.publish(topic, payload, retain=retain)
        if self.broker.rng.random() < self.broker.faults.unconfirmed:
            await asyncio.sleep(TIMEOUT_SECONDS)
            raise MqttError("the broker does not answer")
        await asyncio.sleep(self.broker.latency())
        self.check()

    def check(self) -> None:
        """Raises MqttError when the connection is lost."""
        if not self.is_open:
            raise MqttError(self._lost or "not connected")

    async def close(self, _timeout_seconds: float) -> None:
        """Disconnects in order."""
        if self.is_open:
            self.is_open = False
            self.broker.left(self, in_order=True)

    def receive(self, payload: bytes) -> None:
        """A message on its way."""
        self._later(self._received, payload)

    def drop(self) -> None:
        """Ends the connection without a word."""
        if self.is_open:
            self.is_open = False
            self._lost = "the connection is lost"
            self.broker.left(self, in_order=False)
            if self.process.alive:
                self._loop.call_soon(self._on_lost)

    def _received(self, payload: bytes) -> None:
        if self.is_open and self.process.alive:
            self._on_message(payload)


class ReaderConnection(_Connection):
    """In the place of `MqttReader`."""

    def __init__(
        self, on_messages: Callable[[list[tuple[str, bytes, int]]], None], *, broker: SimulatedBroker
    ) -> None:
        super().__init__(broker)
        self._on_messages = on_messages
        self._ended: asyncio.Future[str] = self._loop.create_future()
        self._arrived: list[tuple[str, bytes, int]] = []

    async def open(self, _arguments: Any, _identifier: str, *, clean: bool, seconds: float) -> None:
        """Connects. Raises MqttError."""
        del seconds
        await self._travel()
        if not self.broker.reachable(self.process.host.name):
            raise MqttError("connection refused")
        self.process.on_death.append(self.drop)
        self.broker.opened(self, clean=clean)

    async def subscribe(self, _filters: Sequence[str], _seconds: float) -> list[str]:
        """Subscribes; none is denied."""
        await self._travel()
        self._check()
        self.is_open = True
        self.broker.subscribed()
        return []

    async def publish(self, messages: Sequence[tuple[str, bytes]], _seconds: float) -> None:
        """Publishes acknowledgements. Raises MqttError."""
        if not messages:
            return
        await self._travel()
        self._check()
        for topic, payload in messages:
            self.broker.to_agent(topic, payload)

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """PUBACKs, on their way."""
        if numbers and self.is_open:
            self._loop.call_later(self.broker.latency(), self._acknowledged, list(numbers))

    async def lost(self) -> None:
        """Waits until the connection is lost. Raises MqttError."""
        raise MqttError(await asyncio.shield(self._ended))

    def close(self) -> None:
        """Disconnects."""
        self._end("closed")

    def drop(self) -> None:
        """Ends the connection without a word."""
        self._end("the broker ended the connection")

    def receive(self, message: tuple[str, bytes, int]) -> None:
        """A message on its way; those that arrive together are read together."""
        self._arrived.append(message)
        if len(self._arrived) == 1:
            self._loop.call_later(self.broker.latency(), self._received)

    def _received(self) -> None:
        messages, self._arrived = self._arrived, []
        if self.is_open and self.process.alive:
            self._on_messages(messages)

    def _acknowledged(self, numbers: list[int]) -> None:
        if self.is_open and self.process.alive:
            self.broker.acknowledged(numbers)

    def _check(self) -> None:
        if self._ended.done():
            raise MqttError(self._ended.result())

    def _end(self, reason: str) -> None:
        self.is_open = False
        self.broker.closed(self)
        if not self._ended.done():
            self._ended.set_result(reason)
