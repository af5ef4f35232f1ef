import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.alarms.overrides import (
    KINDS,
    MOST_COMMENTS,
    MOST_DECISIONS,
    MOST_TARGET_CHARS,
    Decision,
    Overrides,
    checked_ticket,
    commenting,
    silencing,
)
from laggard_aggregator.groups.patterns import covering, covers

SHOWN = {"oss-1/wwn-1": "oss-1/sda", "oss-1/wwn-2": "oss-1/sdb", "oss-10/wwn-3": "oss-10/sda"}


def decision(kind: str = "silence", target: str = "oss-1", until: float = math.inf) -> Decision:
    return Decision(kind, target, "root", 100.0, until)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "named"),
    [
        ("oss-1", {"oss-1/wwn-1", "oss-1/wwn-2"}),
        ("oss-1/sda", {"oss-1/wwn-1"}),
        ("oss-1/wwn-2", {"oss-1/wwn-2"}),
        ("oss-1*", set(SHOWN)),
        ("oss-?/sd[ab]", {"oss-1/wwn-1", "oss-1/wwn-2"}),
        ("*/sda", {"oss-1/wwn-1", "oss-10/wwn-3"}),
        ("sda", set()),
        ("OSS-1", set()),
    ],
)
def test_a_target_names_nodes_components_and_patterns_of_them(target: str, named: set[str]) -> None:
    assert {key for key, name in SHOWN.items() if covers(target, (key, name))} == named


@given(
    st.lists(st.text("ab*?[]!-/", min_size=1, max_size=5), max_size=4),
    st.text("ab/[", min_size=1, max_size=5),
)
def test_many_targets_cover_what_any_of_them_covers(targets: list[str], name: str) -> None:
    assert covering(targets)((name,)) == any(covers(target, (name,)) for target in targets)


def test_a_drain_is_in_every_close_until_it_is_ended() -> None:
    book = Overrides()
    book.add(decision("drain", "oss-1/sda"))
    for _ in range(2):
        assert book.concern("luns")
        assert book.at_close("luns", list(SHOWN), SHOWN) == (("oss-1/wwn-1",), ())
    assert book.end("drain", "oss-1") is None
    assert book.end("drain", "oss-1/sda") is not None
    assert not book.concern("luns")
    assert book.at_close("luns", list(SHOWN), SHOWN) == ((), ())


def test_afresh_is_in_the_next_close_of_each_group_and_no_other() -> None:
    book = Overrides()
    book.restart("oss-10", ["luns", "bricks"])
    assert not book.concern("others")
    assert book.at_close("luns", list(SHOWN), SHOWN) == ((), ("oss-10/wwn-3",))
    assert book.at_close("luns", list(SHOWN), SHOWN) == ((), ())
    assert book.concern("bricks")


def test_silence_and_drain_both_keep_others_from_being_told() -> None:
    book = Overrides()
    assert book.silenced("oss-1/wwn-1", "oss-1/sda") is None
    book.add(decision("drain", "oss-1"))
    found = book.silenced("oss-1/wwn-1", "oss-1/sda")
    assert found is not None
    assert found.kind == "drain"
    assert not book.concern("luns") or book.at_close("luns", list(SHOWN), SHOWN)[0]


def test_a_silence_changes_no_window() -> None:
    book = Overrides()
    book.add(decision("silence", "*"))
    assert not book.concern("luns")


def test_decisions_lapse_when_their_time_is_over() -> None:
    book = Overrides()
    book.add(decision(until=200.0))
    book.add(decision("drain", until=300.0))
    assert book.expire(199.9) == []
    assert [each.kind for each in book.expire(200.0)] == ["silence"]
    assert [each.kind for each in book.standing] == ["drain"]


def test_the_same_target_again_takes_the_place_of_the_first() -> None:
    book = Overrides()
    book.add(decision(until=200.0))
    book.add(decision(until=900.0))
    assert [each.until for each in book.standing] == [900.0]


def test_there_is_a_bound() -> None:
    book = Overrides()
    for n in range(MOST_DECISIONS):
        book.add(decision(target=f"node-{n}"))
    with pytest.raises(ValueError, match="1000 decisions"):
        book.add(decision(target="one-more"))
    book.add(decision(target="node-7", until=9.0))


