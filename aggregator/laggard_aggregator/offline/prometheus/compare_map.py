"""Maps from the series of a Prometheus server to components, latency and load: `[[compare]]` tables."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from laggard_common import config
from laggard_common.config import checked, non_empty
from laggard_common.errors import ConfigError

SHIPPED = Path(__file__).with_name("maps")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Compare:
    """Components whose peers are all others with the same values of `group_by` and `info_labels`.

    `component`: labels that name one. `select`: matchers, as within the braces of PromQL. `seconds` and
    `operations`: counters whose sums' quotient is the latency; `read_bytes`, `written_bytes`: their load.
    `info`: a metric whose labels `info_labels` tell components apart, matched by the labels of `component`.
    """

    name: str = field(metadata=checked(non_empty()))
    metric: str = field(metadata=checked(non_empty()))
    component: tuple[str, ...] = field(metadata=checked(non_empty()))
    seconds: tuple[str, ...] = field(metadata=checked(non_empty()))
    operations: tuple[str, ...] = field(metadata=checked(non_empty()))
    read_bytes: tuple[str, ...] = ()
    written_bytes: tuple[str, ...] = ()
    select: str = ""
    group_by: tuple[str, ...] = ()
    info: str = ""
    info_labels: tuple[str, ...] = ()

    def problems(self) -> Iterator[tuple[str, str]]:
        """Names that no metric or label can have, and matchers that end their braces."""
        counters = {
            "seconds": self.seconds,
            "operations": self.operations,
            "read_bytes": self.read_bytes,
            "written_bytes": self.written_bytes,
        }
        for key, names in counters.items():
            yield from (
                (key, f"no name of a metric: {name!r}") for name in names if not _NAME.fullmatch(name)
            )
        labels = {"component": self.component, "group_by": self.group_by, "info_labels": self.info_labels}
        for key, names in labels.items():
            yield from (
                (key, f"no name of a label: {name!r}") for name in names if not _LABEL.fullmatch(name)
            )
        if self.info and not _NAME.fullmatch(self.info):
            yield "info", f"no name of a metric: {self.info!r}"
        if bool(self.info) != bool(self.info_labels):
            yield "info", "goes with info_labels"

    @property
    def counters(self) -> tuple[str, ...]:
        """All counters, each once."""
        return tuple(dict.fromkeys((*self.seconds, *self.operations, *self.read_bytes, *self.written_bytes)))


@dataclass(frozen=True, slots=True)
class CompareMap:
    """A map file."""

    compare: tuple[Compare, ...] = field(metadata=checked(non_empty()))


def shipped_names() -> tuple[str, ...]:
    """Names of the maps that come with Laggard."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def load_map(name: str) -> CompareMap:
    """The shipped map `name`, or the one in the file of that path. Raises ConfigError."""
    if name in shipped_names():
        return config.load(CompareMap, SHIPPED / f"{name}.toml")
    path = Path(name)
    if not path.exists():
        known = ", ".join(shipped_names())
        raise ConfigError("", [f"--map: {name}: no such file, and none of the shipped maps: {known}"])
    return config.load(CompareMap, path)
