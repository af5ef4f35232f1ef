"""Tables of the pages: order, filters, and the same rows as CSV and JSON."""

import csv
import html
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from urllib.parse import urlencode, urljoin

import httpx
import pytest

from laggard_aggregator.alarms.overrides import Decision
from laggard_aggregator.ingest.node_view import NodeView
from laggard_aggregator.status import urls
from laggard_aggregator.web.pages import component as component_page
from laggard_aggregator.web.pages.tables import Filter, PageColumn, PageTable, Query
from tests.aggregator.web.test_pages import HOSTILE, Outline, ask, hostile, many, page, text_of, with_history
from tests.aggregator.web.test_shadows import shadowed
from tests.support.builders import live_status

NAN = float("nan")
ROWS = {
    "/": "name",
    "/groups": "group",
    "/group/luns": "name",
    "/nodes": "node",
    "/node/oss-2": "name",
    "/alarms": "name",
    "/search?q=oss": "name",
}
"""The tables by their page, with the key of the column that is the link of each row."""


def names_of(path: str, text: str) -> list[str]:
    """The names of the rows of a page's table, or of its cards."""
    if path.startswith("/groups"):
        rows = re.findall(r"<h3>(.*?)</h3>", text)
    else:
        parts = [
            part for part in text.split('class="tools"')[1:] if "table=" not in part.partition("format")[0]
        ]
        table = parts[0].partition("</table>")[0] if parts else ""
        rows = re.findall(r'<tr[^>]*>\s*<th scope="row">(.*?</a>)', table, re.DOTALL)
    return [text_of(row) for row in rows]


def as_file(path: str, form: str, view: live_status.MadeView) -> list[dict[str, str]]:
    """The rows of a page's table in a file of the `form`, unknown values empty."""
    (answer,) = ask([f"{path}{'&' if '?' in path else '?'}format={form}"], view)
    assert answer.status_code == 200, answer.text
    if form == "csv":
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        return list(csv.DictReader(io.StringIO(answer.text)))
    (rows,) = (value for value in answer.json().values() if isinstance(value, list))
    return [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows]


@pytest.mark.parametrize("path", ROWS)
@pytest.mark.parametrize("query", ["", "sort=NAME", "sort=-NAME", "sort=-severity", "state=up", "group=LUN"])
def test_files_have_the_rows_of_the_page_in_its_order(path: str, query: str) -> None:
    view, key = with_history(), ROWS[path]
    path = path + ("&" if "?" in path else "?") + query.replace("NAME", key)
    text = page(path, view)
    shown = names_of(path, text)
    for form in ("csv", "json"):
        assert [row[key] for row in as_file(path, form, view)] == shown, form


def test_all_rows_are_in_a_file_and_some_on_a_page() -> None:
    view = many(3000)
    for form in ("csv", "json"):
        rows = as_file("/?sort=severity&page=7", form, view)
        assert len(rows) == 3000
        factors = [float(row["severity"]) for row in rows]
        assert factors == sorted(factors)
    assert len(names_of("/", page("/?sort=severity&page=7", view))) == 20
    assert len(as_file("/group/luns?factor=4.5", "csv", view)) == 500
    assert len(as_file("/search?q=oss-12", "csv", view)) == 110


@dataclass
class Shown:
    """A table of a page: links of its headings and files, and the text of each row."""

    sorts: list[str]
    files: dict[str, str]
    rows: list[str]


def tables_of(path: str, text: str) -> list[Shown]:
    """The tables of a page, without heat maps of single groups, which are the table of groups."""
    found = []
    text = re.sub(r'<article class="card group">.*?</article>', "", text, flags=re.DOTALL)
    for before, table in re.findall(r"(.*?)<table[^>]*>(.*?)</table>", text, re.DOTALL):
        head, _, body = table.partition("</thead>")
        links = [html.unescape(link) for link in re.findall(r'href="([^"]*format=[^"]*)"', before)][-2:]
        found.append(
            Shown(
                sorts=[urljoin(path, html.unescape(link)) for link in re.findall(r'<a href="([^"]*)"', head)],
                files={form: urljoin(path, link) for form, link in zip(("csv", "json"), links, strict=False)},
                rows=[text_of(row) for row in re.findall(r"<tr[^>]*>(.*?)</tr>", body, re.DOTALL)],
            )
        )
    return found


