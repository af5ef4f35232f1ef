"""Every registered channel has its sample, its documentation, its tables and its test command."""

import re
import sys
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from laggard_aggregator.cli.daemon import build_parser
from laggard_aggregator.notify import channel as interface
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_aggregator.settings.channels import channels, names
from laggard_common.config import parse

ROOT = Path(__file__).parents[3]
NAMES = sorted(channels())


def sample(name: str) -> str:
    """The section of aggregator.toml in the channel's folder."""
    return Path(str(sys.modules[channels()[name].__module__].__file__)).with_name("sample.toml").read_text()


def test_each_folder_is_a_channel() -> None:
    folders = {path.parent for path in Path(str(interface.__file__)).parent.glob("*/__init__.py")}
    assert len(folders) == len(NAMES)
    assert {"mail", "webhook"} <= set(NAMES)
    assert names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_sample_shows_every_setting_with_its_default(name: str) -> None:
    text = sample(name)
    assert text in (ROOT / "deploy" / "aggregator.toml").read_text()
    table = tomllib.loads(re.sub(r"^## ", "", text[text.index("## [") :], flags=re.MULTILINE))
    settings = parse(AggregatorSettings, table).channels[name]
    known = {each.name: each for each in fields(channels()[name].settings_class)}
    alternatives = {"url"} if "url_file" in known else set()  # of two keys of which one is given
    assert set(table[name]) == set(known) - alternatives
    for key, value in table[name].items():
        if known[key].default is not MISSING and key not in ("tls", "port", "username") and "file" not in key:
            assert getattr(settings, key) == known[key].default, (key, value)


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_is_documented(name: str) -> None:
    document = (ROOT / "docs" / f"{name}.md").read_text()
    for each in fields(channels()[name].settings_class):
        assert f"`{each.name}`" in document, each.name


@pytest.mark.parametrize("name", NAMES)
def test_the_daemon_can_send_a_test(name: str) -> None:
    options = build_parser().parse_args(["--config", "x", f"--test-{name}"])
    assert options.test_channel == name
    assert f"--test-{name}" in (ROOT / "docs" / f"{name}.md").read_text()


def test_nothing_else_names_the_webhook() -> None:
    """A channel is one folder: no other module of the product mentions it."""
    folder = Path(str(interface.__file__)).parent
    for path in (ROOT / "aggregator").rglob("*.py"):
        if folder / "webhook" not in path.parents:
            assert "webhook" not in path.read_text().lower(), path
