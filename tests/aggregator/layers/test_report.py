"""The report in a terminal and as one HTML file."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from laggard_aggregator.cli.main import main
from tests.support.builders.layer_traces import TraceBuilder


def serialised(folder: Path, file: str = "data") -> Path:
    built = TraceBuilder()
    for at in range(200):
        begin = at // 8 * 800.0
        lower = begin + at % 8 * 100
        built.request("library", at, begin, lower + 100, offset=at * 7919 % 200 * 65536, file=file)
        built.request("syscall", at, lower, lower + 100, offset=at * 7919 % 200 * 65536, file=file)
    return built.write(folder / "events.csv")


def test_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layers", str(serialised(tmp_path))]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"library +200 .* 4\.50 / 8 ", printed)
    assert (
        "Candidate: between library and system call (serialisation, 78% of the application's I/O time)"
        in printed
    )


def test_nothing_found_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = TraceBuilder()
    built.request("syscall", 0, 0.0, 5.0, offset=0)
    assert main(["layers", str(built.write(tmp_path / "events.csv"))]) == 0
    assert "No candidate" in capsys.readouterr().out


class Elements(HTMLParser):
    """Tags and attributes of a document."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keeps the element."""
        self.seen.append((tag, dict(attrs)))


def test_page_is_one_file_without_scripts(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    path = serialised(tmp_path).rename(tmp_path / "<script>alert(1)<script>.csv")
    assert main(["layers", str(path), "--html", str(page), "-o", str(tmp_path / "out")]) == 0
    text = page.read_text()
    parsed = Elements()
    parsed.feed(text)
    tags = {tag for tag, _ in parsed.seen}
    assert not tags & {"script", "link", "img", "iframe", "object"}
    assert not [
        a for _, attributes in parsed.seen for a in attributes if a in ("src", "href") or a.startswith("on")
    ]
    assert "&lt;script&gt;alert(1)" in text
    assert text.count("<polygon") == 2
    axis = re.findall(r'<svg class="axis".*?</svg>', text, re.DOTALL)[0]
    marks = re.findall(r">([^<]+)</text>", axis)
    assert (marks[0], len(marks)) == ("0", 5), "the picture has its times"
    assert f'aria-label="time from 0 to {marks[-1]}"' in axis
    assert "serialisation: between library and system call" in text
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r'(?:fill|stroke)="#', text), "colours are those of the style, light or dark"
    assert text.index("serialisation: between") > text.index(">library</div>")
