"""Run jobs on a real GlusterFS cluster, disturb three of them, and print the sentence that each gets.

An application of four nodes writes the same volume again and again, striped by turns over all bricks. After
its history follow a run with a throttled brick, one beside a job that writes a single file from two nodes,
and one with small requests. Counters come from agents through a broker, membership from `jobs.jsonl`.
Needs what `python -m bench.testbed.gluster` does; exit codes are the same.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.testbed.command import carry_out
from bench.testbed.gluster.cluster import MOUNT, Brick, Cluster, cluster, spread_files
from bench.testbed.gluster.site import Detection, site
from bench.testbed.gluster.verdicts import lines, verdicts
from bench.testbed.hosts import Host, running
from bench.testbed.luns import TestbedError, throttled
from bench.testbed.options import count
from bench.testbed.running import until

SERVERS, NODES, NEIGHBOURS = 4, 4, 2
REQUEST_KIB, SMALL_KIB = 256, 4
PAUSE = "25ms"
"""After each REQUEST_KIB: a quarter of what the bricks can do is asked for, none bounds a usual run."""
SLOW_CAP = 3_000_000
MIB_A_FILE = 48
"""A node has a file on each brick; with 48 MiB a usual run takes half a minute."""
HISTORY = 6
DETECTION = Detection(window=12, shift=6, confirm=3)
LONGEST_SECONDS = 400.0
REST_SECONDS = 4.0
GLOBAL = {"direct": "1", "ioengine": "psync", "fallocate": "none", "thread": "1", "group_reporting": "1"}


@dataclass(frozen=True, slots=True)
class Ran:
    """A run of a job as the scheduler would have it. `kind`: usual, brick, neighbour or own change."""

    kind: str
    job: int
    user: str
    name: str
    nodes: tuple[str, ...]
    start: float
    end: float

    def record(self) -> dict[str, Any]:
        """A line of `jobs.jsonl`."""
        own = {name: value for name, value in asdict(self).items() if name != "kind"}
        more = {"cluster": "testbed", "submit": int(self.start), "account": "bench", "state": "COMPLETED"}
        return own | more | {"job": str(self.job), "exclusive": True}


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 when every disturbed run got the right sentence, 1 when one did not, 2 when it cannot run."""
    options = _parser().parse_args(arguments)
    what = f"glusterfs on {SERVERS} servers, a job on {NODES} nodes, {options.history} runs of history"
    return carry_out("gluster.jobs", options, runs, line=_line, table=table, what=what)


def runs(options: argparse.Namespace, scratch: Path) -> Iterator[dict[str, Any]]:
    """Yields each disturbed run with its verdict. Raises TestbedError."""
    done: list[Ran] = []
    with cluster(SERVERS, 1, NODES + NEIGHBOURS, scratch) as made:
        nodes, others = made.clients[:NODES], made.clients[NODES:]
        files = {node: spread_files(made, node, node.name, 1) for node in nodes}
        shared = spread_files(made, others[0], "shared", 1)
        with site(made, DETECTION, scratch) as there:
            for kind in ("usual",) * options.history + tuple(options.run):
                with _disturbance(kind, made, others, shared, scratch, done):
                    begun = time.time()
                    kib = SMALL_KIB if kind == "own change" else REQUEST_KIB
                    _write_all(files, kib, options.mib, scratch)
                    done.append(_ran(kind, done, "ann", "checkpoint.sh", nodes, begun))
                there.check()
                print(f"{kind}: {done[-1].end - done[-1].start:.1f} s", file=sys.stderr, flush=True)
                time.sleep(REST_SECONDS)
        slow = made.bricks[0]
    if options.keep is not None:
        shutil.copytree(scratch / "archive", options.keep / "archive")
        (options.keep / "jobs.jsonl").write_text(lines(done))
    found = verdicts(scratch, done)
    for each in done:
        if each.kind not in ("usual", "its neighbour"):
            yield _result(each, done, found[each.job], slow)


def _ran(kind: str, done: Sequence[Ran], user: str, name: str, nodes: Sequence[Host], start: float) -> Ran:
    return Ran(kind, 1001 + len(done), user, name, tuple(each.name for each in nodes), start, time.time())


