"""Goldens of jobs: an archive of an earlier version as the present one reads, lists, shows and continues it.

`before/jobs.tar.xz` has that archive, with its index of jobs and the progress of its passes. Logs of Darshan
are made here.
"""

import asyncio
import json
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from tests.golden import entry, formats
from tests.support.builders import mine_store

PACKED = Path(__file__).parent / "before" / "jobs.tar.xz"
END_NS = 1_800_000_000 * 10**9 + 30 * 3600 * 10**9
"""When the passes of the earlier version ran last."""
NEEDS_MINING = ("jobs/commands.json", "jobs/mine.txt", "jobs/mine.jsonl")
"""Goldens that need libdarshan and DuckDB."""
SLOW = "c/12/1763683200"
DERIVED = ("series60", "paths", "job_series", "job_components", "job_summaries", "job_findings", "job_traces")
PAGES = {
    "list": "/jobs",
    "list of a user": "/jobs?user=alice&finding=slow",
    "slow": f"/jobs/{SLOW.replace('/', '%2F')}",
    "slow, by the peak": f"/jobs/{SLOW.replace('/', '%2F')}?slow_components=below_peak",
    "traced": "/jobs/77",
    "joined": "/jobs/901",
    "shared": "/jobs/902",
    "absent": "/jobs/4711",
    "loads": "/loads?of=forwarders&from=2027-01-15T08:00:00Z&to=2027-01-15T09:00:00Z",
    "metadata": "/metadata?from=2025-11-20T00:00:00Z&to=2025-11-22T00:00:00Z&by=user",
    "amplification": "/amplification",
}
API = {
    "list": "/api/v1/jobs?count=1&limit=100",
    "of a node": "/api/v1/jobs?node=cn-1&count=1",
    "on an OST": "/api/v1/jobs?ost=scratch-OST0042&count=1",
    "slow": f"/api/v1/jobs/{SLOW.replace('/', '%2F')}",
    "traced": "/api/v1/jobs/77",
    "joined": "/api/v1/jobs/901",
    "csv": "/api/v1/jobs?format=csv",
    "wrong": "/api/v1/jobs?below_history=many",
    "absent": "/api/v1/jobs/4711",
}
COMMANDS = {
    "list": ("jobs",),
    "json": ("jobs", "--json"),
    "csv": ("jobs", "--csv"),
    "slow": ("job", SLOW),
    "slow, as JSON": ("job", SLOW, "--json"),
    "traced": ("job", "77"),
    "joined": ("job", "901", "--json"),
    "volume": ("job", "904"),
    "top": ("jobs", "top", "--json"),
    "top applications": ("jobs", "top", "--by", "application", "--order", "metadata"),
    "classes": ("jobs", "top", "--by", "class"),
    "report": ("report", "--from", "2025-11-20", "--to", "2025-11-22", "--json"),
}
STATISTICS = ("applications", "sequential", "read-ratio", "sharing", "middleware", "striping")


def all_of_them() -> dict[str, Callable[[], str]]:
    """By file name, what makes its text."""
    return {
        "jobs/commands.json": commands,
        "jobs/api.json": api,
        "jobs/pages.html": pages,
        "jobs/index.json": index,
        "jobs/passes.json": passes,
        "jobs/mine.txt": mine,
        "jobs/mine.jsonl": mine_json,
    }


@contextmanager
def archive() -> Iterator[Path]:
    """The archive of the earlier version, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(PACKED) as packed:
        packed.extractall(folder, filter="data")
        yield Path(folder)


def commands() -> str:
    """Output of the commands over the archive."""
    with archive() as folder:
        found = {
            name: entry.laggard(*words, "--archive", str(folder)).splitlines()
            for name, words in COMMANDS.items()
        }
    return formats.text(found)


@cache
def answers() -> dict[str, dict[str, tuple[int, str]]]:
    """Status and text of every page and answer, for each principal."""
    with archive() as folder:
        entry.refresh_index(folder)
        return {who: asyncio.run(_answers(folder, who)) for who in entry.PRINCIPALS}


async def _answers(folder: Path, who: str) -> dict[str, tuple[int, str]]:
    app = entry.job_site(folder, who)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://l") as client:
        found = {path: await client.get(path) for path in (*PAGES.values(), *API.values())}
    return {path: (each.status_code, each.text) for path, each in found.items()}


def api() -> str:
    """The API's answers to an administrator, and to others where they differ."""
    found = {}
    for who, given in answers().items():
        found[who] = {
            name: [given[path][0], _parsed(given[path][1])]
            for name, path in API.items()
            if who == "admin" or given[path] != answers()["admin"][path]
        }
    return formats.text(found)


