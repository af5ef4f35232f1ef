"""`[[prometheus]]`: servers whose counters are judged as agents' are, and their credentials."""

import base64
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from laggard_aggregator.metrics.registry import SOURCES
from laggard_aggregator.prometheus.compare_map import MappedSource, load_map
from laggard_aggregator.prometheus.server import PrometheusServer, bearer, url_problem
from laggard_common.config import between, checked, distinct, each, non_empty, one_of, topic_level
from laggard_common.errors import ConfigError
from laggard_common.secret_files import problem, unfit
from laggard_common.wire.topics import ROLES

_MOST_SECRET_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class PrometheusTable:
    """A `[[prometheus]]`. `urls`: of one server, or of replicas that scrape the same.

    `maps`: names of shipped maps, or paths of map files. `select`: matchers that further limit the series.
    `role`: of the nodes; `name`: of the node of components that have none. `scrape_seconds`: the server's
    scrape interval. `backlog_seconds`: how far back it is read after an outage. `tenant`: of Mimir.
    """

    urls: tuple[str, ...] = field(metadata=checked(non_empty(), distinct(), each(url_problem)))
    maps: tuple[str, ...] = field(metadata=checked(non_empty(), distinct()))
    name: str = field(default="prometheus", metadata=checked(topic_level()))
    role: str = field(default="storage", metadata=checked(one_of(ROLES)))
    select: str = ""
    scrape_seconds: float = field(default=15.0, metadata=checked(between(1, 3600)))
    backlog_seconds: float = field(default=3600.0, metadata=checked(between(0, 86_400)))
    timeout_seconds: float = field(default=10.0, metadata=checked(between(0.1, 300)))
    tenant: str = ""
    token_file: Path | None = None
    username: str = ""
    password_file: Path | None = None
    ca_file: Path | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        """Maps that cannot be used, and settings that do not go together."""
        sources: dict[tuple[str, str], str] = {}
        for name in self.maps:
            try:
                loaded = load_map(name).sources
            except ConfigError as exc:
                yield from (
                    ("maps", f"{name}: {text.removeprefix(f'--map: {name}: ')}") for text in exc.problems
                )
                continue
            for source in loaded:
                other = sources.setdefault((source.name, source.comparison), name)
                if other != name:
                    yield "maps", f"{name} and {other} are both for {source.name}"
        if self.token_file and self.username:
            yield "token_file", "expected either token_file, or username and password_file"
        if bool(self.username) != bool(self.password_file):
            yield "username", "goes with password_file"
        if not self.tenant.isascii() or not (self.tenant + "x").isprintable():
            yield "tenant", f"expected printable ASCII characters, got {self.tenant[:60]!r}"

    @property
    def sources(self) -> tuple[MappedSource, ...]:
        """The sources of all maps. Raises ConfigError."""
        return tuple(source for name in self.maps for source in load_map(name).sources)

    @property
    def judged(self) -> bool:
        """Whether one of the sources is compared; the others are evidence. Raises ConfigError."""
        return any(source.name in SOURCES for source in self.sources)

    def servers(self) -> tuple[PrometheusServer, ...]:
        """The servers, with the credentials that the files have now. Raises ConfigError."""
        headers = dict(self._credentials())
        if self.tenant:
            headers["X-Scope-OrgID"] = self.tenant
        if self.ca_file is not None:
            try:
                ssl.create_default_context(cafile=self.ca_file)
            except OSError as exc:
                text = problem(f"prometheus {self.name}: ca_file", self.ca_file, exc.strerror or str(exc))
                raise ConfigError("", [text]) from exc
        return tuple(
            PrometheusServer(url, headers, self.ca_file, self.timeout_seconds, tries=1, whole=True)
            for url in self.urls
        )

    def _credentials(self) -> Mapping[str, str]:
        if self.token_file is not None:
            return bearer(self._secret("token_file", self.token_file))
        if self.password_file is not None:
            pair = f"{self.username}:{self._secret('password_file', self.password_file)}"
            return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        return {}

    def _secret(self, key: str, path: Path) -> str:
        """The text of a private file, without white space at its ends."""
        reason = unfit(path)
        text = ""
        if reason is None:
            try:
                text = path.read_bytes()[:_MOST_SECRET_BYTES].decode().strip()
                reason = None if text.isprintable() and text else "expected one line of text"
            except (OSError, UnicodeDecodeError) as exc:
                reason = getattr(exc, "strerror", None) or "not UTF-8"
        if reason is not None:
            raise ConfigError("", [problem(f"prometheus {self.name}: {key}", path, reason)])
        return text
