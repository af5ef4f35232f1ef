"""TCP ports for servers that a test starts."""

import itertools
import os
import socket

_FIRST, _COUNT = 16_000, 16_000
"""Below net.ipv4.ip_local_port_range, so that no outgoing connection takes a port meanwhile."""
_offsets = itertools.count(os.getpid() * 61)  # other test processes count from elsewhere


def free_port(host: str = "127.0.0.1") -> int:
    """A port of loopback that nobody listens on. Each call returns another one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for offset in itertools.islice(_offsets, _COUNT):
        port = _FIRST + offset % _COUNT
        with socket.socket(family) as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


def is_listening(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server accepts connections there."""
    try:
        socket.create_connection((host, port)).close()
    except OSError:
        return False
    return True


def has_ipv6() -> bool:
    """Whether this machine has an IPv6 loopback."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
