"""Containers, the DaemonSet and the Ansible role: their files agree with each other and with the programs."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from laggard_agent.cli import build_parser
from laggard_agent.settings import AgentSettings
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_common.config import load
from tests.support.container import PROJECT
from tests.support.processes import run_command

DEPLOY = PROJECT / "deploy"
CONTAINER = DEPLOY / "container"
KUBERNETES = DEPLOY / "kubernetes"
ROLE = DEPLOY / "ansible/roles/laggard"
COMPOSE = yaml.safe_load((CONTAINER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (CONTAINER / "Dockerfile").read_text()


def mounts(service: str) -> dict[str, str]:
    """Sources of a service's mounts by their place in the container."""
    return {target: source for source, target in (m.split(":")[:2] for m in SERVICES[service]["volumes"])}


def options(command: list[str]) -> Any:
    """The options of an agent's command line."""
    assert command[0] == "laggard-agent"
    return build_parser().parse_args(command[1:])


def rendered(name: str, **variables: object) -> str:
    """A template of the role with its defaults, as Ansible renders it."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
    environment.filters["to_json"] = json.dumps
    facts = {"ansible_managed": "by Ansible", "groups": {"laggard_aggregator": ["mon"]}}
    facts["inventory_hostname_short"] = "oss-1"
    values: dict[str, object] = yaml.safe_load((ROLE / "defaults/main.yml").read_text()) | variables
    for key, value in values.items():
        if isinstance(value, str):
            values[key] = environment.from_string(value).render(**facts)
    return environment.from_string((ROLE / "templates" / name).read_text()).render(**facts, **values)


def test_every_file_that_compose_mounts_is_there() -> None:
    sources = [source for service in SERVICES for source in mounts(service).values()]
    assert [source for source in sources if source[0] == "." and not (CONTAINER / source).exists()] == []
    assert {source for source in sources if source[0] not in "./"} == set(COMPOSE["volumes"])


def test_compose_listens_on_loopback_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) == 4
    assert {port.split(":")[0] for port in ports} == {"127.0.0.1"}


def test_configurations_of_compose_fit_together() -> None:
    aggregator = load(AggregatorSettings, CONTAINER / "aggregator.toml")
    assert aggregator.mqtt.host in SERVICES
    assert aggregator.archive is not None
    assert aggregator.state is not None
    assert {p.parent for p in (aggregator.archive.directory, aggregator.state.directory)} == {
        Path(target) for target, source in mounts("aggregator").items() if source == "laggard"
    }
    agent = load(AgentSettings, CONTAINER / "agent.toml")
    assert str(agent.spool.directory) in mounts("agent")
    given = options(SERVICES["agent"]["command"])
    assert {str(given.procfs), str(given.sysfs), str(given.config)} <= set(mounts("agent"))
    scraped = yaml.safe_load((CONTAINER / "prometheus.yml").read_text())["scrape_configs"]
    port = aggregator.http.listen.rpartition(":")[2]
    assert {job["static_configs"][0]["targets"][0] for job in scraped} == {f"aggregator:{port}"}
    source = yaml.safe_load((CONTAINER / "grafana-datasource.yml").read_text())["datasources"][0]
    shipped = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/laggard.yml").read_text())
    assert source == shipped["datasources"][0] | {"url": "http://prometheus:9090"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (prometheus)")
def test_prometheus_of_compose_accepts_its_configuration(tmp_path: Path) -> None:
    for target, source in mounts("prometheus").items():
        if source.startswith("."):
            shutil.copy(CONTAINER / source, tmp_path / Path(target).name)
    run_command(["promtool", "check", "config", tmp_path / "prometheus.yml"])


def test_images_are_built_from_paths_that_the_context_has() -> None:
    ignored = (CONTAINER / "Dockerfile.dockerignore").read_text().splitlines()
    copied = [
        path
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
        for path in line.split()
    ]
    assert len(copied) == 8
    assert [path for path in copied if not (PROJECT / path).exists() or f"!{path}" not in ignored] == []
    targets = re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE)
    assert {service["build"]["target"] for service in SERVICES.values() if "build" in service} <= set(targets)


def test_the_daemonset_mounts_what_its_agent_reads() -> None:
    (pod,) = [yaml.safe_load((KUBERNETES / "agent.yaml").read_text())["spec"]["template"]["spec"]]
    (container,) = pod["containers"]
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert set(mounted.values()) == {volume["name"] for volume in pod["volumes"]}
    given = options(container["command"])
    settings = load(AgentSettings, KUBERNETES / "agent.toml")
    files = [given.config, settings.mqtt.ca_file, settings.mqtt.cert_file, settings.mqtt.key_file]
    places = {str(given.procfs), str(given.sysfs), str(settings.spool.directory)}
    places |= {str(path.parent) for path in files}
    assert places == set(mounted)
    customized = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
    assert [image["name"] for image in customized["images"]] == [container["image"]]
    (generated,) = customized["configMapGenerator"]
    assert generated == {"name": "laggard-agent", "files": [given.config.name]}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_the_daemonset_can_be_built() -> None:
    built = list(yaml.safe_load_all(run_command(["kubectl", "kustomize", KUBERNETES]).stdout))
    assert [each["kind"] for each in built] == ["Namespace", "ConfigMap", "DaemonSet"]


@pytest.mark.parametrize("authority", ["", "/srv/laggard-ca"])
def test_the_role_writes_valid_configurations(authority: str, tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    extra = '[diskstats]\nexclude = ["nvme.*"]'
    path.write_text(rendered("agent.toml.j2", laggard_ca_directory=authority, laggard_agent_extra=extra))
    agent = load(AgentSettings, path)
    assert (agent.node, agent.mqtt.host, agent.mqtt.port) == ("oss-1", "mon", 8883)
    assert (agent.mqtt.key_file is not None) == bool(authority)
    path = tmp_path / "aggregator.toml"
    path.write_text(rendered("aggregator.toml.j2", laggard_ca_directory=authority))
    aggregator = load(AggregatorSettings, path)
    assert (aggregator.mqtt.host, aggregator.http.listen) == ("mon", "127.0.0.1:9464")
    assert None not in {aggregator.archive, aggregator.state}


def test_the_role_names_files_and_handlers_that_there_are() -> None:
    handlers = {each["name"] for each in yaml.safe_load((ROLE / "handlers/main.yml").read_text())}
    for path in (ROLE / "tasks").glob("*.yml"):
        for task in yaml.safe_load(path.read_text()):
            included = task.get("ansible.builtin.include_tasks") or task.get("ansible.builtin.import_tasks")
            assert included is None or "{{" in included or (path.parent / included).is_file()
            told = task.get("notify", task.get("vars", {}).get("laggard_certificate", {}).get("notify", []))
            assert {told} <= handlers or "{{" in told if isinstance(told, str) else set(told) <= handlers
    inventory = (DEPLOY / "ansible/inventory.yml").read_text()
    for drop_in in re.findall(r"laggard_drop_ins: \[(\w+)\]", inventory):
        assert (PROJECT / f"systemd/laggard-agent.service.d/{drop_in}.conf").is_file()


def test_agents_are_rolled_back_first_and_by_that_playbook_alone() -> None:
    for name, order, downgrade in (
        ("site.yml", ["laggard_aggregator", "laggard_nodes"], [False, False]),
        ("rollback.yml", ["laggard_nodes", "laggard_aggregator"], [True, True]),
    ):
        plays = yaml.safe_load((DEPLOY / "ansible" / name).read_text())
        assert [play["hosts"] for play in plays] == order
        given = [play["roles"][0].get("vars", {}).get("laggard_downgrade", False) for play in plays]
        assert given == downgrade
    assert yaml.safe_load((ROLE / "defaults/main.yml").read_text())["laggard_downgrade"] is False
    package = (ROLE / "tasks/package.yml").read_text()
    assert (
        package.count("allow_downgrade") == package.count('allow_downgrade: "{{ laggard_downgrade }}"') == 2
    )


@pytest.mark.parametrize("book", ["site.yml", "rollback.yml"])
@pytest.mark.skipif(shutil.which("ansible-playbook") is None, reason="needs ansible-playbook")
def test_ansible_accepts_the_playbook(book: str) -> None:
    folder = DEPLOY / "ansible"
    run_command(["ansible-playbook", "-i", folder / "inventory.yml", folder / book, "--syntax-check"])
