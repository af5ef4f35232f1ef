"""The socket of a service manager, and what it was told."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def manager(address: str) -> Iterator[socket.socket]:
    """A service manager's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("\0" + address[1:] if address.startswith("@") else address)
        listening.settimeout(0)
        yield listening


def told(listening: socket.socket) -> list[list[str]]:
    """The lines of every datagram so far."""
    found = []
    while True:
        try:
            found.append(listening.recv(4096).decode().split("\n"))
        except BlockingIOError:
            return found
