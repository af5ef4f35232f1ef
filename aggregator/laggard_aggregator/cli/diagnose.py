"""`laggard diagnose`: the detectors of the aggregator over recorded data."""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from laggard_aggregator.cli import client
from laggard_aggregator.cli.options import check_outputs, csv_columns, settings_given
from laggard_aggregator.cli.user_times import epoch_seconds
from laggard_aggregator.detect import registry
from laggard_aggregator.detect.trained_thresholds import Thresholds
from laggard_aggregator.files.atomic_write import written
from laggard_aggregator.groups.topology import Topology
from laggard_aggregator.offline import console_table, json_records
from laggard_aggregator.offline.findings import Findings
from laggard_aggregator.offline.prometheus_input import aligned, fitting_map, least_interval
from laggard_aggregator.offline.run import Progress as Advance
from laggard_aggregator.offline.run import Run, open_prometheus, open_run
from laggard_aggregator.prometheus.compare_map import load_map
from laggard_aggregator.prometheus.server import PrometheusServer, bearer
from laggard_aggregator.settings import from_settings, thresholds_file
from laggard_aggregator.settings.aggregator import TopologyFile
from laggard_aggregator.status.text_table import terminal_width, wrapped
from laggard_common import config
from laggard_common.errors import ConfigError, InputError
from laggard_common.visible import visible

PROMETHEUS: Mapping[str, Any] = {"interval_seconds": 60.0, "window_samples": 20, "shift_samples": 10}
"""Intervals and windows of a Prometheus server: 20 minutes, as it scrapes every 15 to 60 s."""


def run(args: argparse.Namespace) -> int:
    """Judges the inputs, writes the findings; 1 for stragglers with --check. Raises LaggardError."""
    _check(args)
    if args.format is not None:
        print("laggard diagnose: --format is deprecated: --json prints JSON", file=sys.stderr)
        args.json = args.json or args.format == "json"
    with written(args.output) if args.output else nullcontext(sys.stdout) as output:
        stragglers = _diagnose(args, output)
    return int(args.check and stragglers > 0)


def _diagnose(args: argparse.Namespace, output: TextIO) -> int:
    """Writes the findings; the number of stragglers."""
    given = settings_given(args)
    trained = thresholds_file.load(args.thresholds) if args.thresholds else None
    with _progress() as progress:
        levels = None if args.topology is None else config.load(TopologyFile, args.topology).topology
        topology = None if levels is None else from_settings.topology(levels)
        if args.prometheus is not None:
            opened = _open_prometheus(args, given, trained, topology, progress)
        else:
            opened = open_run(
                args.inputs,
                csv_columns(args),
                given,
                trained,
                by_shadows=args.shadow,
                topology=topology,
                progress=progress,
            )
        findings = Findings(opened.confirm)
        as_json = args.json
        line = json_records.line if as_json else partial(console_table.window_line, local=args.local)
        for judged in opened.judgements:
            findings.add(judged)
            if args.windows:
                _print(map(line, json_records.window_records(judged)), output)
    if not findings.windows:
        remarks = "".join(f"; {remark}" for remark in opened.remarks)
        raise InputError(
            args.prometheus or str(args.inputs[0]), f"nothing to judge: no window has data{remarks}"
        )
    components = list(findings.components())
    if as_json:
        parents = opened.topology()
        _print((json_records.line(json_records.day_record(day)) for day in findings.days()), output)
        records = (json_records.component_record(own, opened.shown, parents) for own in components)
        _print(map(json_records.line, records), output)
        splits = (json_records.split_record(*split) for split in findings.splits.items())
        _print(map(json_records.line, splits), output)
        not_judged = map(json_records.not_judged_record, findings.not_judged())
        _print(map(json_records.line, not_judged), output)
    else:
        width = terminal_width(output)
        lines = console_table.findings_lines(
            findings, components, opened.shown, local=args.local, width=width
        )
        _print(lines, output)
    remarks_to = sys.stderr if as_json else output
    limits = () if as_json else opened.limits
    width = terminal_width(remarks_to)
    for remark in (*opened.remarks, *findings.remarks(opened.idle(), opened.shown), *limits):
        _print(wrapped(remark, width), remarks_to)
    return sum(component.straggler for component in components)


def _open_prometheus(
    args: argparse.Namespace,
    given: dict[str, Any],
    trained: Thresholds | None,
    topology: Topology | None,
    progress: Advance | None,
) -> Run:
    """The run over a server. Intervals are PROMETHEUS' unless given, longer where it scrapes seldom."""
    server = PrometheusServer(args.prometheus, bearer(client.token(args.token_file)), args.ca_file)
    now = time.time()
    until = epoch_seconds("--to", args.until) or now
    since = epoch_seconds("--from", args.since or "-1d") or now
    compare_map = load_map(args.map) if args.map else fitting_map(server, until)
    least = least_interval(server, compare_map, until)
    settings = {**PROMETHEUS, **given}
    if args.interval is None:
        settings["interval_seconds"] = max(PROMETHEUS["interval_seconds"], least)
    elif args.interval < least:
        problem = (
            f"--interval: expected at least {least:g}, two scrapes of {server.url}, got {args.interval:g}"
        )
        raise ConfigError("", [problem])
    span = aligned(since, until, settings["interval_seconds"])
    return open_prometheus(server, compare_map, span, settings, trained, topology, progress)


def _print(lines: Iterable[str], output: TextIO) -> None:
    output.writelines(f"{visible(line)}\n" for line in lines)


def _check(args: argparse.Namespace) -> None:
    """Raises ConfigError for conflicting options."""
    for option, value in {"--map": args.map, "--from": args.since, "--to": args.until}.items():
        if value is not None and args.prometheus is None:
            raise ConfigError("", [f"{option}: goes with --prometheus"])
    if bool(args.inputs) == (args.prometheus is not None):
        raise ConfigError("", ["expected INPUT... or --prometheus URL"])
    if args.prometheus is not None and args.shadow:
        raise ConfigError("", ["--shadow: INPUT must be an archive"])
    check_outputs({"-o": args.output}, (*args.inputs, args.thresholds, args.topology))
    detector = registry.find(args.detector) if args.detector else None
    if detector is not None and detector.needs_thresholds and args.thresholds is None:
        raise ConfigError("", [f"--detector {detector.name} needs --thresholds FILE, from laggard train"])
    if args.shadow and detector is not None:
        raise ConfigError("", ["--shadow: expected without --detector"])
    if args.thresholds is not None and (detector is None or detector.training is None):
        raise ConfigError("", [f"--thresholds goes with --detector {' or '.join(registry.trainable())}"])


@contextmanager
def _progress() -> Iterator[Advance | None]:
    """Progress bar on stderr if it is a terminal, otherwise none."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f}%"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def advance(phase: str, done: float) -> None:
            if phase not in tasks:
                tasks[phase] = bar.add_task(phase, total=1.0)
            bar.update(tasks[phase], completed=done)

        yield advance
