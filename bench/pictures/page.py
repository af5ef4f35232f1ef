"""The pages as pictures for the documentation: `python -m bench.pictures.page docs/pictures`.

A made-up site (`bench.page.fleet`) after twelve hours, in Chromium, light and dark.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Literal

import laggard_aggregator.web
from bench.page.browser import chromium
from bench.page.fleet import CDF_GROUP, Fault, Fleet, Kindred
from bench.pictures.shrink import command, shrink
from laggard_aggregator.status import urls
from tests.support.pages import served

WIDTH = 1180
MADE_FROM = "made-from.json"
"""Digests of the files that the pictures were made from; a test holds them against the present ones."""
HDD = "storage/diskstats/ST4000NM0035_hdd_4TB"
THRESHOLD_BINS = 5.0

Shade = Literal["light", "dark"]


def site() -> Fleet:
    """A site with a slow disk, a slow server, a disk that has recovered, and silent nodes."""
    oss = [f"oss-{n:02}" for n in range(1, 25)]
    keys = [f"raid-{node}/wwn-raid-{node}-{lun:02}" for node in range(1, 4) for lun in range(4)]
    return Fleet(
        kinds=[
            Kindred(oss, 10, "ST4000NM0035", 6.0, silent=("oss-19",)),
            Kindred([f"mds-{n}" for n in range(1, 5)], 4, "INTEL_SSDPE2KX040T8", 0.3, False, "metadata"),
            Kindred([f"raid-{n}" for n in range(1, 4)], 4, "DDN_SFA12K", 3.0),
            Kindred(["fwd-1", "fwd-2"], 1, "SAMSUNG_MZ7LM480", 0.4, False, "forwarding"),
        ],
        faults=[
            Fault("oss-07/sdd", 4.2, 26),
            Fault("oss-13/.*", 1.9, 9),
            Fault("oss-21/sdh", 2.6, 70, 52),
            Fault("raid-2/sdb", 3.1, 14),
        ],
        thresholds=dict.fromkeys(keys, THRESHOLD_BINS),
    )


def pictures() -> dict[str, tuple[str, Shade, int]]:
    """File name to address, shade and height of each picture."""
    slow = "oss-07/wwn-oss-07-03"
    return {
        "page-overview": ("/", "light", 1000),
        "page-overview-dark": ("/", "dark", 1000),
        "page-group": (urls.group(HDD), "light", 860),
        "page-component": (urls.component(HDD, slow), "light", 1180),
        "page-component-cdf-dark": (urls.component(CDF_GROUP, "raid-2/wwn-raid-2-01"), "dark", 1300),
        "page-nodes": ("/nodes", "light", 760),
    }


WEB = Path(laggard_aggregator.web.__file__).parent


def sources(name: str) -> dict[str, str]:
    """The digest of each template of which the picture `name` shows the result, but for shared macros."""
    page = name.split("-")[1]
    return {
        file: hashlib.sha256((WEB / "templates" / file).read_bytes()).hexdigest()[:16]
        for file in ("base.html", f"{page}.html")
    }


async def take(into: Path) -> list[Path]:
    """Takes all pictures; the files."""
    found = []
    async with served(site().view) as url, chromium() as browser:
        for name, (address, shade, height) in pictures().items():
            page = await browser.new_page(
                viewport={"width": WIDTH, "height": height}, color_scheme=shade, reduced_motion="reduce"
            )
            await page.goto(url + address)
            path = into / f"{name}.png"
            await page.screenshot(path=path)
            shrink(path)
            found.append(path)
            await page.close()
    made = {name: sources(name) for name in pictures()}
    (into / MADE_FROM).write_text(json.dumps(made, indent=1) + "\n")
    return found


def main(argv: list[str] | None = None) -> int:
    """Writes the pictures; 1 when one of them is too large."""
    return command("page", __doc__, take, argv)


if __name__ == "__main__":
    sys.exit(main())
