"""Health and statistics by NID, as `lnetctl net show -v 4` and `lnetctl peer show -v 4` print them.

The output is YAML of one form (Lustre's lnet/utils/lnetconfig): a list of nets or peers, in it a list of NIs
that each begin with `nid`, and sections of numbers. Only lines of that form are read.
"""

import re
from collections.abc import Mapping

from laggard_agent.collectors.lnet.parse import NID, NidTable
from laggard_common.trace_formats.kernel_text import number
from laggard_common.wire.schema import Field, FieldKind

_BEST = 1000
"""LNET_MAX_HEALTH_VALUE: the health of an NI that had no error of late."""
_SECTIONS: Mapping[str, Mapping[str, str]] = {
    "statistics": {"send_count": "send_count", "recv_count": "recv_count", "drop_count": "drop_count"},
    "health stats": {
        "interrupts": "interrupts",
        "dropped": "dropped",
        "aborted": "aborted",
        "no route": "no_route",
        "timeouts": "timeouts",
        "timeout": "timeouts",
        "error": "errors",
        "network timeout": "network_timeouts",
    },
}
COUNTERS = tuple(dict.fromkeys(name for keys in _SECTIONS.values() for name in keys.values()))
HEALTH_FIELDS = (
    *map(Field, COUNTERS),
    *(Field(name, FieldKind.GAUGE) for name in ("health", "health_lost")),
)
_LINE = re.compile(rb"( *)(- +)?([A-Za-z_][A-Za-z_ ()]{0,40}):(?: +(.{0,200}))?")


def parse_report(data: bytes) -> tuple[NidTable, NidTable]:
    """Rows of HEALTH_FIELDS of NIs, and of peers; a malformed NID is an odd line of its table.

    A line without an end was cut off, and is left out.
    """
    tables = {"net": NidTable(), "peer": NidTable()}
    table, section = tables["net"], ""
    values: dict[str, int | None] | None = None
    nid = ""
    for line in data.rpartition(b"\n")[0].splitlines():
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            continue
        indent, _, key, text = match.groups(b"")
        name = key.decode("ascii")
        if not indent and name in tables:
            table, section, values = tables[name], "", None
        elif name == "nid":
            section, values, nid = "", None, text.decode("ascii", "replace")
            if not NID.fullmatch(text):
                table.odd.append(line)
            elif nid != "0@lo" and nid not in table.rows:
                values = dict.fromkeys(field.name for field in HEALTH_FIELDS)
                table.rows[nid] = tuple(values.values())
        elif not text:
            section = name
        elif values is not None:
            _note(values, section, name, text)
            table.rows[nid] = tuple(values.values())
    return tables["net"], tables["peer"]


def _note(values: dict[str, int | None], section: str, key: str, text: bytes) -> None:
    """Sets the values that a line has."""
    value = number(text)
    if section == "health stats" and key == "health value" and value is not None and value <= _BEST:
        values["health"], values["health_lost"] = value, _BEST - value
    field = _SECTIONS.get(section, {}).get(key)
    if field is not None:
        values[field] = value
