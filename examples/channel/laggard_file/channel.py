"""Channel `file`: appends one JSON object a notification to the file that `[file] path` names."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

from laggard_aggregator.notify.channel import Channel, ChannelSettings, Delivery, UnavailableError
from laggard_aggregator.notify.report import Notification
from laggard_aggregator.settings.channels import register
from laggard_common.errors import ConfigError
from laggard_file import NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings(ChannelSettings):
    """`[file]`: the settings of every channel, and `path`."""

    path: Path


@register
class FileChannel(Channel):
    """Appends to the file; the dispatcher tries again while that fails."""

    name = NAME
    settings_class = FileSettings
    settings: FileSettings

    def __init__(self, settings: FileSettings) -> None:
        if not settings.path.parent.is_dir():
            raise ConfigError("", [f"path: {settings.path.parent}: not a directory"])
        self.settings = settings
        self.destination = str(settings.path)
        self.recipients = (self.name,)

    async def render(self, notification: Notification) -> bytes:
        """One line; an incident that is reported again has the same id."""
        record = {"id": notification.id, "kind": notification.kind, "subject": notification.subject}
        return json.dumps({**record, "url": notification.url}).encode() + b"\n"

    async def send(self, message: bytes, recipients: tuple[str, ...]) -> Delivery:  # noqa: ARG002
        """Appends the line. Raises UnavailableError."""
        try:
            await asyncio.to_thread(self._append, message)
        except OSError as exc:
            raise UnavailableError.caused_by(exc) from exc
        return Delivery()

    def _append(self, message: bytes) -> None:
        with self.settings.path.open("ab") as file:
            file.write(message)
