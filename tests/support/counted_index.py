"""An index of jobs that counts the work of its questions."""

from collections.abc import Callable
from typing import Any

from laggard_aggregator.jobs.index.job_index import JobIndex

Question = Callable[..., Any]


class CountedIndex(JobIndex):
    """An index whose connections count the steps of SQLite's machine, and the statements."""

    steps = statements = 0

    def connect(self) -> Any:
        found = super().connect()
        found.set_progress_handler(self._step, 1)
        found.set_trace_callback(self._statement)
        return found

    def _step(self) -> int:
        self.steps += 1
        return 0

    def _statement(self, _: str) -> None:
        self.statements += 1

    def work(self, ask: Question, *asked: Any) -> tuple[Any, int, int]:
        """The answer, with the steps and statements that it took."""
        self.steps = self.statements = 0
        answer = ask(*asked)
        return answer, self.steps, self.statements
