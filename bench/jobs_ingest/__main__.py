"""Records of sacct a second, and none lost, doubled or merged: `python -m bench.jobs_ingest`.

Generated records are written as files that overlap: each record is in two of them. The files and their rows
are shuffled, and all are fed twice, each by a process of `laggard jobs import`. Then the archive's jobs and
their nodes are compared with the truth. The rate is that of all records fed over the CPU time of the
commands. Exits with 1 when a run is lost, doubled or merged, or the rate is below --least.
"""

import argparse
import os
import random
import resource
import secrets
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from bench.jobs_ingest.generator import HEADER, SEPARATOR, Site, generate, node_name
from bench.machine import machine
from laggard_aggregator.archive.reader import ArchiveReader
from laggard_aggregator.archive.table import last_revisions
from laggard_aggregator.jobs.records.store import last_nodes


def main() -> int:
    """Prints the figures and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--least", type=float, default=20_000.0, help="records a second of one core")
    args = parser.parse_args()
    seed = secrets.randbits(32) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)
    site = generate(args.records, seed)
    print(f"{len(site.rows):,} records of {len(site.truth):,} runs", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "archive")
        files = write_files(site, Path(folder), args.files, seed)
        fed = seconds = 0.0
        for round_of in range(2):
            for path, rows in files:
                seconds += _feed(path, archive)
                fed += rows
            print(f"round {round_of + 1}: {fed:,.0f} records fed, {fed / seconds:,.0f} a second", flush=True)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        wrong = compare(site, archive)
    rate = fed / seconds
    print(f"{fed:,.0f} records in {seconds:.1f} s of CPU: {rate:,.0f} a second; at most {peak:,.0f} MiB")
    print(", ".join(f"{count} {name}" for name, count in wrong.items()))
    print(machine("pyarrow", "numpy"))
    return int(any(wrong.values()) or rate < args.least)


def write_files(site: Site, folder: Path, count: int, seed: int) -> list[tuple[Path, int]]:
    """Files with two of `count` slices of the records each, shuffled, in any order, and their rows."""
    rng = random.Random(seed + 1)
    rows = [row for _, row in sorted(site.rows)]
    size = -(-len(rows) // count)
    files = []
    for at in range(count):
        own = [*rows[at * size : (at + 1) * size]]
        after = (at + 1) % count
        own += rows[after * size : (after + 1) * size]
        rng.shuffle(own)
        path = folder / f"sacct-{at}.txt"
        path.write_text("\n".join([SEPARATOR.join(HEADER), *own]) + "\n", encoding="utf-8")
        files.append((path, len(own)))
    rng.shuffle(files)
    return files


def compare(site: Site, archive: Path) -> dict[str, int]:
    """Runs that are lost, doubled, merged with others or wrong, and nodes that are wrong."""
    reader = ArchiveReader(archive)
    jobs = last_revisions(reader.table("jobs"))
    nodes = last_nodes(reader.table("job_nodes"), jobs)
    of_key = defaultdict(set)
    rows = 0
    for key, node in zip(nodes["job_key"].to_pylist(), nodes["node"].to_pylist(), strict=True):
        of_key[key].add(node)
        rows += 1
    names = ("job_key", "cluster", "raw_id", "submit", "state", "start", "end")
    columns = [jobs[name].to_pylist() for name in names]
    found, doubled = {}, 0
    for key, cluster, raw, submit, *told in zip(*columns, strict=True):
        doubled += (cluster, raw, submit) in found
        found[cluster, raw, submit] = (key, *told)
    wrong = wrong_nodes = 0
    for run, truth in site.truth.items():
        if run not in found:
            continue
        key, state, start, end = found[run]
        wrong += (state, start, end) != (truth.state, truth.start, truth.end)
        wrong_nodes += of_key.get(key, set()) != {node_name(each) for each in truth.nodes}
    return {
        "lost": len(site.truth.keys() - found.keys()),
        "doubled": doubled + rows - sum(map(len, of_key.values())),
        "merged or invented": len(found.keys() - site.truth.keys()),
        "with wrong state or times": wrong,
        "with wrong nodes": wrong_nodes,
    }


def _feed(path: Path, archive: Path) -> float:
    """CPU seconds of an import."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "laggard_aggregator.cli.main", "jobs", "import"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"}
    subprocess.run(
        [*command, "--sacct", str(path), "--archive", str(archive)],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
