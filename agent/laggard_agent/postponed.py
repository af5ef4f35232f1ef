"""Modules that libraries import and the agent may never need, loaded only when they are.

asyncio, paho and aiomqtt import OpenSSL, an HTTP client and an e-mail parser, 8 MiB, for what the agent does
with TLS alone or never. A stand-in takes the module's place until the first of its names is asked for.
"""

import importlib
import sys
from collections.abc import Iterable
from types import ModuleType

UNTIL_NEEDED = (
    "ssl",
    "asyncio.sslproto",
    "hashlib",  # paho: websockets; brings OpenSSL in again
    "urllib.request",  # paho: proxies
)


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # the import system's questions
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = importlib.import_module(self.__name__)
        self.__dict__.update(module.__dict__)  # who holds the stand-in finds everything here from now on
        return getattr(module, name)


def postpone(names: Iterable[str] = UNTIL_NEEDED) -> None:
    """Puts stand-ins in the place of these modules, unless they are loaded; for a process of our own."""
    for name in names:
        if name not in sys.modules:
            sys.modules[name] = _StandIn(name)
