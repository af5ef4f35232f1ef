"""Operators' requests: checked, executed, saved, and written to the audit log.

On the event loop, without sockets.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

from laggard_aggregator.alarms.alarms import AlarmEvent
from laggard_aggregator.alarms.overrides import (
    KINDS,
    MOST_COMMENT_CHARS,
    Decision,
    Kind,
    checked_target,
    checked_ticket,
)
from laggard_aggregator.control import storage
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.groups.patterns import covering, covers
from laggard_common.clock import Clock
from laggard_common.errors import StateError

_log = logging.getLogger(__name__)

MOST_SECONDS = 10 * 366 * 86400.0
SILENCE_SECONDS = 7200.0
"""Length of a silence without a given end; one without any would hide its component for good."""
MOST_NAMED = 100
"""Limit of component names in an answer."""
FORGET_SILENT_SECONDS = 60.0
"""Silence required before a forget: a component that still sends would be back with its next sample."""


class RequestHandler:
    """Executes requests on `machine` and saves overrides in `directory`.

    It holds all of `locked` meanwhile. `ended` is called with the alarms that a request clears, and once more
    after it, so that its effect is shown.
    """

    def __init__(
        self,
        directory: Path,
        machine: Machine,
        clock: Clock,
        locked: Sequence[asyncio.Lock],
        ended: Callable[[list[AlarmEvent]], None],
    ) -> None:
        self._directory = directory
        self._machine = machine
        self._clock = clock
        self._locked = locked
        self._writing = asyncio.Lock()  # held while overrides or the audit log are written
        self._ended = ended

    async def answer(self, request: Mapping[str, Any], by: str, origin: str) -> dict[str, Any]:
        """Executes `request` on behalf of the user `by`; the answer. `origin`: where it came from.

        Raises ValueError in one line when it is refused, StateError when it could not be saved.
        """
        do, target = str(request.get("do"))[:40], checked_target(request.get("target"))
        comment, ticket = request.get("comment", ""), checked_ticket(request.get("ticket", ""))
        if (
            not isinstance(comment, str)
            or len(comment) > MOST_COMMENT_CHARS
            or not (comment + "x").isprintable()
        ):
            raise ValueError(f"comment: expected at most {MOST_COMMENT_CHARS} printable characters")
        now = self._clock.wall_ns() / 1e9
        until = now + _seconds(do, request.get("seconds"))
        decision = Decision(cast(Kind, do), target, by, now, until, comment, ticket)
        async with AsyncExitStack() as alone:
            for lock in self._locked:
                await alone.enter_async_context(lock)
            said = self._execute(do, decision, str(request.get("kind"))[:40])
            self._ended([])
        await self.keep()
        await self._note(do, request, decision, origin)
        return {**said, "until": until} if do in KINDS and math.isfinite(until) else said

    async def expire(self) -> None:
        """Ends expired overrides; to be called before windows are closed."""
        lapsed = self._machine.overrides.expire(self._clock.wall_ns() / 1e9)
        for over in lapsed:
            _log.info("%s of %s has ended", over.kind, over.target)
        if lapsed:
            await self.changed()

    async def changed(self) -> None:
        """Saves the overrides after one expired or took effect; a full disk is a WARNING."""
        try:
            await self.keep()
        except StateError as exc:
            _log.warning("decisions: %s", exc)

    async def keep(self) -> None:
        """Saves the overrides. Raises StateError."""
        async with self._writing:
            await asyncio.to_thread(storage.save, self._directory, self._machine.overrides.state())

    def _execute(self, do: str, decision: Decision, ends: str) -> dict[str, Any]:
        """Does what was asked; `ends`: kind of the override that `end` ends. Raises ValueError."""
        target, overrides = decision.target, self._machine.overrides
        named = self._named(target)
        groups = [group for group, names in named.items() if names]
        if do == "end":
            if overrides.end(ends, target) is None:
                raise ValueError(f"{target}: no {ends} of exactly this target is in force")
            return _said(named)
        if do not in (*KINDS, "replaced", "forget"):
            raise ValueError(f"expected {', '.join(KINDS)}, end, replaced or forget, got {do!r}")
        if do == "comment" and not (decision.comment or decision.ticket):
            raise ValueError("comment: expected a text or a ticket")
        if not groups and (do == "replaced" or not self._known_node(target)):
            raise ValueError(f"{target}: no {'' if do == 'replaced' else 'node or '}component has this name")
        if do == "forget":
            return self._forget(target, named)
        if do in KINDS:
            overrides.add(decision)
        if do in ("drain", "replaced"):
            overrides.restart(target, groups)
        return _said(named)

    def _forget(self, target: str, named: Mapping[str, list[str]]) -> dict[str, Any]:
        now_ns = self._clock.wall_ns()
        nodes, ended = self._machine.forget(target, now_ns, now_ns - round(FORGET_SILENT_SECONDS * 1e9))
        self._ended(ended)
        left = {group: set(names) for group, names in self._named(target).items()}
        gone = {group: [n for n in names if n not in left[group]] for group, names in named.items()}
        if not nodes and not any(gone.values()):
            raise ValueError(
                f"{target}: still sends samples; silence of {FORGET_SILENT_SECONDS:.0f} s is needed"
            )
        return {**_said(gone), "nodes": nodes[:MOST_NAMED]}

    def _named(self, target: str) -> dict[str, list[str]]:
        """Current names of the components that `target` names, by group."""
        machine, covered = self._machine, covering((target,))
        members: dict[str, list[str]] = {}
        for group, store in machine.stores.items():
            names = [(key, machine.names.get(key, key)) for key in store.compared]
            members[group] = [name for key, name in names if covered((key, name))]
        return members

    def _known_node(self, target: str) -> bool:
        return any(
            covers(target, (node.node,))
            for node in self._machine.admission.nodes.views(self._clock.wall_ns())
        )

    async def _note(self, do: str, request: Mapping[str, Any], decision: Decision, origin: str) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(decision.at))
        what = {"at": at, "by": decision.by, "from": origin, "do": do, "target": decision.target}
        optional = {name: request.get(name) for name in ("seconds", "comment", "ticket")}
        optional |= {"kind": request["kind"]} if do == "end" else {}
        what |= {name: value for name, value in optional.items() if value}
        async with self._writing:
            await asyncio.to_thread(storage.note, self._directory, what)
        why = f" ({decision.comment})" if decision.comment else ""
        _log.info("%s (%s): %s %s%s", decision.by, origin, do, decision.target, why)


def _seconds(do: str, value: Any) -> float:
    """Duration of an override: by default that of SILENCE_SECONDS, of others infinite. Raises ValueError."""
    if value is None:
        return SILENCE_SECONDS if do == "silence" else math.inf
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST_SECONDS:
        raise ValueError("seconds: expected a number above 0 and of at most ten years")
    return float(value)


def _said(named: Mapping[str, list[str]]) -> dict[str, Any]:
    """The number of components of a request, and the first of them."""
    names = sorted({name for group in named.values() for name in group})
    return {"count": len(names), "components": names[:MOST_NAMED]}
