"""The answers of the product beside the truth."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from bench.beacon_site.plan import KINDS, Cause, Plan
from bench.beacon_site.shape import forwarder_name, login_name, mdt_name, node_name, ost_name
from bench.beacon_site.truth import Truth

ADVICE = {
    "shared file", "single process", "small writes", "small reads", "metadata rate", "opens", "amplification",
    "striping", "re-reads", "small files",
}  # fmt: skip
"""Kinds of findings that are no causes."""
ROWS = (*KINDS, "several", "marginal", "none")
WITHIN = 0.01
_OST = re.compile(r"OST[0-9a-f]{4}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one run. `first`: the first cause, None without. `judged`: `right`, `load unnamed` (the component
    is named on which the load acts, but not whose load it is), `unknown` or `wrong`; empty for healthy runs.
    """

    truth: Truth
    verdict: str
    first: Mapping[str, Any] | None
    judged: str
    sentence: str


@dataclass(slots=True)
class Row:
    """Runs of one kind of cause."""

    runs: int = 0
    slow: int = 0
    judged: dict[str, int] = field(default_factory=dict)


def judge(truth: Truth, answer: Mapping[str, Any], plan: Plan) -> Verdict:
    """The answer about one run held against its truth."""
    verdict = str(answer.get("verdict"))
    causes = [found for found in answer.get("findings") or () if found["kind"] not in ADVICE]
    first = causes[0] if causes and verdict == "slow" else None
    judged = ""
    if truth.causes and truth.kind not in ("none", "marginal"):
        judged = "unknown" if first is None else _best(_held(first, cause, plan) for cause in truth.causes)
    elif first is not None:
        judged = "wrong" if truth.kind == "none" or not truth.causes else _best(
            _held(first, cause, plan) for cause in truth.causes
        )  # fmt: skip
    return Verdict(truth, verdict, first, judged, str(answer.get("sentence", "")))


def _best(judged: Iterable[str]) -> str:
    return min(judged, key=("right", "load unnamed", "wrong").index)


def _held(first: Mapping[str, Any], cause: Cause, plan: Plan) -> str:
    """Whether the first cause of an answer is `cause`."""
    named = str(first.get("cause") or "")
    text = f"{named} {first.get('text') or ''}"
    osts = set(_OST.findall(named))
    if cause.kind == "own request size":
        right = first["kind"] == "own change" and re.search("request|mean (read|write)", text) is not None
    elif cause.kind == "own mode":
        right = first["kind"] == "own change" and ("N-1" in text or "mode" in text)
    elif cause.kind == "slow OST":
        right = osts == {ost_name(cause.target or 0).split("-")[1]}
    elif cause.kind == "slow forwarder":
        right = forwarder_name(cause.target or 0) in named and not osts
    elif cause.kind == "slow compute node":
        right = node_name(cause.target or 0) in named
    elif cause.login is not None:
        right = login_name(cause.login) in text
    else:
        right = re.search(rf"\b{cause.run}\b", text) is not None
    if right:
        return "right"
    return "load unnamed" if _acted_on(cause, plan, named) else "wrong"


def _acted_on(cause: Cause, plan: Plan, named: str) -> bool:
    """Whether `named` is the component that the load of `cause` slows."""
    if cause.kind == "N-1 neighbour":
        return forwarder_name(cause.target or 0) in named and "OST" not in named
    if cause.kind.startswith("metadata flood"):
        return mdt_name(cause.target or 0).split("-")[1] in named
    if cause.kind == "IOPS neighbour":
        loaded = next(run.osts for run in plan.runs if run.number == cause.run)
        return any(ost_name(ost).split("-")[1] in named for ost in loaded)
    return False


def rows(verdicts: Iterable[Verdict]) -> dict[str, Row]:
    """A row for each kind of cause."""
    found = {kind: Row() for kind in ROWS}
    for verdict in verdicts:
        row = found[verdict.truth.kind]
        row.runs += 1
        row.slow += verdict.verdict == "slow"
        if verdict.judged:
            row.judged[verdict.judged] = row.judged.get(verdict.judged, 0) + 1
    return found


