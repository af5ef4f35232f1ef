"""What an agent says of itself, as messages: one run's statuses, counted, and the will it leaves."""

from collections.abc import Mapping
from typing import Any

from laggard_agent.settings import AgentSettings
from laggard_common import __version__, wire
from laggard_common.clock import Clock
from laggard_common.wire import topics


class StatusMessages:
    """The statuses of one run of the agent, which `run_id` names as `stream` names a source's batches."""

    def __init__(self, settings: AgentSettings, clock: Clock, run_id: bytes) -> None:
        self._settings = settings
        self._clock = clock
        self._run_id = run_id
        self._seq = 0

    @property
    def topic(self) -> str:
        """Where they are published."""
        return topics.status_topic(self._settings.site, self._settings.role, self._settings.node)

    def will(self) -> bytes:
        """What the broker says when the agent is lost."""
        return self._message("down", {}, seq=0)

    def next(self, state: str, facts: Mapping[str, Any]) -> bytes:
        """The run's next status. `facts`: all but state, role and version."""
        self._seq += 1
        return self._message(state, facts, self._seq)

    def _message(self, state: str, facts: Mapping[str, Any], seq: int) -> bytes:
        always = {"state": state, "role": self._settings.role, "version": __version__}
        envelope = wire.Envelope(
            kind=wire.Kind.STATE,
            node=self._settings.node,
            source="agent",
            stream=self._run_id,
            seq=seq,
            schema_epoch=0,
            t0_ns=self._clock.wall_ns(),
            dt_ns=0,
            n=1,
            codec=0,
            payload=wire.encode_state(always | dict(facts)),
        )
        return wire.encode_envelope(envelope)
