"""amqtt's broker with clients named by their certificates; imported only where amqtt is installed.

amqtt identifies a session by the client id before it asks a plugin, so the client id is replaced by the CN of
the certificate. amqtt also acknowledges messages without a subscriber; nodes therefore wait until the
aggregator that runs the broker has subscribed.
"""

import asyncio
import logging
from typing import Any

from amqtt.adapters import StreamReaderAdapter, StreamWriterAdapter
from amqtt.broker import Broker
from amqtt.contexts import Action, BrokerConfig, ListenerConfig, ListenerType
from amqtt.mqtt.connect import ConnectPacket
from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin
from amqtt.session import Session

from laggard_aggregator.embedded.acl import is_aggregator, may_publish, may_receive, may_subscribe
from laggard_common.wire.topics import is_level

_log = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0
"""Time limit for the CONNECT packet and for the wait for the aggregator's subscription."""
MAX_PACKET_BYTES = 4_300_000
"""Slightly more than the largest message that the aggregator accepts."""
_EVERYONE: dict[str, Any] = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
_MAY = {Action.PUBLISH: may_publish, Action.SUBSCRIBE: may_subscribe, Action.RECEIVE: may_receive}


class AclPlugin(BaseAuthPlugin, BaseTopicPlugin):  # type: ignore[misc]
    """Allows each client the topics of its name, which is its client id."""

    async def authenticate(self, *, session: Session) -> bool:
        """Whether the client may publish its last will; amqtt does not ask again when it publishes it."""
        return not session.will_flag or may_publish(session.client_id or "", session.will_topic or "")

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool:
        """Whether the client may publish to, subscribe to, or receive from `topic`."""
        name = (session.client_id if session else None) or ""
        return action is not None and _MAY[action](name, topic or "")


_RULES: dict[str, Any] = {f"{__name__}.{AclPlugin.__name__}": {}}


class _LimitedReader(StreamReaderAdapter):  # type: ignore[misc]
    """Reads `first`, then the stream; a packet that is too large aborts the connection of `writer`."""

    def __init__(
        self, stream: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bytes = b""
    ) -> None:
        super().__init__(stream)
        self._writer = writer
        self._first = first

    async def read(self, n: int = -1) -> bytes:
        """The next `n` bytes. Raises ValueError for a packet that is too large; amqtt then reads no more."""
        if n > MAX_PACKET_BYTES:
            self._writer.transport.abort()
            raise ValueError(f"a packet of {n} bytes")
        data, self._first = self._first[:n], self._first[n:]
        return data or bytes(await super().read(n))


class NamedBroker(Broker):  # type: ignore[misc]
    """Serves connections accepted by `handle`.

    `host`: client id of the aggregator that runs the broker. With `certificates` clients are named by
    them and the access rules apply.
    """

    def __init__(self, host: str, *, certificates: bool) -> None:
        config = BrokerConfig(
            listeners={"default": ListenerConfig(type=ListenerType.EXTERNAL)},
            plugins=_RULES if certificates else _EVERYONE,
        )
        super().__init__(config, loop=asyncio.get_running_loop())
        self._host = host
        self._certificates = certificates
        self._subscribed = asyncio.Event()
        self._served: dict[str, tuple[asyncio.StreamWriter, asyncio.Lock]] = {}

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection until its end; a callback of `asyncio.start_server`."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                connect = await self._admitted(reader, writer)
            if connect is not None:
                limited = _LimitedReader(reader, writer, bytes(connect.to_bytes()))
                await self._serve(connect.client_id, limited, writer)
        except Exception as exc:  # amqtt raises many types; the client connects again
            _log.debug("connection ended: %r", exc)
        finally:
            writer.transport.abort()

    async def _admitted(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> ConnectPacket | None:
        """The CONNECT packet of a named client, once the aggregator has subscribed; None without a name."""
        connect = await ConnectPacket.from_stream(_LimitedReader(reader, writer))
        is_host = connect.client_id == self._host
        if self._certificates:
            name = common_name(writer.get_extra_info("peercert"))
            if name is None or (name.startswith("laggard-") and not is_aggregator(name)):
                return None
            set_identity(connect, name)
            is_host = is_host and is_aggregator(name)
        if not is_host:
            await self._subscribed.wait()
        return connect

    async def _serve(self, name: str, reader: _LimitedReader, writer: asyncio.StreamWriter) -> None:
        """Ends the previous connection of `name` first, so that its last will precedes the new session."""
        previous, lock = self._served.get(name, (None, asyncio.Lock()))
        self._served[name] = writer, lock
        if previous is not None:
            previous.transport.abort()
        try:
            async with lock:
                await self.external_connected(reader, StreamWriterAdapter(writer), "default")
        finally:
            if self._served[name][0] is writer:
                del self._served[name]

    async def add_subscription(self, subscription: tuple[str, int], session: Session) -> int:
        """Admits nodes at the first subscription, which is the aggregator's."""
        granted: int = await super().add_subscription(subscription, session)
        self._subscribed.set()
        return granted

    async def _publish_retained_messages_for_subscription(
        self, subscription: tuple[str, int], session: Session
    ) -> None:
        """Sends the session the retained messages of its own subscription.

        amqtt 0.12 does so for the subscriptions of all clients, and fails when one changes meanwhile.
        """
        if any(own.client_id == session.client_id for own, _ in self._subscriptions.get(subscription[0], ())):
            await super()._publish_retained_messages_for_subscription(subscription, session)


def set_identity(connect: ConnectPacket, name: str) -> None:
    """Makes `name` the client id, of a clean session without user name and password."""
    connect.payload.client_id = name
    connect.payload.client_id_is_random = False
    connect.clean_session_flag = True
    connect.username_flag = connect.password_flag = False


def common_name(certificate: Any) -> str | None:
    """The CN of a certificate as `ssl` shows it; None unless there is exactly one valid node name."""
    subject = certificate["subject"] if certificate else ()
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 and is_level(names[0]) else None
