"""Hands judgements and alarm events to the status, the archive and the log."""

import logging
from collections.abc import Iterable

from laggard_aggregator.alarms.alarms import AlarmEvent, AlarmsCleared
from laggard_aggregator.alarms.judge import Judgement
from laggard_aggregator.archive.write_queue import WriteQueue
from laggard_aggregator.detect.interface import Window
from laggard_aggregator.log.entries import LogSequence, WindowClose
from laggard_aggregator.status.view import Status

_log = logging.getLogger(__name__)


class Results:
    """Results of the machine go to `status`, to the `archive` if there is one, and to the log."""

    def __init__(self, status: Status, archive: WriteQueue | None, sequence: LogSequence) -> None:
        self._status = status
        self._archive = archive
        self._sequence = sequence

    def judged(self, close: WindowClose, judgements: tuple[Judgement, ...], window: Window | None) -> None:
        """Publishes the judgements of a window; in the archive they follow their close directly."""
        self._status.judged(judgements, window)
        if self._archive is not None:
            self._archive.put(close)
            for judgement in judgements:
                self._archive.put(judgement)
        self._log_events(transition for judgement in judgements for transition in judgement.transitions)

    def cleared(self, events: list[AlarmEvent]) -> None:
        """Publishes alarms that were cleared by something other than a window."""
        self._status.alarms_changed(events)
        if self._archive is not None and events:
            self._archive.put(AlarmsCleared(self._sequence.last, tuple(events)))
        self._log_events(events)

    def lagged(self, seconds: float) -> None:
        """Publishes the time from a window's deadline to its judgement."""
        self._status.lagged(seconds)

    def _log_events(self, events: Iterable[AlarmEvent]) -> None:
        for event in events:
            alarm = event.alarm
            name = self._status.shown(alarm.component)
            if event.kind == "raised":
                _log.warning(
                    "alarm raised: component=%s group=%s metric=%s: %s",
                    name,
                    alarm.group,
                    alarm.metric,
                    alarm.evidence,
                )
            else:
                _log.info("alarm cleared: component=%s group=%s", name, alarm.group)
