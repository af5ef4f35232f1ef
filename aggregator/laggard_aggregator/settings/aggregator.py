"""aggregator.toml as one frozen object."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from laggard_aggregator.detect import registry as detectors
from laggard_aggregator.detect.registry import Compares
from laggard_aggregator.detect.settings import OF_FUNCTIONS, DetectSettings
from laggard_aggregator.metrics.registry import FUNCTIONS, SOURCES
from laggard_aggregator.settings.channels import channels as known_channels
from laggard_aggregator.settings.http import HttpSettings
from laggard_aggregator.settings.identity import IdentityTable, PrincipalTable
from laggard_aggregator.settings.jobs import JobsTable
from laggard_aggregator.settings.prometheus import PrometheusTable
from laggard_common.config import (
    Check,
    above,
    between,
    checked,
    distinct,
    each,
    further_tables,
    is_loopback,
    non_empty,
    one_of,
    regex,
    topic_level,
)
from laggard_common.mqtt.settings import MqttSettings
from laggard_common.wire.limits import MAX_MESSAGE_BYTES
from laggard_common.wire.topics import PREFIX, ROLES

_DETECT = DetectSettings()


def _detector(compares: Compares | None = None) -> Check:
    """Accepts detectors, or those that compare the like."""
    return lambda value: one_of(detectors.names(compares))(value)  # noqa: PLW0108 - imports them


def _shadow(compares: Compares | None = None) -> Check:
    """As `_detector`; also accepts an empty name."""
    return lambda value: _detector(compares)(value) if value else None


def _topic_filter(value: str) -> str | None:
    levels = value.split("/")
    wild = all(level in ("+", "#") or not set(level) & set("+#\0") for level in levels)
    if not value.startswith(PREFIX + "/") or not wild or "#" in levels[:-1]:
        return f"expected an MQTT topic filter below {PREFIX}/, got {value!r}"
    return None


def _name(value: str) -> str | None:
    good = value.isprintable() and 0 < len(value) <= 128
    return None if good else f"expected 1-128 printable characters, got {value!r}"


@dataclass(frozen=True, slots=True)
class BrokerSettings(MqttSettings):
    """`[mqtt]`. `enabled`: false at a site without agents, where `[[prometheus]]` has all counters.

    `embedded`: start the embedded broker on `host` and `port`, for demo and first small site.

    Without TLS it accepts every client, on loopback only. With `ca_file` and `cert_file`, which is the
    certificate of broker and aggregator, it accepts clients with a certificate signed by `ca_file` and not
    revoked by `crl_file`.

    `topics`: the subscription; empty for all topics of this site. With `clean_session` the broker stores
    nothing while the aggregator is away, and agents send unacknowledged batches again. `client_id` is empty
    for `laggard-aggregator-<site>`. `queue_messages`: limit of the ingest queue, for live and deferred
    messages each; `queue_max_bytes`: limit of its memory.
    """

    enabled: bool = True
    topics: tuple[str, ...] = field(default=(), metadata=checked(distinct(), each(_topic_filter)))
    embedded: bool = False
    crl_file: Path | None = None
    client_id: str = ""
    clean_session: bool = False
    queue_messages: int = field(default=50_000, metadata=checked(between(100, 10_000_000)))
    queue_max_bytes: int = field(default=256 * 1024**2, metadata=checked(between(4 * MAX_MESSAGE_BYTES)))

    def problems(self) -> Iterator[tuple[str, str]]:
        """Settings that do not go together."""
        yield from MqttSettings.problems(self)
        with_tls = self.ca_file is not None and self.cert_file is not None
        if self.embedded and not with_tls and (self.ca_file or self.cert_file):
            yield "embedded", "the embedded broker needs ca_file and cert_file, or neither"
        elif self.embedded and not with_tls and not is_loopback(self.host):
            yield (
                "host",
                f"the embedded broker lets everyone in without TLS: expected loopback, got {self.host}",
            )
        if self.embedded and not self.enabled:
            yield "embedded", "not together with enabled = false"
        if self.embedded and self.username:
            yield "username", "the embedded broker has no users but certificates"
        if self.crl_file and not (self.embedded and with_tls):
            yield "crl_file", "is for the embedded broker with TLS"


@dataclass(frozen=True, slots=True)
class DetectTable:
    """`[detect]`. `lateness_seconds` None: the detection interval, at least 1 s and at most 5 s.

    `function_thresholds` replaces `thresholds` for sources whose components are functions, which have their
    own detector, interval and windows (`OF_FUNCTIONS`). `shadow`: a second detector that judges the same
    windows for comparison only, with `shadow_thresholds`; empty for none.
    """

    detector: str = field(default=_DETECT.detector, metadata=checked(_detector("metrics")))
    interval_seconds: float = field(default=_DETECT.interval_seconds, metadata=checked(between(0.05, 3600)))
    window_samples: int = field(default=_DETECT.window_samples, metadata=checked(between(2, 10_000)))
    shift_samples: int = field(default=_DETECT.shift_samples, metadata=checked(between(1, 10_000)))
    confirm: int = field(default=_DETECT.confirm, metadata=checked(between(1, 100)))
    false_alarms_per_week: float = field(
        default=_DETECT.false_alarms_per_week, metadata=checked(above(0), between(0, 1e6))
    )
    thresholds: str = ""
    function_thresholds: str = ""
    shadow: str = field(default="", metadata=checked(_shadow("metrics")))
    shadow_thresholds: str = ""
    lateness_seconds: float | None = field(default=None, metadata=checked(between(0, 3600)))

    @property
    def lateness(self) -> float:
        """Time allowed for data after the last announced batch, seconds."""
        if self.lateness_seconds is not None:
            return self.lateness_seconds
        return min(max(self.interval_seconds, 1.0), 5.0)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Settings that do not go together."""
        if self.shift_samples > self.window_samples:
            most = f"window_samples ({self.window_samples})"
            yield "shift_samples", f"expected at most {most}, got {self.shift_samples}"
        if detectors.find(self.detector).needs_thresholds and not self.thresholds:
            yield "thresholds", f"{self.detector} needs a file from laggard train"
        if not self.shadow:
            if self.shadow_thresholds:
                yield "shadow_thresholds", "is for a shadow, and there is none"
        elif detectors.find(self.shadow).needs_thresholds and not self.shadow_thresholds:
            yield "shadow_thresholds", f"{self.shadow} needs a file from laggard train"
        elif (self.shadow, self.shadow_thresholds) == (self.detector, self.thresholds):
            yield "shadow", "expected another detector or other thresholds than those of the group"


