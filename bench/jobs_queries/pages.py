"""First content of the pages of jobs over a site of two million: `python -m bench.jobs_queries.pages DIR`.

DIR: the site that `python -m bench.jobs_queries --directory DIR` made. Pages are served by the aggregator's
own server to an administrator, and looked at in Chromium with an empty cache; before each look the kernel's
caches of files are dropped where this process may (root). Exits with 1 when a median exceeds half a second.
"""

import argparse
import asyncio
import statistics
import sys
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from bench.jobs_queries.__main__ import drop_caches
from bench.jobs_queries.generator import node_name
from bench.machine import machine
from bench.page.__main__ import look
from bench.page.browser import chromium
from laggard_aggregator.jobs.access.filter import JobSelection
from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.web.app import make_app
from tests.support.builders import live_status
from tests.support.pages import served

MOST_SECONDS = 0.5
ADMIN = Principal("root", Role.ADMIN)


def as_admin(app: ASGIApp) -> ASGIApp:
    """The application as an administrator gets it."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "principal": ADMIN}, receive, send)

    return call


async def measure(directory: Path, times: int) -> bool:
    """Prints the table; whether each median is within the limit."""
    newest = JobQueries(JobIndex(directory)).list_jobs(ADMIN, JobSelection()).jobs[0]
    pages = {
        "list": "/jobs",
        "of a user": f"/jobs?user={newest['user']}",
        "on a node": f"/jobs?node={node_name(100)}",
        "of an OST": "/jobs?ost=OST0001",
        "one job": f"/jobs/{newest['job']}",
        "amplification": "/amplification",
    }
    view = live_status.site()
    well = True
    print("| page | first content, s: median / most | HTML and all, kB |\n|---|---|---|")
    async with chromium() as browser, served(view, as_admin(make_app(view, directory))) as url:
        for name, path in pages.items():
            seen = []
            for _ in range(times):
                drop_caches()
                seen.append(await look(browser, url + path, None))
            firsts = [each.first for each in seen]
            median = statistics.median(firsts)
            well = well and median <= MOST_SECONDS
            print(
                f"| {name} | {median:.2f} / {max(firsts):.2f} | {max(each.size for each in seen) / 1e3:.0f} |"
            )
    return well


def main() -> int:
    """Prints the figures and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.jobs_queries.pages", description=__doc__.split("\n")[0]
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--times", type=int, default=7, help="looks at each page")
    asked = parser.parse_args()
    print(f"{machine('pyarrow', 'starlette')}\n", flush=True)
    return int(not asyncio.run(measure(asked.directory, asked.times)))


if __name__ == "__main__":
    sys.exit(main())
