"""The page names every format, every call that makes a record or moves an offset, and the bounds."""

from pathlib import Path

from laggard_agent.tools.iotrace import fold
from laggard_agent.tools.iotrace.command import FORMATS
from laggard_common.trace_formats import descriptors
from laggard_common.trace_formats.calls import CALLS
from tests.support.builders.iotrace import read, sample

PAGE = (Path(__file__).resolve().parents[4] / "docs/collectors/iotrace.md").read_text()

# Moves no data, or is an old name of one that the page has.
UNSAID = {"dup2", "dup3", "fcntl", "fcntl64", "_llseek", "execve", "execveat"}
UNSAID |= {"pipe", "pipe2", "socketpair", "socket", "accept", "accept4", "eventfd2", "memfd_create"}
UNSAID |= {"pread", "pwrite", "sendfile64", "ftruncate64", "fstat64", "fstatat64", "getdents"}


def test_formats_calls_and_bounds() -> None:
    assert [name for name in FORMATS if f"### `{name}`" not in PAGE] == []
    assert [name for name in CALLS.keys() - UNSAID if f"`{name}`" not in PAGE] == []
    assert f"At most {fold.MAX_OPEN_RUNS:,} runs" in PAGE
    assert f"{descriptors.MAX_PROCESSES:,} processes with {descriptors.MAX_DESCRIPTORS} descriptors" in PAGE


def test_every_operation_of_the_fixtures() -> None:
    operations = {record.operation for name in FORMATS for record in read(name, sample(name))[0]}
    assert [operation for operation in operations if f"`{operation}`" not in PAGE] == []


def test_the_example_log_is_one() -> None:
    example = PAGE.partition("### `laggard`")[2].split("```")[1].strip("\n") + "\n"
    records, reader = read("laggard", example.encode())
    assert (len(records), reader.not_understood) == (2, 0)
