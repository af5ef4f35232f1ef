"""The agent process where names, certificates, disks and brokers are not ready, change, or hang."""

import asyncio
import ctypes
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import aiomqtt
import pytest

from laggard_common import wire
from laggard_common.wire import Ack
from tests.naive_coalesce import apart
from tests.support.builders.trees import disk_line, tree
from tests.support.pki import issued
from tests.support.ports import free_port, is_listening
from tests.support.processes import run_command, started
from tests.support.wait import LIMIT_SECONDS, time_limit, wait_until

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
MOSQUITTO = shutil.which("mosquitto", path=_PATH)
IS_ROOT = os.geteuid() == 0

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(MOSQUITTO is None, reason="needs mosquitto")]


class Site:
    """A folder with the files of an agent, and its log."""

    def __init__(
        self, folder: Path, *, disks: int = 1, more: str = "", mqtt: str = "", node: str = "oss-1"
    ) -> None:
        self.folder, self.port = folder, free_port()
        names = (f"sd{a}{b}" for a, b in itertools.product("abcdefghijklmnopqrstuvwxyz", repeat=2))
        lines = "".join(disk_line(name, *range(17)) for name in itertools.islice(names, disks))
        tree(folder, {"proc/diskstats": lines})
        named = f'node = "{node}"\n' if node else ""
        (folder / "agent.toml").write_text(
            f'{named}interval_seconds = 0.1\nbatch_samples = 5\ncollectors = ["diskstats"]\n{more}'
            f'[mqtt]\nport = {self.port}\n{mqtt}[spool]\ndirectory = "{folder}/spool"\n'
        )
        self.log = folder / "agent.log"

    def command(self, *before: str) -> list[str]:
        return [
            *before,
            *(sys.executable, "-m", "laggard_agent.cli", "--config", str(self.folder / "agent.toml")),
            *("--procfs", str(self.folder / "proc")),
        ]

    @contextmanager
    def agent(self, *before: str) -> Iterator["subprocess.Popen[str]"]:
        with self.log.open("a") as log, started(self.command(*before), stderr=log, text=True) as process:
            yield process

    @contextmanager
    def broker(self, more: str = "allow_anonymous true\n") -> Iterator[None]:
        config = self.folder / "mosquitto.conf"
        user = "user root\n" if IS_ROOT else ""  # it may not read the test's files as another
        config.write_text(f"{user}listener {self.port} 127.0.0.1\n{more}")
        with started([str(MOSQUITTO), "-c", config], stderr=subprocess.DEVNULL):
            wait_until(lambda: is_listening(self.port), "mosquitto to listen")
            yield

    def logged(self, text: str) -> bool:
        return self.log.exists() and text in self.log.read_text()

    def warnings(self) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if " WARNING " in line]


class Listener:
    """Takes what comes and acknowledges it, under the name of the node that sent it."""

    def __init__(self, port: int, *, acknowledges: bool = True) -> None:
        self.port, self.acknowledges = port, acknowledges
        self.topics: list[str] = []
        self.times: dict[str, set[int]] = {}

    async def until(self, condition: Callable[[], bool]) -> None:
        async with time_limit(), aiomqtt.Client("127.0.0.1", self.port, timeout=LIMIT_SECONDS) as client:
            await client.subscribe("laggard/1/site/#", qos=1)
            async for message in client.messages:
                topic, payload = str(message.topic), message.payload
                self.topics.append(topic)
                assert isinstance(payload, bytes)
                if "/data/" in topic:
                    envelope = wire.decode_envelope(payload)
                    node = topic.split("/")[4]
                    assert envelope.node == node
                    self.times.setdefault(node, set()).update(
                        envelope.t0_ns + at * envelope.dt_ns for at in range(envelope.n)
                    )
                    last = apart(envelope)[-1].seq
                    ack = Ack(envelope.stream, envelope.source, ((envelope.seq, last),))
                    if self.acknowledges:
                        await client.publish(f"laggard/1/site/ack/{node}", wire.encode_ack([ack]), qos=1)
                if condition():
                    return


