"""A small recording, made up: six LUNs of which the fourth answers ten times slower from second 20 to 40."""

import lzma
from collections.abc import Mapping
from pathlib import Path

LUNS = ("loop20", "loop21", "loop22", "loop23", "loop24", "loop25")
START = 1_760_000_000
FAULTY = "loop23"
FAULT = (20, 40)
SECONDS = 60

HEADER: Mapping[str, str] = {
    "date": "2025-10-09",
    "luns": " ".join(LUNS),
    "faulty": FAULTY,
    "fault": "made up",
    "fault_start": f"{START + FAULT[0]}.004",
    "fault_end": f"{START + FAULT[1]}.009",
}


def row(lun: str, second: int) -> str:
    """The kernel's row after `second` seconds of 50 reads a second, of 2 ms each, or 20 in the fault."""
    slow = min(max(second - FAULT[0], 0), FAULT[1] - FAULT[0]) if lun == FAULTY else 0
    reads = 50 * second
    ms = 2 * reads + 18 * 50 * slow
    return f"   7      {lun[4:]} {lun} {reads} 0 {8 * reads} {ms} 0 0 0 0 0 {ms} {ms} 0 0 0 0 0 0"


def sample(second: int) -> str:
    """One sample's lines."""
    return "\n".join([f"@ {START + second}.000{second:03d}000", *(row(lun, second) for lun in LUNS)]) + "\n"


def text(header: Mapping[str, str] = HEADER) -> str:
    """The whole text."""
    head = "".join(f"# {key}: {value}\n" for key, value in header.items())
    return head + "".join(sample(second) for second in range(SECONDS + 1))


def write(path: Path, content: str) -> Path:
    """`path`, with `content` packed as a recording is."""
    path.write_bytes(lzma.compress(content.encode()))
    return path
