"""The registry of collectors: a folder is all that a new one needs, and only enabled ones are imported."""

import sys
import tomllib
from pathlib import Path

import pytest
from agent_toml import SAMPLE, assembled

from laggard_agent import collectors
from laggard_agent.cli import main
from laggard_agent.collectors import registry
from laggard_agent.settings import AgentSettings
from laggard_common.config import parse
from laggard_common.errors import ConfigError
from tests.support.processes import run_command

FOLDERS = Path(collectors.__path__[0])
TEMPERATURE = '''"""Temperatures."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from laggard_agent.collectors.interface import Context, Now, Reading, read_file
from laggard_agent.collectors.registry import register
from laggard_common.config import between, checked
from laggard_common.wire.schema import Component, Field, FieldKind

FIELDS = (Field("millidegrees", FieldKind.GAUGE, "mC"),)


@dataclass(frozen=True, slots=True)
class TemperatureSettings:
    offset: int = field(default=0, metadata=checked(between(0, 1000)))


@register
class Temperature:
    name = "temperature"
    settings = TemperatureSettings
    sources: ClassVar = {"temperature": FIELDS}

    def __init__(self, settings: TemperatureSettings, context: Context) -> None:
        self._path = context.roots.procfs / "temperature"
        self._now = context.now
        self._offset = settings.offset

    def read(self) -> Iterator[Reading]:
        value = int(read_file(self._path)) + self._offset
        yield Reading("temperature", FIELDS, self._now(), (Component("cpu", "cpu"),), [(value,)])
'''


@pytest.fixture
def temperature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is not in the tree, with a collector in it, and a /proc for that."""
    folder = tmp_path / "collectors" / "temperature"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "collector.py").write_text(TEMPERATURE)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "temperature").write_text("41000\n")
    monkeypatch.setattr(collectors, "__path__", [*collectors.__path__, str(folder.parent)])
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    registry.names.cache_clear()
    for module in ("temperature", "temperature.collector"):  # forgotten at the end
        monkeypatch.setitem(sys.modules, f"{collectors.__name__}.{module}", sys)
        del sys.modules[f"{collectors.__name__}.{module}"]
    return tmp_path


@pytest.fixture(autouse=True)
def forget_names() -> None:
    registry.names.cache_clear()


def test_a_new_collector_is_one_folder(temperature: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = temperature / "agent.toml"
    config.write_text('node = "n"\ncollectors = ["temperature"]\n[temperature]\noffset = 500\n')
    options = ["--config", str(config)]
    assert main([*options, "--check-config"]) == 0
    capsys.readouterr()
    assert main([*options, "--once", "--procfs", str(temperature / "proc")]) == 0
    assert '"counters": {"millidegrees": 41500}' in capsys.readouterr().out
    config.write_text('collectors = ["temperature"]\n[temperature]\noffset = -1\nhm = 1\n[spool]\nx = 1\n')
    assert main([*options, "--check-config"]) == 2
    said = capsys.readouterr().err
    assert "spool.x: unknown key" in said
    assert "temperature.hm: unknown key" in said
    assert "temperature.offset: expected 0-1000, got -1" in said


@pytest.mark.parametrize("name", registry.names())
def test_every_folder_declares_a_collector(name: str) -> None:
    found = registry.find(name)
    assert found.name == name
    assert found.sources
    assert found.settings() == found.settings()
    assert {"collector.py", "README.md", "sample.toml"} <= {path.name for path in (FOLDERS / name).iterdir()}


def test_the_sample_configuration_is_made_of_the_folders_samples() -> None:
    sample = SAMPLE.read_text()
    assert assembled(sample) == sample, "run python packaging/agent_toml.py"
    assert set(registry.names()) <= set(tomllib.loads(sample))


def test_tables_of_collectors() -> None:
    parsed = parse(AgentSettings, {"node": "n", "lustre": {"job_stats": True}, "net": {}})
    assert set(parsed.tables) == {"lustre"}
    assert parsed.tables["lustre"].job_stats
    with pytest.raises(ConfigError) as caught:
        parse(AgentSettings, {"node": "n", "lustr": {}, "net": [], "tables": {}, "lwfs": {"log": 1}})
    assert caught.value.problems == (
        "lustr: unknown key, did you mean lustre?",
        "tables: unknown key, did you mean traces?",
        "net: expected a table, got an array",
        "lwfs.log: expected a path, got 1",
    )


def test_only_enabled_collectors_are_imported() -> None:
    script = """
import sys
from pathlib import Path
from laggard_agent.collectors.interface import Roots
from laggard_agent.collectors.registry import make_collector
from laggard_agent.settings import AgentSettings
from laggard_common.clock import SystemClock
from laggard_common.config import load
settings = load(AgentSettings, Path(sys.argv[1]))
clock = SystemClock()
for name in settings.collectors:
    make_collector(name, settings.tables, Roots(), clock.wall_ns, clock)
prefix = "laggard_agent.collectors."
names = {m.removeprefix(prefix).partition(".")[0] for m in sys.modules if m.startswith(prefix)}
print(*sorted(names & {*sys.argv[2:]}))
"""
    done = run_command([sys.executable, "-c", script, SAMPLE, *registry.names()])
    assert done.stdout.split() == ["diskstats", "host", "net"]