@dataclass(frozen=True, slots=True)
class GroupTable:
    """A `[[group]]`: its components, its metrics, and its differences from `[detect]`."""

    name: str = field(metadata=checked(_name))
    source: str = field(default="diskstats", metadata=checked(one_of((*SOURCES, *FUNCTIONS))))
    role: str = field(default="", metadata=checked(one_of(("", *ROLES))))
    components: str = field(default=".*", metadata=checked(regex))
    metrics: tuple[str, ...] = field(default=("await",), metadata=checked(non_empty(), distinct()))
    detector: str | None = field(default=None, metadata=checked(_detector()))
    interval_seconds: float | None = field(default=None, metadata=checked(between(0.05, 3600)))
    window_samples: int | None = field(default=None, metadata=checked(between(2, 10_000)))
    shift_samples: int | None = field(default=None, metadata=checked(between(1, 10_000)))
    confirm: int | None = field(default=None, metadata=checked(between(1, 100)))
    false_alarms_per_week: float | None = field(default=None, metadata=checked(above(0), between(0, 1e6)))
    thresholds: str | None = None
    shadow: str | None = field(default=None, metadata=checked(_shadow()))
    shadow_thresholds: str | None = None
    rotating: bool = False

    def problems(self) -> Iterator[tuple[str, str]]:
        """Metrics that the source lacks, and a detector of another kind."""
        functions = self.source in FUNCTIONS
        known = FUNCTIONS[self.source].metrics if functions else SOURCES[self.source].metrics
        fit = detectors.names("functions" if functions else "metrics")
        for key, named in (("detector", self.detector), ("shadow", self.shadow)):
            if named and named not in fit:
                yield key, f"expected one of {', '.join(fit)} for {self.source}, got {named!r}"
        for metric in self.metrics:
            if metric not in known:
                yield "metrics", f"expected some of {', '.join(known)}, got {metric!r}"


