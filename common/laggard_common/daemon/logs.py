"""Logging to stderr, configured by `main` only; under journald with priorities instead of timestamps."""

import logging
import os
import sys
from collections.abc import Mapping

from laggard_common.visible import visible

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_JOURNAL_FORMAT = "%(name)s: %(message)s"


class PlainFormatter(logging.Formatter):
    """Formats messages as one line each, and escapes unprintable characters: names come from the network."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The first line; those of a traceback follow it."""
        return visible(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        """The record."""
        return "\n".join(map(visible, super().format(record).split("\n")))


class JournalFormatter(PlainFormatter):
    """Formats lines for journald: `<3>name: message`, every line of a traceback with its priority."""

    def format(self, record: logging.LogRecord) -> str:
        """The record with a syslog priority (3 error, 4 warning, 6 info, 7 debug) before each line."""
        lines = super().format(record).split("\n")
        return "\n".join(f"<{_priority(record.levelno)}>{line}" for line in lines)


def configure(level: int = logging.INFO, environ: Mapping[str, str] = os.environ) -> None:
    """Sends all logging of this process to stderr. Called by `main` only."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JournalFormatter(_JOURNAL_FORMAT) if "JOURNAL_STREAM" in environ else PlainFormatter(_FORMAT)
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)


def _priority(level: int) -> int:
    return next((priority for least, priority in _PRIORITIES if level >= least), 7)
