"""The path of a brick out of the names of two files."""

import pytest

from laggard_agent.collectors.gluster.dump import brick_path

REP = [("rep", "server-1:-srv-gl-b_1-rep"), ("rep", "server-1:-srv-gl-b-2-rep")]


@pytest.mark.parametrize(
    ("dump", "bricks", "expected"),
    [
        ("_srv_gl_b_1_rep", REP, ("/srv/gl/b_1/rep", "rep")),
        ("_srv_gl_b-2_rep", REP, ("/srv/gl/b-2/rep", "rep")),
        ("_srv_gl_b_1_rep", [*REP, ("rep", "server-2:-srv-gl-b_1-rep")], ("/srv/gl/b_1/rep", "rep")),
        ("_srv_gl_b_1_rep", [*REP, ("other", "server-2:-srv-gl-b_1-rep")], ("/srv/gl/b_1/rep", None)),
        ("_a_b", [("v", "2001:db8::1:-a-b")], ("/a/b", "v")),
        ("_a_b", [("v", "h:-a_b"), ("w", "h:-a-b")], ("_a_b", None)),
        ("_a_b", [("v", "h:-a-c"), ("v", "nonsense"), ("v", "")], ("_a_b", None)),
        ("_a_b", [], ("_a_b", None)),
    ],
)
def test_a_brick(dump: str, bricks: list[tuple[str, str]], expected: tuple[str, str | None]) -> None:
    assert brick_path(dump, bricks) == expected
