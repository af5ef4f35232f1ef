"""The embedded broker for the demo and a first small site: amqtt in the aggregator's event loop.

Without TLS it listens on loopback only and admits every client. With TLS it requires client certificates and
applies the rules of `deploy/mosquitto/acl`. It keeps nothing over a restart and limits neither rates nor
connections: a production site uses mosquitto.
"""

import asyncio
import errno
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from laggard_aggregator.settings.aggregator import BrokerSettings
from laggard_aggregator.settings.http import serving, unusable
from laggard_common.errors import ConfigError, MissingPackageError, ServiceError

_log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 10.0
_SHUTDOWN_SECONDS = 3.0


@asynccontextmanager
async def embedded_broker(settings: BrokerSettings, host: str) -> AsyncIterator[None]:
    """Runs the broker while the body runs. `host`: the client id of the aggregator that runs it.

    Raises ServiceError when amqtt is missing or the port is taken, ConfigError for unusable TLS files.
    """
    try:
        from laggard_aggregator.embedded.amqtt_broker import NamedBroker  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as exc:
        raise MissingPackageError("amqtt (mqtt.embedded)", "broker") from exc
    for name in ("amqtt", "transitions"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # they log every connection
    context = server_context(settings)
    broker = NamedBroker(host, certificates=context is not None)
    await broker.start()
    try:
        server = await asyncio.start_server(
            broker.handle,
            settings.host,
            settings.port,
            ssl=context,
            ssl_handshake_timeout=None if context is None else HANDSHAKE_SECONDS,
        )
    except OSError as exc:
        await broker.shutdown()
        raise ServiceError(f"the embedded broker cannot listen on {settings.address}: {_why(exc)}") from exc
    _log.info("embedded broker: listening on %s", settings.address)
    try:
        yield
    finally:
        server.close()
        try:
            await asyncio.wait_for(broker.shutdown(), _SHUTDOWN_SECONDS)
        except TimeoutError:
            _log.debug("embedded broker: not stopped within %s s", _SHUTDOWN_SECONDS)


def server_context(settings: BrokerSettings) -> ssl.SSLContext | None:
    """A context for TLS 1.2 or newer that requires a client certificate of `ca_file`; None without TLS.

    Raises ConfigError for an unusable revocation list.
    """
    if settings.cert_file is None or settings.ca_file is None:
        return None
    context = serving(settings.cert_file, settings.key_file)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(settings.ca_file)
    if settings.crl_file is not None:
        try:
            context.load_verify_locations(settings.crl_file)
        except OSError as exc:
            raise ConfigError("", [f"mqtt.crl_file: {settings.crl_file}: {unusable(exc)}"]) from exc
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def _why(exc: OSError) -> str:
    return "the port is taken" if exc.errno == errno.EADDRINUSE else exc.strerror or str(exc)