def _parsed(text: str) -> Any:
    try:
        parsed = json.loads(text)
    except ValueError:
        return text.splitlines()
    if isinstance(parsed, dict):
        parsed.pop("next", None)  # its cursor has a key of the process
    return parsed


def pages() -> str:
    """What an administrator's pages have between header and footer; a digest of those of others."""
    parts = []
    for who, given in answers().items():
        for name, path in PAGES.items():
            status, text = given[path]
            main = re.sub(r"cursor=[^\"&]+", "cursor=", _main(text))
            if who == "admin":
                parts.append(f"<!-- {name}: {status} -->\n{main}\n")
            elif given[path] != answers()["admin"][path]:
                parts.append(f"<!-- {name}, {who}: {status} {formats.digest(main.encode())} -->\n")
    return "".join(parts)


def _main(text: str) -> str:
    match = re.search(r"<main.*</main>", text, re.DOTALL)
    return match[0] if match is not None else text


def index() -> str:
    """The rows of the index that the present version makes in place of the earlier version's."""
    with archive() as folder:
        entry.refresh_index(folder)
        return formats.text(entry.index_rows(folder))


def passes() -> str:
    """Rows that the present passes derive from the archive's counters, jobs and documents."""
    with archive() as folder:
        for kind in DERIVED:
            for sources in folder.glob(f"kind={kind}/*/date=2027-01-15"):
                shutil.rmtree(sources)
        shutil.rmtree(folder / "kind=job_traces")
        shutil.rmtree(folder / "index")
        for progress in ("series60.json", "jobs.json"):
            (folder / progress).unlink()
        entry.run_passes(folder, END_NS)
        tables = formats.tables(folder)
        found: dict[str, Any] = {}
        for name, table in tables.items():
            kind = name.partition("/")[0]
            rows = formats.rows(table)
            if kind in DERIVED:
                found[name] = [
                    {"columns": formats.columns(table), "rows": len(rows)},
                    *map(_short, rows[-12:]),
                ]
                found[name].append({"sha256": formats.rounded_digest(rows)})
        found["progress"] = [
            json.loads((folder / progress).read_bytes()) for progress in ("series60.json", "jobs.json")
        ]
    return formats.text(found)


def _short(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [len(value), formats.rounded_digest(value)] if isinstance(value, list) else value
        for name, value in row.items()
    }


@cache
def mined() -> tuple[str, str]:
    """Texts and records of `laggard mine`, over logs and a store."""
    texts: list[str] = []
    records: list[str] = []
    # Always there: the width of a column of paths is part of the golden.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        logs = mine_store.logs(folder / "logs", 8)
        accounting, lmt = mine_store.sacct(folder / "sacct.txt", 8), mine_store.lmt(folder / "lmt.db")
        store = ("--store", str(folder / "store"))

        def both(*words: str) -> None:
            title = " ".join(words).replace(name, "FOLDER")
            for found, option in ((texts, ()), (records, ("--json",))):
                out = entry.laggard("mine", *words, *option).replace(name, "FOLDER")
                found.append(f"$ laggard mine {title}\n{out}")

        both(*map(str, logs))
        inputs = ("--darshan", str(folder / "logs"), "--slurm", str(accounting), "--lmt", str(lmt))
        zones = ("--timezone", "America/New_York", "--lmt-timezone", "UTC")
        both("init", *inputs, *zones, *store)
        for job in ("1", "5", "7"):
            both("job", job, *store)
        both("jobs", "--write", "--factors", *store)
        both("jobs", "--read", "--below", "10GiB/s", "--min-procs", "1", *store)
        texts.append(entry.laggard("mine", "jobs", "--write", "--csv", *store))
        for statistic in STATISTICS:
            both("stats", statistic, *store)
        for table in ("darshan_job", "darshan_file", "slurm_job", "slurm_step", "lmt", "job_ost"):
            own = "" if table in ("slurm_job", "slurm_step", "lmt") else " exclude (log)"  # hashes of paths
            both("query", f"select *{own} from {table} order by all limit 20", *store)
        html = folder / "report.html"
        entry.laggard("mine", "job", "5", "--html", str(html), *store)
        texts.append(html.read_text())
        entry.laggard("mine", "jobs", "--write", "--html", str(html), *store)
        texts.append(html.read_text())
    return "\n".join(texts), "".join(records)


def mine() -> str:
    """Its texts, CSV and reports."""
    return mined()[0]


def mine_json() -> str:
    """Its records."""
    return mined()[1]
