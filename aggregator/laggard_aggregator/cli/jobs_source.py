"""Sources of jobs for commands: an archive's index, or an aggregator's API.

Whoever reads the archive's files reads all of it, so there the asker is an administrator.
"""

import argparse
from collections.abc import Iterator
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from laggard_aggregator.archive.table import check_archive
from laggard_aggregator.cli import client
from laggard_aggregator.cli.user_times import epoch_seconds
from laggard_aggregator.jobs.access.filter import MAX_PAGE, JobSelection
from laggard_aggregator.jobs.access.principals import Principal, Role
from laggard_aggregator.jobs.access.queries import JobQueries
from laggard_aggregator.jobs.index.job_index import JobIndex
from laggard_aggregator.jobs.join.path_pass import archived_forwarders
from laggard_aggregator.jobs.show import full_record, job_record
from laggard_aggregator.jobs.verdict.judge import JobJudge
from laggard_common.errors import ServiceError

Record = dict[str, Any]
_READER = Principal("", Role.ADMIN)


class Asker(Protocol):
    """Asks for jobs; all methods raise LaggardError. `name`: of the source."""

    name: str

    def jobs(self, args: argparse.Namespace) -> Iterator[Record]:
        """Yields the jobs that the options select, newest first."""

    def runs(self, text: str, method: str = "") -> list[Record]:
        """Runs of an id or key, newest first."""

    @property
    def nothing(self) -> str:
        """Text for an empty list."""

    def close(self) -> None:
        """Releases the source."""


class AskArchive:
    """Asks the index of `--archive`."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._archive = args.archive
        self.name = str(args.archive)
        check_archive(args.archive)
        index = JobIndex(args.archive, args.index)
        index.refresh()
        self._queries = JobQueries(index)
        self._judge = JobJudge(
            args.archive,
            self._queries,
            archived_forwarders(args.archive),
            jobid_format=getattr(args, "jobid_format", ""),
        )

    def jobs(self, args: argparse.Namespace) -> Iterator[Record]:
        """Yields the jobs that the options select, newest first, with their nodes for JSON."""
        selection = JobSelection(
            user=args.user,
            project=args.project,
            application=args.app,
            state=args.state,
            after=epoch_seconds("--from", args.after),
            before=epoch_seconds("--to", args.before),
            node=args.node,
            component=args.ost,
            finding=args.finding,
            below_history=args.below_history,
        )
        for job in self._queries.every(_READER, selection):
            record = job_record(job)
            if args.json:
                nodes = self._queries.nodes(job)
                record["nodes"] = list(dict.fromkeys(node["name"] for node in nodes))
            yield record

    def runs(self, text: str, method: str = "") -> list[Record]:
        """Runs of an id or key, newest first."""
        jobs = self._queries.find(_READER, text)
        return [full_record(self._queries, self._judge, job, method) for job in jobs]

    @property
    def nothing(self) -> str:
        """Text for an empty list."""
        if not (self._archive / "kind=jobs").is_dir():
            return "The archive has no jobs. Add some: laggard jobs import --help"
        return "No job matches."

    def close(self) -> None:
        """Closes the index."""
        self._queries.close()


class AskServer:
    """Asks the aggregator at `--url`, which decides what the asker may see."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._client = client.of(args)
        self.name = str(args.url)
        self.nothing = (
            "No job that you may see matches. Users see their own jobs and those of their accounts "
            "(docs/jobs.md, Access)."
        )

    def jobs(self, args: argparse.Namespace) -> Iterator[Record]:
        """Yields the jobs that the options select, newest first, a page at a time."""
        asked = {
            "user": args.user,
            "project": args.project,
            "app": args.app,
            "state": args.state,
            "from": epoch_seconds("--from", args.after),
            "to": epoch_seconds("--to", args.before),
            "node": args.node,
            "ost": args.ost,
            "finding": args.finding,
            "below_history": args.below_history,
            "limit": min(args.limit or MAX_PAGE, MAX_PAGE),
        }
        given = {name: value for name, value in asked.items() if value not in ("", None)}
        while True:
            page = self._client.get(f"/api/v1/jobs?{urlencode(given)}")
            try:
                yield from page["jobs"]
                given["cursor"] = page["next"]
            except (KeyError, TypeError) as exc:
                raise ServiceError(f"{self.name}: not a laggard aggregator's answer") from exc
            if not given["cursor"]:
                return

    def runs(self, text: str, method: str = "") -> list[Record]:
        """Runs of an id or key, newest first."""
        try:
            asked = f"?{urlencode({'slow_components': method})}" if method else ""
            runs: list[Record] = self._client.get(f"/api/v1/jobs/{quote(text, safe='')}{asked}")["jobs"]
        except (KeyError, TypeError) as exc:
            raise ServiceError(f"{self.name}: not a laggard aggregator's answer") from exc
        return runs

    def close(self) -> None:
        """Each request has a connection of its own."""
