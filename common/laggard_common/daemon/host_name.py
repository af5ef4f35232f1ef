"""The host's own name, which names the node unless `node` is set.

It may be set after the agent's start (DHCP, cloud-init) or change. Until then it is a name that many hosts
have, under which nothing is published.
"""

import re
import socket

from laggard_common.wire.topics import is_level

_OF_NOBODY = re.compile(
    r"(?:localhost|localhost\d*|ip6-localhost|\(none\)|none|unknown)?(?:\..*)?", re.IGNORECASE
)


class HostName(str):
    """A node's name that is the host's."""

    __slots__ = ()

    @property
    def is_usable(self) -> bool:
        """Whether it is a host's own, and can be part of a topic."""
        return _OF_NOBODY.fullmatch(self) is None and is_level(self)


def host_name() -> HostName:
    """The host's name now."""
    return HostName(socket.gethostname())
