"""Which of two aggregators of the same nodes acknowledges and mails: a lease, agreed upon through the broker.

Each publishes on `laggard/1/<site>/lease`, and hears everybody there, itself included. The greatest term that
was heard, and of its claims the greatest name, has the lease. Its holder says so four times in `seconds`. It
holds the lease until `seconds` after it sent the latest of its messages that came back to it, and when that
time is over it has to claim it anew. Who listens and hears nothing of the holder for a little longer claims
the next term, and acts only `seconds` after its claim came back to it: by then the one before has heard of
it, or heard nothing at all, and holds nothing any more. So two never act together, whatever is delayed or
lost, as long as their clocks run at the same rate and neither is stopped between asking and acting.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgpack

from laggard_common.errors import WireError

NAME_BYTES = 16
_VERSION = 1
_MOST = 2**63 - 1
_REMEMBERED = 64  # messages of ours that may still come back
_SAYS = 4  # times in the time that a lease lasts
_PATIENCE = 1.25  # of that time, before somebody else claims it


@dataclass(frozen=True, slots=True)
class _Claim:
    term: int
    name: bytes
    number: int


class Lease:
    """One contender, whose random `name` is its own. `now` is a monotonic clock, seconds."""

    def __init__(self, seconds: float, name: bytes, now: Callable[[], float]) -> None:
        self._seconds = seconds
        self._name = name
        self._now = now
        self._holder = (0, b"")
        self._heard_at = self._asked = now()
        self._acts_from = 0.0
        self._valid_until = 0.0
        self._number = 0
        self._sent: dict[int, float] = {}
        self._say_due = 0.0

    @property
    def held(self) -> bool:
        """Whether to act now."""
        return self._holder[1] == self._name and self._acts_from <= self._now() < self._valid_until

    @property
    def pause_seconds(self) -> float:
        """How often `next_message` is to be asked for."""
        return self._seconds / _SAYS / 4

    def next_message(self, *, connected: bool) -> bytes | None:
        """What is to be published now: that we are there, a claim, or nothing.

        To be asked every `pause_seconds`: who does not ask, or has no connection, does not listen.
        """
        now, asked = self._now(), self._asked
        self._asked = now
        if not connected or now - asked > self._seconds / _SAYS:
            self._heard_at = now
        ours = self._holder[1] == self._name and now < self._valid_until
        if now < self._say_due or not (ours or now - self._heard_at > _PATIENCE * self._seconds):
            return None
        self._say_due = now + self._seconds / _SAYS
        self._number += 1
        self._sent[self._number] = now
        self._sent.pop(self._number - _REMEMBERED, None)
        term = self._holder[0] if ours else self._holder[0] + 1
        packed: bytes = msgpack.packb((_VERSION, term, self._name, self._number))
        return packed

    def hear(self, payload: bytes) -> None:
        """Takes in what came on the topic. Raises WireError on what is none of ours."""
        claim, now = _decode(payload), self._now()
        said = (claim.term, claim.name)
        if said < self._holder:
            return
        is_new, self._holder = said > self._holder, said
        sent = self._sent.get(claim.number) if claim.name == self._name else None
        if sent is None:
            self._heard_at = now
        elif is_new:
            self._acts_from = now + self._seconds
            self._valid_until = sent + self._seconds
        elif sent < self._valid_until:
            self._valid_until = max(self._valid_until, sent + self._seconds)


def _decode(payload: bytes) -> _Claim:
    try:
        version, term, name, number = msgpack.unpackb(payload, use_list=False, max_array_len=4, max_ext_len=0)
    except (ValueError, TypeError, msgpack.UnpackException) as exc:
        raise WireError("lease", str(exc)[:200]) from exc
    good = (
        version == _VERSION
        and type(term) is int
        and 0 < term < _MOST
        and isinstance(name, bytes)
        and len(name) == NAME_BYTES
        and type(number) is int
    )
    if not good:
        raise WireError("lease", repr(payload)[:40])
    return _Claim(term, name, number)
