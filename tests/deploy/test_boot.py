"""The units under a systemd that has booted: they start, work, are watched, and stop."""

import os
import shutil
from collections.abc import Iterator

import package_tree
import pytest

from tests.deploy.test_documents import blocks
from tests.support.container import BINDS, PROJECT, Container, booted, install_programs, overlaid
from tests.support.wait import LONG_TEST_LIMIT_SECONDS, wait_until

AGGREGATOR = """\
[mqtt]
embedded = true
[archive]
directory = "/var/lib/laggard/archive"
[state]
directory = "/var/lib/laggard/state"
"""

DROP_INS = "/opt/laggard/src/systemd/laggard-agent.service.d"
INSTALLED = "/etc/systemd/system/laggard-agent.service.d/"
FOLDERS = {"laggard-agent": ("spool",), "laggard-aggregator": ("archive", "state")}
OTHER = {"laggard-agent": "laggard-aggregator", "laggard-aggregator": "laggard-agent"}

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.root,
    pytest.mark.timeout(LONG_TEST_LIMIT_SECONDS),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to boot a container"),
    pytest.mark.skipif(
        shutil.which("systemd-nspawn") is None, reason="needs systemd-nspawn (systemd-container)"
    ),
]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """A machine on which Laggard is installed as systemd/README.md says, with a shorter watchdog."""
    with overlaid(tmp_path_factory.mktemp("machine")) as root:
        install_programs(root)
        package_tree.share("aggregator", root / "usr")
        files = {
            "etc/laggard/agent.toml": 'node = "oss-1"\n',
            "etc/laggard/aggregator.toml": AGGREGATOR,
            "etc/systemd/system/laggard-agent.service.d/test.conf": "[Service]\nWatchdogSec=4\n",
            "etc/systemd/system/laggard-aggregator.service.d/test.conf": "[Service]\nWatchdogSec=20\n",
        }
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        for unit in ("laggard-agent.service", "laggard-aggregator.service"):
            shutil.copy(PROJECT / "systemd" / unit, root / "etc" / "systemd" / "system")
        (root / "etc" / "sysusers.d").mkdir(exist_ok=True)
        shutil.copy(PROJECT / "systemd" / "sysusers.d" / "laggard.conf", root / "etc" / "sysusers.d")
        (root / "bin" / "kill").unlink(missing_ok=True)  # a minimal Debian has none
        with booted(root, tmp_path_factory.mktemp("console") / "console.log", *BINDS) as machine:
            machine.run("systemctl", "start", "laggard-aggregator", "laggard-agent")
            yield machine


def configure(machine: Container, *lines: str) -> None:
    machine.run("sh", "-c", 'printf "%s\\n" "$@" > /etc/laggard/agent.toml', "sh", *lines)


def test_they_work_together_and_say_so(machine: Container) -> None:
    def connected() -> bool:
        status = machine.unit("laggard-aggregator")["StatusText"]
        return status.startswith("0 alarms, 1 of 1 nodes up, connected to ")

    wait_until(connected, "the agent's samples")
    agent = "node oss-1: all collectors work, connected to "
    wait_until(lambda: machine.unit("laggard-agent")["StatusText"].startswith(agent), "the agent to say so")


