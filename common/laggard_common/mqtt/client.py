"""Thin adapter over `aiomqtt.Client`: one connection, Laggard's errors, bounded queues.

aiomqtt acknowledges an incoming message before the application sees it, so an application-level
acknowledgement must not rely on MQTT's redelivery. A publish that timed out may still reach the broker.
A publish that the broker's ACL denies raises nothing: MQTT 3.1.1 has no answer for it.
"""

import asyncio
import contextlib
import logging
import math
import socket
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import aiomqtt

from laggard_common.errors import MqttError
from laggard_common.mqtt.settings import ClientArguments

T = TypeVar("T")

_REFUSED = 0x80  # a SUBACK code from here on denies the subscription
_PLAINER = {
    "Operation timed out": "the broker does not answer",
    "Unspecified error": "the broker closed the connection",
}
"""Texts of aiomqtt and paho that do not name the broker."""
_KEEPALIVE_SECONDS = 30
_MAX_QUEUED = 64
"""Messages that wait for `on_message`."""
_NODELAY = ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),)

_log = logging.getLogger(__name__)
_aiomqtt_log = logging.getLogger("laggard_common.mqtt.aiomqtt")
_aiomqtt_log.setLevel(logging.CRITICAL)  # the caller reports a lost connection, once


class MqttClient:
    """One MQTT 3.1.1 connection. Call `connect` once and `close` afterwards.

    `on_message` receives the payload of each message, `on_lost` runs when the connection ends. Both run on
    the event loop. At most _MAX_QUEUED messages wait for `on_message`; aiomqtt drops further ones.
    Operations raise MqttError when the connection is lost or the broker does not answer in time.
    """

    def __init__(
        self,
        arguments: ClientArguments,
        client_id: str,
        *,
        on_message: Callable[[bytes], None],
        on_lost: Callable[[], None],
        will: aiomqtt.Will | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        self._client = aiomqtt.Client(
            **arguments,
            identifier=client_id,
            clean_session=True,
            will=will,
            keepalive=_KEEPALIVE_SECONDS,
            timeout=timeout_seconds,
            max_queued_incoming_messages=_MAX_QUEUED,
            socket_options=_NODELAY,
            logger=_aiomqtt_log,
        )
        self._timeout_seconds = timeout_seconds
        self._on_message = on_message
        self._on_lost = on_lost
        self._reader: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Connects and waits for the broker's CONNACK. Raises MqttError.

        aiomqtt connects on a thread, which a cancelled caller cannot stop. A connection that completes after
        the cancellation is closed.
        """
        connecting = asyncio.ensure_future(self._client.__aenter__())
        try:
            await asyncio.shield(connecting)
        except asyncio.CancelledError:
            connecting.add_done_callback(self._close_late)
            raise
        except aiomqtt.MqttCodeError as exc:
            raise MqttError(f"the broker refuses the connection: {exc.rc}") from exc
        except aiomqtt.MqttError as exc:
            await self._disconnect(0.0)  # aiomqtt leaves the socket open when no CONNACK arrives
            raise MqttError(_plain(exc)) from exc
        except (OSError, ValueError) as exc:  # a host name that cannot be encoded
            raise MqttError(str(exc)) from exc
        self._reader = asyncio.create_task(self._read(), name="mqtt reader")
        self._reader.add_done_callback(self._ended)

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publishes at QoS 1 and waits for the broker's PUBACK. Raises MqttError."""
        publishing = self._client.publish(topic, payload, qos=1, retain=retain, timeout=math.inf)
        await self._answered(publishing)

    async def subscribe(self, topic: str) -> bool:
        """Subscribes at QoS 1; False when the broker denies it. Raises MqttError."""
        codes = await self._answered(self._client.subscribe(topic, qos=1, timeout=math.inf))
        return all(getattr(code, "value", code) < _REFUSED for code in codes)

    def check(self) -> None:
        """Raises MqttError when the connection is lost."""
        if self._reader is None or self._reader.cancelled():
            raise MqttError("not connected")
        if self._reader.done():
            self._reader.result()

    async def close(self, timeout_seconds: float) -> None:
        """Sends DISCONNECT, so that the broker drops the will. Waits at most `timeout_seconds`."""
        if self._reader is not None:
            await self._disconnect(timeout_seconds)
            await asyncio.wait({self._reader}, timeout=timeout_seconds)

    async def _disconnect(self, timeout_seconds: float) -> None:
        self._client.timeout = timeout_seconds
        with contextlib.suppress(aiomqtt.MqttError):
            await self._client.__aexit__(None, None, None)

    async def _answered(self, call: Coroutine[Any, Any, T]) -> T:
        """Result of `call`. Raises MqttError when the connection is lost, or at the time-out."""
        task = asyncio.ensure_future(call)
        try:
            if self._reader is not None:
                waiting, timeout = {task, self._reader}, self._timeout_seconds
                await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self.check()
                raise MqttError(_PLAINER["Operation timed out"])
            return await task
        except aiomqtt.MqttError as exc:
            raise MqttError(_plain(exc)) from exc
        finally:
            task.cancel()

    async def _read(self) -> None:
        """Hands messages on until the connection ends; raises MqttError then."""
        try:
            async for message in self._client.messages:
                self._on_message(message.payload)
        except aiomqtt.MqttError as exc:
            cause = exc.__cause__
            raise MqttError(f"the connection is lost: {_plain(getattr(cause, 'rc', cause))}") from exc

    def _ended(self, reader: asyncio.Task[None]) -> None:
        if not reader.cancelled():
            reader.exception()  # marks it as retrieved; `check` raises it
            self._on_lost()

    def _close_late(self, connecting: "asyncio.Future[aiomqtt.Client]") -> None:
        if not connecting.cancelled() and connecting.exception() is None:
            self._closing = asyncio.ensure_future(self._disconnect(1.0))


def _plain(reason: object) -> str:
    return _PLAINER.get(str(reason), str(reason))


def log_unhandled(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Event loop's exception handler: one line an error, with a traceback under DEBUG.

    aiomqtt drops the error of a connection that is lost right after CONNACK; the next operation reports it.
    """
    exc = context.get("exception")
    level = logging.DEBUG if isinstance(exc, aiomqtt.MqttError) else logging.ERROR
    verbose = exc is not None and _log.isEnabledFor(logging.DEBUG)
    _log.log(level, "%s: %r", context["message"], exc, exc_info=exc if verbose else None)
