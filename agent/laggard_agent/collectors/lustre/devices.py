"""Stable component identities of Lustre devices, unchanged by remount or failover.

Targets (`<fs>-OSTxxxx`, `<fs>-MDTxxxx`) move between servers in a failover and are the same everywhere: their
label `scope` is `site`. A client's devices end in the address of their mount (`-ffff88105db50000`), which
changes with every mount: it is omitted, but kept where one file system is mounted twice.
"""

import re
from collections.abc import Callable, Iterable

from laggard_common.wire.limits import MAX_NAME_CHARS
from laggard_common.wire.schema import Component

_TARGET = re.compile(r"(?:(?P<fs>.+)-)?(?P<target>(?:OST|MDT)[0-9a-fA-F]{4})")
_MOUNT = re.compile(r"(?P<stem>.+)-(?P<mount>[0-9a-f]{8,16})")
_CLIENT = re.compile(r"(?P<fs>.+)-(?P<target>(?:OST|MDT)[0-9a-fA-F]{4})-(?:osc|mdc)(?:-.*)?")

Labels = tuple[tuple[str, str], ...]


def target(name: str) -> Component:
    """An OST or MDT of the file system `fs`, known to the whole site."""
    found = _TARGET.fullmatch(name)
    labels: Labels = (("scope", "site"),)
    if found:
        labels += _some(fs=found["fs"], target=found["target"])
    return Component(name[:MAX_NAME_CHARS], name[:MAX_NAME_CHARS], labels)


def service(name: str) -> Component:
    """A service of a server's threads, such as `ost_io`."""
    return Component(name[:MAX_NAME_CHARS], name[:MAX_NAME_CHARS], _some(service=name))


def job(device: Component, name: str) -> Component:
    """A job's share of a target's work, as one server counted it."""
    labels = tuple(label for label in device.labels if label[0] != "scope")
    known = f"{device.id}:{name}"[:MAX_NAME_CHARS]
    return Component(known, known, (*labels, *_some(job=name)))


class Mounts:
    """Components of a client's devices (`llite`, `osc`, `mdc`), stable while a device exists."""

    def __init__(self) -> None:
        self._known: dict[str, Component] = {}

    def __call__(self, names: Iterable[str]) -> dict[str, Component]:
        """Components by device name. Of two mounts of one file system the later keeps its address."""
        present = sorted(names)
        self._known = {name: self._known[name] for name in present if name in self._known}
        taken = {component.id for component in self._known.values()}
        for name in present:
            if name not in self._known:
                self._known[name] = component = _client(name, taken)
                taken.add(component.id)
        return {name: self._known[name] for name in present}


def each(make: Callable[[str], Component]) -> Callable[[Iterable[str]], dict[str, Component]]:
    """Components of devices that are identified by their names alone."""
    return lambda names: {name: make(name) for name in sorted(names)}


def _client(name: str, taken: set[str]) -> Component:
    found = _MOUNT.fullmatch(name)
    stem = found["stem"] if found else name
    known = stem if stem not in taken else name
    client = _CLIENT.fullmatch(stem)
    labels = _some(fs=client["fs"], target=client["target"]) if client else _some(fs=stem)
    return Component(known[:MAX_NAME_CHARS], name[:MAX_NAME_CHARS], labels)


def _some(**labels: str | None) -> Labels:
    return tuple((key, value[:MAX_NAME_CHARS]) for key, value in labels.items() if value)
