"""`import` of osc and mdc: the client's own view of its connection to a target.

Fields: the state, RPCs in flight, timeouts, the average wait and Lustre's adaptive estimates; the rest
describes how the connection was made. IDLE is normal, like FULL: a client drops unused connections.
"""

from laggard_agent.collectors.lustre.parse_result import Parsed, number
from laggard_common.wire.schema import Field, FieldKind

# As in enum lustre_imp_state.
STATES = tuple(
    b"CLOSED NEW DISCONN CONNECTING REPLAY REPLAY_LOCKS REPLAY_WAIT RECOVER FULL EVICTED IDLE".split()
)
_CODES = {name: code for code, name in enumerate(STATES, start=1)}

_STATE = Field("import_state", FieldKind.GAUGE)
_NUMBERS = {
    b"inflight": (Field("import_inflight", FieldKind.GAUGE), ()),
    b"unregistering": (Field("import_unregistering", FieldKind.GAUGE), ()),
    b"timeouts": (Field("import_timeouts"), ()),
    b"connection_attempts": (Field("import_connection_attempts"), ()),
    b"avg_waittime": (Field("import_avg_waittime", FieldKind.GAUGE, "us"), (b"usec", b"usecs")),
    b"services": (Field("import_services", FieldKind.GAUGE, "s"), (b"sec", b"secs")),
    b"network": (Field("import_network", FieldKind.GAUGE, "s"), (b"sec", b"secs")),
}


def parse_import(data: bytes) -> Parsed:
    """Parses an import. Raises nothing: a line that is not `key: value` becomes a leftover."""
    fields: list[Field] = []
    values: list[int] = []
    leftovers: list[bytes] = []
    for line in data.splitlines():
        words = line.split()
        if not words:
            continue
        key = words[0]
        if not key.endswith(b":"):
            leftovers.append(line[:200])
        elif key == b"state:":
            code = _CODES.get(words[1]) if len(words) == 2 else None
            if code is None:
                leftovers.append(line[:200])
            else:
                fields.append(_STATE)
                values.append(code)
        elif wanted := _NUMBERS.get(key[:-1]):
            field, units = wanted
            value = number(words[1]) if len(words) > 1 else None
            if value is None or (words[2:] and words[2] not in units) or len(words) > 3:
                leftovers.append(line[:200])
            else:
                fields.append(field)
                values.append(value)
    if not data.lstrip().startswith(b"import:"):
        leftovers.append(b"(no import:)")
    return Parsed(tuple(fields), tuple(values), tuple(leftovers[:100]), complete=not leftovers)
