"""What to look at next, from what is known of a component's neighbours."""

from laggard_aggregator.advice import Advice, advise
from laggard_aggregator.web.now import Now
from laggard_aggregator.web.slow import Slow


def next_steps(now: Now, each: Slow) -> Advice:
    """Where to look next, by how the others of its node fare."""
    group = now.groups.get(each.first.standing.group)
    source = group.source if group is not None else ""
    slow, others = _siblings(now, each)
    return advise(source, each.level, each.name, slow, others)


def _siblings(now: Now, each: Slow) -> tuple[int, int]:
    """How many others of its node are compared in its group, and how many of them are anomalous."""
    node, slash, _ = each.component.partition("/")
    if not slash:
        return 0, 0
    others: set[str] = set()
    anomalous: set[str] = set()
    for judged in now.judgements_of(each.first.standing.group):
        flags = judged.verdicts.judged & judged.verdicts.anomalous
        for at, name in enumerate(judged.components):
            if name.startswith(f"{node}/") and name != each.component:
                others.add(name)
                if flags[at]:
                    anomalous.add(name)
    return len(anomalous), len(others)