def everything() -> live_status.MadeView:
    """The made-up site with something in every table."""
    view, shadow = with_history(), shadowed()
    judged = view.judgements_[0]
    causes = {"oss-1/wwn-2": (("read_page", 2.0), ("=malloc", -9.0), ("fsync", 4.5))}
    judged = replace(judged, verdicts=replace(judged.verdicts, causes=causes))
    differing = replace(shadow.judgements_[0], group="shadowed")
    view.judgements_ = (judged, *view.judgements_[1:], differing)
    view.groups_ = (*view.groups_, replace(shadow.groups_[0], name="shadowed"))
    for back in range(4):
        view.history.judged([replace(differing, end=differing.end + back)])
    view.decisions_ = tuple(
        Decision(
            "silence", f"oss-{at}/x", "kim", live_status.NOW - at, live_status.NOW + 60 / at, f"why {at}"
        )
        for at in (1, 2, 3)
    )
    return view


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("/", 1),
        ("/groups", 0),
        ("/group/luns", 1),
        ("/component/luns/oss-1/wwn-2", 3),
        ("/nodes", 1),
        ("/node/oss-2", 2),
        ("/search?q=oss", 1),
        ("/alarms", 2),
        ("/shadows", 2),
    ],
)
def test_every_table_sorts_and_is_a_file_in_its_order(
    path: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(component_page, "WINDOWS_A_PAGE", 8)  # all that there are
    check_every_table(path, count, lambda paths: ask(paths, everything()))


def check_every_table(path: str, count: int, ask: Callable[[list[str]], list[httpx.Response]]) -> None:
    """Each table of a page sorts by a click on each heading, which its files follow, and by no other's."""
    (answer,) = ask([path])
    first = tables_of(path, answer.text)
    assert len(first) == count
    for at, table in enumerate(first):
        assert table.files, f"table {at} of {path} is no file"
        assert table.sorts, f"table {at} of {path} does not sort"
        orders = set()
        (answer,) = ask([table.sorts[0]])
        again = tables_of(path, answer.text)[at].sorts[0]
        for link in (*table.sorts, again):
            (answer,) = ask([link])
            sorted_tables = tables_of(path, answer.text)
            turned = sorted_tables[at]
            others = [each.rows for place, each in enumerate(sorted_tables) if place != at]
            assert others == [each.rows for place, each in enumerate(first) if place != at], link
            assert sorted(turned.rows) == sorted(table.rows)
            as_csv, as_json = ask([turned.files["csv"], turned.files["json"]])
            lines = list(csv.DictReader(io.StringIO(as_csv.text)))
            got = as_json.json()
            (rows,) = (value for value in got.values() if isinstance(value, list))
            assert got["total"] == len(rows) == len(lines) == len(turned.rows), link
            for shown, line, row in zip(turned.rows, lines, rows, strict=True):
                names = {"name", "node", "target", "collector", "function", "group"} & row.keys()
                assert any(str(row[name]) in shown for name in names) or "start" in row, (shown, row)
                assert line.keys() == row.keys()
            orders.add(tuple(turned.rows))
        assert len(orders) > 1 or len(table.rows) < 2, path


def test_a_click_on_a_heading_sorts_and_another_one_turns_the_order() -> None:
    view = with_history()

    def heading(path: str, text: str) -> tuple[str | None, str]:
        tags = Outline(page(path, view)).tags
        for (tag, attrs), (_, link) in pairwise(tags):
            if tag == "th" and f"sort={text}" in (link.get("href") or "").replace("=-", "="):
                return attrs.get("aria-sort"), urljoin(path, link["href"] or "")
        raise AssertionError(text)

    order, path = heading("/group/luns?metric=await", "worst")
    assert order is None
    for expected in ("descending", "ascending", "descending"):
        assert "metric=await" in path
        order, following = heading(path, "worst")
        assert order == expected
        path = following
    assert heading("/group/luns", "name")[1] == "/group/luns?sort=name"


def test_unknown_values_come_last_in_either_order() -> None:
    rows = [("b", NAN), ("A", 1.0), ("c", None), ("d", 2.0)]
    columns = (
        PageColumn[tuple[str, float | None]]("name", "Name", lambda row: row[0]),
        PageColumn[tuple[str, float | None]]("figure", "Figure", lambda row: row[1]),
    )

    def names(sort: str) -> str:
        return "".join(row[0] for row in PageTable("t", columns, rows, Query({"sort": sort})).rows)

    assert names("") == names("none") == names("-") == "bAcd"
    assert (names("name"), names("-name")) == ("Abcd", "dcbA")
    assert (names("figure"), names("-figure")) == ("Adbc", "dAbc")


def test_what_a_filter_cannot_use_is_ignored() -> None:
    rows = [("storage", 1.0), ("compute", 3.0), ("storage", NAN)]
    filters = (
        Filter[tuple[str, float]]("role", "Role", lambda row: (row[0],), ("storage", "compute")),
        Filter[tuple[str, float]]("factor", "Factor", lambda row: row[1], is_number=True),
        Filter[tuple[str, float]]("name", "Name", lambda row: row[0]),
    )

    def count(**given: str) -> int:
        table = PageTable[tuple[str, float]]("t", (), rows, Query(given), filters=filters)
        assert table.is_filtered == (len(table.rows) < 3)
        return len(table.rows)

    with_none = Filter[tuple[str, float]]("role", "Role", lambda row: (row[0],), ())
    assert with_none.test("storage") is None, "a site without roles"
    assert page("/?role=storage", live_status.MadeView())
    for nonsense in ("", "x", "nan", "inf", "-inf", "1e999", "9" * 10_000, "\0"):
        assert count(factor=nonsense) == 3 - 3 * (nonsense == "9" * 10_000)
        assert count(role=nonsense) == 3
    assert (count(role="storage"), count(factor="2.5"), count(name="TOR")) == (2, 1, 2)
    assert count(role="storage", factor="2") == 0


def test_filters_are_kept_by_the_links_and_the_form() -> None:
    text = page("/search?q=oss&role=storage&sort=-severity&factor=0.5&state=nonsense")
    links = [attrs["href"] or "" for attrs in Outline(text).all("a")]
    kept = "?sort=-severity&q=oss&role=storage&factor=0.5&state=nonsense&format=csv"
    assert [link for link in links if "format=csv" in link] == [kept]
    inputs = Outline(text).all("input")
    hidden = {each["name"]: each["value"] for each in inputs if each.get("type") == "hidden"}
    assert hidden == {"sort": "-severity", "q": "oss"}
    assert "<option selected>storage</option>" in text


def test_what_is_not_a_table_of_a_page_is_an_error() -> None:
    component = "/component/luns/oss-1/wwn-2"
    answers = ask(
        [
            "/?format=xml",
            f"{component}?format=csv&table=nodes",
            "/shadows?format=csv",
            "/node/none?format=csv",
        ]
    )
    assert [answer.status_code for answer in answers] == [400, 400, 200, 404]
    assert "csv or json" in answers[0].json()["error"]
    expected = "expected a table of windows, functions, alarms, and the format csv or json"
    assert answers[1].json()["error"] == expected


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@a", " =a", "\uff1da", "\t=a"])
def test_no_text_of_a_file_is_a_formula_and_numbers_stay(name: str) -> None:
    columns = (
        PageColumn[tuple[str, float]]("name", "Name", lambda row: row[0]),
        PageColumn[tuple[str, float]]("offset", "Offset", lambda row: row[1]),
        PageColumn[tuple[str, float]]("at", "At", lambda row: live_status.NOW, is_time=True),
    )
    table = PageTable("t", columns, [(name, -0.25), ("a\x1b[2J\nb", NAN)], Query())
    first, second = csv.DictReader(io.StringIO("".join(table.csv())))
    assert first["name"][0] == "'"
    assert first | {"name": ""} == {"name": "", "offset": "-0.25", "at": "2025-10-09T09:01:40Z"}
    assert second == {"name": r"a\x1b[2J\nb", "offset": "", "at": "2025-10-09T09:01:40Z"}
    rows = json.loads("".join(table.json(1.5)))["t"]
    assert rows[0] == {"name": name, "offset": -0.25, "at": live_status.NOW}
    assert rows[1]["offset"] is None


def test_hostile_names_stay_texts_in_files() -> None:
    view = hostile()
    group = urls.group(f"luns/{HOSTILE}")
    for path in ("/", "/groups", "/nodes", group, urls.node(HOSTILE), "/search?q=script"):
        for form in ("csv", "json"):
            rows = as_file(path, form, view)
            assert any(HOSTILE in value for row in rows for value in row.values()), path


def found(asked: str, *names: str) -> list[tuple[str, str]]:
    """Kind and name of the matches among components, named `node/disk`, and their nodes."""
    judged = live_status.judgement("luns", names, [0] * len(names), [1.0] * len(names), [False] * len(names))
    view = live_status.MadeView(groups_=(live_status.group("luns", len(names)),), judgements_=(judged,))
    nodes = tuple(dict.fromkeys(name.partition("/")[0] for name in names))
    view.nodes_ = tuple(NodeView(node, "storage", "up", True, 1.0, 0.0) for node in nodes)
    text = page(f"/search?{urlencode({'q': asked})}", view)
    rows = re.findall(r'<th scope="row"><a href="[^"]*">([^<]*)</a></th><td[^>]*>(\w+)</td>', text)
    return [(kind, name) for name, kind in rows]


SITE = ("xoss-07/sdd", "oss-070/sda", "oss-07/sdd", "oss-07/sda", "oss-07/sdda", "oss-17/sdd")


def test_exact_matches_come_first_then_beginnings() -> None:
    assert found("OSS-07", *SITE) == [
        ("node", "oss-07"),
        ("component", "oss-07/sda"),
        ("component", "oss-07/sdd"),
        ("component", "oss-07/sdda"),
        ("node", "oss-070"),
        ("component", "oss-070/sda"),
        ("node", "xoss-07"),
        ("component", "xoss-07/sdd"),
    ]
    assert found("oss-07/sdd", *SITE)[0] == ("component", "oss-07/sdd")


@pytest.mark.parametrize("asked", ["oss-07 sdd", "SDD  Oss-07"])
def test_two_words_are_a_node_and_a_component_on_it(asked: str) -> None:
    assert found(asked, *SITE) == [
        ("component", "oss-07/sdd"),
        ("component", "oss-07/sdda"),
        ("component", "xoss-07/sdd"),
    ]


@pytest.mark.parametrize("asked", ["", " ", "none", "x" * 5000, " ".join("q" * 7000), "\0", "%", "../.."])
def test_a_search_for_nonsense_finds_nothing(asked: str) -> None:
    assert names_of("/search", page(f"/search?{urlencode({'q': asked})}", live_status.site())) == []


def test_every_time_on_a_page_names_its_zone() -> None:
    view = with_history()
    for path in (*ROWS, "/component/luns/oss-1/wwn-2"):
        text = page(path, view)
        outside = re.sub(r"<time [^>]*>.*?</time>|<text [^>]*data-at[^>]*>.*?</text>|<[^>]*>", " ", text)
        assert not re.search(r"\d\d:\d\d", outside), path
        for shown in re.findall(r'<time datetime="[^"]+Z">([^<]*)</time>', text):
            assert shown.endswith(" UTC") or " – " in text, (path, shown)
