"""Lustre's job ids, by the format that the site has set: its `jobid_name`, or that of `jobid_var`."""

import re
from dataclasses import dataclass, field

from laggard_aggregator.settings.jobs import JOBID_CODE, JOBID_CODES


@dataclass(frozen=True, slots=True)
class ServerJob:
    """Identity within a component's name: target, scheduler's id, and the node where the format has it."""

    target: str
    raw_id: int
    node: str | None


@dataclass(slots=True)
class JobIdFormat:
    """Reads components `<target>:<job id>` by a format such as `%j:%u:%H`; others are not of a job."""

    text: str
    _pattern: "re.Pattern[str]" = field(init=False)

    def __post_init__(self) -> None:
        parts = JOBID_CODE.split(self.text)
        pattern = (JOBID_CODES[part] if at % 2 else re.escape(part) for at, part in enumerate(parts))
        self._pattern = re.compile("".join(pattern))

    def parse(self, component: str) -> ServerJob | None:
        """The job of a component, None where the id has another form."""
        target, _, text = component.partition(":")
        found = self._pattern.fullmatch(text)
        if found is None or len(found["j"]) > 18:
            return None
        return ServerJob(target, int(found["j"]), found.groupdict().get("h"))
