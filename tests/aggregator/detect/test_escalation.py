"""Children that shift together blame their parent; a parent is never blamed for one child."""

import math
from collections.abc import Set
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard_aggregator.detect.escalation import escalate
from laggard_aggregator.detect.interface import Level, Verdicts
from laggard_aggregator.groups.topology import Branch, Topology
from tests import naive
from tests.support.thorough import examples

SERVERS = 6
LUNS = 6
COMPONENTS = tuple(f"oss-{server}/lun{lun}" for server in range(SERVERS) for lun in range(LUNS))
# Couplet 0 is oss-0 and oss-1; a controller carries luns 0-2 of both servers of its couplet, another 3-5.
TOPOLOGY = Topology(
    [
        Branch(r"oss-[01]/.*", {"couplet": "couplet-0"}),
        Branch(r"oss-[23]/.*", {"couplet": "couplet-1"}),
        Branch(r"oss-[45]/.*", {"couplet": "couplet-2"}),
        *(
            Branch(rf"oss-[{2 * c}{2 * c + 1}]/lun[{luns}]", {"controller": f"ctl-{c}-{luns}"})
            for c in range(3)
            for luns in ("012", "345")
        ),
    ]
)


def judged(
    slow: Set[str], idle: Set[str] = frozenset(), severity: dict[str, float] | None = None
) -> Verdicts:
    anomalous = np.array([name in slow for name in COMPONENTS])
    factor = np.array([(severity or {}).get(name, 2.0 if name in slow else 1.0) for name in COMPONENTS])
    return Verdicts(
        judged=np.array([name not in idle for name in COMPONENTS]),
        anomalous=anomalous,
        score=np.where(anomalous, 3.0, 0.1),
        severity=factor,
        observed=factor * 10,
        reference=np.full(len(COMPONENTS), 10.0),
    )


def blamed(verdicts: Verdicts, suspects: dict[str, str] | None = None) -> set[str]:
    found, parents = escalate(verdicts, TOPOLOGY.levels(COMPONENTS), {} if suspects is None else suspects)
    return {name for name, bad in zip((*COMPONENTS, *parents), found.anomalous, strict=True) if bad}


def luns(*servers: int, of: str = "012345") -> set[str]:
    return {f"oss-{server}/lun{lun}" for server in servers for lun in of}


def test_one_slow_lun_is_its_own_fault() -> None:
    assert blamed(judged({"oss-2/lun3"})) == {"oss-2/lun3"}


def test_all_luns_of_a_server_blame_the_server() -> None:
    assert blamed(judged(luns(2))) == {"oss-2"}


def test_an_idle_or_lucky_lun_does_not_save_its_server() -> None:
    assert blamed(judged(luns(2) - {"oss-2/lun0"}, idle={"oss-2/lun1"})) == {"oss-2"}


def test_half_of_a_servers_luns_do_not_blame_it() -> None:
    slow = luns(2, of="024")
    assert blamed(judged(slow)) == slow


def test_a_controller_behind_two_servers_is_blamed() -> None:
    assert blamed(judged(luns(2, 3, of="012"))) == {"ctl-1-012"}


def test_a_couplet_of_two_slow_servers_is_blamed_once() -> None:
    assert blamed(judged(luns(2, 3))) == {"couplet-1"}


def test_a_lun_much_worse_than_its_slow_server_stays_blamed() -> None:
    assert blamed(judged(luns(2), severity={"oss-2/lun4": 9.0})) == {"oss-2", "oss-2/lun4"}


def test_without_a_healthy_majority_of_parents_none_is_blamed() -> None:
    slow = luns(0, 2, 4)
    assert blamed(judged(slow)) == slow


def test_the_parents_severity_is_its_childrens_middle() -> None:
    severity = {f"oss-2/lun{i}": 1.5 + i / 10 for i in range(6)}
    found, parents = escalate(judged(luns(2), severity=severity), TOPOLOGY.levels(COMPONENTS), {})
    assert parents == {"oss-2": "node"}
    assert found.severity[-1] == pytest.approx(1.75)
    assert (found.observed[-1], found.reference[-1]) == (pytest.approx(17.5), pytest.approx(10.0))


def test_a_parent_is_clear_where_its_children_are() -> None:
    for clear in (luns(3), luns(3, of="01")):
        verdicts = replace(judged(luns(3)), clear=np.array([name in clear for name in COMPONENTS]))
        found, parents = escalate(verdicts, TOPOLOGY.levels(COMPONENTS), {})
        assert list(parents) == ["oss-3"]
        assert found.clear is not None
        assert found.clear.tolist() == [name in clear for name in COMPONENTS] + [len(clear) == LUNS]


