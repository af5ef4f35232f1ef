"""`laggard init`: a configuration of the aggregator for what a Prometheus server has."""

import argparse
import json
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from laggard_aggregator.cli import client
from laggard_aggregator.files.atomic_write import written
from laggard_aggregator.prometheus.server import PrometheusServer, bearer
from laggard_aggregator.prometheus.survey import MapSurvey, survey
from laggard_aggregator.settings.aggregator import AggregatorSettings
from laggard_aggregator.status.formatting import counted
from laggard_common import config
from laggard_common.errors import ConfigError, InputError
from laggard_common.visible import visible

WINDOW_SECONDS = 900.0
LEAST_SAMPLES = 20
"""A window spans this time and number of intervals at least."""
SHOWN_JOBS = 5


def run(args: argparse.Namespace) -> int:
    """Writes the file and prints the next commands. Raises LaggardError."""
    if args.output.exists():
        raise ConfigError("", [f"-o: {args.output}: exists already, and is not overwritten"])
    server = PrometheusServer(args.prometheus, bearer(client.token(args.token_file)), args.ca_file)
    maps = survey(server, time.time())
    print("\n".join(map(_line, maps)))
    usable = [of_map for of_map in maps if of_map.components]
    if not any(of_map.judged for of_map in usable):
        raise InputError(
            server.url, "none of the shipped maps fits: docs/prometheus.md explains how to write your own"
        )
    directory = args.directory or (args.output.parent / "laggard").absolute()
    text = "\n".join(_configuration(args, usable, directory)) + "\n"
    config.parse(AggregatorSettings, tomllib.loads(text), str(args.output))
    with written(args.output) as file:
        file.write(text)
    print("\n".join(("", f"{args.output} written. Next:", *_next_commands(args))))
    sys.stdout.flush()
    return 0


def _line(of_map: MapSurvey) -> str:
    """A map and its findings."""
    if not of_map.components:
        return f"{of_map.name}: no series of {of_map.counter}"
    jobs = sorted(of_map.jobs.items(), key=lambda job: -job[1])
    named = ", ".join(f"{visible(name) or 'no job'} {nodes}" for name, nodes in jobs[:SHOWN_JOBS])
    rest = f" and {len(jobs) - SHOWN_JOBS} more jobs" if len(jobs) > SHOWN_JOBS else ""
    components = f"{counted(of_map.components, 'component')} of {counted(of_map.nodes, 'target')}"
    return f"{of_map.name}: {components}, scraped every {of_map.scrape_seconds:g} s (by job: {named}{rest})"


def _configuration(args: argparse.Namespace, maps: Sequence[MapSurvey], directory: Path) -> Iterator[str]:
    """The lines of aggregator.toml: an input for each scrape interval."""
    slowest = max(of_map.scrape_seconds for of_map in maps if of_map.judged)
    interval = max(15.0, slowest)
    samples = max(round(WINDOW_SECONDS / interval), LEAST_SAMPLES)
    yield "# Written by `laggard init`; deploy/aggregator.toml and docs/prometheus.md explain each setting."
    yield "[mqtt]"
    yield "enabled = false    # no agents yet"
    if (interval, samples) != (15.0, 60):
        yield from ("", "[detect]", f"interval_seconds = {interval:g}")
        yield from (f"window_samples = {samples}", f"shift_samples = {samples // 2}")
    for seconds in sorted({of_map.scrape_seconds for of_map in maps}):
        of_it = [of_map for of_map in maps if of_map.scrape_seconds == seconds]
        yield from ("", "[[prometheus]]", f"urls = [{_quoted(args.prometheus)}]")
        yield f"maps = [{', '.join(_quoted(of_map.name) for of_map in of_it)}]"
        yield f"name = {_quoted('-'.join(of_map.name for of_map in of_it))}"
        yield f"scrape_seconds = {seconds:g}"
        jobs = {job: None for of_map in of_it for job in of_map.jobs}
        if len(jobs) > 1:
            yield "# Disks of servers and of compute nodes are no peers; limit the series by matchers:"
            job = visible(next(iter(jobs)))
            yield f"# select = {_quoted(f'job={_quoted(job)}')}"
        if args.token_file:
            yield f"token_file = {_quoted(str(args.token_file.absolute()))}"
        if args.ca_file:
            yield f"ca_file = {_quoted(str(args.ca_file.absolute()))}"
    yield from ("", "[state]", f"directory = {_quoted(str(directory / 'state'))}")
    yield from ("", "[archive]", f"directory = {_quoted(str(directory / 'archive'))}")


def _quoted(text: str) -> str:
    """A TOML string; those of JSON are."""
    return json.dumps(text, ensure_ascii=False)


def _next_commands(args: argparse.Namespace) -> Iterator[str]:
    access = "".join(
        f" {option} {value}"
        for option, value in (("--token-file", args.token_file), ("--ca-file", args.ca_file))
        if value
    )
    yield f"  laggard diagnose --prometheus {args.prometheus}{access} --from -7d    # the past week"
    yield f"  laggard-aggregator --config {args.output} --check-config"
    yield f"  laggard-aggregator --config {args.output}    # then http://127.0.0.1:9464/"
