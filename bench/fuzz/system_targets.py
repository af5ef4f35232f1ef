# ruff: noqa: E501 - examples are whole lines of their formats
"""Readers of the node's own trees and answers, of compressed files, of a Prometheus server and of settings."""

import contextlib
import gzip
import lzma
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import zstandard

from laggard_agent.collectors.cgroup.folders import SlurmTree
from laggard_agent.collectors.diskerrors.collector import DiskErrors, DiskErrorsSettings
from laggard_agent.collectors.diskstats.collector import Diskstats, DiskstatsSettings
from laggard_agent.collectors.host.collector import Host, HostSettings
from laggard_agent.collectors.net import inet_diag
from laggard_agent.collectors.net.layers import Interfaces
from laggard_agent.settings import AgentSettings
from laggard_agent.symbols import elf
from laggard_aggregator.files.compressed import open_input
from laggard_aggregator.offline.prometheus_input import Span, read_prometheus
from laggard_aggregator.prometheus.compare_map import load_map
from laggard_aggregator.prometheus.scrapes import ScrapeReader
from laggard_aggregator.prometheus.server import PrometheusServer
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_common import config
from laggard_common.errors import CollectError, ConfigError, InputError, LaggardError, ServiceError
from tests.support.builders.elf_image import Sym, elf_image
from tests.support.builders.trees import disk_line, tree
from tests.support.sampled import surroundings

_MOST_UNPACKED = 1 << 22
_ATTRIBUTES = ("wwid", "serial", "model", "rev", "vpd_pg80", "state", "ioerr_cnt", "iocounterbits")


def sockets(data: bytes) -> None:
    """A netlink answer about TCP sockets."""
    with contextlib.suppress(CollectError):
        inet_diag.read(data, inet_diag.SocketDump([]), 100)


def hosts_files(data: bytes) -> None:
    """/proc/stat, meminfo and loadavg."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        for file in ("stat", "meminfo", "loadavg"):
            (Path(name) / file).write_bytes(data)
        with contextlib.suppress(CollectError):
            list(Host(HostSettings(), surroundings(procfs=Path(name))).read())


def device_trees(data: bytes) -> None:
    """Attributes of a disk, and names of interfaces and control groups, of any bytes."""
    names = [part[:200] for part in data.split(b"\n") if part.strip(b".") and not {0, 47} & set(part)][:8]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        root = Path(name)
        tree(root, {"proc/diskstats": disk_line("sda", *range(17)), "sys/block/sda/size": "8"})
        device = root / "sys/block/sda/device"
        device.mkdir()
        for at, attribute in enumerate(_ATTRIBUTES):
            (device / attribute).write_bytes(data[at :: len(_ATTRIBUTES)])
        for part in names:
            text = part.decode(errors="surrogateescape")
            for folder in ("sys/class/net", "cgroup/system.slice", "cgroup/system.slice/slurmstepd.scope"):
                (root / folder / text).mkdir(parents=True, exist_ok=True)
        context = surroundings(procfs=root / "proc", sysfs=root / "sys")
        for collector in (Diskstats(DiskstatsSettings(), context), DiskErrors(DiskErrorsSettings(), context)):
            with contextlib.suppress(CollectError):
                list(collector.read())
        texts = [part.decode(errors="surrogateescape") for part in names]
        Interfaces(root / "sys", lambda _: None).counted(texts)
        with contextlib.suppress(CollectError):
            SlurmTree(root / "cgroup").jobs(0)


def elf_images(data: bytes) -> None:
    """Symbols of a program."""
    with contextlib.suppress(LaggardError):
        elf.parse(data)


def compressed_files(data: bytes) -> None:
    """A file of gzip, xz, zstd or none of these, with and without the message that it is cut."""
    remarks: list[str] = []
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(data)
        file.flush()
        for cut in (None, remarks.append):
            with contextlib.suppress(InputError), open_input(Path(file.name), cut=cut) as opened:
                left = _MOST_UNPACKED
                while left > 0 and (some := opened.read(1 << 20)):
                    left -= len(some)


class AnsweredServer(PrometheusServer):
    """A server that answers everything with the same bytes."""

    body = b""

    def _post(self, question: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:  # noqa: ARG002
        return 200, self.body


def prometheus_answers(data: bytes) -> None:
    """Answers of a Prometheus server, and the readings and samples made of them."""
    AnsweredServer.body = data
    server = AnsweredServer("http://127.0.0.1:9")
    with contextlib.suppress(ServiceError):
        server.instant("up", 1.0)
    with contextlib.suppress(ServiceError):
        server.over("up", 1.0, 2.0, 1.0)
    compare_map = load_map("node_exporter")
    with contextlib.suppress(ServiceError):
        ScrapeReader(compare_map.sources[0], 15.0).read(server, 1, 4)
    with contextlib.suppress(ServiceError, InputError):
        list(read_prometheus(server, compare_map, Span(0.0, 120.0, 30.0), 2, []))


def settings_files(data: bytes) -> None:
    """Configuration of the agent and the aggregator, and a map of series."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm", suffix=".toml") as file:
        file.write(data)
        file.flush()
        for settings in (AgentSettings, AggregatorSettings):
            with contextlib.suppress(ConfigError):
                config.load(settings, Path(file.name))
        with contextlib.suppress(ConfigError):
            load_map(file.name)


_HOST = (
    b"cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5 1 2\nctxt 7\nbtime 1700000000\nprocesses 3\n",
    b"MemTotal: 100 kB\nMemFree: 50 kB\nMemAvailable: 60 kB\nBuffers: 1 kB\nCached: 2 kB\nActive: 1 kB\n",
    b"0.10 0.20 0.30 1/200 4321\n",
)
_ANSWER = (
    b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"device":"sda"},"value":[1,"2"]}]}}',
    b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2"],[2,"NaN"]],'
    b'"histograms":[]}]},"warnings":["x"]}',
    b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"node_disk_reads_completed_total",'
    b'"instance":"oss1:9100","device":"sda","model":"X1"},"values":[[10,"1"],[25,"2"],[40,"1e3"],[90,"+Inf"]]}]}}',
    b'{"status":"error","errorType":"bad_data","error":"exceeded maximum resolution of 11,000 points"}',
)
_SETTINGS = (
    b'role = "storage"\ncollectors = ["diskstats"]\n[mqtt]\nhost = "mon"\n[diskstats]\nexclude = ["loop.*"]\n',
    b'[mqtt]\nhost = "mon"\n[http]\nlisten = "127.0.0.1:9464"\n[[group]]\nname = "x"\nsource = "diskstats"\n',
    b'[[source]]\nname = "diskstats"\nselect = "device!~\\"md\\""\n[[compare]]\nname = "x"\ncount = "a_total"\n',
)
_LINES = b"a,b\n1,2\n" * 20

SYSTEM: dict[str, tuple[Callable[[bytes], object], tuple[bytes, ...]]] = {
    "sockets": (sockets, (inet_diag.request(2), bytes(range(200)))),
    "the host's files": (hosts_files, _HOST),
    "trees of devices": (device_trees, (b"naa.5000c500a1b2c3d4\njob_7\nuid_0\nbond0\n" * 4,)),
    "ELF": (elf_images, (elf_image([Sym("main", 0x1000, 16)]),)),
    "compressed files": (
        compressed_files,
        (gzip.compress(_LINES), lzma.compress(_LINES), zstandard.compress(_LINES), _LINES),
    ),
    "answers of Prometheus": (prometheus_answers, _ANSWER),
    "settings": (settings_files, _SETTINGS),
}
"""What is run, and good examples."""
