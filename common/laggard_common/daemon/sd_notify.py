"""Service manager notifications: ready, watchdog, reloading, stopping, and a line for `systemctl status`.

The protocol is sd_notify(3): lines `NAME=value` in one datagram to the socket `$NOTIFY_SOCKET`. Own code, as
the agent has as few dependencies as possible.
"""

import logging
import os
import socket
import time
from collections.abc import Mapping

_log = logging.getLogger(__name__)

_SEND_SECONDS = 1.0
_MOST_STATUS_CHARACTERS = 500


class Notifier:
    """Notifies the manager at `address`, or nobody when it is empty. Never raises.

    `address`: a path, or `@name` of an abstract socket. `watchdog_seconds`: watchdog timeout of the manager,
    None without one.
    """

    def __init__(self, address: str = "", watchdog_seconds: float | None = None) -> None:
        self.watchdog_seconds = watchdog_seconds
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._ready = False
        self._status = ""

    @classmethod
    def of_environment(cls, environ: Mapping[str, str] = os.environ) -> "Notifier":
        """Notifier for `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`."""
        address = environ.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):
            return cls()
        return cls(address, _watchdog_seconds(environ))

    def ready(self, status: str = "") -> None:
        """Reports that the service is ready; the first time, and again after `reloading`."""
        if not self._ready:
            self._ready = True
            self._status = _line(status)
            self._send("READY=1", f"STATUS={self._status}")

    def alive(self) -> None:
        """Resets the watchdog; called only on observed progress."""
        if self.watchdog_seconds is not None:
            self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Sends the status line if it changed."""
        if _line(text) != self._status:
            self._status = _line(text)
            self._send(f"STATUS={self._status}")

    def reloading(self) -> None:
        """Reports a reload of the configuration; `ready` ends it."""
        self._ready = False
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Reports an orderly shutdown."""
        self._send("STOPPING=1", "STATUS=stopping")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
                manager.settimeout(_SEND_SECONDS)
                manager.sendto("\n".join(lines).encode(), self._address)
        except OSError as exc:
            _log.debug("no notification of the service manager: %s: %s", lines[0], exc)


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None  # meant for the parent process
    try:
        microseconds = int(environ.get("WATCHDOG_USEC", ""))
    except ValueError:
        return None
    return microseconds / 1e6 if microseconds > 0 else None


def _line(text: str) -> str:
    """`text` as one line, so that it cannot inject other notifications."""
    return " ".join(text.split())[:_MOST_STATUS_CHARACTERS]