@dataclass(frozen=True, slots=True)
class TopologyTable:
    r"""A `[[topology]]`: the parents of the components that `node` or `components` matches in full.

    `node` is matched with a node's name, `components` with `node/device`. `server` is the node of components
    that have none in their names, such as addresses (`*/10.0.0.1`). `model`, `firmware`, `pool` and `switch`
    are attributes along which a group may fall into two. All names may hold groups of the expression (`\1`,
    `\g<name>`).
    """

    node: str = field(default="", metadata=checked(regex))
    components: str = field(default="", metadata=checked(regex))
    server: str = ""
    controller: str = ""
    couplet: str = ""
    model: str = ""
    firmware: str = ""
    pool: str = ""
    switch: str = ""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Settings that do not go together, and names of unknown groups."""
        if bool(self.node) == bool(self.components):
            yield "node", "expected either node or components"
            return
        if self.server and self.node:
            yield "server", "expected with components"
        for level, template in self.parents.items():
            try:
                re.sub(f"{self.expression}|.*", template, "", count=1)
            except (re.error, IndexError) as exc:
                yield "server" if level == "node" else level, f"{exc}: {template!r}"

    @property
    def expression(self) -> str:
        """The expression for `node/device`."""
        return self.components or f"(?:{self.node})/.*"

    @property
    def parents(self) -> Mapping[str, str]:
        """The names by level or attribute."""
        above = {"controller": self.controller, "couplet": self.couplet}
        shared = {"model": self.model, "firmware": self.firmware, "pool": self.pool, "switch": self.switch}
        above |= {name: value for name, value in shared.items() if value}
        return {"node": self.server, **above} if self.server else above


@dataclass(frozen=True, slots=True)
class TopologyFile:
    """A file of `[[topology]]` tables alone, as `laggard diagnose --topology` takes it."""

    topology: tuple[TopologyTable, ...] = field(metadata=checked(non_empty()))


@dataclass(frozen=True, slots=True)
class PeakTable:
    """A `[[peak]]`: components that must reach the share `below` of their known `peak` within `minutes`.

    `component` is matched in full with `node/device`; `metric`, in whose unit `peak` is, is one that is not
    worse where it is larger. `name` of the group, `peak-<n>` for the n-th table.
    """

    component: str = field(metadata=checked(regex))
    metric: str = field(metadata=checked(non_empty()))
    peak: float = field(metadata=checked(above(0)))
    below: float = field(default=0.3, metadata=checked(above(0), between(0, 1)))
    minutes: float = field(default=60.0, metadata=checked(above(0), between(0, 100_000)))
    source: str = field(default="diskstats", metadata=checked(one_of(tuple(SOURCES))))
    role: str = field(default="", metadata=checked(one_of(("", *ROLES))))
    name: str = ""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Metrics that the source lacks, or that have no peak to reach."""
        metrics = SOURCES[self.source].metrics
        fit = [name for name, metric in metrics.items() if metric.worse <= 0]
        if self.metric not in fit:
            known = f"expected one of {', '.join(fit)}" if fit else "has no metric that is better the larger"
            yield ("metric", f"{known}, got {self.metric!r}") if fit else ("source", f"{self.source} {known}")
        if self.name and (wrong := _name(self.name)):
            yield "name", wrong

    @property
    def options(self) -> dict[str, float]:
        """The options of the detector."""
        return {"peak": self.peak, "below": self.below, "minutes": self.minutes}


@dataclass(frozen=True, slots=True)
class AlarmTable:
    """`[alarm]`."""

    after_seconds: float = field(default=0.0, metadata=checked(between(0)))


@dataclass(frozen=True, slots=True)
class ArchiveTable:
    """`[archive]`; without it there is no archive. `rollups`: whether `series60` is made of its counters."""

    directory: Path = Path("/var/lib/laggard/archive")
    raw_days: int = field(default=30, metadata=checked(between(1)))
    rollup_days: int = field(default=365, metadata=checked(between(1)))
    max_bytes: int = field(default=100 * 10**9, metadata=checked(between(10**6)))
    rollups: bool = True


@dataclass(frozen=True, slots=True)
class StateTable:
    """`[state]`: journal and snapshots; without it a restart begins without state.

    `catch_up_seconds`: time that windows wait after a restart for messages that the broker kept.
    `forget_days`: nodes and components silent for longer are dropped, and their alarms cleared.
    """

    directory: Path = Path("/var/lib/laggard/state")
    snapshot_seconds: float = field(default=60.0, metadata=checked(between(1, 86_400)))
    journal_max_bytes: int = field(default=2 * 1024**3, metadata=checked(between(10**6)))
    catch_up_seconds: float = field(default=5.0, metadata=checked(between(0, 600)))
    forget_days: float = field(default=30.0, metadata=checked(between(0.01, 3650)))


