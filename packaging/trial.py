"""The steps on a clean machine and their checks: install, start, alarm, upgrade, roll back, remove, purge."""

import hashlib
import json
import mailbox
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.message import Message
from functools import partial
from pathlib import Path

from tests.deploy.test_documents import blocks
from tests.support.container import Container
from tests.support.wait import wait_until

PACKAGES = ("laggard-agent", "laggard-aggregator")
NSENTER = shutil.which("nsenter") or "nsenter"
MOST_INSTALLED = 40e6
"""What the agent may take on a node, bytes, without Python."""
PAGE = "http://127.0.0.1:9464/"
IN_ALARM = re.compile(r'id="slow-[0-9]+"[^>]*>([^<]+)</a>(?:(?!</th>).)*?alarm raised', re.DOTALL)
PROMETHEUS = "http://127.0.0.1:9090"
NOTHING_OF_OURS = (
    "dev",
    "etc/group-",
    "etc/gshadow-",
    "etc/passwd-",
    "etc/shadow-",
    "proc",
    "root/.rpmdb",
    "run",
    "srv",
    "sys",
    "tmp",
    "var/log",
    "var/cache/apt",
    "var/cache/debconf",
    "var/lib/apt",
    "var/lib/dpkg",
    "var/lib/systemd/linger",
    "var/lib/systemd/random-seed",
    "var/tmp",
)
"""What the system itself writes (logs, backups, books of apt, dpkg and rpm), and where our own files are."""
BACKUP = "var/backups/laggard.tar.gz"
"""The file of docs/maintenance.md."""


class WrongError(Exception):
    """Something is not as it should be."""


def say(line: str) -> None:
    """Prints a line at once."""
    print(line, flush=True)


def expect(what: str, holds: object) -> None:
    """Says that `what` holds. Raises WrongError when it does not."""
    if not holds:
        raise WrongError(what)
    say(f"  ok: {what}")


