"""Tests start processes and wait through tests/support alone."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FORBIDDEN = {
    r"\bsubprocess\.(run|Popen|call|check_\w+)\(": "started or run_command of tests/support/processes.py",
    r"\bcreate_subprocess_\w+\(": "started of tests/support/processes.py",
    r"\basyncio\.timeout\(": "time_limit() of tests/support/wait.py",
    r"\bmark\.timeout\(\d": "LONG_TEST_LIMIT_SECONDS of tests/support/wait.py",
    r"\btimeout=\d(?!\d* \*)": "LIMIT_SECONDS of tests/support/wait.py",
    r"\b(wait|join|settimeout)\([1-9]": "LIMIT_SECONDS of tests/support/wait.py",
    r"^from bench|^import bench": "tests/support (bench imports from there)",
}


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_only_the_support_package_limits_waits_and_starts_processes(pattern: str) -> None:
    files = [path for path in TESTS.rglob("*.py") if path.parent.name not in ("support", "fixtures")]
    if "bench" in pattern:
        files = [path for path in files if path.parent.name != "bench"]
    found = [
        f"{path.relative_to(TESTS)}:{number}: use {FORBIDDEN[pattern]}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert found == []
