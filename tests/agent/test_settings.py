import re
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from laggard_agent.collectors import registry
from laggard_agent.settings import AgentSettings
from laggard_common.config import load, parse
from laggard_common.errors import ConfigError

SAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "agent.toml"

# Settings without a default of their own: the sample shows what a value looks like.
EXAMPLES = {"node", "outbox.directory", "password_file", "ca_file", "cert_file", "key_file"}


def uncommented() -> dict[str, Any]:
    return tomllib.loads(re.sub(r"^#(?!#)", "", SAMPLE.read_text(), flags=re.MULTILINE))


def test_the_sample_as_it_is_changes_nothing() -> None:
    assert load(AgentSettings, SAMPLE) == AgentSettings()


def test_the_sample_shows_every_setting_with_its_default() -> None:
    shown = uncommented()
    defaults = asdict(AgentSettings())
    del defaults["tables"]
    defaults |= {name: asdict(registry.settings_class(name)()) for name in registry.names()}

    def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in table.items():
            if isinstance(value, dict):
                found |= flat(value, f"{prefix}{key}.")
            else:
                found[prefix + key] = list(value) if isinstance(value, tuple) else value
        return found

    shown, defaults = flat(shown), flat(defaults)
    assert list(shown) == list(defaults)
    for key, value in defaults.items():
        if not {key, key.rpartition(".")[2]} & EXAMPLES:
            assert shown[key] == (str(value) if isinstance(value, Path) else value), key


def test_a_host_name_that_cannot_stand_in_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "(none)")
    with pytest.raises(ConfigError, match=r"^node: the host's name '\(none\)' is no level of a topic"):
        parse(AgentSettings, {})
    assert parse(AgentSettings, {"node": "oss-1"}).node == "oss-1"


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"interval_seconds": 0.01}, "interval_seconds: expected 0.05-3600, got 0.01"),
        ({"batch_samples": 0}, "batch_samples: expected 1-4096, got 0"),
        ({"role": "client"}, "role: expected one of compute, forwarding, storage, metadata, got 'client'"),
        ({"collectors": ["disk"]}, "collectors: expected one of "),
        ({"collectors": ["net", "net"]}, "collectors: must not repeat, got ['net', 'net']"),
        ({"node": "a/b"}, "node: expected letters, digits"),
        ({"spool": {"max_bytes": 1000}}, "spool.max_bytes: expected at least 1048576, got 1000"),
        ({"spool": {"acknowledge": "no"}}, "spool.acknowledge: expected one of aggregator, broker, got 'no'"),
        ({"diskstats": {"include": ["("]}}, "diskstats.include: not a regular expression: "),
    ],
)
def test_bad_settings(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(AgentSettings, table)
    assert str(caught.value).startswith(problem)
