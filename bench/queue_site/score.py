"""The answers of the product beside the truth. Fixed before any answer was seen."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from bench.beacon_site.shape import forwarder_name, login_name, mdt_name, node_name, ost_name
from bench.queue_site.hardware import META, NODES_A_HALF
from bench.queue_site.plan import Plan
from bench.queue_site.simulate import Key
from bench.queue_site.truth import HOGS, INNOCENT, Truth

CAUSES = ("slow component", "straggler", "neighbour", "own change")
"""Kinds of findings that are causes; the others are advice."""
TOP_1, INNOCENT_JOBS = 0.95, 0.01
"""Goals: share of slow runs whose first cause is right, at least; of runs whose first cause is innocent."""
_JOB = re.compile(r"\bjob (\d{5,})\b")
_OST = re.compile(r"OST[0-9a-f]{4}")


@dataclass(frozen=True, slots=True)
class Scored:
    """`first`: the first cause, None without. `judged`: right, none or wrong of slow runs, else empty.
    `innocent`: what the first cause names without reason, else empty.
    """

    truth: Truth
    called: str
    first: Mapping[str, Any] | None
    judged: str
    innocent: str


def score(truth: Truth, answer: Mapping[str, Any], plan: Plan) -> Scored:
    """The answer about one run held against its truth."""
    called = str(answer.get("verdict"))
    causes = [f for f in answer.get("findings") or () if f["kind"] in CAUSES]
    first = causes[0] if causes and called == "slow" else None
    judged = innocent = ""
    if first is not None:
        named, words = _named(first, truth, plan)
        if not named & truth.right and first["kind"] != "own change":
            guilty = max((truth.shares.get(key, 0.0) for key in named), default=0.0)
            innocent = words if guilty < INNOCENT and truth.state != "marginal" else ""
        if truth.state == "slow":
            judged = "right" if named & truth.right else "wrong"
    elif truth.state == "slow":
        judged = "none"
    return Scored(truth, called, first, judged, innocent)


def _named(first: Mapping[str, Any], truth: Truth, plan: Plan) -> tuple[set[Key], str]:
    """What a cause names, as keys of the truth, and in words."""
    cause, text = str(first.get("cause") or ""), str(first.get("text") or "")
    if first["kind"] == "own change":
        size = re.search("request|mean (read|write)|size", f"{cause} {text}") is not None
        mode = re.search("N-1|mode|shared", f"{cause} {text}") is not None
        fits = {"size": size, "mode": mode}.get(truth.run.change, False)
        return ({("own", truth.run.number)} if fits else set()), f"own change: {cause}"
    if first["kind"] == "neighbour":
        jobs = _JOB.findall(f"{cause} {text}")
        if jobs:
            return {("run", int(jobs[0]))}, f"job {jobs[0]}"
        logins = [n for n in range(plan.shape.logins) if login_name(n) in f"{cause} {text}"]
        return _faults(truth, plan, "login", logins), f"node: {text[:60]}"
    osts = [n for n in range(plan.shape.osts) if ost_name(n).split("-")[1] in cause]
    mdts = [n for n in range(plan.shape.mdts) if mdt_name(n).split("-")[1] in cause]
    if osts or mdts:
        return (_faults(truth, plan, "ost", osts) if not mdts else set()), cause
    forwarders = [n for n in range(plan.shape.forwarders) if forwarder_name(n) in cause]
    nodes = [n for n in range(plan.shape.nodes) if node_name(n) in cause]
    return _faults(truth, plan, "forwarder", forwarders) | _faults(truth, plan, "node", nodes), cause


def _faults(truth: Truth, plan: Plan, kind: str, targets: Sequence[int]) -> set[Key]:
    """Faults of these components that the run met."""
    at = [int(key[1]) for key in truth.shares if key[0] == "fault"]
    return {("fault", n) for n in at if plan.faults[n].kind == kind and plan.faults[n].target in targets}


def causes_table(scored: Sequence[Scored]) -> str:
    """By kind: runs, called slow, first cause right, none, wrong, innocent."""
    rows: dict[str, list[Scored]] = defaultdict(list)
    for one in scored:
        rows[f"{one.truth.kind}{'' if one.truth.state == 'slow' else ' (not slow)'}"].append(one)
    order = sorted(rows, key=lambda kind: (kind.endswith("(not slow)"), kind))
    lines = [f"{'':28}{'runs':>6}{'slow':>6}{'right':>7}{'none':>6}{'wrong':>7}{'innocent':>10}"]
    for kind in (
        *order[: sum(not k.endswith(")") for k in order)],
        "all slow",
        *[k for k in order if k.endswith(")")],
    ):
        runs = rows[kind] if kind != "all slow" else [s for s in scored if s.truth.state == "slow"]
        judged = Counter(one.judged for one in runs)
        slow, innocent = sum(s.called == "slow" for s in runs), sum(bool(s.innocent) for s in runs)
        lines.append(
            f"{kind:28}{len(runs):6}{slow:6}{judged['right']:7}{judged['none']:6}{judged['wrong']:7}{innocent:10}"
        )
    return "\n".join(lines)


def goals(scored: Sequence[Scored]) -> dict[str, bool]:
    """Which goals are met."""
    slow = [s for s in scored if s.truth.state == "slow"]
    right, innocent = sum(s.judged == "right" for s in slow), sum(bool(s.innocent) for s in scored)
    called = sum(s.called == "slow" for s in scored if s.truth.state == "healthy")
    return {
        f"first cause right {right} of {len(slow)} (at least {TOP_1:.0%})": right >= TOP_1 * len(slow),
        f"innocent {innocent} of {len(scored)} (at most {INNOCENT_JOBS:.0%})": innocent
        <= INNOCENT_JOBS * len(scored),
        f"healthy called slow {called} (0)": called == 0,
    }


@dataclass(slots=True)
class _Number:
    errors: list[float] = field(default_factory=list)
    near: int = 0
    stated: int = 0
    held: int = 0
    absent: int = 0


def numbers_table(pairs: Sequence[tuple[Truth, Mapping[str, Any]]]) -> str:
    """Each number of the answers beside the truth: share within 1 %, within the stated error of those that
    state one, mean and worst error, how often absent.
    """
    rows: dict[str, _Number] = defaultdict(_Number)
    for truth, answer in pairs:
        given = {**(answer.get("summary") or {}), "mib_per_second": answer.get("mib_per_second")}
        given["mib_per_second_error"] = answer.get("mib_per_second_error")
        for name, true in truth.numbers.items():
            row, value, error = rows[name], given.get(name), given.get(f"{name}_error")
            if value is None:
                row.absent += 1
                continue
            row.errors.append(float(value) / true - 1.0)
            row.near += abs(row.errors[-1]) <= 0.01
            row.stated += error is not None
            row.held += error is not None and abs(value - true) <= error
    lines = [f"{'':28}{'runs':>6}{'in 1 %':>8}{'stated':>8}{'held':>8}{'mean':>9}{'worst':>9}{'absent':>8}"]
    for name, row in rows.items():
        n = len(row.errors)
        if not n:
            continue
        held = f"{row.held / row.stated:8.1%}" if row.stated else f"{'':8}"
        worst = max(row.errors, key=abs)
        lines.append(
            f"{name:28}{n:6}{row.near / n:8.1%}{row.stated:8}{held}"
            f"{fmean(row.errors):9.2%}{worst:9.1%}{row.absent:8}"
        )
    return "\n".join(lines)


def alarms_line(plan: Plan, raised: Sequence[tuple[str, float, float]]) -> str:
    """Components of `raised` (name, begin, end; seconds of the site) beside those that were made slow.

    A neighbour's or flood's component is neither: it is slow under its load.
    """
    faults = [f for f in plan.faults if f.kind in ("ost", "forwarder")]
    met: set[int] = set()
    wrong: Counter[str] = Counter()
    loaded = 0
    for name, begin, end in raised:
        ost, forwarder = _OST.search(name), re.search(r"fwd-\d+", name)
        hit = [
            at
            for at, fault in enumerate(faults)
            if fault.start < end and begin < fault.end + 1800
            and (
                (fault.kind == "ost" and ost is not None and ost_name(fault.target).endswith(ost[0]))
                or (fault.kind == "forwarder" and forwarder and forwarder_name(fault.target) == forwarder[0])
            )
        ]  # fmt: skip
        met |= set(hit)
        if not hit:
            used = _loaded(plan, begin, end)
            if (ost is not None and ost[0] in used) or (ost is None and forwarder and forwarder[0] in used):
                loaded += 1
            else:
                wrong[name] += 1
    found = Counter(faults[at].kind for at in met)
    total = Counter(fault.kind for fault in faults)
    named = ", ".join(f"{name} {count}" for name, count in wrong.most_common(8))
    return (
        f"alarms: slow OSTs {found['ost']} of {total['ost']}, slow forwarders {found['forwarder']} of "
        f"{total['forwarder']}; {loaded} of components under a neighbour's load; "
        f"{sum(wrong.values())} alarms of other components: {named or 'none'}"
    )


def _loaded(plan: Plan, begin: float, end: float) -> set[str]:
    """OSTs and forwarders of neighbours, and of runs that changed, about this time."""
    names: set[str] = set()
    for run in plan.runs:
        heavy = run.change or run.program.name.rstrip("0123456789") in HOGS
        if heavy and run.start < end and begin < run.start + 3600:
            names |= {ost_name(n).split("-")[1] for n in run.osts}
            names |= {forwarder_name(n // (2 * NODES_A_HALF)) for n in run.nodes}
    return names


def line(one: Scored, answer: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """A run for the file of `--jobs-out`: truth, answer, and numbers beside it."""
    truth = one.truth
    named = [
        (
            f"{plan.faults[at].kind} {plan.faults[at].target}" if what == "fault" else f"{what} {at}",
            round(share, 2),
        )
        for (what, at), share in sorted(truth.shares.items(), key=lambda item: -item[1])
    ]
    return {
        "job": str(truth.run.number),
        "program": truth.run.program.name,
        "truth": truth.kind,
        "state": truth.state,
        "time_by_time_alone": round(truth.ratio, 2),
        "time_by_median_of_earlier": None if truth.beside is None else round(truth.beside, 2),
        "share_of_lost_time_without": named,
        "judged": one.judged,
        "innocent": one.innocent,
        "verdict": one.called,
        "factor": answer.get("factor"),
        "first": one.first,
        "sentence": answer.get("sentence"),
        "findings": [(f["kind"], f.get("cause")) for f in answer.get("findings") or ()],
        "nodes": [node_name(n) for n in truth.run.nodes],
        "osts": [ost_name(n) for n in truth.run.osts],
        "mdt": mdt_name(truth.run.program.mdt)
        if any(p.kind == META for p in truth.run.program.phases)
        else None,
        "seconds": truth.done.spans and [round(truth.done.spans[0][1]), truth.done.end],
        "numbers": {
            name: [value, (answer.get("summary") or {}).get(name)] for name, value in truth.numbers.items()
        },
    }
