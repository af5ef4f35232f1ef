"""Runs of scenarios in processes side by side, kept in a file from which a run that was ended goes on."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import laggard_aggregator
from bench.accuracy.load_grid.judge import judge
from bench.accuracy.load_grid.outcome import Outcome, outcome
from bench.accuracy.load_grid.scenario import Scenario, Seeds
from laggard_aggregator.detect import registry
from laggard_aggregator.detect.settings import DetectSettings


@dataclass(frozen=True, slots=True)
class Result:
    """One try of a scenario. `without_load` is None where that was not asked for."""

    row: str
    column: str
    number: int
    with_load: Outcome
    without_load: Outcome | None

    def record(self) -> dict[str, Any]:
        """Plain data, which `of_record` reads."""
        return asdict(self)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> "Result":
        """The result that `record` was made of."""
        without = record["without_load"]
        return cls(
            record["row"],
            record["column"],
            record["number"],
            Outcome.of_record(record["with_load"]),
            None if without is None else Outcome.of_record(without),
        )


@dataclass(frozen=True, slots=True)
class Task:
    """The `number`-th try of a scenario."""

    scenario: Scenario
    number: int
    seeds: Seeds
    without_load: bool

    @property
    def key(self) -> tuple[str, str, int]:
        """Identity among the results."""
        return self.scenario.row, self.scenario.column, self.number


def run_task(task: Task) -> Result:
    """Draws the series and judges it."""
    scenario, windows = task.scenario, task.scenario.windows
    series = scenario.series(task.number, task.seeds)
    known = outcome(series, judge(series, windows, scenario.loads), windows)
    unknown = outcome(series, judge(series, windows, ()), windows) if task.without_load else None
    return Result(scenario.row, scenario.column, task.number, known, unknown)


def run_tasks(tasks: Sequence[Task], jobs: int) -> Iterator[Result]:
    """Yields the results as they come; where the caller ends early, so do the processes."""
    if jobs == 1:
        yield from map(run_task, tasks)
        return
    pool = ProcessPoolExecutor(jobs)
    try:
        for future in as_completed([pool.submit(run_task, task) for task in tasks]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def detector() -> str:
    """Name and version of the detector, and the first digits of a digest of its code."""
    name = DetectSettings().detector
    version = registry.find(name).version
    digest = hashlib.sha256()
    sources = Path(next(iter(laggard_aggregator.__path__)))
    for path in sorted(
        folder for part in ("detect", "alarms", "offline") for folder in (sources / part).rglob("*.py")
    ):
        digest.update(path.read_bytes())
    return f"{name} {version}, code {digest.hexdigest()[:8]}"


class Kept:
    """Results in a file of lines, of which the first names `head`; of another head it begins anew."""

    def __init__(self, path: Path, head: Mapping[str, Any]) -> None:
        self._path = path
        self._head = json.dumps(head, sort_keys=True)

    def read(self) -> list[Result]:
        """The results of an earlier run with the same head; otherwise none, and an empty file."""
        lines = self._path.read_text().splitlines(keepends=True) if self._path.exists() else []
        if not lines or lines[0].strip() != self._head:
            self._path.write_text(f"{self._head}\n")
            return []
        # The last line is half written where the run was killed.
        whole = [line for line in lines if line.endswith("\n")]
        self._path.write_text("".join(whole))
        return [Result.of_record(json.loads(line)) for line in whole[1:]]

    def append(self, results: Iterable[Result]) -> Iterator[Result]:
        """Yields `results`, each once it is written."""
        with self._path.open("a") as file:
            for result in results:
                file.write(f"{json.dumps(result.record())}\n")
                file.flush()
                yield result
