"""Laggard's errors.

```
LaggardError
├── ConfigError        a configuration file or option is wrong; carries every problem found at once
├── WireError          bytes from the network are not a message of this version
├── MqttError          the broker refused the connection or a subscription, or the connection is lost
├── PathError          a file or folder cannot be used
│   ├── InputError     an input that the user named cannot be read (file, column, archive)
│   ├── SpoolError     the spool's directory or a segment cannot be used
│   ├── ArchiveError   the archive cannot be written: disk full, not permitted
│   ├── StateError     the aggregator's state cannot be written, or is not a state
│   │   └── LaterVersionError   the state is of a later version
│   └── CollectError   a collector could not read its source
└── ServiceError       the surroundings do not let the program run, such as a taken port
    ├── MissingPackageError   a package of an optional extra is not installed
    └── TooMuchAskedError     a server refuses a question for its size
```

They are caught in three places only: the collector runner, the connection loop, and `main`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

LATER_VERSION = "is of a later version of Laggard: start that one, or move the directory away"


class LaggardError(Exception):
    """Any error that Laggard raises on purpose; its text is one clear line."""

    exit_code = 1


class MissingFile(str):
    """A problem of a configuration: a file that it names is not there, or not there yet."""

    __slots__ = ()


class ConfigError(LaggardError):
    """All problems of one configuration file. `problems`: one line each, `key: expected X, got Y`.

    `may_pass`: nothing is wrong but that files are missing. Its exit code is 1, so that a service manager
    tries again: certificates may be made after the start of the host.
    """

    def __init__(self, path: str, problems: Sequence[str]) -> None:
        self.path = path
        self.problems = tuple(problems)
        self.may_pass = bool(problems) and all(isinstance(problem, MissingFile) for problem in problems)
        self.exit_code = 1 if self.may_pass else 2
        super().__init__("\n".join(f"{path}: {problem}" if path else problem for problem in self.problems))


class PathError(LaggardError):
    """An error of a file or folder, `path`, with its `reason`."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}" if path else reason)

    @classmethod
    @contextmanager
    def from_os_errors(cls, path: object) -> Iterator[None]:
        """Raises an OSError of the block as this error of `path`."""
        try:
            yield
        except OSError as exc:
            raise cls(str(path), exc.strerror or str(exc)) from exc


class InputError(PathError):
    """An input named by the user cannot be used."""

    exit_code = 2


class WireError(LaggardError):
    """Bytes from the network that are not a valid message. `reason` is one of a small fixed set of words."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason}: {detail}" if detail else reason)


class MqttError(LaggardError):
    """The broker refused the connection or a subscription, or the connection is lost."""


class SpoolError(PathError):
    """The spool cannot be used."""


class ArchiveError(PathError):
    """The archive cannot be written."""


class StateError(PathError):
    """The aggregator's state cannot be written, or cannot be read as one."""


class LaterVersionError(StateError):
    """A file of the state is of a later version, and stays as it is."""

    def __init__(self, path: str) -> None:
        super().__init__(path, LATER_VERSION)


class CollectError(PathError):
    """A collector could not read its source."""


class ServiceError(LaggardError):
    """The environment keeps this program from running, such as a listening port that is taken."""


class TooMuchAskedError(ServiceError):
    """A server refuses a question for the amount of data that it concerns; a shorter span may be answered."""


class MissingPackageError(ServiceError):
    """`package` is not installed; the optional `extra` of Laggard brings it."""

    def __init__(self, package: str, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(f"{package} is not installed: it comes with the extra '{extra}' (docs/install.md)")
