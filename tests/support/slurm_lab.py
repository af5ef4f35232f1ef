"""A real Slurm on one host: munge, MariaDB, slurmdbd, slurmctld and four slurmd, for one test.

Everything is in one folder and in namespaces of its own (mounts, processes, network, host name), so the end
of the first process of the namespace ends all of them. No user, address, file or service of the host is
changed; only control groups are the host's, under names with the process id of the test, and are removed.

A testbed gives it nodes of its own instead; then Slurm is in the network of the testbed.
"""

import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import is_running, run_command, started
from tests.support.wait import wait_until

PROGRAMS = (
    *("slurmctld", "slurmd", "slurmdbd", "sbatch", "munged", "mariadbd", "mariadb-install-db"),
    *("unshare", "nsenter", "setpriv", "ip"),
)
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
CGROUPS = Path("/sys/fs/cgroup")
CLUSTER = "lab"
USER = "daemon"
"""An existing user, who submits the jobs."""

_SLURM_CONF = """\
ClusterName={cluster}
SlurmctldHost=ctl({address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=cred_expire=10,socket={folder}/munge/socket
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/spool/%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/log/slurmctld
SlurmdLogFile={folder}/log/%n
PluginDir={plugins}
SlurmdParameters=config_overrides
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/none
PrologFlags=Contain
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=bf_interval=2,sched_interval=2,permit_job_expansion
ReturnToService=2
SlurmdTimeout=300
KillWait=2
MinJobAge=3600
JobRequeue=1
MpiDefault=none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePass={folder}/munge/socket
AccountingStoreFlags=job_comment
PrologSlurmctld={hook}
EpilogSlurmctld={hook}
{nodes}
PartitionName=batch Nodes=ALL Default=YES DefaultTime=10 MaxTime=60 DefMemPerCPU=10
"""
_NODE = "NodeName={name} NodeAddr={address} Port={port} CPUs=8 RealMemory=2000"
_FIRST_PORT = 16811
_SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost=ctl
DbdAddr=127.0.0.1
SlurmUser=root
PidFile={folder}/slurmdbd.pid
LogFile={folder}/log/slurmdbd
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
"""
_INIT = """\
set -e
mount -t tmpfs -o mode=755 tmpfs /run
mount --bind {folder}/hosts /etc/hosts
{network}
hostname ctl
touch {folder}/up
sleep infinity & wait
"""
_NETWORK = """\
ip link set lo up
ip link add lab0 type veth peer name lab1  # names resolve only with an address that is not loopback
ip addr add 198.18.5.1/24 dev lab0
ip link set lab0 up
ip link set lab1 up
"""


@dataclass(frozen=True, slots=True)
class NodeHost:
    """A node of a testbed: its name, its address, and the command line that runs a command there."""

    name: str
    address: str
    command: Callable[..., list[str]]


def missing() -> str:
    """Why the lab cannot run here; empty when it can."""
    if os.geteuid() != 0:
        return "a Slurm of its own needs root"
    absent = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if absent:
        return f"needs {', '.join(absent)} (Debian: slurmctld slurmd slurmdbd munge mariadb-server)"
    if not (CGROUPS / "freezer").is_dir():
        return "needs control groups v1, as Slurm 22.05 does without systemd"
    return ""


class SlurmLab:
    """The running Slurm. `nodes`: names of its nodes; `work`: a folder that jobs may write to.

    `hosts`: nodes of a testbed, in whose network slurmctld has `address`; four of its own without.
    """

    def __init__(
        self,
        folder: Path,
        hook: Path | str,
        hosts: Sequence[NodeHost] = (),
        address: str = "127.0.0.1",
    ) -> None:
        self.folder = folder
        self.nodes = [host.name for host in hosts] or [f"lab{os.getpid()}n{n}" for n in range(1, 5)]
        self.work = folder / "work"
        self.conf = folder / "slurm.conf"
        self._hook = hook
        self._hosts = {host.name: host for host in hosts}
        self._address = address
        self._daemons: dict[str, int] = {}
        self._inside: list[str] = []
        self._environment = {
            "PATH": PATH,
            "SLURM_CONF": str(self.conf),
            "MYSQL_UNIX_PORT": str(folder / "db.sock"),
            "SLURM_TIME_FORMAT": "%s",
            "TZ": "UTC",
        }

    @contextmanager
    def running(self) -> Iterator["SlurmLab"]:
        """Everything runs while the block lasts; nothing is left behind."""
        self._write()
        with ExitStack() as stack:
            stack.callback(self._remove_cgroups)
            network = "" if self._hosts else _NETWORK
            script = _INIT.format(folder=shlex.quote(str(self.folder)), network=network)
            init = shlex.join(["sh", "-c", script])
            kinds = ["--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
            kinds += [] if self._hosts else ["--net"]
            log = stack.enter_context((self.folder / "log/init").open("wb"))
            process = stack.enter_context(
                started(["unshare", *kinds, "sh", "-c", f"exec {init}"], stdout=log, stderr=log)
            )
            wait_until(lambda: (self.folder / "up").exists() or process.poll() is not None, "namespaces")
            first = int(wait_until(lambda: _first_child(process.pid), "first process") or 0)
            self._inside = ["nsenter", "--target", str(first), "--mount", "--pid", "--net", "--uts"]
            try:
                self._start_all(stack)
                yield self
            except BaseException:
                for path in sorted((self.folder / "log").iterdir()):
                    print(f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}")
                raise
        wait_until(lambda: not is_running(first), "end of the namespace")

    def command(self, *words: str, user: str = "root", check: bool = True) -> str:
        """Output of a command of Slurm within the namespaces; fails when it does not end in time."""
        own = [] if user == "root" else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        command = [*self._inside, *own, "timeout", "30", *words]
        return run_command(command, check=check, env=self._environment, cwd=self.work).stdout

    def inside(self, *command: str) -> list[str]:
        """A command line that runs a program within the namespaces, as a client of Slurm."""
        names = [f"{name}={value}" for name, value in self._environment.items() if name != "PATH"]
        return [*self._inside, "env", *names, f"PATH={PATH}", *command]

    def submit(self, *options: str, user: str = USER) -> int:
        """Number of a job of a user."""
        words = ["sbatch", "--parsable", "--export=NONE", f"--chdir={self.work}", "-o", "/dev/null", *options]
        return int(self.command(*words, user=user).strip().split(";")[0])

    def add_user(self, user: str) -> None:
        """Lets an existing user submit jobs."""
        self.command("sacctmgr", "-iQ", "add", "user", user, "account=physics")

    def stop(self, daemon: str) -> None:
        """Kills a daemon and waits for its end."""
        run_command([*self._inside, "kill", str(self._daemons[daemon])])
        wait_until(lambda: not self._is_up(daemon), f"end of {daemon}")

    def start(self, daemon: str, stack: ExitStack) -> None:
        """Starts `slurmctld`, `slurmdbd` or a node's slurmd again."""
        commands = {"slurmctld": ["slurmctld", "-D"], "slurmdbd": ["slurmdbd", "-D"]}
        own = commands.get(daemon) or ["slurmd", "-D", "-N", daemon]
        self._start(stack, daemon, "ctl" if daemon in commands else daemon, *own)

    def _start_all(self, stack: ExitStack) -> None:
        munge, db = self.folder / "munge", self.folder / "db"
        as_munge = ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "munged", "--foreground"]
        files = {name: name.split("-")[0] for name in ("key-file", "pid-file", "log-file", "seed-file")}
        files["socket"] = "socket"
        self._start(
            stack, "munged", "ctl", *as_munge, *(f"--{name}={munge / file}" for name, file in files.items())
        )
        install = ["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={db}"]
        self.command(*install, "--auth-root-authentication-method=socket", "--skip-test-db")
        options = ["--no-defaults", "--user=root", f"--datadir={db}", "--skip-networking"]
        socket = self._environment["MYSQL_UNIX_PORT"]
        self._start(
            stack,
            "mariadbd",
            "ctl",
            "mariadbd",
            *options,
            f"--socket={socket}",
            "--innodb-flush-log-at-trx-commit=2",
        )
        self._wait("mariadb", "--no-defaults", "-e", "select 1")
        self._wait("munge", "-n", f"--socket={munge}/socket")
        self.start("slurmdbd", stack)
        self._wait("sacctmgr", "-n", "show", "cluster")
        self.command("sacctmgr", "-iQ", "add", "cluster", CLUSTER)
        self.command("sacctmgr", "-iQ", "add", "account", "physics")
        self.add_user(USER)
        self.start("slurmctld", stack)
        for node in self.nodes:
            self.start(node, stack)
        count = str(len(self.nodes))
        idle = ("sinfo", "-h", "-t", "idle", "-o", "%D")
        wait_until(lambda: self.command(*idle, check=False).strip() == count, "idle nodes")

    def _start(self, stack: ExitStack, name: str, host: str, *command: str) -> None:
        pid_file = self.folder / f"{name}.started"
        script = f'hostname {host}; echo $$ > {shlex.quote(str(pid_file))}; exec "$@"'
        there = self._hosts.get(name)
        enter = self._inside if there is None else there.command()
        words = [*enter, "unshare", "--uts", "sh", "-c", script, name, *command]
        log = stack.enter_context((self.folder / f"log/{name}.out").open("ab"))
        pid_file.unlink(missing_ok=True)
        stack.enter_context(started(words, stdout=log, stderr=log, env=self._environment))
        self._daemons[name] = int(
            wait_until(lambda: pid_file.exists() and pid_file.read_text().strip(), name)
        )

    def _is_up(self, daemon: str) -> bool:
        command = [*self._inside, "kill", "-0", str(self._daemons[daemon])]
        return run_command(command, check=False).returncode == 0

    def _wait(self, *command: str) -> None:
        full = [*self._inside, "timeout", "10", *command]
        wait_until(lambda: run_command(full, check=False, env=self._environment).returncode == 0, command[0])

    def _write(self) -> None:
        for name in ("log", "state", "munge", "db", "work", *(f"spool/{node}" for node in self.nodes)):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)
        self.work.chmod(0o1777)
        addresses = [self._hosts[name].address if name in self._hosts else "127.0.0.1" for name in self.nodes]
        values = {"folder": self.folder, "cluster": CLUSTER, "hook": self._hook, "address": self._address}
        values["plugins"] = "/usr/lib/x86_64-linux-gnu/slurm-wlm"
        values["nodes"] = "\n".join(
            _NODE.format(name=name, address=own, port=_FIRST_PORT + at)
            for at, (name, own) in enumerate(zip(self.nodes, addresses, strict=True))
        )
        self.conf.write_text(_SLURM_CONF.format(**values))
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nConstrainRAMSpace=yes\n")
        dbd = self.folder / "slurmdbd.conf"
        dbd.write_text(_SLURMDBD_CONF.format(folder=self.folder))
        dbd.chmod(0o600)
        known = [("127.0.0.1", "localhost"), (self._address, "ctl"), *zip(addresses, self.nodes, strict=True)]
        (self.folder / "hosts").write_text("".join(f"{own} {name}\n" for own, name in known))
        key = self.folder / "munge/key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        for path in (key.parent, key):
            shutil.chown(path, "munge", "munge")

    def _remove_cgroups(self) -> None:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            folders = [path for node in self.nodes for path in CGROUPS.glob(f"*/slurm_{node}")]
            if not folders:
                return
            for folder in folders:
                _remove_tree(folder)


def _first_child(pid: int) -> int | None:
    """The first process of the namespace below `unshare`, as this namespace numbers it."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    words = children.read_text().split() if children.exists() else []
    return int(words[0]) if words else None


def _remove_tree(folder: Path) -> None:
    for path, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(path)  # noqa: PTH106 - strings of os.walk
        except OSError:  # a process is about to end
            return
