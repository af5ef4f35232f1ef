"""Run jobs of a real Slurm on a real GlusterFS cluster, and read what their owners are told.

An application on four nodes writes the same volume again and again. Then it runs beside a job of another user
that writes one file from all of its processes, and with a throttled brick, during which it is asked for while
it runs. The daemon polls sacct and stores the verdicts; `deploy/slurm/laggard-comment` in the epilog of
slurmctld writes each into the job's AdminComment. Needs what `python -m bench.testbed.gluster.jobs` does, and
Debian's slurmctld, slurmd, slurmdbd, munge and mariadb-server; exit codes are the same.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

from bench.testbed.command import carry_out
from bench.testbed.gluster.cluster import MOUNT, Brick, Cluster, cluster, mounted, spread_files
from bench.testbed.gluster.jobs import (
    DETECTION,
    GLOBAL,
    LONGEST_SECONDS,
    MIB_A_FILE,
    NEIGHBOURS,
    NODES,
    REST_SECONDS,
    SERVERS,
    SLOW_CAP,
    node_program,
    section,
)
from bench.testbed.gluster.site import site
from bench.testbed.hosts import BRIDGE_ADDRESS, Host
from bench.testbed.luns import CannotRunError, TestbedError, throttled
from bench.testbed.options import count
from bench.testbed.running import until
from bench.testbed.site import ASK_SECONDS, HTTP_PORT, ask
from tests.support.slurm_lab import NodeHost, SlurmLab, missing

KINDS = ("neighbour", "brick")
HISTORY = 5
OWNER, OTHER = "daemon", "bin"
"""Existing users."""
URL = f"http://127.0.0.1:{HTTP_PORT}"
COMMENT = Path(__file__).parents[3] / "deploy/slurm/laggard-comment"
COMMENT_SECONDS = 120
JUDGED_SECONDS = 400.0
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}
_JOBS = "[jobs]\nsacct = true\npoll_seconds = 10.0\n\n[identity]\nanyone_reads = true\n"
_HOOK = """\
#!/bin/sh
# Slurm gives its hooks no PATH.
export PATH={path} SLURM_CONF={conf} LAGGARD_COMMENT_SECONDS={seconds}
[ "$SLURM_SCRIPT_CONTEXT" = epilog_slurmctld ] && {comment} "$SLURM_JOB_ID"
exit 0
"""


@dataclass(slots=True)
class Ran:
    """A run. `while_running`: the last sentence with an alarm that was given of it before its end."""

    kind: str
    job: int
    seconds: float
    beside: int | None = None
    while_running: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 when each disturbed run got the right sentence everywhere, 1 when not, 2 without means."""
    options = _parser().parse_args(arguments)
    what = (
        f"glusterfs on {SERVERS} servers, Slurm on {NODES + NEIGHBOURS} nodes, {options.history} earlier runs"
    )
    return carry_out("gluster.slurm", options, runs, line=_line, table=table, what=what)


def runs(options: argparse.Namespace, scratch: Path) -> Iterator[dict[str, Any]]:
    """Yields each disturbed run with what was said of it. Raises TestbedError."""
    if missing():
        raise CannotRunError(missing())
    scratch.chmod(0o755)
    with cluster(SERVERS, 1, NODES + NEIGHBOURS, scratch) as made:
        folder = scratch / "slurm"
        folder.mkdir()
        programs = _Programs(made, folder, options.mib)
        hook = folder / "hook"
        values = {"conf": folder / "slurm.conf", "comment": COMMENT, "seconds": COMMENT_SECONDS}
        path = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        hook.write_text(_HOOK.format(path=path, **values))
        hook.chmod(0o755)
        hosts = [NodeHost(each.name, each.address, each.command) for each in made.clients]
        lab = SlurmLab(folder, hook, hosts, BRIDGE_ADDRESS)
        with _slurm(lab), site(made, DETECTION, scratch, _JOBS) as there:
            bench = _Bench(lab, programs, made.bricks[0])
            for number in range(options.history):
                ran = bench.usual()
                print(f"usual {number + 1}: {ran.seconds:.1f} s", file=sys.stderr, flush=True)
                there.check()
            until("the verdicts on earlier runs", bench.are_judged, JUDGED_SECONDS)
            disturbed = [bench.disturbed(kind) for kind in options.run]
            for ran in disturbed:
                yield bench.result(ran)


