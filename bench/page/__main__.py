"""What the pages cost those who look and the aggregator that serves them: `python -m bench.page`.

A made-up site (`bench.page.fleet`) of 1,000 and of 10,000 components with twelve hours of windows and some
stragglers, served by the aggregator's own server, looked at in Chromium with an empty cache. First content is
first-contentful-paint from the start of the navigation; bytes are all that came over the connection, headers
included. `far` is with 40 ms and 10 Mbit/s in between, as Lighthouse assumes for a desktop. Server CPU is the
time to make a page that is in no cache, and `delay` how late a timer of 5 ms on the aggregator's loop was at
most meanwhile.
"""

import argparse
import asyncio
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

import httpx
from playwright.async_api import Browser

from bench.machine import machine
from bench.page.browser import chromium
from bench.page.fleet import Fault, Fleet, Kindred
from laggard_aggregator.status import urls
from tests.support.pages import served

DISKS = 10
GROUP = "storage/diskstats/ST4000NM0035_hdd_4TB"
MOST_SECONDS, MOST_BYTES = 1.0, 300_000
"""What the overview of 1,000 components may take."""
MOST_SITE = 1_000
COLUMNS = (
    *("page", "first content, s", "far, s", "loaded, s", "transferred, kB", "requests", "HTML, kB"),
    *("server CPU, ms", "delay, ms"),
)
FIRST_CONTENT = """
() => new Promise((resolve) => {
  new PerformanceObserver((list) => {
    const [found] = list.getEntriesByName("first-contentful-paint");
    if (found) resolve(found.startTime);
  }).observe({ type: "paint", buffered: true });
})
"""
FAR = {"offline": False, "latency": 40, "downloadThroughput": 1_250_000, "uploadThroughput": 1_250_000}


@dataclass(frozen=True, slots=True)
class Looked:
    """One load of a page: seconds to the first content and to the load event, bytes, requests."""

    first: float
    loaded: float
    size: int
    requests: int


def fleet(components: int) -> Fleet:
    """A site of so many disks, of which a few in a thousand are slow, and a server."""
    nodes = [f"oss-{n:04}" for n in range(1, components // DISKS + 1)]
    faults = [Fault(f"{node}/sdd", 2.0 + n % 4, 30 + n) for n, node in enumerate(nodes[3::50])]
    return Fleet([Kindred(nodes, DISKS, "ST4000NM0035", 6.0)], [*faults, Fault(f"{nodes[7]}/.*", 1.9, 12)])


async def look(browser: Browser, url: str, conditions: dict[str, Any] | None) -> Looked:
    """Loads `url` in a browser that has seen nothing yet."""
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    page = await context.new_page()
    network = await context.new_cdp_session(page)
    sizes: list[int] = []
    network.on("Network.loadingFinished", lambda event: sizes.append(round(event["encodedDataLength"])))
    await network.send("Network.enable")
    if conditions is not None:
        await network.send("Network.emulateNetworkConditions", conditions)
    await page.goto(url, wait_until="load")
    first = await page.evaluate(FIRST_CONTENT)
    loaded = await page.evaluate("performance.getEntriesByType('navigation')[0].loadEventStart")
    await context.close()
    return Looked(first / 1e3, loaded / 1e3, sum(sizes), len(sizes))


async def made(url: str, site: Fleet, times: int) -> tuple[list[float], float, int]:
    """CPU seconds of each making of `url`, the loop's longest delay meanwhile, and the size unpacked."""
    spent, size, ended = [], 0, asyncio.Event()
    async with httpx.AsyncClient() as client:
        timing = asyncio.create_task(timer(ended))
        for _ in range(times):
            site.view.judged(())  # what is kept is of before
            begun = time.process_time()
            size = len((await client.get(url)).content)
            spent.append(time.process_time() - begun)
        ended.set()
        return spent, await timing, size


async def timer(ended: asyncio.Event) -> float:
    """How many seconds late a timer of 5 ms is at most, until `ended`."""
    late = 0.0
    while not ended.is_set():
        due = time.perf_counter() + 0.005
        await asyncio.sleep(0.005)
        late = max(late, time.perf_counter() - due)
    return late


def history_cost(site: Fleet, times: int) -> list[float]:
    """CPU seconds on the loop of taking a window's judgements in."""
    judgements = site.view.judgements()
    spent = []
    for _ in range(times):
        begun = time.process_time()
        site.view.judged(judgements)
        spent.append(time.process_time() - begun)
    return spent


async def measure(components: int, times: int, browser: Browser) -> bool:
    """Prints the tables for a site; whether the overview is within its limits."""
    site = fleet(components)
    slow = next(iter(site.view.alarms()))
    pages = {
        "overview": "/",
        "peer group": urls.group(GROUP),
        "component": urls.component(GROUP, slow[1]),
        "nodes": "/nodes",
        "search": "/search?q=oss",
    }
    well = True
    print(f"\n{components:,} components on {components // DISKS:,} nodes, {len(site.view.alarms())} alarms\n")
    print(f"| {' | '.join(COLUMNS)} |")
    print(f"|{'---|' * len(COLUMNS)}")
    async with served(site.view) as url:
        for name, path in pages.items():
            near = [await look(browser, url + path, None) for _ in range(times)]
            far = [await look(browser, url + path, FAR) for _ in range(max(times // 2, 1))]
            spent, late, html = await made(url + path, site, times)
            size = max(each.size for each in near)
            firsts = [each.first for each in near]
            if name == "overview" and components <= MOST_SITE:
                well = statistics.median(firsts) < MOST_SECONDS and size < MOST_BYTES
            cells = (
                *(name, spread(firsts), spread([each.first for each in far])),
                *(
                    spread([each.loaded for each in near]),
                    f"{size / 1e3:.0f}",
                    near[0].requests,
                    f"{html / 1e3:.0f}",
                ),
                *(spread([1e3 * each for each in spent], 0), f"{1e3 * late:.0f}"),
            )
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
        ended = asyncio.Event()
        asyncio.get_running_loop().call_later(2.0, ended.set)
        print(f"\nThe delay when nobody looks: {1e3 * await timer(ended):.0f} ms.")
    taken = spread([1e3 * each for each in history_cost(site, 20)], 2)
    print(f"A window taken into what the pages show: {taken} ms of CPU on the loop.")
    return well


def spread(values: list[float], places: int = 2) -> str:
    """The median, and from where to where."""
    return f"{statistics.median(values):.{places}f} ({min(values):.{places}f}–{max(values):.{places}f})"


def main(argv: list[str] | None = None) -> int:
    """Measures; 1 when the overview of 1,000 components is not within its limits."""
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("--components", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--times", type=int, default=10, help="loads of each page (default %(default)s)")
    args = parser.parse_args(argv)

    async def story() -> bool:
        async with chromium() as browser:
            return all([await measure(count, args.times, browser) for count in args.components])

    well = asyncio.run(story())
    print(f"\nMedian (least–most) of {args.times}. {machine('starlette', 'uvicorn', 'jinja2', 'playwright')}")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
