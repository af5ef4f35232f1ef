"""Figures in texts for people: each factor with the two values that stand beside it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape

_VALUE = r"([\d.,]+(?:e[+-]\d+)?)\s?(?:ms|us|s|%)"
_SENTENCE = re.compile(rf"([\d.]+)(?:×| times) slower.*?: {_VALUE}, (?:its )?peers {_VALUE}")
_CELL = re.compile(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Stated:
    """A factor as printed, and the values beside it."""

    factor: str
    own: float
    peers: float

    @property
    def agrees(self) -> bool:
        """True if the factor is the quotient of the values, within what was rounded in printing."""
        half_digit = 0.5 * 10.0 ** -len(self.factor.partition(".")[2])
        quotient = self.own / self.peers
        return abs(float(self.factor) - quotient) <= half_digit + 0.01 * quotient


def plain(html: str) -> str:
    """The text of a page on one line."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html))).replace("\N{NO-BREAK SPACE}", " ")


def in_sentences(text: str) -> Iterator[Stated]:
    """Factors of sentences such as `4.3 times slower ...: 27 ms, peers 4.6 ms`."""
    for far, own, peers in _SENTENCE.findall(text):
        yield Stated(far, _number(own), _number(peers))


def in_rows(html: str) -> Iterator[Stated]:
    """Factors of the rows of tables with the columns Value, Peers and Factor."""
    for table in re.findall(r"<table\b.*?</table>", html, re.DOTALL):
        rows = [list(map(plain, _CELL.findall(row))) for row in table.split("<tr")[1:]]
        headings = [heading.strip() for heading in rows[0]]
        if {"Value", "Peers", "Factor"} <= set(headings):
            value, peers, factor = (headings.index(name) for name in ("Value", "Peers", "Factor"))
            for cells in rows[1:]:
                if "×" in cells[factor] and cells[peers].strip()[:1].isdigit():
                    yield Stated(
                        cells[factor].strip(" ×"),
                        _number(cells[value].split()[0]),
                        _number(cells[peers].split()[0]),
                    )


def _number(text: str) -> float:
    return float(text.replace(",", ""))