@pytest.mark.parametrize("unit", ["laggard-agent", "laggard-aggregator"])
def test_they_have_no_rights_but_to_their_own_folders(machine: Container, unit: str) -> None:
    pid = machine.unit(unit)["MainPID"]
    facts = dict(
        line.split(":", 1) for line in machine.run("cat", f"/proc/{pid}/status").splitlines() if ":" in line
    )
    assert {facts[name].strip("\t0") for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {""}
    assert (facts["NoNewPrivs"].strip(), facts["Seccomp"].strip()) == ("1", "2")
    assert machine.run("ps", "-o", "user=", "-p", pid).strip() == "laggard"
    within = ("nsenter", "--target", pid, "--mount", "--", "touch")
    machine.run(*within, *(f"/var/lib/laggard/{folder}/touched" for folder in FOLDERS[unit]))
    for other in ("/etc", "/usr", "/var/lib", *(f"/var/lib/laggard/{f}" for f in FOLDERS[OTHER[unit]])):
        with pytest.raises(AssertionError, match="Read-only file system"):
            machine.run(*within, f"{other}/touched")


def test_a_collector_that_needs_more_gets_it_by_its_drop_in_alone(machine: Container) -> None:
    configure(machine, 'node = "oss-1"', 'collectors = ["diskstats", "net", "host", "fnprofile"]')
    machine.run("systemctl", "restart", "laggard-agent")
    failing = "node oss-1: fnprofile failing, "
    wait_until(lambda: machine.unit("laggard-agent")["StatusText"].startswith(failing), "it to fail")
    machine.run("cp", f"{DROP_INS}/fnprofile.conf", f"{DROP_INS}/net-destinations.conf", INSTALLED)
    configure(
        machine,
        'node = "oss-1"',
        'collectors = ["diskstats", "net", "host", "fnprofile"]',
        "[net]",
        'destinations = ["127.0.0.0/8"]',
    )
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", "laggard-agent")
    works = "node oss-1: all collectors work, connected to "
    wait_until(lambda: machine.unit("laggard-agent")["StatusText"].startswith(works), "it to work")


def test_a_reload_takes_good_files_and_refuses_bad_ones(machine: Container) -> None:
    def says(unit: str, begin: str) -> None:
        wait_until(lambda: machine.unit(unit)["StatusText"].startswith(begin), f"{unit} to say so")

    configure(machine, "interval_seconds = 0")
    with pytest.raises(AssertionError, match=r"Job for laggard-agent\.service failed"):
        machine.run("systemctl", "reload", "laggard-agent")
    pids = {unit: machine.unit(unit)["MainPID"] for unit in FOLDERS}
    says("laggard-agent", "node oss-1: ")
    configure(machine, 'node = "oss-2"')
    machine.run("systemctl", "reload", "laggard-agent", "laggard-aggregator")
    says("laggard-agent", "node oss-2: all")
    says("laggard-aggregator", "0 alarms, ")
    assert {unit: machine.unit(unit)["MainPID"] for unit in FOLDERS} == pids
    configure(machine, 'node = "oss-1"')
    machine.run("systemctl", "reload", "laggard-agent")
    says("laggard-agent", "node oss-1: ")


def test_an_agent_that_stands_still_is_ended_with_a_traceback_and_started_again(machine: Container) -> None:
    before = machine.unit("laggard-agent")
    assert before["NRestarts"] == "0"
    machine.run("sh", "-c", f"kill -STOP {before['MainPID']}")

    def again() -> bool:
        now = machine.unit("laggard-agent")
        return (now["NRestarts"], now["ActiveState"]) == ("1", "active")

    wait_until(again, "a new agent")
    said = machine.run("journalctl", "--no-pager", "--unit", "laggard-agent")
    assert "Watchdog timeout" in said
    assert "Fatal Python error: Aborted" in said


def test_a_node_without_a_disk_spools_in_run_and_keeps_that_over_a_restart(machine: Container) -> None:
    machine.run("cp", f"{DROP_INS}/diskless.conf", INSTALLED)
    sample = (PROJECT / "deploy/agent-diskless.toml").read_text()
    configure(machine, 'node = "oss-1"', sample)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", "laggard-agent")
    kept = machine.run("ls", "--inode", "--directory", "/run/laggard/spool")
    machine.run("systemctl", "restart", "laggard-agent")
    assert machine.run("ls", "--inode", "--directory", "/run/laggard/spool") == kept
    wait_until(lambda: machine.run("ls", "/run/laggard/spool"), "a spool")
    works = "node oss-1: all collectors work, connected to "
    wait_until(lambda: machine.unit("laggard-agent")["StatusText"].startswith(works), "it to work")


def test_they_end_in_order(machine: Container) -> None:
    machine.run("systemctl", "stop", "laggard-agent", "laggard-aggregator")
    for unit in ("laggard-agent", "laggard-aggregator"):
        state = machine.unit(unit)
        assert (state["ActiveState"], state["Result"], state["ExecMainStatus"]) == (
            "inactive",
            "success",
            "0",
        )


def test_a_wrong_configuration_is_said_in_a_line_and_not_tried_again(machine: Container) -> None:
    configure(machine, "interval_seconds = 0")
    with pytest.raises(AssertionError, match=r"Job for laggard-agent\.service failed"):
        machine.run("systemctl", "start", "laggard-agent")
    state = machine.unit("laggard-agent")
    assert (state["ActiveState"], state["ExecMainStatus"]) == ("failed", "2")
    assert "interval_seconds: expected" in machine.run("journalctl", "--no-pager", "--unit", "laggard-agent")


def test_the_operators_guide_works_as_it_stands(machine: Container) -> None:
    if shutil.which("mosquitto", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("needs mosquitto")
    machine.run("sh", "-c", "echo 127.0.0.1 mon >> /etc/hosts; ln -s /opt/laggard/bin/* /usr/local/bin/")
    machine.run("sh", "-c", "rm -rf /var/lib/laggard/state/* /var/lib/laggard/spool/*")
    steps = "".join(blocks("guide.md"))
    assert steps.count("systemctl restart") == 3
    said = machine.run("bash", "-euo", "pipefail", "-c", steps)
    assert "storage nodes: 1 up" in said
    broker = machine.run("ss", "-Htn", "state", "established", "( dport = :8883 )")
    assert len(broker.splitlines()) == 2


def test_backup_and_restore_work_as_they_stand(machine: Container) -> None:
    machine.run("sh", "-c", "ln -sf /opt/laggard/bin/* /usr/local/bin/")
    machine.run("systemctl", "restart", "laggard-aggregator")
    machine.run("laggard", "silence", "oss-1", "--for", "1d", "--comment", "before")
    back_up, restore = blocks("maintenance.md")
    machine.run("sh", "-euc", back_up)
    assert machine.run("stat", "--format=%a", "/var/backups/laggard.tar.gz") == "600\n"
    machine.run("laggard", "silence", "oss-1", "--end")
    assert "oss-1 silenced" not in machine.run("laggard", "status")
    assert "oss-1 silenced" in machine.run("sh", "-euc", restore)
    assert machine.unit("laggard-aggregator")["NRestarts"] == "0"
