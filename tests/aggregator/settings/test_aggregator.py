import re
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from laggard_aggregator.detect.cdf.detector import CdfDetector
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.detect.trained_thresholds import Thresholds
from laggard_aggregator.settings import thresholds_file
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_aggregator.settings.from_settings import membership, topology
from laggard_common.config import load, parse
from laggard_common.errors import ConfigError
from laggard_common.wire.schema import Component

SAMPLE = Path(__file__).resolve().parents[3] / "deploy" / "aggregator.toml"

# Settings without a default of their own: the sample shows what a value looks like.
EXAMPLES = {
    "jwks_file",
    "password_file",
    "credentials_file",
    "ca_file",
    "crl_file",
    "cert_file",
    "key_file",
    "lateness_seconds",
    "forwarders",
    "darshan_logs",
}
# Sections that are shown as examples.
NOT_SHOWN = {"topology", "principal", "peak", "channels", "state", "group", "archive", "prometheus"}


def test_the_sample_as_it_is_changes_nothing() -> None:
    assert load(AggregatorSettings, SAMPLE) == AggregatorSettings()


def test_the_sample_shows_every_setting_with_its_default() -> None:
    shown = tomllib.loads(re.sub(r"^#(?!#)", "", SAMPLE.read_text(), flags=re.MULTILINE))
    defaults = {key: value for key, value in asdict(AggregatorSettings()).items() if key not in NOT_SHOWN}
    assert shown["site"] == defaults["site"]
    assert set(shown) == set(defaults)
    for section in set(defaults) - {"site"}:
        assert list(shown[section]) == list(defaults[section]), section
        for key, value in defaults[section].items():
            if key not in EXAMPLES:
                assert shown[section][key] == (list(value) if isinstance(value, tuple) else value), key


def test_the_samples_examples_are_right_too() -> None:
    examples = re.findall(
        r"^## (\[\[?(?:group|topology|peak|archive|state)\]?\]\n(?:## .*\n)+)",
        SAMPLE.read_text(),
        re.MULTILINE,
    )
    table = tomllib.loads("".join(re.sub(r"^## ", "", example, flags=re.MULTILINE) for example in examples))
    settings = parse(AggregatorSettings, table)
    assert settings.group[0].name == "luns"
    assert topology(settings.topology).parents_of("oss-12/dm-3")["couplet"] == "couplet-1"
    assert topology(settings.topology).parents_of("*/192.0.2.17") == {"node": "oss-17"}
    assert topology(settings.topology).parents_of("*/192.0.2.7") == {}
    assert settings.peak[0].peak == 2e9
    assert settings.archive is not None
    assert settings.archive == type(settings.archive)()
    assert settings.state is not None
    assert settings.state == type(settings.state)()


def test_the_documented_example_is_understood() -> None:
    settings = parse(
        AggregatorSettings,
        tomllib.loads("""
            site = "site"
            [mqtt]
            topics = ["laggard/1/site/#"]
            embedded = true
            [http]
            listen = "127.0.0.1:9464"
            [detect]
            detector = "laggard"
            interval_seconds = 15.0
            window_samples = 60
            shift_samples = 30
            confirm = 3
            false_alarms_per_week = 1.0
            thresholds = ""
            [[group]]
            name = "luns"
            source = "diskstats"
            role = "storage"
            components = ".*"
            metrics = ["await"]
            [[topology]]
            node = "oss-[0-9]+"
            controller = "a"
            [[peak]]
            component = ".*"
            metric = "rd_sec"
            peak = 1e9
            [alarm]
            after_seconds = 0
            [mail]
            server = "mail.example"
            sender = "laggard@example"
            recipients = ["operators@example"]
            [archive]
            directory = "/var/lib/laggard/archive"
            [state]
            directory = "/var/lib/laggard/state"
        """),
    )
    (rule,) = (rule for rule in membership(settings).rules if rule.group.name == "peak-1")
    assert rule.group.metrics == ("rd_sec",)
    assert rule.group.detect.options == {"peak": 1e9, "below": 0.3, "minutes": 60.0}
    assert (rule.group.detect.detector, rule.group.detect.confirm) == ("peak", 1)


