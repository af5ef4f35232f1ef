"""agent.toml as one frozen object."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from laggard_agent.collectors import registry
from laggard_common.config import between, checked, distinct, each, further_tables, one_of, topic_level
from laggard_common.daemon.host_name import host_name
from laggard_common.mqtt.settings import MqttSettings
from laggard_common.wire.limits import MAX_TICKS
from laggard_common.wire.topics import ROLES

DEFAULT_COLLECTORS = ("diskstats", "net", "host")


@dataclass(frozen=True, slots=True)
class AgentMqttSettings(MqttSettings):
    """`[mqtt]`. `retain`: the broker keeps the latest schemas and status; False turns that off."""

    retain: bool = True


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """`[spool]`: where batches wait for their acknowledgement, and how much of it may be held."""

    directory: Path = Path("/var/lib/laggard/spool")
    max_bytes: int = field(default=256 * 1024 * 1024, metadata=checked(between(1024 * 1024)))
    acknowledge: str = field(default="aggregator", metadata=checked(one_of(("aggregator", "broker"))))


@dataclass(frozen=True, slots=True)
class OutboxSettings:
    """`[outbox]`: the folder whose files are sent as documents; None for no outbox."""

    directory: Path | None = None


def _pattern(pattern: str) -> str | None:
    if not pattern.startswith("/") or not PurePath(pattern).name:
        return "expected an absolute path"
    if "[" in pattern or "**" in pattern or pattern.count("{job}") > 1:
        return "expected * and ? as wildcards, and {job} once at most"
    return None


@dataclass(frozen=True, slots=True)
class TracesSettings:
    """`[traces]`: I/O trace logs that the agent follows; none without `files`.

    `files`: patterns of paths, in which `{job}` stands for the number of the job.
    """

    files: tuple[str, ...] = field(default=(), metadata=checked(each(_pattern)))
    format: str = field(default="auto", metadata=checked(one_of(("auto", "laggard", "strace", "dxt"))))
    send_seconds: float = field(default=30.0, metadata=checked(between(1, 3600)))


def _known(collector: str) -> str | None:
    return one_of(registry.names())(collector)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """All of agent.toml. `tables`: the settings of collectors that have a table, by name.

    `node` is a HostName, which the agent follows, unless it is set.
    """

    site: str = field(default="site", metadata=checked(topic_level()))
    node: str = field(default_factory=host_name, metadata=checked(topic_level()))
    role: str = field(default="storage", metadata=checked(one_of(ROLES)))
    interval_seconds: float = field(default=1.0, metadata=checked(between(0.05, 3600)))
    batch_samples: int = field(default=10, metadata=checked(between(1, MAX_TICKS)))
    collectors: tuple[str, ...] = field(
        default=DEFAULT_COLLECTORS, metadata=checked(distinct(), each(_known))
    )
    mqtt: AgentMqttSettings = field(default_factory=AgentMqttSettings)
    spool: SpoolSettings = field(default_factory=SpoolSettings)
    outbox: OutboxSettings = field(default_factory=OutboxSettings)
    traces: TracesSettings = field(default_factory=TracesSettings)
    tables: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=further_tables(registry.names, registry.settings_class, skip_empty=True),
    )

    @property
    def interval_ns(self) -> int:
        """The sampling interval in whole nanoseconds."""
        return round(self.interval_seconds * 1e9)
