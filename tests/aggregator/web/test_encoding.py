"""Accept-Encoding with weights."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.web.encoding import accepts_gzip


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("", False),
        ("gzip", True),
        ("GZIP", True),
        ("x-gzip", True),
        ("deflate, gzip;q=1.0, *;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0", False),
        ("gzip;q=0.0", False),
        ("gzip ; Q=0.001", True),
        ("*", True),
        ("*;q=0", False),
        ("gzip;q=0, *", False),
        ("*;q=0, gzip", True),
        ("identity", False),
        ("identity;q=1, *;q=0", False),
        ("gzip;q=nonsense", False),
        ("notgzip, gzipper", False),
    ],
)
def test_gzip_is_accepted_by_its_weight(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted


@given(st.text(max_size=60))
def test_any_header(header: str) -> None:
    accepts_gzip(header)
