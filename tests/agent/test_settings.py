import re
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from laggard_agent.collectors import registry
from laggard_agent.settings import AgentSettings
from laggard_common.config import load, parse
from laggard_common.daemon.host_name import HostName
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


@pytest.mark.parametrize(
    ("name", "is_usable"),
    [
        ("oss-1", True),
        ("localhosts", True),
        ("oss-1.example.org", True),
        ("localhost", False),
        ("LOCALHOST", False),
        ("localhost.localdomain", False),
        ("localhost4", False),
        ("(none)", False),
        ("", False),
        ("a/b", False),
    ],
)
def test_the_node_is_named_by_its_host(name: str, is_usable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: name)
    node = parse(AgentSettings, {}).node
    assert isinstance(node, HostName)
    assert (node, node.is_usable) == (name, is_usable)
    assert not isinstance(parse(AgentSettings, {"node": "oss-1"}).node, HostName)


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
