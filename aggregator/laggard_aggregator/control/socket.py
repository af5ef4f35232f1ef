"""The control socket: a Unix socket in the state directory; the file's mode decides on access.

A connection is one request and one answer, each a line of JSON. The kernel identifies the user at the other
end (SO_PEERCRED).
"""

import asyncio
import json
import logging
import os
import pwd
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from laggard_common.errors import StateError

_log = logging.getLogger(__name__)

NAME = "control.sock"
MOST_BYTES = 64 * 1024
REQUEST_SECONDS = 5.0
MOST_AT_ONCE = 16
_CREDENTIALS = struct.Struct("3i")  # SO_PEERCRED: pid, uid, gid

Answer = Callable[[Mapping[str, Any], str, str], Awaitable[dict[str, Any]]]
"""Executes a request of a user and an origin; raises ValueError or StateError in one line."""


class Control:
    """Serves the socket in `directory` while the body of `async with` runs."""

    def __init__(self, directory: Path, answer: Answer) -> None:
        self._directory = directory
        self._answer = answer
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Control":
        """Binds the socket; a failure is a WARNING."""
        try:
            listening = await asyncio.to_thread(_listening, self._directory)
            self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=MOST_BYTES)
        except OSError as exc:
            _log.warning("no control socket in %s: %s", self._directory, exc.strerror or exc)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Removes the socket and waits for open requests."""
        if self._server is None:
            return
        self._server.close()
        with suppress(OSError):  # the disk may be read-only by now
            (self._directory / NAME).unlink(missing_ok=True)
        await asyncio.gather(*self._serving)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._answered(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Times out reading and writing, but never the execution of a request."""
        try:
            async with self._room:
                async with asyncio.timeout(REQUEST_SECONDS):
                    line = await reader.readline()
                said = await self._said(line, await asyncio.to_thread(_who, writer))
                async with asyncio.timeout(REQUEST_SECONDS):
                    writer.write(json.dumps(said).encode() + b"\n")
                    await writer.drain()
        except (TimeoutError, OSError, ValueError):
            _log.debug("control: a request failed", exc_info=True)
        finally:
            writer.close()

    async def _said(self, line: bytes, by: str) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ValueError("expected an object")
            return await self._answer(request, by, "control socket")
        except (ValueError, RecursionError) as exc:
            return {"error": str(exc)}
        except StateError as exc:
            return {"error": f"done, but not saved, so a restart will forget it: {exc}"}


def at(directory: Path) -> tuple[str, int]:
    """An address of the socket in `directory` for paths of any length, and a descriptor to close.

    Raises OSError.
    """
    handle = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return f"/proc/self/fd/{handle}/{NAME}", handle


def _listening(directory: Path) -> socket.socket:
    address, handle = at(directory)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        (directory / NAME).unlink(missing_ok=True)  # left over by a killed process
        listening.bind(address)
        (directory / NAME).chmod(0o660)
        listening.listen(MOST_AT_ONCE)
    except OSError:
        listening.close()
        raise
    finally:
        os.close(handle)
    return listening


def _who(writer: asyncio.StreamWriter) -> str:
    """The user name at the other end. The lookup may be slow."""
    kept = writer.get_extra_info("socket").getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
    )
    _, uid, _ = _CREDENTIALS.unpack(kept)
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
