"""Interface of a notification channel, and the settings common to all.

A channel is a folder of this package. Its module `channel` defines one class marked with
`settings.channels.register`, which nothing elsewhere names: the loader of aggregator.toml, `--check-config`,
`--test-<name>`, the metrics, and the tests of sample file and documentation take it from that registry.
"""

import os
import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from laggard_aggregator.notify.report import Notification
from laggard_aggregator.settings.channels import channels
from laggard_aggregator.settings.http import unusable
from laggard_aggregator.status.formatting import plain
from laggard_common.config import between, checked
from laggard_common.errors import ConfigError, ServiceError
from laggard_common.secret_files import below, problem, unfit

MAX_SECRET_BYTES = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSettings:
    """Settings that every channel has in its table of aggregator.toml; the dispatcher applies them.

    An incident is reported when its alarm has lasted for `after_seconds` and its component was at least
    `least_severity` times slower than its peers, not in the site's first `learning_seconds`. A severe one,
    `severe_severity` times slower throughout the last `severe_after_seconds`, is reported at once, also in
    the learning time; `severe_severity` 0: none is severe. Incidents that
    fall due within `gather_seconds` are reported together; more than `digest_over` of them become one digest.
    At most `most_per_hour` notifications are written. `resolved`: whether a cleared alarm is reported, too.
    """

    after_seconds: float = field(default=345_600.0, metadata=checked(between(0)))
    least_severity: float = field(default=1.0, metadata=checked(between(0)))
    severe_severity: float = field(default=5.0, metadata=checked(between(0)))
    severe_after_seconds: float = field(default=900.0, metadata=checked(between(0)))
    learning_seconds: float = field(default=86_400.0, metadata=checked(between(0)))
    gather_seconds: float = field(default=30.0, metadata=checked(between(0, 3600)))
    digest_over: int = field(default=3, metadata=checked(between(0, 1000)))
    most_per_hour: int = field(default=12, metadata=checked(between(1, 10_000)))
    resolved: bool = True


@dataclass(frozen=True, slots=True)
class Delivery:
    """Outcome of one attempt: the recipients to be tried again, those refused for good, each with the reason.

    All other recipients have the message. `retry_after_seconds`: as the destination asked, or 0.
    """

    retry: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    retry_after_seconds: float = 0.0


class UnavailableError(ServiceError):
    """The destination accepts no message now, so that all messages of the channel wait.

    `retry_after_seconds`: as the destination asked, 0 where it did not.
    """

    def __init__(self, reason: str, retry_after_seconds: float = 0.0) -> None:
        self.retry_after_seconds = retry_after_seconds
        super().__init__(reason)

    @classmethod
    def caused_by(cls, exc: BaseException) -> "UnavailableError":
        """With the reason of TLS or the operating system where one of them is the cause."""
        cause: BaseException | None = exc
        while cause is not None:
            if isinstance(cause, ssl.SSLCertVerificationError):
                return cls(plain(f"its certificate is not trusted: {cause.verify_message}"))
            if isinstance(cause, ssl.SSLError):
                return cls(plain(f"no TLS: {cause.reason or cause}"))
            if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
                return cls(plain(os.strerror(cause.errno)))
            if isinstance(cause, OSError) and cause.strerror:
                return cls(plain(cause.strerror))
            cause = cause.__cause__
        return cls(plain(" ".join(str(exc).split()) or type(exc).__name__))


class Channel(ABC):
    """A channel as configured. Due times, digests, deduplication and retries are the dispatcher's."""

    name: ClassVar[str]
    """Its table in aggregator.toml, its key in the outbox, and its label in metrics and logs."""
    settings_class: ClassVar[type[ChannelSettings]]
    settings: ChannelSettings
    destination: str
    """Where messages go, for logs; without secrets."""
    recipients: tuple[str, ...]
    """Who gets each message; delivery is tracked for each of them."""

    @abstractmethod
    def __init__(self, settings: Any) -> None:
        """Reads the files that `settings` name. Raises ConfigError with all that is wrong with them."""

    @abstractmethod
    async def render(self, notification: Notification) -> bytes:
        """Returns the message that the outbox keeps, and every attempt sends unchanged."""

    @abstractmethod
    async def send(self, message: bytes, recipients: tuple[str, ...]) -> Delivery:
        """Sends a rendered message once. Raises UnavailableError when the destination accepts none now."""


def make_channels(settings: Mapping[str, ChannelSettings]) -> list[Channel]:
    """The channels with these settings. Raises ConfigError with the problems of all of them."""
    made: list[Channel] = []
    problems: list[str] = []
    for name, table in settings.items():
        try:
            made.append(channels()[name](table))
        except ConfigError as exc:
            problems += [below(name, problem) for problem in exc.problems]
    if problems:
        raise ConfigError("", problems)
    return made


def read_secret(key: str, path: Path | None, problems: list[str]) -> list[str]:
    """The lines of a secret file that not everyone may read, [] without one or with a problem.

    Problems are appended as `key: path: reason`, without the content.
    """
    if path is None:
        return []
    reason = unfit(path)
    if reason is None:
        try:
            with path.open("rb") as file:
                lines = file.read(MAX_SECRET_BYTES).decode().splitlines()
        except UnicodeDecodeError:
            reason = "not UTF-8"
        except OSError as exc:
            reason = exc.strerror or str(exc)
        else:
            if lines and lines[0]:
                return lines
            reason = "is empty"
    problems.append(problem(key, path, reason))
    return []


def tls_client(key: str, ca_file: Path | None, problems: list[str]) -> ssl.SSLContext | None:
    """TLS 1.2 or newer, checked by certificate and name; `ca_file` None: the system's authorities."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as exc:
        problems.append(problem(key, Path(str(ca_file)), unusable(exc)))
        return None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
