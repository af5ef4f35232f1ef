"""What the tests of `fntrace` are made of: the library, programs that use it, tables made by hand."""

import os
import shutil
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from laggard_agent.collectors.fntrace.collector import Fntrace, FntraceSettings
from tests.support.processes import run_command
from tests.support.sampled import Sampled, surroundings

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "tests" / "fixtures" / "fntrace"

needs_gcc = pytest.mark.skipif(
    shutil.which("gcc") is None or shutil.which("make") is None, reason="gcc or make is not installed"
)


def sampled(directory: Path, procfs: Path = Path("/proc"), max_functions: int = 100) -> Sampled[Fntrace]:
    """The collector, sampled by hand."""
    settings = FntraceSettings(directory, max_functions)
    return Sampled(lambda now, ns: Fntrace(settings, surroundings(now, ns, procfs=procfs)))


def run(command: Sequence[str | Path], **settings: str) -> str:
    """Runs a command that must succeed; returns what it printed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LAGGARD_")} | settings
    done = run_command(command, env=environment)
    assert done.stderr == ""
    return done.stdout


@dataclass(frozen=True, slots=True)
class Traced:
    """A compiled program and where its tables go."""

    program: Path
    directory: Path

    def trace(self, *arguments: str, **settings: str) -> dict[str, int]:
        """Runs it; the numbers that it printed by name."""
        settings = {f"LAGGARD_TRACE_{name}": value for name, value in settings.items()}
        text = run([self.program, *arguments], LAGGARD_TRACE_DIR=str(self.directory), **settings)
        pairs = (line.split() for line in text.splitlines())
        return {words[0]: int(words[1]) for words in pairs if len(words) == 2}

    def sums(self) -> dict[str, dict[str, int | float | None]]:
        """Rows by the function's own name; the node's under `node`."""
        now = sampled(self.directory).sample()
        assert now.error == ""
        rows = {id_.partition("/")[2]: now.row("fntrace", id_) for id_ in now.ids("fntrace")}
        short = {id_.rpartition("/")[2]: row for id_, row in rows.items()}
        assert len(short) == len(rows)
        return short | {"node": now.row("fntrace_node", "fntrace")}

    def calls(self) -> dict[str, int | float | None]:
        """Calls by function."""
        return {name: row["calls"] for name, row in self.sums().items() if name != "node"}


class Compiler:
    """Builds the library once, and programs with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        run(["make", "-s", "-C", ROOT / "native", f"BUILD={folder}"])

    def build(self, source: str, name: str, *options: str, compiler: str = "gcc") -> Path:
        """Compiles `source` with instrumentation and the library; returns the program or image."""
        made = self.folder / name
        link = ["-L", str(self.folder), "-llaggardtrace", f"-Wl,-rpath,{self.folder}", "-ldl", "-lpthread"]
        command = [
            compiler,
            "-g0",
            "-finstrument-functions",
            *options,
            str(SOURCES / source),
            "-o",
            str(made),
        ]
        run([*command, *link])
        return made


@dataclass(frozen=True, slots=True)
class Made:
    """A table as the library would write it; anything in it may be replaced by something that is wrong."""

    pid: int = 4_000_000  # past the greatest there can be
    start: int = 77
    namespace: int = 0
    rate: int = 1_000_000_000
    program: bytes = b"server"
    modules: Sequence[tuple[int, bytes, bytes]] = ((1, b"", b"/no/such/image"),)
    functions: Sequence[tuple[int, int]] = ((0, 0xFFFFFFFF), (0x1000, 0), (0x2000, 0))
    slots: Sequence[Sequence[tuple[int, int]]] = (((0, 0), (5, 500), (7, 700)),)
    capacities: tuple[int, int, int] = (2, 8, 4)

    def data(self, **head: int | bytes) -> bytes:
        """The bytes of the file."""
        values: dict[str, int | bytes] = {
            "magic": b"LAGTRACE",
            "version": 1,
            "complete": 1,
            "pid": self.pid,
            "module_capacity": self.capacities[0],
            "function_capacity": self.capacities[1],
            "slot_capacity": self.capacities[2],
            "start": self.start,
            "namespace": self.namespace,
            "rate": self.rate,
            "program": self.program,
            "modules": len(self.modules),
            "functions": len(self.functions),
            "slots": len(self.slots),
            "unused": 0,
            "threads_without_slot": 0,
            "functions_left_out": 0,
        }
        assert head.keys() <= values.keys()
        packed = struct.pack("=8s6I3Q128s4I2Q", *(values | head).values()).ljust(4096, b"\0")
        modules = b"".join(struct.pack("=QII32s464s", i, len(b), len(p), b, p) for i, b, p in self.modules)
        functions = b"".join(struct.pack("=QII", offset, module, 0) for offset, module in self.functions)
        packed += modules.ljust(512 * self.capacities[0], b"\0")
        packed += functions.ljust(16 * self.capacities[1], b"\0")
        packed += bytes(-len(packed) % 64)
        for i in range(self.capacities[2]):
            counters = self.slots[i] if i < len(self.slots) else ()
            slot = struct.pack("=II4Q24x", i < len(self.slots), 0, 1, 2, 3, 4 if counters else 0)
            slot += b"".join(struct.pack("=QQ", *counter) for counter in counters)
            packed += slot.ljust(64 + 16 * self.capacities[1], b"\0")
        return packed

    def write(self, directory: Path, number: int = 0, **head: int | bytes) -> Path:
        """Writes it in place, or makes it."""
        path = directory / f"{self.pid}.{self.start}.{number}"
        with path.open("r+b" if path.exists() else "wb") as file:
            file.write(self.data(**head))
        return path


def process_tree(root: Path, processes: Mapping[int, int]) -> Path:
    """A /proc of the namespace 4026531836 where these processes run, since when."""
    (root / "self" / "ns").mkdir(parents=True, exist_ok=True)
    link = root / "self" / "ns" / "pid"
    if not link.is_symlink():
        link.symlink_to("pid:[4026531836]")
    for pid, start in processes.items():
        (root / str(pid)).mkdir(exist_ok=True)
        fields = ["S", *map(str, range(4, 22)), str(start), "0"]
        (root / str(pid) / "stat").write_text(f"{pid} (a) b) {' '.join(fields)}\n")
    return root