GROUP = {"name": "g"}
PROFILED = {"source": "fnprofile", "metrics": ["samples"]}


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"sit": "x"}, "sit: unknown key, did you mean site?"),
        ({"standby": {"lease_seconds": 10.0}}, "standby: removed; for fail-over see docs/reliability.md"),
        ({"site": "a/b"}, "site: expected letters, digits"),
        ({"mqtt": {"topics": ["other/#"]}}, "mqtt.topics: expected an MQTT topic filter below laggard/1/"),
        ({"mqtt": {"topics": ["laggard/1/#/x"]}}, "mqtt.topics: expected an MQTT topic filter"),
        ({"mqtt": {"topics": ["laggard/1/a+"]}}, "mqtt.topics: expected an MQTT topic filter"),
        ({"mqtt": {"embedded": True, "host": "0.0.0.0"}}, "mqtt.host: the embedded broker lets everyone in"),
        ({"mqtt": {"embedded": True, "username": "x"}}, "mqtt.username: the embedded broker has no users"),
        (
            {"mqtt": {"embedded": True, "ca_file": "x"}},
            "mqtt.embedded: the embedded broker needs ca_file and",
        ),
        (
            {"mqtt": {"embedded": True, "cert_file": "x"}},
            "mqtt.embedded: the embedded broker needs ca_file and",
        ),
        ({"mqtt": {"embedded": True, "crl_file": "x"}}, "mqtt.crl_file: is for the embedded broker with TLS"),
        ({"mqtt": {"queue_messages": 1}}, "mqtt.queue_messages: expected 100-10000000, got 1"),
        ({"mqtt": {"queue_max_bytes": 1}}, "mqtt.queue_max_bytes: expected at least 16777216, got 1"),
        ({"http": {"listen": "9464"}}, "http.listen: expected HOST:PORT"),
        ({"detect": {"detector": "manhattan"}}, "detect.detector: expected one of laggard, cdf, got"),
        ({"detect": {"detector": "cdf"}}, "detect.thresholds: cdf needs a file from laggard train"),
        ({"detect": {"shift_samples": 61}}, "detect.shift_samples: expected at most window_samples (60)"),
        ({"detect": {"interval_seconds": 0}}, "detect.interval_seconds: expected 0.05-3600, got 0"),
        ({"detect": {"false_alarms_per_week": 0}}, "detect.false_alarms_per_week: expected more than 0"),
        ({"detect": {"lateness_seconds": -1}}, "detect.lateness_seconds: expected 0-3600, got -1"),
        ({"group": [{}]}, "group[0].name: missing, expected a string"),
        ({"group": [{"name": "a\nb"}]}, "group[0].name: expected 1-128 printable characters"),
        ({"group": [GROUP, GROUP]}, "group[1].name: must not repeat, got 'g'"),
        ({"group": [GROUP | {"source": "disk"}]}, "group[0].source: expected one of diskstats, "),
        ({"group": [GROUP | {"role": "client"}]}, "group[0].role: expected one of "),
        ({"group": [GROUP | {"components": "("}]}, "group[0].components: not a regular expression"),
        ({"group": [GROUP | {"metrics": []}]}, "group[0].metrics: must not be empty"),
        ({"group": [GROUP | {"metrics": ["wait"]}]}, "group[0].metrics: expected some of await, r_await"),
        ({"group": [GROUP | {"window_samples": 20}]}, "group[0].shift_samples: expected at most window_sam"),
        ({"group": [GROUP | {"detector": "cdf"}]}, "group[0].thresholds: cdf needs a file"),
        ({"detect": {"shadow": "cdf"}}, "detect.shadow_thresholds: cdf needs a file from laggard train"),
        ({"detect": {"shadow": "other"}}, "detect.shadow: expected one of laggard, cdf, got 'other'"),
        ({"detect": {"shadow": "laggard"}}, "detect.shadow: expected another detector or other thresholds"),
        ({"detect": {"shadow_thresholds": "x"}}, "detect.shadow_thresholds: is for a shadow, and there is"),
        ({"group": [GROUP | {"shadow": "cdf"}]}, "group[0].shadow_thresholds: cdf needs a file"),
        ({"group": [GROUP | {"shadow": "manhattan"}]}, "group[0].shadow: expected one of laggard, cdf for"),
        (
            {"group": [GROUP | {"detector": "manhattan"}]},
            "group[0].detector: expected one of laggard, cdf for diskstats, got 'manhattan'",
        ),
        (
            {"group": [GROUP | PROFILED | {"detector": "laggard"}]},
            "group[0].detector: expected one of manhattan for fnprofile, got 'laggard'",
        ),
        ({"group": [GROUP | {"source": "fnprofile"}]}, "group[0].metrics: expected some of samples, got"),
        ({"peak": [{"component": "x", "metric": "y"}]}, "peak[0].peak: missing, expected a number"),
        (
            {"peak": [{"component": "x", "metric": "await", "peak": 1.0}]},
            "peak[0].metric: expected one of tps, rd_sec, wr_sec, avgrq_sz, throughput, got 'await'",
        ),
        (
            {"peak": [{"component": "x", "metric": "y", "peak": 1.0, "source": "tcp"}]},
            "peak[0].source: tcp has no metric that is better the larger",
        ),
        (
            {"peak": [{"component": "x", "metric": "tps", "peak": 1.0, "below": 0.0}]},
            "peak[0].below: expected",
        ),
        (
            {
                "group": [{"name": "g"}],
                "peak": [{"component": "x", "metric": "tps", "peak": 1.0, "name": "g"}],
            },
            "peak[0].name: must not repeat, got 'g'",
        ),
        ({"detect": {"detector": "peak"}}, "detect.detector: expected one of laggard, cdf"),
        ({"topology": [{"couplet": "a"}]}, "topology[0].node: expected either node or components"),
        ({"topology": [{"node": "("}]}, "topology[0].node: not a regular expression"),
        ({"topology": [{"node": "a", "server": "b"}]}, "topology[0].server: expected with components"),
        (
            {"topology": [{"components": "a", "server": r"\1"}]},
            "topology[0].server: invalid group reference 1",
        ),
        (
            {"topology": [{"node": "a(b)", "couplet": r"\2"}]},
            "topology[0].couplet: invalid group reference 2",
        ),
        ({"archive": {"raw_days": 0}}, "archive.raw_days: expected at least 1, got 0"),
        ({"archive": {"directory": ""}}, "archive.directory: expected a path"),
        ({"mail": {"server": "x"}}, "mail.sender: missing, expected a string"),
        ({"webhok": {}}, "webhok: unknown key, did you mean webhook?"),
    ],
)
def test_bad_settings(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(AggregatorSettings, table)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize(
    ("interval", "given", "lateness"),
    [(15.0, None, 5.0), (0.1, None, 1.0), (3.0, None, 3.0), (15.0, 0.25, 0.25)],
)
def test_lateness_follows_the_interval_unless_given(interval: float, given: float, lateness: float) -> None:
    table = {"interval_seconds": interval} | ({} if given is None else {"lateness_seconds": given})
    assert parse(AggregatorSettings, {"detect": table}).detect.lateness == lateness


def trained(path: Path, **groups: dict[str, dict[str, float]]) -> str:
    options = {"bin_limit": 200, "bin_limit_mode": "clip"}
    found = Thresholds("cdf", CdfDetector.version, "2026-01-31T00:00:00Z", (), 15.0, 60, groups, options)
    thresholds_file.save(path, found)
    return str(path)


def test_groups_take_over_what_detect_says_and_their_own_thresholds(tmp_path: Path) -> None:
    file = trained(tmp_path / "t.toml", luns={"await": {"oss-1/a": 2.0}}, rest={"await": {"oss-2/b": 3.0}})
    settings = parse(
        AggregatorSettings,
        {
            "detect": {"confirm": 2, "thresholds": file},
            "group": [
                {"name": "luns", "components": "oss-1/.*", "detector": "cdf", "shift_samples": 15},
                {"name": "others", "components": "oss-2/.*", "detector": "cdf"},
            ],
        },
    )
    made = membership(settings)
    luns, others = (rule.group for rule in made.rules)
    assert (luns.detect.confirm, luns.detect.shift_samples, others.detect.shift_samples) == (2, 15, 30)
    assert luns.detect.thresholds == {"await": {"oss-1/a": 2.0}}
    assert luns.detect.options == {"bin_limit": 200, "bin_limit_mode": "clip"}
    assert others.detect.thresholds == {"await": {"oss-1/a": 2.0, "oss-2/b": 3.0}}
    assert made.default.detector == "laggard"
    assert made.default.thresholds == {}
    component = Component("a", "sda")
    found = made.groups_of("oss-1", "storage", "diskstats", component, 0.0)
    assert [group.name for group in found if group.source == "diskstats"] == ["luns"]


def test_a_shadow_of_a_group_and_of_all_others(tmp_path: Path) -> None:
    file = trained(tmp_path / "t.toml", luns={"await": {"oss-1/a": 2.0}})
    settings = parse(
        AggregatorSettings,
        {
            "detect": {"confirm": 2, "shadow": "cdf", "shadow_thresholds": file},
            "group": [
                {"name": "luns"},
                {"name": "alone", "shadow": "", "shadow_thresholds": ""},
                {
                    "name": "swapped",
                    "detector": "cdf",
                    "thresholds": file,
                    "shadow": "laggard",
                    "shadow_thresholds": "",
                },
                {"name": "functions", "source": "fnprofile", "metrics": ["samples"]},
            ],
        },
    )
    found = membership(settings)
    luns, alone, swapped, functions = (rule.group.detect for rule in found.rules)
    assert luns.detector == "laggard"
    assert luns.thresholds == {}
    assert luns.shadow is not None
    assert (luns.shadow.detector, luns.shadow.confirm, luns.shadow.shadow) == ("cdf", 2, None)
    assert luns.shadow.thresholds == {"await": {"oss-1/a": 2.0}}
    assert alone.shadow is None
    assert swapped.thresholds
    assert swapped.shadow is not None
    assert (swapped.shadow.detector, swapped.shadow.thresholds) == ("laggard", {})
    assert functions.shadow is None
    assert found.functions.shadow is None
    assert found.default.shadow is not None
    assert DetectSettings.of_record(luns.record()) == luns


def test_thresholds_must_exist_and_fit(tmp_path: Path) -> None:
    def use(file: str, **detect: object) -> None:
        membership(parse(AggregatorSettings, {"detect": {"detector": "cdf", "thresholds": file, **detect}}))

    with pytest.raises(ConfigError, match=r"none\.toml: no such file"):
        use(str(tmp_path / "none.toml"))
    with pytest.raises(ConfigError, match=r"interval_seconds: trained with 15\.0, to be used with 1\.0"):
        use(trained(tmp_path / "t.toml", g={"await": {"a": 1.0}}), interval_seconds=1.0)
