"""The part of a kept folder beside the archive: plan, truth and alarms, as JSON in `site.json`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.beacon_site.shape import Shape
from bench.queue_site.hardware import MINUTE, Noise
from bench.queue_site.plan import Fault, Phase, Plan, Program, Run
from bench.queue_site.simulate import Done
from bench.queue_site.truth import Truth

FILE = "site.json"


@dataclass(frozen=True, slots=True)
class Kept:
    """`seed`: of the plan. `raised`: alarms, and from when to when, infinite for those that stand."""

    header: str
    seed: int
    plan: Plan
    truths: Sequence[Truth]
    raised: Sequence[tuple[str, float, float]]

    def json(self) -> str:
        """All of it as a text."""
        plan = self.plan
        record = {
            "header": self.header,
            "seed": self.seed,
            "shape": asdict(plan.shape),
            "seconds": plan.seconds,
            "runs": [asdict(run) for run in plan.runs],
            "faults": [asdict(fault) for fault in plan.faults],
            "injected": list(plan.injected.items()),
            "truths": [_record(truth) for truth in self.truths],
            "raised": [
                (name, begin, None if end == float("inf") else end) for name, begin, end in self.raised
            ],
        }
        return json.dumps(record, allow_nan=False)

    @classmethod
    def read(cls, text: str) -> "Kept":
        """The same from a text. Raises ValueError, KeyError or TypeError for one of another form."""
        record = json.loads(text)
        shape, seconds, seed = Shape(**record["shape"]), record["seconds"], record["seed"]
        runs, faults = [_run(run) for run in record["runs"]], [Fault(**fault) for fault in record["faults"]]
        noise = Noise(shape, seconds // MINUTE + 60, seed)
        plan = Plan(shape, noise, seconds, runs, faults, dict(record["injected"]))
        by_number = {run.number: run for run in runs}
        truths = [_truth(truth, by_number) for truth in record["truths"]]
        raised = [
            (name, begin, float("inf") if end is None else end) for name, begin, end in record["raised"]
        ]
        return cls(record["header"], seed, plan, truths, raised)


def _record(truth: Truth) -> dict[str, Any]:
    return {
        "run": truth.run.number,
        "end": truth.done.end,
        "spans": truth.done.spans,
        "ratio": truth.ratio,
        "beside": truth.beside,
        "state": truth.state,
        "kind": truth.kind,
        "shares": list(truth.shares.items()),
        "right": sorted(truth.right),
        "numbers": truth.numbers,
    }


def _run(record: Mapping[str, Any]) -> Run:
    program = record["program"]
    phases = tuple(Phase(**phase) for phase in program["phases"])
    lists = {name: tuple(record[name]) for name in ("nodes", "osts", "spread")}
    return Run(**{**record, **lists, "program": Program(**{**program, "phases": phases})})


def _truth(record: Mapping[str, Any], runs: Mapping[int, Run]) -> Truth:
    spans = tuple((kind, begin, end) for kind, begin, end in record["spans"])
    own = {name: record[name] for name in ("ratio", "beside", "state", "kind", "numbers")}
    return Truth(
        Done(runs[record["run"]], record["end"], spans),
        **own,
        shares={(what, at): share for (what, at), share in record["shares"]},
        right={(what, at) for what, at in record["right"]},
    )
