"""Rows and components that did not change are the objects of the reading before."""

from laggard_agent.collectors.rows import OwnRow, RowCache, gauges
from laggard_common.wire.schema import Component

FIELDS = gauges("a", "b")


def components(*names: str) -> tuple[Component, ...]:
    return tuple(Component(name, name) for name in names)


def test_equal_rows_and_components_stay_the_same_objects() -> None:
    cache = RowCache("s")
    first = cache.reading(1, FIELDS, components("x", "y"), [(1, 2), (3, 4)])
    second = cache.reading(2, FIELDS, components("x", "y"), [(1, int("2")), (3, 5)])
    assert (second.source, second.read_at_ns) == ("s", 2)
    assert second.components is first.components
    assert second.rows[0] is first.rows[0]
    assert second.rows[1] == (3, 5)


def test_rows_follow_their_components() -> None:
    cache = RowCache("s")
    first = cache.reading(1, FIELDS, components("x", "y", "z"), [(1, 2), (3, 4), (5, 6)])
    second = cache.reading(2, FIELDS, components("z", "new", "x"), [(5, 6), (3, 4), (1, 1)])
    assert [component.id for component in second.components] == ["z", "new", "x"]
    assert second.rows[0] is first.rows[2]
    assert second.rows[1:] == [(3, 4), (1, 1)]
    assert first.rows == [(1, 2), (3, 4), (5, 6)]


def test_an_own_row_has_the_name_of_its_source_unless_it_is_given_one() -> None:
    row = OwnRow("s", FIELDS)
    first, second = row.of(1, 7, 8), row.of(2, 7, 8)
    assert first.components == components("s")
    assert second.rows[0] is first.rows[0]
    assert OwnRow("s", FIELDS, "n").of(1, 7, 8).components == components("n")
