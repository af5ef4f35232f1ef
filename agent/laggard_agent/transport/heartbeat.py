"""Status messages of one agent run, with sequence numbers, and the last will."""

from collections.abc import Mapping
from typing import Any

from laggard_agent.settings import AgentSettings
from laggard_common import __version__, wire
from laggard_common.clock import Clock
from laggard_common.wire import topics


class Heartbeat:
    """Encodes the status messages of the run `run_id`, the stream of these messages."""

    def __init__(self, settings: AgentSettings, clock: Clock, run_id: bytes) -> None:
        self._settings = settings
        self._clock = clock
        self._run_id = run_id
        self._seq = 0

    @property
    def topic(self) -> str:
        """Topic of the status messages."""
        return topics.status_topic(self._settings.site, self._settings.role, self._settings.node)

    def will(self) -> bytes:
        """Last will: the broker publishes it when the connection ends without DISCONNECT."""
        return self._encode("down", {}, seq=0)

    def next(self, state: str, facts: Mapping[str, Any]) -> bytes:
        """Next status message. `facts`: every field but state, role and version."""
        self._seq += 1
        return self._encode(state, facts, self._seq)

    def _encode(self, state: str, facts: Mapping[str, Any], seq: int) -> bytes:
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
