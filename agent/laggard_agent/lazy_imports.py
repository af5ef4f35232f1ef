"""Lazy imports of modules that libraries import and the agent seldom needs.

asyncio and paho import OpenSSL, and paho an HTTP client for proxies: 9 MiB together. A stand-in takes the
place of such a module until one of its names is used.
"""

import importlib
import sys
from collections.abc import Iterable
from types import ModuleType

UNTIL_NEEDED = (
    "ssl",
    "asyncio.sslproto",
    "hashlib",
    "urllib.request",
)

# asyncio asks whether a socket is an instance of these classes. None is before the module is loaded.
_EMPTY_CLASSES = {"ssl": ("SSLSocket",)}


class _NoInstances:
    """A class without instances."""


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # the import system's questions
            raise AttributeError(name)
        if name in _EMPTY_CLASSES.get(self.__name__, ()):
            return _NoInstances
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = importlib.import_module(self.__name__)
        self.__dict__.update(module.__dict__)  # modules that hold the stand-in find every name here
        return getattr(module, name)


def postpone(names: Iterable[str] = UNTIL_NEEDED) -> None:
    """Puts stand-ins in the place of these modules, unless they are loaded."""
    for name in names:
        if name in sys.modules:
            continue
        sys.modules[name] = stand_in = _StandIn(name)
        package, _, module = name.rpartition(".")
        if package == "urllib":  # `import urllib.request` of a module that is there binds no name
            setattr(importlib.import_module(package), module, stand_in)
