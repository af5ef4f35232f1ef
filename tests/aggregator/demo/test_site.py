import socket
import tomllib
from pathlib import Path

from laggard_aggregator.demo.site import OWN, free_port, make_site
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_aggregator.settings.from_settings import membership
from laggard_common.config import load
from tests.support.builders import recordings


def test_every_lun_has_an_agent_that_sees_only_its_procfs(tmp_path: Path) -> None:
    site = make_site(tmp_path, recordings.LUNS, 0.1)
    site.write()
    spools = set()
    for lun in recordings.LUNS:
        node = site.nodes[lun]
        config = tomllib.loads(site.agent_toml(node).read_text())
        assert (config["node"], config["interval_seconds"]) == (node, 0.1)
        assert config["mqtt"]["port"] == site.mqtt_port
        assert site.component(lun) == f"{node}/{lun}"
        assert site.roots()[lun] == site.procfs(node)
        spools.add(config["spool"]["directory"])
    assert len(spools) == len(recordings.LUNS)


def test_the_aggregator_judges_the_luns_and_this_machines_disks(tmp_path: Path) -> None:
    site = make_site(tmp_path, recordings.LUNS, 0.05)
    site.write()
    config = tomllib.loads(site.aggregator_toml.read_text())
    groups = {group["name"]: group for group in config["group"]}
    assert {name: group["components"] for name, group in groups.items()} == {
        "luns": "oss-[0-9]+/.*",
        OWN: f"{OWN}/.*",
    }
    assert config["detect"] == {
        "interval_seconds": 0.05,
        "window_samples": 60,
        "shift_samples": 30,
        "confirm": 3,
    }
    assert config["mqtt"]["embedded"] is True
    assert config["http"]["listen"] == f"127.0.0.1:{site.http_port}"


def test_the_aggregator_loads_its_configuration(tmp_path: Path) -> None:
    site = make_site(tmp_path, recordings.LUNS, 0.1)
    site.write()
    settings = load(AggregatorSettings, site.aggregator_toml)
    detectors = {rule.group.name: rule.group.detect.detector for rule in membership(settings).rules}
    assert detectors == {"luns": "laggard", OWN: "laggard"}


def test_a_folder_with_quotes_in_its_name(tmp_path: Path) -> None:
    site = make_site(tmp_path / 'a "quoted" \\ name', recordings.LUNS, 0.1)
    site.write()
    config = tomllib.loads(site.aggregator_toml.read_text())
    assert config["archive"]["directory"] == str(site.folder / "archive")


def test_a_wanted_port_that_is_taken_gives_another() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) not in (port, 0)
    assert free_port(port) == port
