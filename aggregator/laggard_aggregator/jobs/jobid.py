"""Lustre's job ids, by the format that the site has set (`jobid_name`, or the variable that `jobid_var`
names)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_CODES = {
    "j": r"(?P<j>[0-9]+)",
    "u": r"(?P<u>[0-9]+)",
    "g": r"[0-9]+",
    "p": r"[0-9]+",
    "e": r"[^/]*",
    "h": r"(?P<h>[A-Za-z0-9._-]+)",
    "H": r"(?P<h>[A-Za-z0-9_-]+)",
}
_CODE = re.compile(r"%(.)")


def format_problems(text: str) -> Iterator[str]:
    """Yields a line when `text` cannot be used as a format."""
    codes = _CODE.findall(text)
    unknown = [code for code in codes if code not in _CODES]
    if unknown:
        yield f"expected the codes %{', %'.join(_CODES)}, got %{unknown[0]}"
    elif codes.count("j") != 1 or codes.count("u") > 1 or codes.count("h") + codes.count("H") > 1:
        yield f"expected %j once, %u, %h and %H at most once, got {text!r}"


@dataclass(frozen=True, slots=True)
class ServerJob:
    """Identity within a component's name: the target, the scheduler's id, and the node where the format has
    it."""

    target: str
    raw_id: int
    node: str | None


@dataclass(slots=True)
class JobIdFormat:
    """Reads components `<target>:<job id>` by a format such as `%j:%u:%H`; others are not of a job."""

    text: str
    _pattern: "re.Pattern[str]" = field(init=False)

    def __post_init__(self) -> None:
        parts = _CODE.split(self.text)
        pattern = "".join(
            _CODES.get(part, "") if at % 2 else re.escape(part) for at, part in enumerate(parts)
        )
        self._pattern = re.compile(pattern)

    def parse(self, component: str) -> ServerJob | None:
        """The job of a component, None where the id has another form."""
        target, _, text = component.partition(":")
        found = self._pattern.fullmatch(text)
        if found is None or len(found["j"]) > 18:
            return None
        return ServerJob(target, int(found["j"]), found.groupdict().get("h"))
