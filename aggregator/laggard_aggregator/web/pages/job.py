"""The answer on top of a job's page, and its table of components."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from laggard_aggregator.jobs.verdict.evidence.path_shares import names

SHOWN: Final = 12
"""Components that are seen at once; the others are below a heading that opens."""
_LOOKS: Final = {"slow": "bad", "as usual": "good"}
_BLAMES: Final = {"straggler": "straggler", "slow component": "slow"}
_HELP: Final = {
    "too few runs": "Whether the whole job was slow can only be told beside earlier runs of the same work.",
    "different work": "Its earlier runs moved other volumes, so their times say nothing about this one.",
}
_NO_IO: Final = "An agent on its nodes, or job statistics on the file servers, records the I/O of later jobs."
_NAMED: Final = 2
_RUNS_YET: Final = "It is judged after its end."


@dataclass(frozen=True, slots=True)
class Answer:
    """How it was: `lead`, then the other sentences. `look`: bad, warn, good or empty.

    `todo`: advice; `report`: the first of it, where slow components are to be reported.
    """

    look: str
    lead: str
    more: tuple[str, ...]
    todo: tuple[str, ...]
    report: str = ""


def answer(job: Mapping[str, Any]) -> Answer:
    """The answer of a job's record, what is surest first: a slow job, else a slow component within it."""
    sentence, within = job["sentence"], job["slow_components"]
    report = _report(job["components"]) if within else ""
    if within and any(part["slow"] and part["component"] in sentence for part in job["components"]):
        within = ""
    hint = _HELP.get(job["verdict"], "")
    if job["verdict"] == "not judged":
        hint = _RUNS_YET if job["end"] is None else "" if job["coverage"] or job["phases"] else _NO_IO
    advised = dict.fromkeys(finding["advice"] for finding in job["findings"] if finding["advice"])
    if any(finding["kind"] in _BLAMES for finding in job["findings"]):
        report = ""
    todo = [report, *advised] if report else [*advised]
    look = _LOOKS.get(job["verdict"], "warn" if within or job["findings"] else "")
    lines = [" ".join((f"{sentence}.", hint)).rstrip()] if sentence else []
    if within:
        slow = f"Slow in this job: {within}."
        lines = [*lines, slow] if job["verdict"] == "slow" else [slow, *lines]
    lead, *more = lines or ["Not judged."]
    return Answer(look, lead, tuple(more), tuple(todo), report)


def _report(components: Sequence[Mapping[str, Any]]) -> str:
    """The advice to report the slow ones of `components`."""
    slow = (component for component in components if component["slow"])
    named = list(
        dict.fromkeys(
            component["component"]
            if component["layer"] == "client" and component["component"]
            else "/".join(filter(None, (component["node"], component["component"])))
            for component in slow
        )
    )
    shown = named[:_NAMED] + ([f"{len(named) - _NAMED} more"] if len(named) > _NAMED else [])
    names = " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
    return f"Tell the storage operators that {names} {'was' if len(named) == 1 else 'were'} slow"


@dataclass(frozen=True, slots=True)
class ComponentsTable:
    """Components, the blamed ones first; those in `more` are seen when asked for. `blame`: kind and factor.

    `with_times`: whether the time of any request is known; `directions`: those of the requests.
    """

    rows: Sequence[Mapping[str, Any]]
    more: Sequence[Mapping[str, Any]]
    with_times: bool
    directions: tuple[str, ...]

    @classmethod
    def of(cls, components: Sequence[Mapping[str, Any]], findings: Sequence[Mapping[str, Any]]) -> Self:
        """The table of the components and findings of a job's record."""
        requests = [component["requests"] for component in components]
        blamed = {finding["cause"]: finding for finding in findings if finding["kind"] in _BLAMES}
        rows = [{**component, "blame": _blame(component, blamed)} for component in components]
        rows.sort(key=lambda row: row["blame"] is None)
        return cls(
            rows[:SHOWN],
            rows[SHOWN:],
            any(sums["seconds"] is not None for times in requests for sums in times.values()),
            tuple(name for name in ("read", "write", "metadata") if any(name in sums for sums in requests)),
        )


def blamed_names(job: Mapping[str, Any]) -> set[str]:
    """The names that the daemon's windows may have for the slow components of a job's record."""
    named = {finding["cause"] for finding in job["findings"] if finding["kind"] in _BLAMES}
    for component in job["components"]:
        own = names(component["component"], component["node"])
        if component["slow"] or not own.isdisjoint(named):
            named |= own
    return named


def _blame(
    component: Mapping[str, Any], blamed: Mapping[str, Mapping[str, Any]]
) -> tuple[str, float | None] | None:
    """Word and factor of a slow component, by its times or else by a finding that names it."""
    if component["slow"]:
        return "slow", component["factor"]
    finding = next(
        (blamed[name] for name in names(component["component"], component["node"]) & set(blamed)), None
    )
    return None if finding is None else (_BLAMES[finding["kind"]], finding["factor"])