@dataclass(frozen=True, slots=True)
class AggregatorSettings:
    """All of aggregator.toml. `channels`: the settings of the notification channels, by name."""

    REMOVED: ClassVar[Mapping[str, str]] = {
        "standby": "removed; for fail-over see docs/reliability.md, section Fail-over to another machine"
    }

    site: str = field(default="site", metadata=checked(topic_level()))
    mqtt: BrokerSettings = field(default_factory=BrokerSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    detect: DetectTable = field(default_factory=DetectTable)
    group: tuple[GroupTable, ...] = ()
    prometheus: tuple[PrometheusTable, ...] = ()
    topology: tuple[TopologyTable, ...] = ()
    peak: tuple[PeakTable, ...] = ()
    alarm: AlarmTable = field(default_factory=AlarmTable)
    archive: ArchiveTable | None = None
    jobs: JobsTable = field(default_factory=JobsTable)
    identity: IdentityTable = field(default_factory=IdentityTable)
    principal: tuple[PrincipalTable, ...] = ()
    state: StateTable | None = None
    channels: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=further_tables(known_channels, lambda name: known_channels()[name].settings_class),
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Groups with a repeated name, or in conflict with the rest of `[detect]`."""
        if self.jobs.sacct and self.archive is None:
            yield "jobs.sacct", "needs [archive], where the jobs are kept"
        is_mailed = self.archive is not None and self.jobs.enabled and "mail" in self.channels
        if self.jobs.owner_mail and not is_mailed:
            yield "jobs.owner_mail", "needs [archive], [mail], and jobs.enabled"
        yield from self._input_problems()
        known = [principal.name for principal in self.principal]
        for at, name in enumerate(known):
            if name in known[:at]:
                yield f"principal[{at}].name", f"must not repeat, got {name!r}"
        if self.identity.proxy_credential and self.http.credentials_file is None:
            yield "identity.proxy_credential", "needs http.credentials_file"
        names: set[str] = set()
        for at, group in enumerate(self.group):
            if group.name in names:
                yield f"group[{at}].name", f"must not repeat, got {group.name!r}"
            names.add(group.name)
            for key, wrong in self.detect_of(group).problems():
                yield f"group[{at}].{key}", wrong
        for at, (name, _) in enumerate(self.peaks):
            if name in names:
                yield f"peak[{at}].name", f"must not repeat, got {name!r}"
            names.add(name)

    def _input_problems(self) -> Iterator[tuple[str, str]]:
        """Inputs with a repeated name, or scraped less often than counters are compared."""
        if not self.mqtt.enabled and not self.prometheus:
            yield "mqtt.enabled", "expected true without [[prometheus]], else no counters come"
        longest = self.detect.interval_seconds
        for at, table in enumerate(self.prometheus):
            if table.name in [other.name for other in self.prometheus[:at]]:
                yield f"prometheus[{at}].name", f"must not repeat, got {table.name!r}"
            if table.judged and table.scrape_seconds > longest:
                wrong = f"expected at most {longest:g}, detect.interval_seconds, got {table.scrape_seconds:g}"
                yield f"prometheus[{at}].scrape_seconds", wrong

    def detect_of(self, group: GroupTable) -> DetectTable:
        """`[detect]` with the differences of `group`."""
        own = {option.name: getattr(group, option.name, None) for option in fields(DetectTable)}
        kept = {option.name: getattr(self.detect, option.name) for option in fields(DetectTable)}
        if group.source in FUNCTIONS:
            kept |= self.of_functions
        return DetectTable(**kept | {name: value for name, value in own.items() if value is not None})

    @property
    def needs_token(self) -> bool:
        """Whether the HTTP server knows names or tokens, and so refuses commands without one."""
        return self.http.credentials_file is not None or self.identity.jwks_file is not None

    @property
    def of_functions(self) -> dict[str, Any]:
        """Differences from `[detect]` for sources whose components are functions."""
        own = ("detector", "interval_seconds", "window_samples", "shift_samples")
        return {name: getattr(OF_FUNCTIONS, name) for name in own} | {
            "thresholds": self.detect.function_thresholds,
            "shadow": "",
            "shadow_thresholds": "",
        }

    @property
    def peaks(self) -> tuple[tuple[str, PeakTable], ...]:
        """The `[[peak]]` tables with the names of their groups."""
        return tuple((table.name or f"peak-{at}", table) for at, table in enumerate(self.peak, 1))
