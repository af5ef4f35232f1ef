"""The heat map of all compute nodes over a day: `python -m bench.heat_maps`.

Rollups of a generated day; how long the background pass takes for it, how long the answer takes from its
sums, and the first content of `/loads` in Chromium, served by the aggregator's own server to an
administrator. Exits with 1 when the map takes a second, or the page half a second, in the median.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.jobs_queries.counters import SOURCE, write_rollups
from bench.jobs_queries.generator import FIRST, SITE, node_name
from bench.jobs_queries.pages import MOST_SECONDS, as_admin
from bench.machine import machine
from bench.page.__main__ import look
from bench.page.browser import chromium
from laggard_aggregator.archive import layout
from laggard_aggregator.archive.schemas import SCHEMAS
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.loads.component_load import component_load
from laggard_aggregator.jobs.loads.kinds import COMPUTE, KINDS
from laggard_aggregator.jobs.loads.load_days import LoadDays
from laggard_aggregator.web.app import make_app
from tests.support.builders import live_status
from tests.support.pages import served

MAP_SECONDS = 1.0
SECOND = 10**9
FIELDS = (
    "read_bytes_sum",
    "write_bytes_sum",
    "read_bytes_samples",
    "write_bytes_samples",
    "read_sum",
    "write_sum",
)


def make(archive: Path, nodes: int, hours: int) -> int:
    """Writes rollups and the schemas of the nodes; returns the number of rows."""
    rows = write_rollups(archive, nodes, hours, np.random.default_rng(7), FIRST, FIELDS)
    columns = []
    for column in SCHEMAS:
        if column.name == "node":
            value = pa.array([node_name(node) for node in range(nodes)])
        elif pa.types.is_list(column.type):
            value = pa.array([[]] * nodes, column.type)
        elif pa.types.is_string(column.type):
            value = pa.array(["compute" if column.name == "role" else ""] * nodes)
        else:
            value = pa.array([0] * nodes).cast(column.type)
        columns.append(value)
    where = layout.folder(archive, "schemas", SOURCE, "2025-01-01", SITE)
    layout.write_part(
        where, layout.stamp(FIRST * SECOND), (1, 1), SCHEMAS, [pa.table(columns, schema=SCHEMAS)]
    )
    JobIndex(archive).refresh()
    return rows


async def first_contents(archive: Path, loads: LoadDays, hours: int, times: int) -> list[float]:
    """Seconds until the first content of the page."""
    view = live_status.site()
    path = f"/loads?of={COMPUTE}&from={FIRST}&to={FIRST + 3600 * hours}"
    async with chromium() as browser, served(view, as_admin(make_app(view, archive, loads=loads))) as url:
        return [(await look(browser, url + path, None)).first for _ in range(times)]


def measure(archive: Path, nodes: int, hours: int, times: int) -> bool:
    """Prints the figures; whether they are within the limits."""
    loads, end = LoadDays(archive), FIRST + 3600 * hours
    begun, spent = time.monotonic(), time.process_time()
    loads.refresh((end - 1) * SECOND, lambda: True)
    print(f"pass over the day: {time.process_time() - spent:.1f} s of CPU, {time.monotonic() - begun:.1f} s")
    maps = []
    for _ in range(times):
        begun = time.monotonic()
        found = component_load(archive, KINDS[COMPUTE], FIRST, end, days=loads)
        maps.append(time.monotonic() - begun)
    assert len(found.heat.components) == nodes
    assert np.isfinite(found.heat.rates).all()
    steps, minutes = found.heat.rates.shape[1], found.heat.step_seconds / 60
    print(f"map of {nodes:,} nodes, {steps} steps of {minutes:.0f} min: {_figures(maps)}")
    pages = asyncio.run(first_contents(archive, loads, hours, times))
    print(f"first content of the page: {_figures(pages)}")
    return statistics.median(maps) < MAP_SECONDS and statistics.median(pages) < MOST_SECONDS


def _figures(seconds: list[float]) -> str:
    return f"median {statistics.median(seconds):.2f} s, most {max(seconds):.2f} s of {len(seconds)}"


def main() -> int:
    """Prints the figures and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.heat_maps", description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=40_960)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--times", type=int, default=7, help="answers and looks")
    parser.add_argument("--directory", type=Path, help="keep the archive here, or use the one that is there")
    asked = parser.parse_args()
    print(f"{machine('numpy', 'pyarrow', 'starlette')}\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="heat_maps.") as temporary:
        archive = asked.directory or Path(temporary)
        if not archive.exists() or not any(archive.iterdir()):
            archive.mkdir(parents=True, exist_ok=True)
            begun = time.monotonic()
            rows = make(archive, asked.nodes, asked.hours)
            print(f"{rows:,} rows, made in {time.monotonic() - begun:.0f} s", flush=True)
        return int(not measure(archive, asked.nodes, asked.hours, asked.times))


if __name__ == "__main__":
    sys.exit(main())