@contextmanager
def _slurm(lab: SlurmLab) -> Iterator[None]:
    """Slurm at work on the clients; `sacct` of this process asks it."""
    os.environ["SLURM_CONF"] = str(lab.conf)
    try:
        with lab.running():
            lab.add_user(OTHER)
            yield
    finally:
        del os.environ["SLURM_CONF"]


class _Programs:
    """Programs of jobs. The first NODES clients run the application, the others its neighbour."""

    def __init__(self, made: Cluster, folder: Path, mib: int) -> None:
        self.nodes, self.others = made.clients[:NODES], made.clients[NODES:]
        files = {node: spread_files(made, node, node.name, 1) for node in self.nodes}
        shared = spread_files(made, self.others[0], "shared", 1)[made.bricks[0]][0]
        mounted(self.nodes[0]).chmod(0o777)  # fio makes its files anew
        for each in mounted(self.nodes[0]).iterdir():
            each.chmod(0o666)
        for number, (node, of_brick) in enumerate(files.items()):
            (folder / f"{node.name}.fio").write_text(node_program(number, of_brick, mib))
        options = {
            "rw": "randwrite",
            "bs": "1m",
            "size": "64m",
            "numjobs": "16",
            "filename": str(MOUNT / shared),
        }
        lasting = {"time_based": "1", "runtime": f"{LONGEST_SECONDS:.0f}"}
        for node in self.others:
            text = section("global", GLOBAL) + section("shared", options | lasting)
            (folder / f"{node.name}.fio").write_text(text)
        here = shlex.quote(str(folder))
        said = f">{here}/work/$SLURM_JOB_ID.$SLURMD_NODENAME.log 2>&1"
        self.task = f"exec {shutil.which('fio')} {here}/$SLURMD_NODENAME.fio {said}"


