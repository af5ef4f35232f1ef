"""What to look at next, from what is known of a component's neighbours."""

from collections import Counter
from dataclasses import dataclass

from laggard_aggregator.status.next_steps import Command, commands, hint
from laggard_aggregator.web.pages.page_state import Now
from laggard_aggregator.web.pages.straggler_rows import Slow


@dataclass(frozen=True, slots=True)
class Advice:
    """Where the fault most likely lies, in a sentence, and what to run."""

    hint: str
    commands: tuple[Command, ...]


class NextSteps:
    """Advises on any number of components; those of a group are gone through once."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self._by_group: dict[str, tuple[Counter[str], Counter[str], frozenset[str]]] = {}

    def on(self, each: Slow) -> Advice:
        """Where to look next, by how the others of its node fare."""
        name = each.first.standing.group
        group = self._now.groups.get(name)
        slow, others = self._siblings(name, each.component)
        source = group.source if group is not None else ""
        return Advice(
            hint(source, each.level, each.name, slow, others), commands(source, each.level, each.name)
        )

    def _siblings(self, group: str, component: str) -> tuple[int, int]:
        """How many others of its node are anomalous, and how many are compared in its group."""
        node, slash, _ = component.partition("/")
        if not slash:
            return 0, 0
        if group not in self._by_group:
            self._by_group[group] = self._count(group)
        slow, everyone, anomalous = self._by_group[group]
        return slow[node] - (component in anomalous), max(everyone[node] - 1, 0)

    def _count(self, group: str) -> tuple[Counter[str], Counter[str], frozenset[str]]:
        """By node how many components are anomalous, and how many there are; and which are."""
        everyone: set[str] = set()
        anomalous: set[str] = set()
        for judged in self._now.judgements_of(group):
            everyone.update(name for name in judged.components if "/" in name)
            flags = judged.verdicts.judged & judged.verdicts.anomalous
            anomalous.update(judged.components[at] for at in flags.nonzero()[0].tolist())
        return _by_node(anomalous), _by_node(everyone), frozenset(anomalous)


def _by_node(names: set[str]) -> Counter[str]:
    return Counter(name.partition("/")[0] for name in names if "/" in name)
