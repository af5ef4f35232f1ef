"""CSV of every table: no text is a formula, texts with commas and line ends keep to their cell."""

import csv
import io

import pytest

from laggard_aggregator.files.csv_lines import csv_cell, csv_lines


@pytest.mark.parametrize("text", ["=1+1", "+a", "-b", "@c", "  =1", "\t=1", "\tx", "\r=1", "\uff1d1"])
def test_no_text_is_a_formula(text: str) -> None:
    assert csv_cell(text).startswith("'")


@pytest.mark.parametrize("value", ["plain", "a=1", "", "a-b", 5, -5, 2.5, None, True])
def test_other_values_stay(value: object) -> None:
    assert csv_cell(value) == value


def test_lines_are_read_back() -> None:
    rows: list[list[object]] = [["=1+1", 0], ['with "quotes", and\nlines', None], ["\x1b[31m", 1.5]]
    lines = list(csv_lines(["name", "n"], rows))
    assert len(lines) == 4
    assert all(line.endswith("\n") and "\x1b" not in line for line in lines)
    read = list(csv.reader(io.StringIO("".join(lines))))
    assert read == [["name", "n"], ["'=1+1", "0"], ['with "quotes", and\\nlines', ""], ["\\x1b[31m", "1.5"]]
    assert list(csv_lines(["a"], [])) == ["a\n"]
