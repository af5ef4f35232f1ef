"""Modules that libraries import and the agent may never need, loaded only when they are.

asyncio imports OpenSSL, several MiB, for what the agent does with TLS alone. A stand-in takes the module's
place until the first of its names is asked for.
"""

import importlib
import sys
from collections.abc import Iterable
from types import ModuleType

UNTIL_NEEDED = (
    "ssl",
    "asyncio.sslproto",
)

# asyncio asks of every socket whether it is one of these. Nothing can be before the module is loaded.
_NOT_YET = {"ssl": ("SSLSocket",)}


class _Nothing:
    """What no object is an instance of."""


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # the import system's questions
            raise AttributeError(name)
        if name in _NOT_YET.get(self.__name__, ()):
            return _Nothing
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
