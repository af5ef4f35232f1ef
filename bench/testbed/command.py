"""What a testbed's command does with its runs: writes each down as it ends, and says how they all ended."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.machine import machine
from bench.testbed.luns import CannotRunError, TestbedError, stop_on_signals

Result = dict[str, Any]


def carry_out(
    name: str,
    options: argparse.Namespace,
    runs: Callable[[argparse.Namespace, Path], Iterator[Result]],
    *,
    line: Callable[[Result], str],
    table: Callable[[Sequence[Result]], str],
    what: str,
) -> int:
    """Make all `runs` in a scratch folder, and print `line` after each and `table` and `what` at the end.

    `options` have `output`, where to write the results, and `scratch`. Returns 0 when every run ended as it
    should, 1 when one did not, 2 when the machine lacks something.
    """
    stop_on_signals()
    results: list[Result] = []
    try:
        _write(options.output, results)  # a place where nothing can be written shows now, not after the runs
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=options.scratch) as folder:
            for result in runs(options, Path(folder)):
                results.append(result)
                _write(options.output, results)
                print(line(result), file=sys.stderr, flush=True)
    except (TestbedError, OSError) as exc:
        print(f"bench.testbed.{name}: {exc}", file=sys.stderr)
        return 2 if isinstance(exc, CannotRunError) else 1
    print(table(results))
    print(f"\n{machine()}; {what}")
    return 0 if all(result["as_it_should"] for result in results) else 1


def _write(output: Path | None, results: Sequence[Result]) -> None:
    if output is not None:
        output.write_text(json.dumps({"machine": machine(), "runs": results}, indent=1) + "\n")
