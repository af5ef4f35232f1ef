"""What was found is handed on: shown, archived, and where an alarm was raised or cleared, logged."""

import logging
from collections.abc import Iterable

from laggard_aggregator.alarms.alarms import Ended, Transition
from laggard_aggregator.alarms.judge import Judgement, Window
from laggard_aggregator.archive.write_queue import ArchiveFeed
from laggard_aggregator.ingest.batches import WindowClose
from laggard_aggregator.log.sequence import Ordinals
from laggard_aggregator.status.live import LiveView

_log = logging.getLogger(__name__)


class Announcer:
    """Tells `view`, the `archive` where there is one, and the log. `ordinals`: of batches and closes."""

    def __init__(self, view: LiveView, archive: ArchiveFeed | None, ordinals: Ordinals) -> None:
        self._view = view
        self._archive = archive
        self._ordinals = ordinals

    def judged(self, close: WindowClose, judgements: tuple[Judgement, ...], sealed: Window | None) -> None:
        """Hands on what was found, the archive's part without anything in between."""
        self._view.judged(judgements, sealed)
        if self._archive is not None:
            self._archive.offer(close)
            for judgement in judgements:
                self._archive.offer(judgement)
        self._tell(transition for judgement in judgements for transition in judgement.transitions)

    def ended(self, transitions: list[Transition]) -> None:
        """Takes in that alarms ended otherwise than by a window."""
        self._view.ended(transitions)
        if self._archive is not None and transitions:
            self._archive.offer(Ended(self._ordinals.last, tuple(transitions)))
        self._tell(transitions)

    def lagged(self, seconds: float) -> None:
        """Takes in how long after its deadline a window was judged."""
        self._view.lagged(seconds)

    def _tell(self, transitions: Iterable[Transition]) -> None:
        """Logs alarms that were raised and cleared."""
        for transition in transitions:
            alarm = transition.alarm
            name = self._view.shown(alarm.component)
            if transition.kind == "raised":
                _log.warning(
                    "%s is a straggler of %s: %s %s", name, alarm.group, alarm.metric, alarm.evidence
                )
            else:
                _log.info("%s of %s is no straggler any more", name, alarm.group)
