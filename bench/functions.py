"""What groups compared by functions cost the aggregator: CPU a message, a close and a judgement.

    python -m bench.functions

Servers that all run the same functions, with as many samples a second as a few busy cores give, through the
store and the detector of the running aggregator; a trained threshold for each server. CPU time is this
process's own.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bench.machine import machine
from laggard_aggregator.detect.settings import OF_FUNCTIONS
from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.groups.membership import ConfiguredMembership
from laggard_aggregator.ingest.batches import Batch
from laggard_aggregator.log.entries import WindowClose
from laggard_aggregator.windows.counter_block import Block
from laggard_common.wire.schema import Component, Field, Schema

SHAPES = ((40, 500), (288, 2000), (1024, 500))
SECOND = 1_000_000_000
START = 1_800_000_000 * SECOND
WINDOWS = 4
FIELDS = {
    "fnprofile": (Field("samples"), Field("cpu_ns", unit="ns")),
    "fntrace": (Field("calls"), Field("self_ns", unit="ns")),
}


def batches(source: str, nodes: int, functions: int) -> Iterator[list[Batch]]:
    """Every 10 s a message of each node, with a reading a second of which the last one rises."""
    chance = np.random.default_rng(1)
    called = (f"program{f % 40}/image{f % 90}/function_{f}" for f in range(functions))
    names = tuple(Component(name, name) for name in called)
    usual = chance.lognormal(2.0, 2.0, functions)
    schemas = [
        Schema(f"oss-{n}", source, b"s" * 16, 1, SECOND, 10, FIELDS[source], names) for n in range(nodes)
    ]
    totals = np.zeros((nodes, functions, 2), dtype=np.int64)
    present = np.arange(functions, dtype=np.int64)
    for at in range(0, WINDOWS * 30 + 60, 10):
        rises = chance.poisson(usual, (nodes, functions))
        sent = []
        for n, schema in enumerate(schemas):
            values = np.repeat(totals[n][None], 10, axis=0)
            totals[n, :, 0] += rises[n]
            totals[n, :, 1] += rises[n] * 1_003_009
            values[-1] = totals[n]
            ticks = START + (at + 1 + np.arange(10, dtype=np.int64)) * SECOND
            batch = Block(present, values, None, ticks, ticks, 0)
            received = int(ticks[-1]) + SECOND // 10
            late = np.zeros(10, dtype=np.bool_)
            sent.append(Batch(1, "site", "storage", b"s" * 16, at, received, schema, batch, late))
        yield sent


def row(source: str, nodes: int, functions: int) -> str:
    """Milliseconds of CPU for a message, a close and a judgement, and the share of a core that all take."""
    group = f"storage/{source}"
    thresholds = {m: {f"oss-{n}": 1e12 for n in range(nodes)} for m in ("samples", "count", "time")}
    settings = replace(OF_FUNCTIONS, thresholds=thresholds)
    pipeline = Machine(ConfiguredMembership((), functions=settings), lateness_seconds=2.0)
    taking, closing, judging, messages, windows = 0.0, 0.0, 0.0, 0, 0
    for at, sent in enumerate(batches(source, nodes, functions)):
        begun = time.process_time()
        for taken in sent:
            list(pipeline.store((taken,)))
        if at:  # the first messages bring the names
            taking += time.process_time() - begun
            messages += len(sent)
        end = START // SECOND + (at + 1) * 10
        if end % 30 == 0 and at >= 5:
            begun = time.process_time()
            window = pipeline.seal(WindowClose(1, group, end - 60.0, float(end), float(end)))
            sealed = time.process_time()
            assert window is not None
            judgements = pipeline.judge.evaluate(window)
            assert all(judged.verdicts.judged.all() for judged in judgements)
            closing += sealed - begun
            judging += time.process_time() - sealed
            windows += 1
    share = (taking / messages * nodes * 3 + (closing + judging) / windows) / 30
    return (
        f"| {source} | {nodes:,} | {functions:,} | {taking / messages * 1e3:.3f} | "
        f"{closing / windows * 1e3:.0f} | {judging / windows * 1e3:.0f} | {share:.2%} |"
    )


def main() -> None:
    """Prints the table."""
    argparse.ArgumentParser(prog="python -m bench.functions", description=__doc__).parse_args()
    print(machine("numpy", "scipy"))
    print("| source | nodes | functions | ms a message | ms a close | ms a judgement | of a core |")
    print("|---|---|---|---|---|---|---|")
    for source in FIELDS:
        for nodes, functions in SHAPES:
            print(row(source, nodes, functions), flush=True)


if __name__ == "__main__":
    main()