def test_a_target_has_any_comments_and_they_change_nothing() -> None:
    book = Overrides()
    book.add(Decision("comment", "oss-1", "root", 1.0, comment="first"))
    book.add(Decision("comment", "oss-1", "root", 2.0, comment="second"))
    book.add(Decision("silence", "oss-1/sda", "root", 3.0, comment="third"))
    assert not book.concern("luns")
    assert book.silenced("oss-1/wwn-2", "oss-1/sdb") is None
    assert [each.at for each in silencing(book.standing, "oss-1/wwn-1", "oss-1/sda")] == [3.0]
    said = commenting(book.standing, "oss-1/wwn-1", "oss-1/sda")
    assert [each.comment for each in said] == ["third", "second", "first"]
    assert book.end("comment", "oss-1") is not None
    assert [each.kind for each in book.standing] == ["silence"]


def test_the_oldest_of_too_many_comments_makes_room() -> None:
    book = Overrides()
    for at in range(MOST_COMMENTS + 2):
        book.add(Decision("comment", "oss-1", "root", float(at)))
    assert [each.at for each in book.standing] == [float(at) for at in range(2, MOST_COMMENTS + 2)]


def test_a_file_of_an_earlier_version_has_no_tickets() -> None:
    book = Overrides()
    entry = {"kind": "drain", "target": "oss-1", "by": "root", "at": 1.0, "until": None, "comment": ""}
    book.restore({"decisions": [entry], "afresh": {}})
    assert [each.ticket for each in book.standing] == [""]


def test_it_goes_on_from_its_state() -> None:
    book = Overrides()
    book.add(Decision("silence", "oss-1", "root", 1.5, 99.0, "ordered"))
    book.add(Decision("drain", "oss-2/sd*", "1007", 2.5))
    book.add(Decision("comment", "oss-2", "1007", 3.5, ticket="https://t.example/1"))
    book.restart("oss-3", ["luns"])
    again = Overrides()
    again.restore(json.loads(json.dumps(book.state())))
    assert again.standing == book.standing
    assert again.state() == book.state()


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ENTRY = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(KINDS) | JSON,
        "target": st.text(min_size=1, max_size=5) | JSON,
        "by": JSON,
        "at": st.floats() | JSON,
        "until": st.none() | st.floats() | JSON,
        "comment": JSON,
        "ticket": st.sampled_from(("", "http://x/1", "javascript:x")) | JSON,
    }
)
AFRESH = st.dictionaries(st.text(max_size=5), st.lists(st.text(max_size=5), max_size=3))


def is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError):
        return False
    return True


def is_target(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= MOST_TARGET_CHARS and value.isprintable()


def is_ticket(value: dict[str, object]) -> bool:
    try:
        checked_ticket(value.get("ticket", ""))
    except ValueError:
        return False
    return True


def is_decision(value: object) -> bool:
    if not isinstance(value, dict) or not {"kind", "target", "by", "at", "until", "comment"} <= set(value):
        return False
    numbers = is_number(value["at"]) and (value["until"] is None or is_number(value["until"]))
    return numbers and value["kind"] in KINDS and is_target(value["target"]) and is_ticket(value)


def is_state(value: object) -> bool:
    """A slow second implementation of the check of `Overrides.restore`."""
    if not isinstance(value, dict) or not {"decisions", "afresh"} <= set(value):
        return False
    decisions, afresh = value["decisions"], value["afresh"]
    if not isinstance(decisions, list | dict | str) or not isinstance(afresh, dict):
        return False
    named = all(isinstance(each, list | dict | str) and all(map(is_target, each)) for each in afresh.values())
    return named and all(map(is_decision, decisions))


@given(JSON | st.fixed_dictionaries({"decisions": JSON | st.lists(ENTRY), "afresh": JSON | AFRESH}))
def test_a_state_is_restored_and_everything_else_is_a_value_error(state: object) -> None:
    book = Overrides()
    if not is_state(state):
        with pytest.raises(ValueError):
            book.restore(state)  # type: ignore[arg-type]
        return
    book.restore(state)  # type: ignore[arg-type]
    again = Overrides()
    again.restore(json.loads(json.dumps(book.state())))
    assert json.dumps(again.state()) == json.dumps(book.state())
