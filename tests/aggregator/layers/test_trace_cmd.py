"""`trace-cmd report`: names of events are padded, and system calls are `sys_enter_*` and `sys_exit_*`."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.cli.main import main
from laggard_aggregator.layers.columns import LayerRecording
from laggard_aggregator.layers.readers import kernel_trace
from tests.aggregator.layers.analysed import analysed
from tests.support.builders.kernel_text import KernelTrace

SIZE = 65536
HEADS = ["cpus=4\n", "version = 7\nCPU 0 is empty\nCPU 2 is empty\ncpus=4\n", "trace.dat:\ncpus=128\n"]
TASKS = ["fio-4712 ", "<idle>-0    ", "kworker/u8:3-events_unbound-99 ", "my app [2]-17 "]


def report(built: KernelTrace, *, head: str, task: str, flags: str, digits: int, width: int) -> str:
    """The events as trace-cmd prints them."""
    lines = [head]
    for time, text in sorted(built.events, key=lambda each: each[0]):
        event = text.split(": ", 1)[1].rstrip("\n")
        if entry := re.fullmatch(r"sys_(\w+)\((.*)\)", event):
            arguments = re.sub(r": ([0-9a-f]+)", lambda m: f": 0x{int(m[1], 16):08x}", entry[2])
            name, rest = f"sys_enter_{entry[1]}:", arguments
        elif back := re.fullmatch(r"sys_(\w+) -> (\w+)", event):
            name, rest = f"sys_exit_{back[1]}:", back[2]
        else:
            name, _, rest = event.partition(" ")
        stamp = f"{1000 + time / 1e6:.{digits}f}"
        lines.append(f"{task:>17} [003] {flags}{stamp}: {name:{width}} {rest}\n")
    return "".join(lines)


def program(count: int) -> KernelTrace:
    """Direct reads, with their requests on the device."""
    built = KernelTrace()
    for at in range(count):
        built.pread(at * 1000, at * 1000 + 900, 3, at * SIZE)
        built.device(at * 1000 + 100, at * 1000 + 800, "8,0", at * SIZE)
    return built


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("flags", ["", "..... ", "d..2. ", "d.h1. "])
def test_a_report(tmp_path: Path, head: str, flags: str) -> None:
    path = tmp_path / "t.txt"
    path.write_text(report(program(16), head=head, task=TASKS[0], flags=flags, digits=6, width=21))
    found = analysed(path)
    device = found.layer("device")
    assert (device["requests"], device["bytes"], device["mean_residence_us"]) == (16, 16 * SIZE, 699.0)
    calls = found.layer("syscall")
    assert (calls["requests"], calls["completed_bytes"], calls["mean_residence_us"]) == (16, 16 * SIZE, 900.0)


@given(
    st.sampled_from(HEADS),
    st.sampled_from(TASKS),
    st.sampled_from(["", "..... ", "d.h1. "]),
    st.sampled_from([6, 9]),
    st.integers(1, 40),
    st.integers(1, 5),
)
def test_any_padding_reads_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    head: str,
    task: str,
    flags: str,
    digits: int,
    width: int,
    count: int,
) -> None:
    path = tmp_path_factory.mktemp("trace") / "t.txt"
    path.write_text(report(program(count), head=head, task=task, flags=flags, digits=digits, width=width))
    assert kernel_trace.matches(path.read_bytes())
    recording = LayerRecording()
    kernel_trace.read(path, recording)
    assert {layer.name: len(layer.requests) for layer in recording.layers} == {
        "syscall": count,
        "block": count,
        "device": count,
    }


def test_a_trace_of_other_events_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.txt"
    path.write_text(
        "cpus=4\n fio-1 [003] 1000.000000: sys_enter:             NR 0 (3, 7ffe, 1000, 0, 0, 0)\n"
    )
    assert main(["layers", str(path)]) == 2
    assert "lines are of other events" in capsys.readouterr().err