def output(*command: str, **environment: str) -> str:
    """What a command on this host printed. Raises WrongError with all it said when it fails."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    if done.returncode:
        raise WrongError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def listing(root: Path) -> dict[str, str]:
    """What is on the machine: of each path its kind, owner and mode, of files in /etc their content too."""
    found: dict[str, str] = {}
    for folder, folders, files in os.walk(root):
        below = Path(folder).relative_to(root)
        folders[:] = [name for name in folders if str(below / name) not in NOTHING_OF_OURS]
        for name in (*folders, *files):
            path = Path(folder, name)
            facts = path.lstat()
            if str(below / name) in NOTHING_OF_OURS:
                continue
            content = ""
            if below.parts[:1] == ("etc",) and path.is_file() and not path.is_symlink():
                content = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(below / name)] = f"{facts.st_mode:o} {facts.st_uid}:{facts.st_gid} {content}"
    return found


def edited(text: str, settings: dict[str, str]) -> str:
    """A sample configuration with some defaults (`#key = ...`, the first of each name) replaced."""
    lines = text.splitlines()
    for key, value in settings.items():
        number = next(n for n, line in enumerate(lines) if line.startswith(f"#{key} = "))
        lines[number] = f"{key} = {value}"
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class PackageManager:
    """Commands of a package manager. `install` also replaces newer packages; `purge` follows `remove`.

    `kept`: ending of an edited configuration after `remove`. `folders`: those of the distribution's own
    packages that Debian's lack.
    """

    suffix: str
    install: str
    version: str
    remove: str
    purge: str
    kept: str
    folders: tuple[str, ...] = ()


MANAGERS = {
    "deb": PackageManager(
        ".deb",
        "apt-get install --yes --no-install-recommends --allow-downgrades -o Dpkg::Options::=--force-confold",
        "dpkg-query --show --showformat=${Version}",
        "apt-get remove --yes",
        "apt-get purge --yes laggard-agent laggard-aggregator",
        ".toml",
    ),
    # On Debian, where packages have other names than on EL: hence no check of dependencies.
    "rpm": PackageManager(
        ".rpm",
        "rpm --force-debian --upgrade --oldpackage --nodeps",
        "rpm --query --queryformat=%{version}-%{release}",
        "rpm --force-debian --erase",
        "rm -rf /var/lib/laggard /etc/laggard && userdel laggard",
        ".toml.rpmsave",
        ("usr/share/licenses", "usr/share/zsh/site-functions"),
    ),
}


@dataclass
class Trial:
    """The machine, and the steps on it. `begin`: starts the replay."""

    manager: PackageManager
    root: Path
    work: Path
    machine: Container
    begin: Callable[[], None]
    faulty: str
    started: float = 0.0

    def within(self, *command: str) -> tuple[str, ...]:
        """A command of this host in the machine's network."""
        return (NSENTER, f"--net={self.machine.network}", "--", *command)

    def journal(self) -> str:
        """What both services said."""
        units = [f"--unit={name}" for name in PACKAGES]
        return self.machine.run("journalctl", "--no-pager", "--output=cat", "--lines=60", *units)

    def install(self, packages: list[Path], folder: str) -> None:
        """Hands packages to the package manager as files, keeping configuration that was edited."""
        (self.root / "srv" / folder).mkdir(parents=True, exist_ok=True)
        for package in packages:
            shutil.copy(package, self.root / "srv" / folder)
        names = [f"/srv/{folder}/{package.name}" for package in packages]
        self.machine.run("env", "DEBIAN_FRONTEND=noninteractive", *self.manager.install.split(), *names)

    def versions(self) -> dict[str, str]:
        """The installed version of each package."""
        asked = self.manager.version.split()
        return {name: self.machine.run(*asked, name).strip() for name in PACKAGES}

    def state(self, unit: str) -> dict[str, str]:
        """The unit's properties."""
        return self.machine.unit(unit)

    def runs(self, unit: str) -> bool:
        """Whether the unit is up."""
        return self.state(unit)["ActiveState"] == "active"

    def says(self, unit: str, words: str) -> bool:
        """Whether the unit's line of status begins with `words`."""
        return self.state(unit)["StatusText"].startswith(words)

    def first_installation(self, packages: list[Path]) -> None:
        """Both packages are there and nothing runs."""
        say("install")
        self.install(packages, "first")
        for name in PACKAGES:
            state = self.state(name)
            expect(f"{name} is installed and not started", state["ActiveState"] == "inactive")
            expect(f"{name} --version", self.machine.run(name, "--version").startswith(name))
            configuration = f"/etc/laggard/{name.removeprefix('laggard-')}.toml"
            checked = self.machine.run(name, "--config", configuration, "--check-config")
            expect(f"installed configuration of {name}: {checked.strip()}", checked)

    def sizes(self) -> None:
        """What the agent takes on the node, with the bytecode that its installation made."""
        taken = 1024 * int(self.machine.run("du", "-sk", "/usr/lib/laggard-agent").split()[0])
        expect(f"the agent takes {taken / 1e6:.1f} MB on the node, at most 40", taken <= MOST_INSTALLED)

    def configure(self) -> None:
        """Edits the broker's address and adds `[mail]`; the rest makes eleven recorded minutes one."""
        say("edit /etc/laggard/*.toml")
        for name, settings in (
            (
                "agent",
                {
                    "node": '"oss-1"',
                    "interval_seconds": "0.1",
                    "collectors": '["diskstats"]',
                    "host": '"broker"',
                    "include": '["loop.*"]',
                },
            ),
            ("aggregator", {"host": '"broker"', "interval_seconds": "0.1"}),
        ):
            path = self.root / f"etc/laggard/{name}.toml"
            path.write_text(edited(path.read_text(), settings))
        with (self.root / "etc/laggard/aggregator.toml").open("a") as file:
            file.write(
                '\n[mail]\nserver = "127.0.0.1"\nport = 2525\nsender = "laggard@mon"\n'
                'recipients = ["storage@mon"]\nafter_seconds = 0\nlearning_seconds = 0\ngather_seconds = 1\n'
            )
        drop_in = self.root / "etc/systemd/system/laggard-agent.service.d/replay.conf"
        drop_in.parent.mkdir()
        drop_in.write_text(
            "[Service]\nExecStart=\n"
            "ExecStart=/usr/bin/laggard-agent --config /etc/laggard/agent.toml --procfs /srv/proc\n"
        )

    def start(self) -> None:
        """Enables and starts both services."""
        say("start")
        self.machine.run("systemctl", "daemon-reload")
        self.machine.run("systemctl", "enable", "--now", *PACKAGES)
        for name, words in (
            ("laggard-agent", "node oss-1: all collectors work, connected to broker:1883"),
            ("laggard-aggregator", "0 alarms, 1 of 1 nodes up, connected to broker:1883"),
        ):
            wait_until(partial(self.says, name, words), f"{name} to say: {words}")
            say(f"  ok: {name} says: {words}")
        self.begin()
        self.started = time.monotonic()

    def alarms(self) -> list[dict[str, str]]:
        """The labels of alarms that stand, as Prometheus has them."""
        query = f"{PROMETHEUS}/api/v1/query?query=laggard_alarm_active==1"
        answer = subprocess.run(
            self.within("curl", "--silent", "--globoff", query), capture_output=True, check=False
        )
        if answer.returncode:
            return []
        return [dict(one["metric"]) for one in json.loads(answer.stdout)["data"]["result"]]

    def mails(self) -> list[str]:
        """The mails that came: subject, and the kinds of their parts."""
        folder = self.work / "mails"
        box = mailbox.Maildir(folder, create=False) if folder.is_dir() else ()
        return [f"{mail['Subject']} ({', '.join(_kinds(mail))})" for mail in box]

    def page(self) -> list[str]:
        """The components in alarm that the page at / lists; none while nobody answers."""
        asked = subprocess.run(
            self.within("curl", "--silent", "--fail", PAGE), capture_output=True, check=False
        )
        return IN_ALARM.findall(asked.stdout.decode())

    def see(self) -> None:
        """The alarm in Prometheus, in a mail and on the page."""
        say("see the alarm")
        found = wait_until(self.alarms, "the alarm in Prometheus")
        say(f"  {time.monotonic() - self.started:.0f} s after the replay's start (the fault began at 18 s)")
        expect(f"Prometheus: {found}", {one["component"] for one in found} == {self.faulty})
        subjects = wait_until(self.mails, "the mail")
        expect(f"mail: {subjects}", any(self.faulty in subject for subject in subjects))
        expect("it has a plot", any("image/png" in subject for subject in subjects))
        shown = self.page()
        expect(f"the page at / lists {shown}", shown == [self.faulty])

    def back_up(self) -> None:
        """The commands of docs/maintenance.md; the aggregator continues after them."""
        say("back up")
        back_up, _ = blocks("maintenance.md")
        self.machine.run("sh", "-euc", back_up)
        facts = (self.root / BACKUP).stat()
        expect(f"/{BACKUP} has {facts.st_size} bytes, mode {facts.st_mode:o}", facts.st_mode == 0o100600)
        self.continues(self.mails())

    def upgrade(self, packages: list[Path]) -> None:
        """The next version: edited configuration and state stay, both run again, the alarm stays raised."""
        say("upgrade")
        before = {name: self.state(name)["MainPID"] for name in PACKAGES}
        configuration, mails = self.configuration(), self.mails()
        self.install(packages, "second")
        expect("edited configuration is kept", self.configuration().items() >= configuration.items())
        for name, version in self.versions().items():
            expect(f"{name} is {version}", version.endswith("-2"))
            wait_until(partial(self.runs, name), f"{name} to run")
            expect(f"{name} was restarted", self.state(name)["MainPID"] != before[name])
        self.continues(mails)

    def roll_back(self, packages: list[Path]) -> None:
        """The version before, as docs/maintenance.md says: the agent, then the aggregator with its backup."""
        say("roll back")
        agent, aggregator = packages
        configuration, mails = self.configuration(), self.mails()
        self.install([agent], "first")
        self.machine.run("systemctl", "stop", "laggard-aggregator")
        self.install([aggregator], "first")
        _, restore = blocks("maintenance.md")
        status = self.machine.run("sh", "-euc", restore)
        expect(f"laggard status: {status.splitlines()[0]}", status)
        expect("edited configuration is kept", self.configuration().items() >= configuration.items())
        for name, version in self.versions().items():
            expect(f"{name} is {version}", version.endswith("-1"))
            wait_until(partial(self.runs, name), f"{name} to run")
        self.continues(mails)

    def configuration(self) -> dict[str, bytes]:
        """Contents of the configuration files."""
        return {path.name: path.read_bytes() for path in (self.root / "etc/laggard").glob("*.toml")}

    def continues(self, mails: list[str]) -> None:
        """The alarm is still raised, on the page and in Prometheus, and `mails` are all that came."""
        wait_until(lambda: self.page() == [self.faulty], "the alarm on the page")
        wait_until(self.alarms, "the alarm in Prometheus")
        expect("the alarm is still raised, and no mail was repeated", self.mails() == mails)

    def remove(self) -> None:
        """Programs are gone; configuration and data stay."""
        say("remove")
        self.machine.run(*self.manager.remove.split(), *PACKAGES)
        expect("no process is left", "laggard" not in self.processes())
        for name in PACKAGES:
            kept = self.root / f"etc/laggard/{name.removeprefix('laggard-')}{self.manager.kept}"
            expect(f"{kept.relative_to(self.root)} is kept", kept.is_file())
            expect(f"{name} is gone", not (self.root / "usr/bin" / name).exists())
        for folder in ("archive", "spool", "state"):
            expect(
                f"var/lib/laggard/{folder} is kept", any((self.root / "var/lib/laggard" / folder).iterdir())
            )

    def purge(self, before: dict[str, str]) -> None:
        """Nothing is left behind but what the operator made by hand."""
        say("purge")
        shutil.rmtree(self.root / "etc/systemd/system/laggard-agent.service.d")
        (self.root / BACKUP).unlink()
        self.machine.run("sh", "-euc", self.manager.purge)
        after = listing(self.root)
        differences = sorted(
            f"{name}: {before.get(name, 'was not there')} -> {after.get(name, 'is gone')}"
            for name in before.keys() | after.keys()
            if before.get(name) != after.get(name)
        )
        for line in differences:
            say(f"  {line}")
        expect(f"{len(after)} paths as before the installation, none left behind", not differences)

    def processes(self) -> str:
        """The command lines of all processes on the machine."""
        return self.machine.run("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")


def _kinds(mail: Message) -> list[str]:
    return [part.get_content_type() for part in mail.walk() if not part.is_multipart()]


def beside(trial: Trial) -> Iterator[tuple[str, ...]]:
    """What an operator's site has beside Laggard: a broker, Prometheus and a mail server."""
    broker = trial.work / "mosquitto.conf"
    broker.write_text("listener 1883 127.0.0.2\nallow_anonymous true\nuser root\n")
    yield trial.within("mosquitto", "-c", str(broker))
    config = trial.work / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\nscrape_configs: [{job_name: laggard, "
        'static_configs: [{targets: ["127.0.0.1:9464"]}]}]\n'
    )
    yield trial.within(
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={trial.work / 'tsdb'}",
        "--log.level=warn",
    )
    handler = ("-c", "aiosmtpd.handlers.Mailbox", str(trial.work / "mails"))
    yield trial.within(sys.executable, "-m", "aiosmtpd", "-n", "-l", "127.0.0.1:2525", *handler)