@dataclass(slots=True)
class Number:
    """One number of all answers beside the truth: relative errors, and how often it was not given.

    `as_stated`: of those that state an error, whether the truth is within it; of rates without one, which are
    the least that they can be, whether the truth is as high (within 1 %).
    """

    errors: list[float] = field(default_factory=list)
    absent: int = 0
    as_stated: list[bool] = field(default_factory=list)

    @property
    def within(self) -> float:
        """Share of all runs with this number that are within 1 %."""
        n = len(self.errors) + self.absent
        return sum(abs(error) <= WITHIN for error in self.errors) / n if n else float("nan")

    @property
    def stated(self) -> float:
        """Share of answers that agree with the truth by their stated error; NaN where none states one."""
        return sum(self.as_stated) / len(self.as_stated) if self.as_stated else float("nan")

    @property
    def mean(self) -> float:
        """Mean relative error, with its sign."""
        return fmean(self.errors) if self.errors else float("nan")

    @property
    def worst(self) -> float:
        """Largest relative error."""
        return max(self.errors, key=abs, default=float("nan"))


def numbers(pairs: Iterable[tuple[Truth, Mapping[str, Any]]]) -> dict[str, Number]:
    """Errors of every number that both the truth and the answers have."""
    found: dict[str, Number] = {}
    for truth, answer in pairs:
        given = {**(answer.get("summary") or {}), **_by_phases(answer)}
        for name in ("mib_per_second", "mib_per_second_error"):
            given[name] = answer.get(name)
        for name, true in truth.numbers.items():
            if not true or name not in given:
                continue
            number = found.setdefault(name, Number())
            value = given[name]
            if value is None:
                number.absent += 1
                continue
            number.errors.append(float(value) / true - 1.0)
            if f"{name}_error" in given:
                error = given[f"{name}_error"]
                least = float(value) - (WITHIN * true if error is None else error)
                most = float("inf") if error is None else float(value) + error
                number.as_stated.append(least <= true <= most)
    return found


def _by_phases(answer: Mapping[str, Any]) -> dict[str, float]:
    """Number and seconds of the phases of an answer, by direction."""
    found: dict[str, float] = {}
    for kind in ("read", "write", "metadata"):
        mine = [phase for phase in answer.get("phases") or () if phase["direction"] == kind]
        found[f"{kind}_phases"] = len(mine)
        found[f"{kind}_seconds"] = sum(phase["busy_seconds"] for phase in mine)
    return found


def table(found: Mapping[str, Row]) -> str:
    """The table of causes."""
    lines = [f"{'cause':<32}{'runs':>5}{'slow':>6}{'right':>7}{'load':>6}{'none':>6}{'wrong':>7}  top-1"]
    total = Row()
    for kind, row in found.items():
        j = row.judged
        if kind not in ("marginal", "none"):
            total.runs += row.runs
            total.slow += row.slow
            for name, count in j.items():
                total.judged[name] = total.judged.get(name, 0) + count
        lines.append(_line(kind, row))
    return "\n".join([*lines, _line("all slow runs", total)])


def _line(kind: str, row: Row) -> str:
    j = row.judged
    counts = [j.get(name, 0) for name in ("right", "load unnamed", "unknown", "wrong")]
    share = "" if kind in ("marginal", "none") or not row.runs else f"{counts[0] / row.runs:.3f}"
    cells = f"{counts[0]:>7}{counts[1]:>6}{counts[2]:>6}{counts[3]:>7}"
    return f"{kind:<32}{row.runs:>5}{row.slow:>6}{cells}  {share}"


def numbers_table(found: Mapping[str, Number]) -> str:
    """The table of numbers."""
    lines = [
        f"{'number':<32}{'runs':>6}{'absent':>8}{'within 1 %':>12}{'as stated':>11}"
        f"{'mean error':>12}{'worst':>9}"
    ]
    for name, number in found.items():
        n = len(number.errors) + number.absent
        stated = f"{number.stated:.3f}" if number.as_stated else ""
        lines.append(
            f"{name:<32}{n:>6}{number.absent:>8}{number.within:>12.3f}{stated:>11}"
            f"{number.mean:>+12.4f}{number.worst:>+9.3f}"
        )
    return "\n".join(lines)