def opens_a_pipe(pid: int) -> bool:
    """Whether a thread of a process waits for the other end of a named pipe."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it ended
            if (task / "wchan").read_text() == "wait_for_partner":
                return True
    return False


def ended_within(agent: "subprocess.Popen[str]", seconds: float) -> None:
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(seconds) == 0


# -- R3: the host's name


def named(process: "subprocess.Popen[str]", name: str) -> None:
    """Names the host of `process`, which has left the names of this machine: never this machine itself."""
    assert Path(f"/proc/{process.pid}/ns/uts").readlink() != Path("/proc/self/ns/uts").readlink()
    run_command(["nsenter", f"--uts=/proc/{process.pid}/ns/uts", "hostname", name])


needs_names = pytest.mark.skipif(
    not IS_ROOT or any(shutil.which(each, path=_PATH) is None for each in ("unshare", "nsenter", "hostname")),
    reason="needs root, unshare, nsenter and hostname",
)
UNSHARED = ("unshare", "--uts", "sh", "-c", 'hostname localhost; exec "$@"', "sh")


@needs_names
def test_nothing_is_published_as_localhost_and_a_new_name_is_followed(tmp_path: Path) -> None:
    site = Site(tmp_path, node="")
    listener = Listener(site.port)
    with site.broker(), site.agent(*UNSHARED) as agent:
        wait_until(lambda: site.logged("waiting for a host name: 'localhost'"), "the warning")
        named(agent, "oss-17")
        asyncio.run(listener.until(lambda: len(listener.times.get("oss-17", ())) >= 10))
        named(agent, "oss-18")
        asyncio.run(listener.until(lambda: len(listener.times.get("oss-18", ())) >= 10))
        ended_within(agent, 5.0)
    assert [topic for topic in listener.topics if "localhost" in topic] == []
    assert len([line for line in site.warnings() if "waiting for a host name" in line]) == 1
    assert "the host was renamed from oss-17 to oss-18" in site.log.read_text()
    assert "discarding" not in site.log.read_text()


@needs_names
def test_a_spool_of_this_boot_is_kept_under_the_new_name(tmp_path: Path) -> None:
    site = Site(tmp_path, node="")
    segment = tmp_path / "spool"
    listener = Listener(site.port)
    with site.agent(*UNSHARED) as agent:
        wait_until(lambda: site.logged("waiting for a host name: 'localhost'"), "its own name")
        named(agent, "oss-17")
        wait_until(lambda: sum(p.stat().st_size for p in segment.glob("*.segment")) > 2000, "batches")
        named(agent, "oss-18")
        wait_until(lambda: site.logged("to oss-18; restarting under"), "the new name")
        renamed_ns = (tmp_path / "agent.log").stat().st_mtime_ns
        with site.broker():

            def has_both() -> bool:
                times = listener.times.get("oss-18", set())
                return max(times, default=0) > renamed_ns and sum(t < renamed_ns for t in times) >= 10

            asyncio.run(listener.until(has_both))
        ended_within(agent, 5.0)
    assert set(listener.times) == {"oss-18"}
    assert "discarding" not in site.log.read_text()


# -- R6: a state folder that hangs


@contextmanager
def hanging_mount(folder: Path) -> Iterator[None]:
    """A FUSE mount whose server never answers."""
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.mount(b"laggard-test", os.fsencode(folder), b"fuse", 0, options) != 0:
        os.close(fuse)
        pytest.skip(f"no FUSE: {os.strerror(ctypes.get_errno())}")
    try:
        yield
    finally:
        os.close(fuse)  # aborts the connection: all that waits fails
        libc.umount2(os.fsencode(folder), 2)


def check_sampling_in_memory(site: Site) -> None:
    listener = Listener(site.port)
    with site.broker(), site.agent() as agent:
        asyncio.run(listener.until(lambda: len(listener.times.get("oss-1", ())) >= 20))
        ended_within(agent, 5.0)
    assert [line for line in site.warnings() if "does not answer; keeping batches in memory" in line] == (
        site.warnings()
    )
    assert len(site.warnings()) == 1


@pytest.mark.skipif(not IS_ROOT or not Path("/dev/fuse").exists(), reason="needs root and /dev/fuse")
def test_a_spool_on_a_mount_that_never_answers(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with hanging_mount(tmp_path / "spool"):
        check_sampling_in_memory(site)


@pytest.mark.skipif(not IS_ROOT or not Path("/dev/fuse").exists(), reason="needs root and /dev/fuse")
@pytest.mark.parametrize(
    ("more", "told"),
    [
        ('[outbox]\ndirectory = "{}/outbox"\n', "outbox: {}/outbox has not answered for 10 s"),
        ('[traces]\nfiles = ["{}/*.log"]\n', "traces: a file or folder has not answered for 10 s"),
    ],
)
def test_a_folder_beside_the_spool_that_never_answers(tmp_path: Path, more: str, told: str) -> None:
    hung = tmp_path / "hung"
    site = Site(tmp_path, more=more.format(hung))
    listener = Listener(site.port)
    with hanging_mount(hung), site.broker(), site.agent() as agent:
        asyncio.run(listener.until(lambda: site.logged(told.format(hung))))
        before = len(listener.times["oss-1"])
        asyncio.run(listener.until(lambda: len(listener.times["oss-1"]) >= before + 20))
        ended_within(agent, 5.0)
    assert len(site.warnings()) == 1


def test_a_spool_whose_lock_never_opens(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (tmp_path / "spool").mkdir()
    os.mkfifo(tmp_path / "spool" / "lock")  # an open for writing waits for a reader
    check_sampling_in_memory(site)


def test_an_end_while_the_spool_is_opened(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (tmp_path / "spool").mkdir()
    os.mkfifo(tmp_path / "spool" / "lock")
    with site.agent() as agent:
        wait_until(lambda: opens_a_pipe(agent.pid), "the agent to open its spool")
        ended_within(agent, 5.0)


@contextmanager
def frozen(folder: Path) -> Iterator[None]:
    run_command(["fsfreeze", "-f", folder])
    try:
        yield
    finally:
        run_command(["fsfreeze", "-u", folder])


@contextmanager
def own_file_system(folder: Path, image: Path) -> Iterator[None]:
    if not IS_ROOT or any(
        shutil.which(each, path=_PATH) is None for each in ("fsfreeze", "mkfs.ext4", "mount")
    ):
        pytest.skip("needs root, fsfreeze and mkfs.ext4")
    folder.mkdir()
    image.write_bytes(b"")
    os.truncate(image, 32 << 20)
    run_command(["mkfs.ext4", "-q", image])
    if run_command(["mount", "-o", "loop", image, folder], check=False).returncode != 0:
        pytest.skip("no loop devices")
    try:
        yield
    finally:
        run_command(["umount", "-l", folder])


def test_a_state_folder_that_hangs_later_and_comes_back(tmp_path: Path) -> None:
    site = Site(tmp_path)
    listener = Listener(site.port)

    def samples() -> int:
        return len(listener.times.get("oss-1", ()))

    with own_file_system(tmp_path / "spool", tmp_path / "image"), site.broker(), site.agent() as agent:
        asyncio.run(listener.until(lambda: samples() >= 10))
        with frozen(tmp_path / "spool"):
            wait_until(lambda: site.logged("does not answer; keeping batches in memory only"), "the warning")
            before = samples()
            asyncio.run(listener.until(lambda: samples() >= before + 20))
        asyncio.run(listener.until(lambda: site.logged("answers again")))
        before = samples()
        asyncio.run(listener.until(lambda: samples() >= before + 10))
        ended_within(agent, 5.0)
    assert len(site.warnings()) == 1


@pytest.mark.skipif(not IS_ROOT or not Path("/dev/fuse").exists(), reason="needs root and /dev/fuse")
@pytest.mark.parametrize("table", ["state", "archive"])
def test_an_aggregator_says_which_folder_it_waits_for(tmp_path: Path, table: str) -> None:
    folders = {name: tmp_path / name for name in ("state", "archive")} | {table: tmp_path / "hung" / "x"}
    config = tmp_path / "aggregator.toml"
    config.write_text(
        f'[http]\nlisten = "127.0.0.1:0"\n[mqtt]\nport = {free_port()}\n'
        + "".join(f'[{name}]\ndirectory = "{folder}"\n' for name, folder in folders.items())
    )
    command = [sys.executable, "-m", "laggard_aggregator.cli.daemon", "--config", str(config)]
    told = f"{table}: {folders[table]} has not answered for 10 s; waiting for it"
    log = tmp_path / "aggregator.log"
    with hanging_mount(tmp_path / "hung"), log.open("w") as opened, started(command, stderr=opened) as daemon:
        wait_until(lambda: told in log.read_text(), "the warning")
        daemon.kill()
        daemon.wait()


def test_an_aggregator_whose_state_folder_hangs_at_its_end(tmp_path: Path) -> None:
    state, log = tmp_path / "state", tmp_path / "aggregator.log"
    config = tmp_path / "aggregator.toml"
    config.write_text(
        f'[http]\nlisten = "127.0.0.1:0"\n[mqtt]\nport = {free_port()}\n[state]\ndirectory = "{state}"\n'
    )
    command = [sys.executable, "-m", "laggard_aggregator.cli.daemon", "--config", str(config)]

    def is_running() -> bool:
        return any(state.glob("*.snapshot"))

    with log.open("w") as opened, started(command, stderr=opened) as daemon:
        wait_until(is_running, "the first snapshot")
        newest = max(state.glob("*.journal"))
        pipe = newest.with_stem(str(int(newest.stem) + 1).zfill(len(newest.stem)))
        os.mkfifo(pipe)  # an open for writing waits for a reader
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(LIMIT_SECONDS) == 1
    assert "not ended 20 s after the signal" in log.read_text().splitlines()[-1]
    pipe.unlink()
    log.write_text("")
    with log.open("w") as opened, started(command, stderr=opened) as daemon:
        wait_until(lambda: "metrics at" in log.read_text(), "the next start")
        wait_until(lambda: len(list(state.glob("*.snapshot"))) > 1, "its first snapshot")
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(LIMIT_SECONDS) == 0


# -- R10: certificates that arrive after the start


def test_a_certificate_that_is_missing_is_waited_for(tmp_path: Path) -> None:
    pki = issued(tmp_path / "pki")
    cert, key = (pki / "issued" / f"laggard-broker.{end}" for end in ("pem", "key"))
    ca = pki / "ca.pem"
    site = Site(tmp_path, mqtt=f'ca_file = "{tmp_path}/late.pem"\n')
    listener = Listener(free_port())
    tls = (
        f"allow_anonymous true\ncafile {ca}\ncertfile {cert}\nkeyfile {key}\n"
        f"listener {listener.port} 127.0.0.1\n"
    )
    with site.broker(tls), site.agent() as agent:
        wait_until(lambda: site.logged("late.pem: No such file or directory: waiting for it"), "the warning")
        (tmp_path / "late.pem").write_bytes(ca.read_bytes())
        asyncio.run(listener.until(lambda: len(listener.times.get("oss-1", ())) >= 10))
        ended_within(agent, 5.0)


def test_a_certificate_that_is_wrong_ends_the_agent(tmp_path: Path) -> None:
    site = Site(tmp_path, mqtt=f'ca_file = "{tmp_path}/ca.pem"\n')
    (tmp_path / "ca.pem").write_text("no certificate")
    assert run_command(site.command(), check=False).returncode == 2
    (tmp_path / "ca.pem").unlink()
    assert run_command([*site.command(), "--check-config"], check=False).returncode == 2


def test_an_aggregator_without_its_certificate_is_started_again(tmp_path: Path) -> None:
    config = tmp_path / "aggregator.toml"
    config.write_text(f'[http]\nlisten = "127.0.0.1:0"\ncert_file = "{tmp_path}/late.pem"\n')
    command = [sys.executable, "-m", "laggard_aggregator.cli.daemon", "--config", str(config)]
    done = run_command(command, check=False)
    assert (done.returncode, "late.pem" in done.stderr) == (1, True)
    (tmp_path / "late.pem").write_text("no certificate")
    (tmp_path / "late.pem").chmod(0o600)
    assert run_command(command, check=False).returncode == 2


# -- a broker that takes nothing


def unanswered(site: Site) -> str:
    wait_until(lambda: site.logged("the aggregator has acknowledged nothing"), "the warning")
    return next(line for line in site.warnings() if "acknowledged nothing" in line)


def test_a_broker_whose_acl_denies_each_publish(tmp_path: Path) -> None:
    site = Site(tmp_path)
    acl = tmp_path / "acl"
    acl.write_text("topic read laggard/#\n")
    with site.broker(f"allow_anonymous true\nacl_file {acl}\n"), site.agent() as agent:
        assert "publishing: the broker's ACL denies" in unanswered(site)
        checked = run_command([*site.command(), "--check"], check=False)
        assert checked.returncode == 1
        assert "BAD  publishing: the broker's ACL denies" in checked.stdout
        ended_within(agent, 5.0)


def test_a_broker_whose_messages_are_limited(tmp_path: Path) -> None:
    site = Site(tmp_path, disks=200)
    with site.broker("allow_anonymous true\nmessage_size_limit 2048\n"), site.agent() as agent:
        assert "too large" in unanswered(site)
        checked = run_command([*site.command(), "--check"], check=False)
        assert (checked.returncode, "BAD  publishing" in checked.stdout) == (1, True)
        ended_within(agent, 5.0)


def test_a_broker_whose_packets_are_limited(tmp_path: Path) -> None:
    site = Site(tmp_path, disks=200)
    with site.broker("allow_anonymous true\nmax_packet_size 2048\n"), site.agent() as agent:
        text = "ends each connection on a packet of"
        wait_until(lambda: site.logged(text), "the warning")
        assert "max_packet_size" in site.log.read_text()
        checked = run_command([*site.command(), "--check"], check=False)
        assert (checked.returncode, "BAD  largest packet: the broker takes 2048" in checked.stdout) == (
            1,
            True,
        )
        ended_within(agent, 5.0)


def test_two_agents_of_one_name(tmp_path: Path) -> None:
    first, second = (Site(tmp_path / name) for name in ("a", "b"))
    config = second.folder / "agent.toml"
    config.write_text(config.read_text().replace(f"port = {second.port}", f"port = {first.port}"))
    with first.broker(), first.agent() as one, second.agent() as other:
        told = "have the name oss-1, too? A broker keeps one client of a name"
        wait_until(lambda: first.logged(told) and second.logged(told), "both warnings")
        ended_within(one, 5.0)
        ended_within(other, 5.0)
    assert len([line for line in first.warnings() if told in line]) == 1


def test_a_site_without_an_aggregator_and_with_one(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with site.broker():
        checked = run_command([*site.command(), "--check"], check=False)
        assert "BAD  aggregator: nobody subscribes to laggard/1/site/storage/oss-1/data" in checked.stdout
        config = tmp_path / "aggregator.toml"
        config.write_text(
            f'[http]\nlisten = "127.0.0.1:0"\n[mqtt]\nport = {site.port}\n'
            f'[state]\ndirectory = "{tmp_path}/state"\n'
            f'[archive]\ndirectory = "{tmp_path}/archive"\n'
        )
        command = [sys.executable, "-m", "laggard_aggregator.cli.daemon", "--config", str(config)]
        log = tmp_path / "aggregator.log"
        with log.open("w") as opened, started(command, stderr=opened):
            wait_until(lambda: "connected to" in log.read_text(), "the aggregator")
            checked = run_command([*site.command(), "--check"], check=False)
            assert checked.stdout.splitlines()[-1] == "good aggregator: answers"
            assert checked.returncode == 0, checked.stdout