@dataclass(slots=True)
class _Bench:
    """Runs jobs of `lab`. `slow`: the brick that is throttled, and loaded by the neighbour."""

    lab: SlurmLab
    programs: _Programs
    slow: Brick
    _usual: list[Ran] | None = None

    def usual(self) -> Ran:
        """An undisturbed run."""
        ran = self._run("usual")
        self._usual = [*(self._usual or []), ran]
        return ran

    def are_judged(self) -> bool:
        """Whether all undisturbed runs have stored verdicts."""
        listed = ask("/api/v1/jobs?limit=100") or {"jobs": []}
        judged = {job["raw_id"] for job in listed["jobs"] if job["verdict"] in ("as usual", "too few runs")}
        return judged >= {ran.job for ran in self._usual or ()}

    def disturbed(self, kind: str) -> Ran:
        """A run with a throttled brick, or beside a neighbour."""
        if kind == "brick":
            with throttled(self.slow.lun, SLOW_CAP):
                return self._run(kind)
        beside = self._submit(OTHER, "shared", self.programs.others)
        until("the neighbour", lambda: self._state(beside) == "RUNNING")
        time.sleep(REST_SECONDS)  # it is at its file then
        try:
            ran = self._run(kind)
        finally:
            self.lab.command("scancel", str(beside))
        ran.beside = beside
        return ran

    def result(self, ran: Ran) -> dict[str, Any]:
        """What API, page and Slurm say of a run, once Slurm does."""
        until("the comment", lambda: bool(self._comment(ran.job)), JUDGED_SECONDS)
        comment = self._comment(ran.job)
        (record,) = ask(f"/api/v1/jobs/{ran.job}")["jobs"]
        first = next(iter(record["findings"]), {"kind": "", "cause": "", "text": ""})
        right = {
            "brick": self.slow.component in first["cause"] and self.slow.component in ran.while_running,
            "neighbour": first["kind"] == "neighbour" and f"job {ran.beside} of {OTHER} " in first["text"],
        }[ran.kind]
        usual = sorted(each.seconds for each in self._usual or ())
        same = _as_by_sacctmgr(record["sentence"]) == comment
        return {
            "run": ran.kind,
            "job": ran.job,
            "seconds": round(ran.seconds, 1),
            "usual_seconds": round(usual[len(usual) // 2], 1),
            "while_running": ran.while_running,
            "sentence": record["sentence"],
            "comment": comment,
            "on_page": record["sentence"] in _page_text(f"/jobs/{ran.job}"),
            "findings": record["findings"],
            "as_it_should": record["verdict"] == "slow" and right and same,
        }

    def _run(self, kind: str) -> Ran:
        """A run of the application to its end; of one with a slow brick, what is said of it until then."""
        job = self._submit(OWNER, "checkpoint", self.programs.nodes)
        said = ""
        deadline = time.monotonic() + LONGEST_SECONDS
        while self._state(job) not in ENDED and time.monotonic() < deadline:
            if kind == "brick":
                said = _alarm_of(job) or said
            time.sleep(0.5)
        if (state := self._state(job)) != "COMPLETED":
            told = [path.read_text().strip() for path in self.lab.work.glob(f"{job}.*.log")]
            raise TestbedError(f"job {job} is {state}: {' '.join(told)[-500:]}")
        begun, end = self._times(job)
        time.sleep(REST_SECONDS)
        return Ran(kind, job, end - begun, while_running=said)

    def _submit(self, user: str, name: str, nodes: Sequence[Host]) -> int:
        names = ",".join(node.name for node in nodes)
        size = str(len(nodes))
        task = f"srun /bin/sh -c {shlex.quote(self.programs.task)}"
        own = ("-J", name, "-N", size, "-n", size, "-w", names, "--mem", "500")
        return self.lab.submit(*own, "--wrap", task, user=user)

    def _told(self, job: int) -> Mapping[str, str]:
        line = self.lab.command("scontrol", "show", "job", "-o", str(job))
        return dict(re.findall(r"(\w+)=(.*?)(?= \w+=|$)", line.strip()))

    def _state(self, job: int) -> str:
        return self._told(job)["JobState"]

    def _times(self, job: int) -> tuple[float, float]:
        told = self._told(job)
        return float(told["StartTime"]), float(told["EndTime"])

    def _comment(self, job: int) -> str:
        words = ("sacct", "-X", "-n", "-P", "-j", str(job), "-o", "AdminComment")
        return self.lab.command(*words).strip()


def _as_by_sacctmgr(text: str) -> str:
    """A text as Slurm 22.05 takes it from `sacctmgr modify job`."""
    return text.lower().replace('"', "`")


def _alarm_of(job: int) -> str:
    """The sentence about a running job, if it names a straggler."""
    answer = ask(f"/api/v1/jobs/{job}")
    for record in answer["jobs"] if answer else ():
        if record["end"] is None and "straggler" in record["sentence"]:
            return str(record["sentence"])
    return ""


def _page_text(path: str) -> str:
    """The text of a page, without its tags."""
    try:
        with urllib.request.urlopen(f"{URL}{path}", timeout=ASK_SECONDS) as answer:
            page = answer.read().decode()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return ""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", "", page)))


def _line(result: dict[str, Any]) -> str:
    verdict = "as it should" if result["as_it_should"] else "NOT as it should"
    return f"{result['run']}: {verdict}; {result['comment']}"


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """A row a disturbed run, and one for what was said while it ran."""
    lines = ["| run | s, usual s | AdminComment | on its page | as it should |", "|---|---|---|---|---|"]
    for each in results:
        took = f"{each['seconds']}, {each['usual_seconds']}"
        page, right = ("yes" if each[name] else "no" for name in ("on_page", "as_it_should"))
        lines.append(f"| {each['run']} | {took} | {each['comment']} | {page} | {right} |")
        if each["while_running"]:
            lines.append(f"| {each['run']}, while it ran | | {each['while_running']} | | |")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.testbed.gluster.slurm", description=__doc__)
    parser.add_argument("--run", nargs="+", default=KINDS, choices=KINDS, help="disturbances (default all)")
    parser.add_argument(
        "--history", type=count(5, 50), default=HISTORY, metavar="N", help="undisturbed runs (default 5)"
    )
    parser.add_argument(
        "--mib", type=count(8, 64), default=MIB_A_FILE, metavar="N", help="a file (default 48)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="all results, as JSON")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()), metavar="DIR")
    return parser


if __name__ == "__main__":
    sys.exit(main())
