"""One connection to an MQTT 3.1.1 broker, for the event loop: neither threads nor queues.

A general client wakes an idle process several times for each message. This one can be told not to read for a
while: what the broker says then waits in the kernel, and costs nothing until the process is awake anyway.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from laggard_common import mqtt_packets as packets
from laggard_common.errors import MqttError, WireError
from laggard_common.mqtt.settings import ClientArguments
from laggard_common.mqtt_packets import Message, PacketType, Will

T = TypeVar("T")

Hear = Callable[[Message], None]


class Connection(asyncio.Protocol):
    """A connection that the broker has accepted; made by `open`.

    `hear` gets every message; one of QoS 1 is acknowledged then, or with `hold_back` by `acknowledge`.
    `lost` is done when the connection has ended, whoever ended it; `error` then says why.
    """

    def __init__(self, hear: Hear, most_bytes: int, *, hold_back: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        self._hear = hear
        self._hold_back = hold_back
        self._reader = packets.PacketReader(most_bytes)
        self._transport: asyncio.Transport | None = None
        self._accepted: asyncio.Future[None] = self._loop.create_future()
        self._publishes: dict[int, asyncio.Future[None]] = {}
        self._subscribes: dict[int, asyncio.Future[bytes]] = {}
        self._number = 0
        self._unsent: list[bytes] = []
        self._beat_seconds = 0.0
        self._beat_timer: asyncio.TimerHandle | None = None
        self._said = self._heard = True  # since the last beat
        self._pinged = False
        self._reads = True
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.error: MqttError | None = None

    @classmethod
    async def open(
        cls,
        arguments: ClientArguments,
        client_id: str,
        *,
        hear: Hear,
        most_bytes: int,
        keepalive_seconds: int,
        timeout_seconds: float,
        clean_session: bool = True,
        will: Will | None = None,
        hold_back: bool = False,
    ) -> Self:
        """A connection to the broker that `arguments` name.

        `most_bytes`: of a packet; the connection ends at a larger one. Raises MqttError and OSError, whose
        TimeoutError means that it took longer than `timeout_seconds`.
        """
        hello = packets.encode_connect(
            client_id,
            keepalive_seconds=keepalive_seconds,
            clean_session=clean_session,
            username=arguments["username"],
            password=arguments["password"],
            will=will,
        )
        connection = cls(hear, most_bytes, hold_back=hold_back)
        host, port, context = arguments["hostname"], arguments["port"], arguments["tls_context"]
        try:
            async with asyncio.timeout(timeout_seconds):
                await connection._loop.create_connection(lambda: connection, host, port, ssl=context)
                connection._write(hello)
                await connection._accepted
        except BaseException as exc:
            connection.abort()
            if isinstance(exc, TimeoutError) and not exc.args:
                raise TimeoutError("it does not answer") from exc
            raise
        connection._beat_seconds = keepalive_seconds / 2
        connection._beat()
        return connection

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> "asyncio.Future[None]":
        """Sends a message at QoS 1. The future is done when the broker has it, and fails with MqttError.

        Raises MqttError when the connection is lost already.
        """
        self.check()
        number = self._next_number()
        taken: asyncio.Future[None] = self._loop.create_future()
        self._publishes[number] = taken
        self._write(packets.encode_publish(topic, payload, number, retain=retain))
        return taken

    async def subscribe(self, filters: Sequence[str]) -> Sequence[str]:
        """Subscribes at QoS 1; those of `filters` that the broker refuses. Raises MqttError."""
        self.check()
        number = self._next_number()
        answer = self._subscribes[number] = self._loop.create_future()
        self._write(packets.encode_subscribe(number, filters))
        codes = await answer
        if len(codes) != len(filters):
            raise MqttError("the broker answers another subscription")
        return [one for one, code in zip(filters, codes, strict=True) if code >= packets.REFUSED]

    def acknowledge(self, number: int) -> None:
        """Tells the broker that a message of QoS 1 need not come again; sent with whatever goes out next."""
        if self.error is None:
            if not self._unsent:
                self._loop.call_soon(self._flush)
            self._unsent.append(packets.encode_puback(number))

    def check(self) -> None:
        """Raises MqttError when the connection is lost."""
        if self.error is not None:
            raise MqttError(str(self.error)) from self.error

    def pause_reading(self) -> None:
        """Leaves what the broker sends, and that it hangs up, to the kernel until `resume_reading`."""
        if self._transport is not None and self._reads and self.error is None:
            self._reads = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Reads again; what has come is taken when the event loop has its next turn."""
        if self._transport is not None and not self._reads and self.error is None:
            self._reads = self._heard = True
            self._transport.resume_reading()

    async def close(self, seconds: float) -> None:
        """Says goodbye, so that the will is not published, and waits at most so long for the end."""
        if self._transport is not None and self.error is None:
            self._write(packets.DISCONNECT)
            self._end(MqttError("closed"))
            self._transport.close()
            await asyncio.wait({self.lost}, timeout=seconds)
        self.abort()

    def abort(self, reason: str = "closed") -> None:
        """Ends the connection at once, without a word; `reason` is what `error` says then."""
        self._end(MqttError(reason))
        if self._transport is not None:
            self._transport.abort()

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: there is a socket."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """asyncio: the broker said something."""
        self._heard = True
        try:
            for packet in self._reader.feed(data):
                self._take(packet)
        except WireError as exc:
            self._fail(MqttError(f"the broker does not speak MQTT 3.1.1: {exc}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the socket is closed."""
        self._end(MqttError(f"the connection is lost: {exc}" if exc else "the broker hung up"))
        if not self.lost.done():
            self.lost.set_result(None)

    # -- inside

    def _take(self, packet: packets.Packet) -> None:
        if self.error is not None:
            return
        kind, flags, body = packet
        if kind == PacketType.PUBACK:
            _answer(self._publishes.pop(packets.decode_puback(body), None), None)
        elif not self._accepted.done():
            self._be_accepted(kind, body)
        elif kind == PacketType.PUBLISH:
            message = packets.decode_publish(flags, body)
            self._hear(message)
            if message.number and not self._hold_back:
                self.acknowledge(message.number)
        elif kind == PacketType.SUBACK:
            number, codes = packets.decode_suback(body)
            _answer(self._subscribes.pop(number, None), codes)
        elif kind != PacketType.PINGRESP:
            raise WireError("mqtt", f"packet of type {kind}")

    def _be_accepted(self, kind: int, body: bytes) -> None:
        if kind != PacketType.CONNACK:
            raise WireError("mqtt", f"packet of type {kind} before CONNACK")
        refusal = packets.decode_connack(body)
        if refusal:
            self._fail(MqttError(f"the broker refuses us: {refusal}"))
        else:
            self._accepted.set_result(None)

    def _next_number(self) -> int:
        """One that no unanswered packet has. Raises MqttError when all are taken."""
        if len(self._publishes) + len(self._subscribes) >= packets.MAX_NUMBER:
            raise MqttError("the broker owes too many answers")
        while True:
            self._number = self._number % packets.MAX_NUMBER + 1
            if self._number not in self._publishes and self._number not in self._subscribes:
                return self._number

    def _write(self, data: bytes) -> None:
        self._unsent.append(data)
        self._flush()

    def _flush(self) -> None:
        if self._unsent and self._transport is not None and self.error is None:
            self._said = True
            self._transport.write(b"".join(self._unsent))
            self._put_off_beat()
        self._unsent.clear()

    def _beat(self) -> None:
        """Twice in the time that the broker waits for a sign of life: asks for one itself, and gives one."""
        if self._pinged and not self._heard and self._reads:
            self._fail(MqttError("the broker does not answer"))
            return
        self._beat_timer = None
        self._pinged = not self._said or not self._heard
        if self._pinged:
            self._write(packets.PINGREQ)
        self._next_beat()

    def _put_off_beat(self) -> None:
        """What was just said is a sign of life as good as a beat, if the broker gave one too."""
        timer = self._beat_timer
        if timer is not None and self._heard and self._loop.time() > timer.when() - self._beat_seconds / 2:
            timer.cancel()
            self._pinged = False
            self._next_beat()

    def _next_beat(self) -> None:
        self._said = self._heard = False
        self._beat_timer = self._loop.call_later(self._beat_seconds, self._beat)

    def _fail(self, error: MqttError) -> None:
        self._end(error)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, error: MqttError) -> None:
        """From now on the connection is as good as lost, and whoever waits for an answer hears of it."""
        if self.error is not None:
            return
        self.error = error
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        futures: list[asyncio.Future[Any]]
        futures = [self._accepted, *self._publishes.values(), *self._subscribes.values()]
        self._publishes.clear()
        self._subscribes.clear()
        for future in futures:
            if not future.done():
                future.set_exception(MqttError(str(error)))
                future.exception()  # nobody has to ask


def _answer(future: "asyncio.Future[T] | None", result: T) -> None:
    if future is not None and not future.done():
        future.set_result(result)
