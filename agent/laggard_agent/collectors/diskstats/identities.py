"""Permanent IDs of block devices: an identifier that is unique, else the kernel name.

An identifier identifies nothing when it is a placeholder, or when devices of another size, model or serial
number have it as well. Where devices that are alike share one (two paths to a LUN), each is `ID@name`. A
device keeps its ID as long as it is there, whatever other devices come and go.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from laggard_agent.collectors.diskstats.sysfs_device import Facts
from laggard_common.wire.limits import MAX_NAME_CHARS

_PREFIX = re.compile(r"0x|(?:naa|eui|uuid|nvme|scsi|ata|wwn|lvm|crypt-[a-z0-9]+|mpath)[.\-_:](?:0x)?", re.I)
_SEPARATORS = re.compile(r"[^0-9a-z]")
_NVME_FALLBACK = re.compile(r"nvme\.[0-9a-f]{4}-([0-9a-f]+)-[0-9a-f]+-[0-9a-f]{8}")
_PLACEHOLDERS = frozenset(
    [
        *("none", "null", "na", "unknown", "undefined", "unspecified", "notspecified", "notavailable"),
        *("notapplicable", "notset", "empty", "default", "defaultstring", "invalid", "placeholder"),
        *("serial", "serialnumber", "systemserialnumber", "sn", "oem", "tobefilledbyoem", "deadbeef"),
        *("123456", "1234567", "01234567", "12345678", "123456789", "0123456789", "1234567890"),
        *("123456789abcdef", "0123456789abcde", "0123456789abcdef"),
    ]
)
_LEAST_REPEATED = 2
_MOST_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class _Known:
    facts: Facts
    id: str


class Identities:
    """Gives devices their IDs, and remembers them between calls."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._kinds: dict[str, tuple[str, str, str]] = {}
        """Size, model and serial number of the device that last had an identifier to itself."""

    def assign(self, devices: Mapping[str, Facts | None]) -> dict[str, str]:
        """The ID of each device by kernel name, no two alike.

        Facts None: the device went since its name was read, and keeps its ID.
        """
        given: dict[str, str] = {}
        for name, facts in devices.items():
            known = self._known.get(name)
            if known is not None and (facts is None or _is_same(facts, known.facts)):
                given[name] = known.id
        claims = [facts for facts in devices.values() if facts is not None]
        sharers = Counter(i for facts in claims for i in set(facts.identifiers))
        taken = set(given.values())
        for name, facts in devices.items():
            if name not in given:
                own = facts or Facts()
                others = [claim for claim in claims if claim is not own]
                id_ = self._choose(name, own, others, sharers)[:MAX_NAME_CHARS]
                id_ = id_ if id_ not in taken else f"{id_[: MAX_NAME_CHARS // 2]}@{name}"[:MAX_NAME_CHARS]
                given[name] = id_
                taken.add(id_)
        before = self._known
        self._known = {
            name: before[name] if facts is None and name in before else _Known(facts or Facts(), given[name])
            for name, facts in devices.items()
        }
        return given

    def _choose(self, name: str, own: Facts, others: list[Facts], sharers: Counter[str]) -> str:
        for identifier in own.identifiers:
            if is_placeholder(identifier):
                continue
            kinds = [other.kind for other in others if identifier in other.identifiers]
            if identifier in self._kinds:
                kinds.append(self._kinds[identifier])
            if not all(_alike(own.kind, kind) for kind in kinds):
                continue
            if sharers[identifier] > 1:
                return f"{identifier}@{name}"
            self._remember(identifier, own.kind)
            return identifier
        return name

    def _remember(self, identifier: str, kind: tuple[str, str, str]) -> None:
        self._kinds.pop(identifier, None)
        self._kinds[identifier] = kind
        while len(self._kinds) > _MOST_REMEMBERED:
            del self._kinds[next(iter(self._kinds))]


_ALMOST_ZERO = re.compile(r"(?=.{16})0*[1-9a-f]0*")
"""Long numbers with one digit that is not 0, such as the kind of an NAA name alone."""


def is_placeholder(identifier: str) -> bool:
    """Whether an identifier is one that makers leave in place of an identity: zeros, `None`, `123456`."""
    fallback = _NVME_FALLBACK.fullmatch(identifier)
    if fallback:  # the kernel's, from the serial number in hexadecimal
        serial = bytes.fromhex(fallback[1][: len(fallback[1]) // 2 * 2]).strip(b"\0 ")
        return not serial or is_placeholder(serial.decode("ascii", "replace"))
    if identifier.startswith("t10."):  # vendor, model, serial number
        words = identifier[4:].split()
        return not words or any(is_placeholder(" ".join(words[at:])) for at in range(1, len(words)))
    bare = _SEPARATORS.sub("", _PREFIX.sub("", identifier, count=1).lower())
    repeated = len(set(bare)) < _LEAST_REPEATED and not (len(bare) == 1 and bare not in "0fx")
    return repeated or bare in _PLACEHOLDERS or _ALMOST_ZERO.fullmatch(bare) is not None


def _is_same(facts: Facts, before: Facts) -> bool:
    """Whether a name still is the same device, which may have been resized."""
    return (facts.identifiers, facts.sequence) == (before.identifiers, before.sequence) and _alike(
        ("", *facts.kind[1:]), ("", *before.kind[1:])
    )


def _alike(kind: tuple[str, str, str], other: tuple[str, str, str]) -> bool:
    """Whether no property that both have differs."""
    return all(a == b or not a or not b for a, b in zip(kind, other, strict=True))
