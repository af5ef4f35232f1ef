"""Applies the Ansible role to a clean machine: applied, applied again, changed, upgraded, rolled back.

`python packaging/try_ansible.py ANSIBLE` as root, with debootstrap, systemd-container, and the packages that
`make try-packages` built. ANSIBLE is a virtual environment of Debian's python3 with ansible-core. Aggregator,
broker and agent are on one machine, a Debian booted in a container without a network; ansible-playbook runs
within it. Prints the result of every step; exit code 1 when one is not as it should be.
"""

import argparse
import json
import re
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

PROJECT = Path(__file__).parents[1]
sys.path[:0] = [str(PROJECT), *(str(PROJECT / part) for part in ("common", "agent", "aggregator"))]

from trial import PACKAGES, WrongError, expect, say  # noqa: E402
from try_packages import BASE_PACKAGES, base, prepare  # noqa: E402

from tests.support.container import Container, booted  # noqa: E402
from tests.support.wait import wait_until  # noqa: E402

PLAYBOOKS = "/opt/deploy/ansible"
INVENTORY = "srv/inventory.json"
SETTING = "[diskstats]\nexclude = ['nvme.*']"
AUTHORITY = "/opt/deploy/pki/laggard-ca"
PROGRAMS = ("agent", "aggregator")
PACKAGES_OF_DEBIAN = f"{BASE_PACKAGES},mosquitto,openssl,python3-apt"


@dataclass
class Site:
    """The machine with its inventory."""

    root: Path
    machine: Container

    def describe(self, packages: dict[str, str], **variables: str) -> None:
        """Writes the inventory: two hosts, which are this machine."""
        common = {
            "ansible_connection": "local",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_become": False,
            "laggard_ca_directory": "/srv/laggard-ca",
            "laggard_ca_command": AUTHORITY,
            "laggard_packages": packages,
            "laggard_drop_ins": ["lustre"],
        }
        hosts = {"laggard_aggregator": "mon", "laggard_nodes": "oss-1"}
        groups = {group: {"hosts": {host: {"laggard_site": "site"}}} for group, host in hosts.items()}
        inventory = {"all": {"vars": common | variables, "children": groups}}
        (self.root / INVENTORY).write_text(json.dumps(inventory))

    def play(self, *options: str, book: str = "site.yml") -> int:
        """Runs a playbook; the number of changes. Fails with Ansible's output when it fails."""
        command = ("/opt/ansible/bin/python3", "-m", "ansible", "playbook", "-i", f"/{INVENTORY}")
        ansible = (*command, f"{PLAYBOOKS}/{book}")
        environment = ("env", "HOME=/root", "LC_ALL=C.UTF-8", "ANSIBLE_NOCOLOR=1")
        said = self.machine.run(*environment, *ansible, *options)
        recap = said.partition("PLAY RECAP")[2]
        say(recap.rstrip())
        return sum(int(number) for number in re.findall(r"changed=(\d+)", recap))

    def versions(self) -> list[str]:
        """Installed versions of both packages."""
        return self.machine.run("dpkg-query", "--show", "--showformat=${Version} ", *PACKAGES).split()

    def pids(self) -> list[str]:
        """Main processes of both services."""
        return [self.machine.unit(name)["MainPID"] for name in PACKAGES]

    def order(self) -> tuple[str, ...]:
        """The services in the order of their start."""
        started = {name: int(self.machine.unit(name)["ActiveEnterTimestampMonotonic"]) for name in PACKAGES}
        return tuple(sorted(started, key=started.__getitem__))

    def settled(self) -> None:
        """Applies the role again: nothing changes, nothing is restarted."""
        pids = self.pids()
        expect("again: nothing changes", self.play() == 0)
        expect("nothing is restarted", self.pids() == pids)

    def says(self, unit: str, words: str) -> bool:
        """Whether the unit's line of status begins with `words`."""
        return self.machine.unit(unit)["StatusText"].startswith(words)

    def connected(self) -> None:
        """Waits until agent and aggregator work together."""
        for name, words in (
            ("laggard-agent", "node oss-1: all collectors work, connected to mon:8883"),
            ("laggard-aggregator", "0 alarms, 1 of 1 nodes up, connected to mon:8883"),
        ):
            wait_until(partial(self.says, name, words), f"{name} to say: {words}")
            say(f"  ok: {name} says: {words}")


def walk(site: Site, first: dict[str, str], second: dict[str, str]) -> None:
    """The steps in their order, as deploy/ansible/README.md has them."""
    site.machine.run("sh", AUTHORITY, "init", "/srv/laggard-ca", "site")
    say("apply")
    site.describe(first)
    expect("it changes", site.play() > 0)
    site.connected()
    site.settled()
    say("another setting")
    site.describe(first, laggard_agent_extra=SETTING)
    pids = site.pids()
    expect("a check announces template and reload", site.play("--check", "--diff") == 2)
    expect("they change", site.play() == 2)
    expect("nothing is restarted", site.pids() == pids)
    steps = (
        ("upgrade", "site.yml", second, "-2", ("laggard-aggregator", "laggard-agent")),
        ("roll back", "rollback.yml", first, "-1", ("laggard-agent", "laggard-aggregator")),
    )
    for step, book, packages, ending, order in steps:
        say(step)
        site.describe(packages, laggard_agent_extra=SETTING)
        before = site.versions()
        expect("a check announces it", site.play("--check", book=book) > 0)
        expect(f"and leaves {before}", site.versions() == before)
        expect("it changes", site.play(book=book) > 0)
        expect(f"versions: {site.versions()}", all(each.endswith(ending) for each in site.versions()))
        expect(f"started in the order {site.order()}", site.order() == order)
        site.connected()
        site.settled()


def main() -> int:
    """Tries the role; the exit code says whether all was as it should be."""
    parser = argparse.ArgumentParser(description="Applies the Ansible role to a clean machine.")
    parser.add_argument("ansible", type=Path, help="virtual environment with ansible-core")
    parser.add_argument("--cache", type=Path, default=PROJECT / "build/try", help="as of try_packages.py")
    options = parser.parse_args()
    if not (options.ansible / "bin/python3").exists():
        parser.error(f"{options.ansible}: no virtual environment with ansible-core, see packaging/README.md")
    cache = options.cache.resolve()
    packages: list[dict[str, str]] = []
    binds = [f"--bind-ro={options.ansible.resolve()}:/opt/ansible", f"--bind-ro={PROJECT}/deploy:/opt/deploy"]
    for revision in ("1", "2"):
        folder = cache / "debs" / revision
        names = {each: found.name for each in PROGRAMS for found in folder.glob(f"laggard-{each}_*.deb")}
        if len(names) < len(PROGRAMS):
            parser.error(f"{folder} has no packages of both programs: make try-packages builds them")
        packages.append({each: f"/opt/debs/{revision}/{name}" for each, name in names.items()})
        binds.append(f"--bind-ro={folder}:/opt/debs/{revision}")
    archive = base(cache / "ansible.tar", packages=PACKAGES_OF_DEBIAN)
    with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as work:
        root = Path(work, "root")
        prepare(root, archive)
        with (root / "etc/hosts").open("a") as file:
            file.write("127.0.0.1 mon oss-1\n")
        try:
            with booted(root, Path(work, "console.log"), *binds) as machine:
                try:
                    walk(Site(root, machine), *packages)
                except BaseException:
                    say(machine.run("journalctl", "--no-pager", "--output=cat", "--lines=80"))
                    raise
        except (WrongError, AssertionError) as exc:
            say(f"  WRONG: {exc}")
            return 1
    say("all as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
