"""`laggard layers`: reads a recording, searches bottom-up, reports."""

import argparse
import platform
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import TextIO

from laggard_aggregator.files.atomic_write import written
from laggard_aggregator.layers.columns import LayerRecording
from laggard_aggregator.layers.gluster import report as gluster_report
from laggard_aggregator.layers.gluster import search as gluster_search
from laggard_aggregator.layers.gluster import volume as gluster_volume
from laggard_aggregator.layers.readers.open_recording import open_recording
from laggard_aggregator.layers.readers.text_lines import head
from laggard_aggregator.layers.report import records, table
from laggard_aggregator.layers.search import findings
from laggard_aggregator.layers.stack import Stack, build
from laggard_aggregator.status.text_table import terminal_width
from laggard_common.errors import ConfigError, InputError
from laggard_common.visible import visible
from laggard_common.wire import topics


def run(args: argparse.Namespace) -> int:
    """Analyses the recording and writes the reports; returns 0 also with findings. Raises LaggardError."""
    if not args.inputs[0].is_dir() and gluster_volume.matches(head(args.inputs[0])):
        return _run_gluster(args)
    healthy = [stack for path in args.healthy for stack in healthy_stacks(path)]
    stack = build(open_recording(args.inputs, tuple(args.order)))
    stack_findings = findings(stack, healthy)
    if args.archive:
        _store(stack, args)
    if args.html:
        from laggard_aggregator.layers.report.page import page  # noqa: PLC0415 - Jinja only where it is used

        with written(args.html) as file:
            file.write(page(stack, stack_findings, title=", ".join(path.name for path in args.inputs)))
    with written(args.output) if args.output else nullcontext(sys.stdout) as output:
        if args.json:
            _print(map(records.line, records.records(stack, stack_findings)), output)
        else:
            _print(table.report_lines(stack, stack_findings, terminal_width(output)), output)
    return 0


def _store(stack: Stack, args: argparse.Namespace) -> None:
    """Adds the requests to the archive, under the node that recorded them and the name of the recording."""
    from laggard_aggregator.layers.store import store  # noqa: PLC0415 - only where it is used

    node = args.node or stack.recording.node or platform.node()
    for option, value in (("--node", node), ("--site", args.site)):
        if not topics.is_level(value):
            raise ConfigError("", [f"{option}: expected letters, digits and . _ : -, got {visible(value)}"])
    name = args.inputs[0].resolve().name
    path = store(stack, args.archive, args.site, node=node, recording=name, now_ns=time.time_ns())
    print(f"stored as {visible(str(path))}", file=sys.stderr)


def _run_gluster(args: argparse.Namespace) -> int:
    """Reports the counters of a gluster volume."""
    if args.html or args.healthy or args.archive:
        raise ConfigError(
            "", ["--html, --healthy, --archive: expected traces, got counters of a gluster volume"]
        )
    volume = gluster_volume.read(args.inputs)
    volume_findings = gluster_search.findings(volume)
    with written(args.output) if args.output else nullcontext(sys.stdout) as output:
        if args.json:
            _print(map(records.line, gluster_report.records(volume, volume_findings)), output)
        else:
            _print(gluster_report.report_lines(volume, volume_findings, terminal_width(output)), output)
    return 0


def healthy_stacks(path: Path) -> list[Stack]:
    """The recordings in a folder: each folder in it is one, or the folder itself. Raises InputError."""
    if not path.is_dir():
        raise InputError(str(path), "expected a folder with a healthy recording, or with several")
    with InputError.from_os_errors(str(path)):
        folders = sorted(folder for folder in path.iterdir() if folder.is_dir())
    recordings: list[LayerRecording] = [open_recording([folder]) for folder in folders or [path]]
    return [build(recording) for recording in recordings]


def _print(lines: Iterable[str], output: TextIO) -> None:
    output.writelines(f"{visible(line)}\n" for line in lines)
