"""Next steps for a component, from the state of its neighbours."""

from collections import Counter
from dataclasses import dataclass

from laggard_aggregator.status.next_steps import Command, commands, hint
from laggard_aggregator.web.pages.page_state import Now
from laggard_aggregator.web.pages.straggler_rows import Slow


@dataclass(frozen=True, slots=True)
class Advice:
    """The most likely place of the fault, as a sentence, and commands to run."""

    hint: str
    commands: tuple[Command, ...]


class NextSteps:
    """Advice on any number of components; each group is scanned once."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self._by_group: dict[str, tuple[Counter[str], Counter[str], frozenset[str]]] = {}

    def on(self, each: Slow) -> Advice:
        """Next steps, from the state of the node's other components."""
        name = each.first.standing.group
        group = self._now.groups.get(name)
        slow, others = self._siblings(name, each.component)
        source = group.source if group is not None else ""
        return Advice(
            hint(source, each.level, each.name, slow, others), commands(source, each.level, each.name)
        )

    def _siblings(self, group: str, component: str) -> tuple[int, int]:
        """Number of the node's other components that are anomalous, and that are compared in its group."""
        node, slash, _ = component.partition("/")
        if not slash:
            return 0, 0
        if group not in self._by_group:
            self._by_group[group] = self._count(group)
        slow, everyone, anomalous = self._by_group[group]
        return slow[node] - (component in anomalous), max(everyone[node] - 1, 0)

    def _count(self, group: str) -> tuple[Counter[str], Counter[str], frozenset[str]]:
        """Anomalous and total number of components by node, and the anomalous ones."""
        everyone: set[str] = set()
        anomalous: set[str] = set()
        for judged in self._now.judgements_of(group):
            everyone.update(name for name in judged.components if "/" in name)
            flags = judged.verdicts.judged & judged.verdicts.anomalous
            anomalous.update(judged.components[at] for at in flags.nonzero()[0].tolist())
        return _by_node(anomalous), _by_node(everyone), frozenset(anomalous)


def _by_node(names: set[str]) -> Counter[str]:
    return Counter(name.partition("/")[0] for name in names if "/" in name)
