"""An MQTT client for a process that is idle most of the time."""

import asyncio
from typing import Any

import aiomqtt
import paho.mqtt.client as mqtt

_MISC_SECONDS = 10.0


class QuietClient(aiomqtt.Client):
    """Wakes an idle process less often, and writes without asking first whether it may."""

    def _on_socket_register_write(self, client: mqtt.Client, userdata: Any, sock: Any) -> None:
        try:
            asyncio.get_running_loop().call_soon(self._write, client, userdata, sock)
        except RuntimeError:  # it connects on another thread
            super()._on_socket_register_write(client, userdata, sock)

    def _write(self, client: mqtt.Client, userdata: Any, sock: Any) -> None:
        """Writes what waits; the rest when the socket can take it."""
        try:
            client.loop_write()
        except Exception as exc:
            if not self._disconnected.done():
                self._disconnected.set_exception(exc)
        else:
            if client.want_write() and sock.fileno() >= 0:
                super()._on_socket_register_write(client, userdata, sock)

    async def _misc_loop(self) -> None:
        """Looks every 10 s whether a ping is due, and not every second."""
        while self._client.loop_misc() == mqtt.MQTT_ERR_SUCCESS:  # noqa: ASYNC110 - paho has no event for it
            await asyncio.sleep(_MISC_SECONDS)
