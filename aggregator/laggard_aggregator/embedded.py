"""The built-in broker for demonstrations and small sites: amqtt, in the aggregator's own loop, on loopback.

It lets everyone in and keeps nothing over a restart; DESIGN.md 5 says what to use in its place.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from laggard_aggregator.settings import BrokerSettings
from laggard_common.errors import ServiceError

_log = logging.getLogger(__name__)

_SHUTDOWN_SECONDS = 3.0


@asynccontextmanager
async def embedded_broker(settings: BrokerSettings) -> AsyncIterator[None]:
    """Runs the broker while the body runs. Raises ServiceError when it cannot."""
    try:
        from amqtt.broker import Broker  # noqa: PLC0415 - an extra of its own
        from amqtt.contexts import BrokerConfig, ListenerConfig, ListenerType  # noqa: PLC0415
        from amqtt.errors import BrokerError  # noqa: PLC0415
    except ModuleNotFoundError as exc:
        raise ServiceError("mqtt.embedded needs amqtt: pip install 'laggard[broker]'") from exc
    for name in ("amqtt", "transitions"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # every connection, and every client that goes
    config = BrokerConfig(
        listeners={"default": ListenerConfig(type=ListenerType.TCP, bind=settings.address)},
        plugins={"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
    )
    broker = Broker(config, loop=asyncio.get_running_loop())
    try:
        await broker.start()
    except BrokerError as exc:
        raise ServiceError(f"the embedded broker cannot listen on {settings.address}: {_why(exc)}") from exc
    _log.info("the embedded broker listens on %s", settings.address)
    try:
        yield
    finally:
        try:
            await asyncio.wait_for(broker.shutdown(), _SHUTDOWN_SECONDS)
        except TimeoutError:
            _log.debug("the embedded broker did not end in time")


def _why(exc: BaseException) -> str:
    cause = exc.__cause__
    if isinstance(cause, OSError):
        return "the port is taken" if cause.errno == 98 else cause.strerror or str(cause)
    return str(exc)