def test_a_suspect_is_followed_when_it_recovers() -> None:
    suspects: dict[str, str] = {}
    assert blamed(judged(luns(2)), suspects) == {"oss-2"}
    found, parents = escalate(judged(set()), TOPOLOGY.levels(COMPONENTS), suspects)
    assert parents == {"oss-2": "node"}
    assert found.judged[-1]
    assert not found.anomalous[-1]


@given(st.sets(st.sampled_from(COMPONENTS), max_size=20), st.permutations(range(len(COMPONENTS))))
def test_nothing_is_lost_and_order_does_not_matter(slow: set[str], order: list[int]) -> None:
    verdicts = judged(slow)
    found = blamed(verdicts)
    for name in slow:
        assert {name, *TOPOLOGY.parents_of(name).values()} & found
    affected = {name for name in COMPONENTS if {name, *TOPOLOGY.parents_of(name).values()} & found}
    assert len(affected - slow) <= len(slow) / 2
    shuffled = tuple(COMPONENTS[i] for i in order)
    pick = np.array(order)
    again = Verdicts(
        verdicts.judged[pick],
        verdicts.anomalous[pick],
        verdicts.score[pick],
        verdicts.severity[pick],
        verdicts.observed[pick],
        verdicts.reference[pick],
    )
    again, parents = escalate(again, TOPOLOGY.levels(shuffled), {})
    assert {n for n, bad in zip((*shuffled, *parents), again.anomalous, strict=True) if bad} == found


def test_a_name_without_a_node_has_no_parent() -> None:
    assert Topology().levels(("disk1", "disk2")) == ()


def test_names_may_use_groups_of_the_expression() -> None:
    topology = Topology([Branch(r"oss-(\d)\d/.*", {"couplet": r"rack-\1", "controller": ""})])
    assert topology.parents_of("oss-12/sda") == {"node": "oss-12", "couplet": "rack-1"}


VALUE = st.sampled_from((2.0, 2.0, 2.0, 2.0, 1.0, 3.1, 9.0, math.nan, math.inf))
PLACES = ("node", "controller", "couplet")
FEW = st.sets(st.integers(0, 23), max_size=3)


@st.composite
def sites(draw: st.DrawFn) -> tuple[list[naive.Row], list[naive.ParentLevel], dict[str, str]]:
    """Components whose parents are slow together, but for a few of them; levels, and earlier suspects."""
    count = draw(st.integers(6, 24))
    slow: set[int] = set(draw(FEW))
    levels: list[naive.ParentLevel] = []
    for name in draw(st.sampled_from((PLACES[:1], PLACES[1:], PLACES))):
        parents, width, orphans = draw(st.integers(1, 6)), draw(st.integers(1, 8)), draw(FEW)
        of = [-1 if at in orphans else at // width % parents for at in range(count)]
        levels.append((name, [f"{name}-{at}" for at in range(parents)], of))
        bad = draw(st.sets(st.integers(0, parents - 1), max_size=3))
        slow |= {at for at, place in enumerate(of) if place in bad}
    slow ^= draw(FEW)
    idle, values = draw(FEW), st.lists(VALUE, min_size=count, max_size=count)
    columns = [draw(values) for _ in range(4)]
    rows = [(at not in idle, at in slow, *row) for at, row in enumerate(zip(*columns, strict=True))]
    names = [parent for _, parents_, _ in levels for parent in parents_]
    known = draw(st.dictionaries(st.sampled_from(names), st.sampled_from(PLACES), max_size=3))
    return rows, levels, known


@settings(max_examples=examples(400))
@given(sites())
def test_the_same_parents_are_blamed_as_by_the_slow_escalation(
    site: tuple[list[naive.Row], list[naive.ParentLevel], dict[str, str]],
) -> None:
    rows, levels, suspects = site
    columns = list(zip(*rows, strict=True))
    verdicts = Verdicts(
        np.array(columns[0], dtype=np.bool_),
        np.array(columns[1], dtype=np.bool_),
        score=np.array(columns[2], dtype=np.float64),
        severity=np.array(columns[3], dtype=np.float64),
        observed=np.array(columns[4], dtype=np.float64),
        reference=np.array(columns[5], dtype=np.float64),
    )
    fast_levels = [Level(name, tuple(parents), np.array(of, dtype=np.int64)) for name, parents, of in levels]
    fast_suspects, slow_suspects = dict(suspects), dict(suspects)
    found, parents = escalate(verdicts, fast_levels, fast_suspects)
    expected, expected_parents = naive.escalated(rows, levels, slow_suspects)
    assert list(parents.items()) == list(expected_parents.items())
    assert fast_suspects == slow_suspects
    rows_found = zip(
        found.judged.tolist(),
        found.anomalous.tolist(),
        found.score.tolist(),
        found.severity.tolist(),
        found.observed.tolist(),
        found.reference.tolist(),
        strict=True,
    )
    assert [[str(value) for value in row] for row in rows_found] == [
        [str(value) for value in row] for row in expected
    ]