def _result(ran: Ran, done: Sequence[Ran], verdict: Mapping[str, Any], slow: Brick) -> dict[str, Any]:
    causes = [(each["kind"], each["cause"]) for each in verdict["findings"]]
    right = {
        "brick": causes[:1] == [("straggler", slow.component)],
        "neighbour": not any(kind == "straggler" for kind, _ in causes),
        "own change": causes[:1] == [("own change", "mean write")],
    }[ran.kind]
    usual = sorted(each.end - each.start for each in done if each.kind == "usual")
    return {
        "run": ran.kind,
        "job": ran.job,
        "seconds": round(ran.end - ran.start, 1),
        "usual_seconds": round(usual[len(usual) // 2], 1),
        "written_bytes": verdict["summary"]["written_bytes"],
        "sentence": verdict["sentence"],
        "findings": verdict["findings"],
        "as_it_should": verdict["verdict"] == "slow" and right,
    }


@contextmanager
def _disturbance(
    kind: str,
    made: Cluster,
    others: Sequence[Host],
    shared: Mapping[Brick, Sequence[str]],
    scratch: Path,
    done: list[Ran],
) -> Iterator[None]:
    """Disturbs a run while the context lasts; a neighbour is noted as a job of its own."""
    slow = made.bricks[0]
    if kind == "neighbour":
        begun = time.time()
        with ExitStack() as stack:
            for node in others:
                stack.enter_context(_one_file(node, shared[slow][0], scratch))
            yield
        done.append(_ran("its neighbour", done, "bob", "shared.sh", others, begun))
        return
    context: AbstractContextManager[None] = nullcontext()
    if kind == "brick":
        context = throttled(slow.lun, SLOW_CAP)
    with context:
        yield


def _one_file(node: Host, name: str, scratch: Path) -> AbstractContextManager[Any]:
    """A node that writes one shared file with four threads for as long as the context lasts."""
    path = scratch / f"{node.name}.shared.fio"
    options = {"rw": "randwrite", "bs": "1m", "size": "64m", "numjobs": "4", "filename": str(MOUNT / name)}
    lasting = {"time_based": "1", "runtime": f"{LONGEST_SECONDS:.0f}"}
    path.write_text(section("global", GLOBAL) + section("shared", options | lasting))
    return running(node, ["fio", str(path)], scratch / f"{node.name}.shared.log")


def _write_all(
    files: Mapping[Host, Mapping[Brick, Sequence[str]]], kib: int, mib: int, scratch: Path
) -> None:
    """Writes all files of all nodes, those of a node by turns. Raises TestbedError."""
    with ExitStack() as stack:
        started = []
        for number, (node, of_brick) in enumerate(files.items()):
            path = scratch / f"{node.name}.fio"
            path.write_text(node_program(number, of_brick, mib, kib))
            log = scratch / f"{node.name}.fio.log"
            started.append(stack.enter_context(running(node, ["fio", str(path)], log)))
        until("the job", lambda: all(each.poll() is not None for each in started), LONGEST_SECONDS)
        if any(each.returncode for each in started):
            raise TestbedError("fio failed")


def node_program(number: int, files: Mapping[Brick, Sequence[str]], mib: int, kib: int = REQUEST_KIB) -> str:
    """What fio does on node `number`: writes `mib` to each of its files by turns, in requests of `kib`."""
    names = [str(MOUNT / name) for chosen in files.values() for name in chosen]
    names = names[number:] + names[:number]
    options = {
        "rw": "write",
        "bs": f"{kib}k",
        "thinktime": PAUSE,
        "thinktime_blocks": str(REQUEST_KIB // kib),
        "size": f"{mib * len(names)}m",
        "filename": ":".join(names),
        "file_service_type": "roundrobin",
    }
    return section("global", GLOBAL) + section("checkpoint", options)


def section(name: str, options: Mapping[str, str]) -> str:
    """A section of a job file of fio."""
    return f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in options.items())


def _line(result: dict[str, Any]) -> str:
    verdict = "as it should" if result["as_it_should"] else "NOT as it should"
    return f"{result['run']}: {verdict}; {result['sentence']}"


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """A row a disturbed run."""
    lines = ["| run | s, usual s | sentence | as it should |", "|---|---|---|---|"]
    for each in results:
        took = f"{each['seconds']}, {each['usual_seconds']}"
        right = "yes" if each["as_it_should"] else "no"
        lines.append(f"| {each['run']} | {took} | {each['sentence']} | {right} |")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    kinds = ("brick", "neighbour", "own change")
    parser = argparse.ArgumentParser(prog="python -m bench.testbed.gluster.jobs", description=__doc__)
    parser.add_argument("--run", nargs="+", default=kinds, choices=kinds, help="disturbances (default all)")
    parser.add_argument(
        "--history", type=count(5, 50), default=HISTORY, metavar="N", help="undisturbed runs (default 6)"
    )
    parser.add_argument(
        "--mib", type=count(8, 64), default=MIB_A_FILE, metavar="N", help="a file (default 48)"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="copy of the archive")
    parser.add_argument("--output", type=Path, metavar="FILE", help="all results, as JSON")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()), metavar="DIR")
    return parser


if __name__ == "__main__":
    sys.exit(main())
