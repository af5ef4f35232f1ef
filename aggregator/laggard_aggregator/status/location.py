"""One located cause for alarms of several sources: LUN, server, network or client. No clock, no I/O.

A request goes from a client over the network to a server, and there to a LUN. Each source counts at one
place of this path (`metrics.definition.PLACES`). The times seen at a place contain those of the places behind
it, so the place farthest from the client whose own evidence is anomalous explains the places before it.

The factor of a time shrinks on its way to the client, as healthy times are added to it: a place explains only
factors whose logarithm is at most 1 / `LEAST_SHARE` times its own, so that a slight anomaly explains no large
one. An anomaly that is no straggler yet explains only stragglers that have such a factor. A place is
cleared, and the one before it blamed, only if its factor is too small to explain: a detector may find a long
await harmless, as of a disk in bursts, and then the server before it is no cause either.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from laggard_aggregator.alarms.alarms import Key
from laggard_aggregator.detect import LEVEL_OF_GROUPS, LEVEL_OF_SPLITS
from laggard_aggregator.status.formatting import counted, factor, led_by_average, or_zero, plain

LEAST_SHARE = 0.5
"""Share of the logarithm of a factor that the factor at the place behind must reach to explain it.

Equal factors are expected (1.0) where nearly all of a time is spent behind. A half allows for different
requests at the two places; a quota of the CPU had 0.1, a capped disk 0.9 (docs/testbed.md).
"""
MIN_WAITING_SHARE = 0.5
"""Share of a target's clients that must wait for it where no other source agrees. Fewer are not located."""
NAN = math.nan
MAX_NAMED = 2
"""Signs of one place that a text names."""

WIDE = ("controller", "couplet")
"""Levels of parents that carry several nodes."""
_TIMES = ("disk", "server", "target")
_WORDS = {
    "disk": "the await",
    "server": "the request time",
    "inside": "the work inside",
    "network": "the network",
    "target": "",
    "forwarder": "the forwarder",
    "client": "",
}
"""Places in words; those of clients are counted instead."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A straggler, or (`confirmed` False) a component anomalous now, in one group and metric.

    `key`: group, permanent ID and metric; `name`: the current name. `place`: of its source. `severity`: times
    slower than its peers on average, NaN where the metric is no time. `factor`: that of the latest window,
    which texts have, as values stand beside them; NaN where it is unknown.
    """

    key: Key
    name: str
    place: str
    level: str
    severity: float
    confirmed: bool
    factor: float = NAN

    @property
    def component(self) -> str:
        """The permanent ID."""
        return self.key[1]


@dataclass(frozen=True, slots=True)
class Paths:
    """Known facts about the paths.

    `servers`: the node of a target or address that has none in its name. `times`, `awaits`: by node the
    largest factor of compared request times and awaits now, anomalous or not, NaN where none is known.
    `clients`: number of clients by target. `carried`: the nodes with components behind a controller or
    couplet, of those that a sign is about.
    """

    servers: Mapping[str, str] = field(default_factory=dict)
    times: Mapping[str, float] = field(default_factory=dict)
    awaits: Mapping[str, float] = field(default_factory=dict)
    clients: Mapping[str, int] = field(default_factory=dict)
    carried: Mapping[str, Collection[str]] = field(default_factory=dict)

    def node(self, sign: Sign) -> str:
        """The node whose path a sign is about; the target or address itself where no node is known."""
        node, slash, rest = sign.component.partition("/")
        if sign.level != "component" or not slash:
            return self.servers.get(sign.component, sign.component)
        if sign.place == "target":
            return self.servers.get(target_of(sign.component), target_of(sign.component))
        return self.servers.get(rest, rest) if node == "*" else node


@dataclass(frozen=True, slots=True)
class Location:
    """Where a fault is. `level`: lun, server, network, client, controller or couplet.

    `component`: permanent ID of a LUN; a node, an address, a target, or a parent.
    `evidence`: a sentence of printable characters. `name`: current name of a LUN, else `component`.
    """

    level: str
    component: str
    evidence: str
    name: str

    @property
    def place(self) -> str:
        """The place in words, such as `the disk`."""
        return self.evidence.rpartition(": ")[2]

    @property
    def signs(self) -> str:
        """The signs that agree; empty where it is one, of the located component itself."""
        signs = self.evidence.rpartition(": ")[0]
        return "" if "," not in signs and f" of {plain(self.name)}" in signs else signs


def target_of(component: str) -> str:
    """The target of a client's device: `OST0007` of `node-1/OST0007-osc`; the device without a suffix."""
    device = component.partition("/")[2]
    return device.rpartition("-")[0] or device


def locate(signs: Iterable[Sign], paths: Paths) -> dict[Key, Location]:
    """The located cause of each sign; none for whole groups, unknown places, and unconfirmed signs.

    Signs of one node have one cause, except for several slow LUNs and for the node's own part as a client.
    """
    located: dict[Key, Location] = {}
    ordered = sorted(signs, key=lambda sign: sign.key)
    nodes: dict[str, list[Sign]] = defaultdict(list)
    asking: dict[str, list[Sign]] = defaultdict(list)
    waits: dict[str, list[Sign]] = defaultdict(list)
    passing = [sign for sign in ordered if sign.place == "forwarder" and sign.level == "component"]
    for sign in ordered:
        if sign.place not in _WORDS or sign in passing or sign.level in (LEVEL_OF_GROUPS, LEVEL_OF_SPLITS):
            continue
        if sign.level in WIDE:
            located[sign.key] = _parent(sign)
            for node in paths.carried.get(sign.component, ()):
                nodes[node].append(sign)
        elif sign.place == "client" or (sign.place == "target" and sign.level != "component"):
            asking[sign.component.partition("/")[0]].append(sign)
        else:
            nodes[paths.node(sign)].append(sign)
            if sign.place == "target":
                waits[sign.component.partition("/")[0]].append(sign)
    for node, own in nodes.items():
        located.update((key, where) for key, where in _of_node(node, own, paths) if key not in located)
    located |= {s.key: _forwarder(s, waits[s.component.partition("/")[0]], located) for s in passing}
    awaited = _most_awaited(located, waits)
    for client, own in asking.items():
        lossy = [sign for sign in nodes.get(client, ()) if sign.place == "network" and sign.confirmed]
        confirmed = any(sign.confirmed for sign in own)
        where = _network(client, lossy, own) if lossy else _client(client, own)
        if awaited is not None and all(sign.place == "target" for sign in own if sign.confirmed):
            where = awaited
        located.update((sign.key, where) for sign in own if confirmed)
        for sign in waits[client] if confirmed else ():
            located.setdefault(sign.key, where)
    return {sign.key: located[sign.key] for sign in ordered if sign.confirmed and sign.key in located}


def _most_awaited(located: Mapping[Key, Location], waits: Mapping[str, Sequence[Sign]]) -> Location | None:
    """The located cause that the waits of most clients and targets agree with; None without any.

    A client of few targets, one of them slow, is blamed in place of them: it waits for nearly all it judged.
    """
    agreeing = Counter(located[sign.key] for own in waits.values() for sign in own if sign.key in located)
    return max(agreeing, key=lambda where: (agreeing[where], where.component), default=None)


def _of_node(node: str, signs: Sequence[Sign], paths: Paths) -> Iterator[tuple[Key, Location]]:
    """The cause of each sign of one node as a server; none where only few clients wait for it."""
    by = {place: [sign for sign in signs if sign.place == place] for place in _WORDS}
    disks = _explaining(by["disk"], [*by["server"], *by["target"]])
    served = _explaining(by["server"], by["target"]) + [sign for sign in by["inside"] if sign.confirmed]
    lossy = _explaining(by["network"], by["target"])
    where: Location | None = None
    apart: dict[Key, Location] = {}
    if disks:
        before = [sign for place in ("server", "inside", "network", "target") for sign in by[place]]
        agreeing, explaining = f", and {_agree(before)}" if before else "", {sign.key for sign in disks}
        worst = max(disks, key=lambda sign: (sign.level != "component", _size(sign)))
        where = _disk(node, worst, agreeing)
        for sign in by["disk"] if where.level == "lun" else ():
            if sign.key in explaining:
                apart[sign.key] = _disk(node, sign, agreeing)
            elif sign.level == "component" and sign.component != worst.component:
                apart[sign.key] = _disk(node, sign, "")  # too little for those before it, but slow
    elif served:
        slow = [sign for sign in served if sign.severity > 1]
        if by["disk"] or not slow or not _explains(paths.awaits.get(node, NAN), slow):
            where = _server(node, served, by, paths)
    elif lossy:
        where = _network(node, lossy, by["target"])
    elif _most_wait(by["target"], paths):
        behind = max(paths.times.get(node, NAN), paths.awaits.get(node, NAN), key=or_zero)
        if by["server"] or by["disk"] or not _explains(behind, by["target"]):
            where = _excluded(node, by, paths)
    if where is not None:
        yield from ((sign.key, apart.get(sign.key, where)) for sign in signs)


def _explaining(signs: Sequence[Sign], before: Sequence[Sign]) -> list[Sign]:
    """Those of `signs` that explain the stragglers at the places `before`, which contain theirs."""
    slow = [s for s in before if s.confirmed and s.place in _TIMES and s.severity > 1]
    return [
        sign
        for sign in signs
        if (sign.confirmed or (slow and sign.place in _TIMES))
        and (math.isnan(sign.severity) or not slow or _explains(sign.severity, slow))
    ]


def _explains(severity: float, slow: Sequence[Sign]) -> bool:
    """Whether a factor suffices for the middle one of those that contain it; never if one is unknown."""
    factors = [sign.severity for sign in slow if sign.severity > 1]
    return severity > 1 and bool(factors) and math.log(severity) >= LEAST_SHARE * math.log(median(factors))


def _most_wait(waiting: Sequence[Sign], paths: Paths) -> bool:
    """Whether enough of the clients of a target wait for it to blame the target's side."""
    clients = {sign.component.partition("/")[0] for sign in waiting if sign.confirmed}
    watched = max((paths.clients.get(target_of(sign.component), 0) for sign in waiting), default=0)
    return len(clients) >= max(MIN_WAITING_SHARE * watched, 1)


def _forwarder(sign: Sign, waits: Sequence[Sign], located: Mapping[Key, Location]) -> Location:
    """The cause of requests that a forwarder passes on: a target that it waits for with such requests.

    Its shares of slow requests have no factor, so any located wait explains them.
    """
    kind = _kind(sign)
    behind = [located[wait.key] for wait in waits if wait.key in located and kind in ("", _kind(wait))]
    if behind:
        return max(behind, key=lambda where: (behind.count(where), where.component))
    node = sign.component.partition("/")[0]
    said = f"{_said([sign])}, the targets that it waits for are like their peers"
    return Location("server", node, f"{said}: the forwarder", node)


def _kind(sign: Sign) -> str:
    """Requests that a metric is about: `read`, `write`, or `meta` for all others; empty for a queue."""
    word = sign.key[2].partition("_")[0]
    return "" if word == "queue" else word if word in ("read", "write") else "meta"


def _disk(node: str, worst: Sign, agreeing: str) -> Location:
    if worst.level in WIDE:
        return _parent(worst)
    if worst.level != "component":
        said = f"{_said([worst])}, all its disks together{agreeing}: the server, or what its disks share"
        return Location("server", node, said, node)
    return Location("lun", worst.component, f"{_said([worst])}{agreeing}: the disk", worst.name)


def _server(node: str, served: Sequence[Sign], by: Mapping[str, Sequence[Sign]], paths: Paths) -> Location:
    wide = next((sign for sign in served if sign.level in WIDE), None)
    if wide is not None:
        return _parent(wide)
    if by["disk"]:
        below = f", {_said(by['disk'])} too little to explain it"
    elif math.isfinite(paths.awaits.get(node, NAN)):
        below = ", the await of its disks is like their peers'"
    else:
        below = ", the await of its disks is not compared"
    return Location("server", node, f"{_said(served)}{below}: the server", node)


def _network(node: str, lossy: Sequence[Sign], waiting: Sequence[Sign]) -> Location:
    agreeing = f", and {_agree(waiting)}" if waiting else ""
    return Location("network", node, f"{_said(lossy)}{agreeing}: the network of {plain(node)}", node)


def _excluded(node: str, by: Mapping[str, Sequence[Sign]], paths: Paths) -> Location:
    """The cause where only clients' waits are explained by nothing else."""
    waiting = _agree(by["target"])
    if not by["server"] and not math.isfinite(paths.times.get(node, NAN)):
        said = f"{waiting}, its own request times are not compared: the server or its network"
        return Location("server", node, said, node)
    behind = [*by["server"], *by["disk"]]
    own = (
        f"{_said(behind)} too little to explain it" if behind else "its own request times are like its peers'"
    )
    return Location("network", node, f"{waiting}, {own}: the network of {plain(node)}", node)


def _client(client: str, own: Sequence[Sign]) -> Location:
    said = f"{_said(own)}, and other clients do not wait like it: the client"
    return Location("client", client, said, client)


def _parent(sign: Sign) -> Location:
    said = f"{_said([sign])}, all behind it together: the {sign.level}"
    return Location(sign.level, sign.component, said, sign.component)


def _told(sign: Sign) -> float:
    """The factor that texts have: that of the latest window, unless it is unknown or as its peers'."""
    return sign.severity if led_by_average(sign.factor, sign.severity) else sign.factor


def _size(sign: Sign) -> float:
    return or_zero(sign.severity)


def _said(signs: Sequence[Sign]) -> str:
    """The signs in words, the worst first."""
    worst = sorted(signs, key=lambda sign: (-_size(sign), sign.key))
    named = [
        f"{plain(sign.key[2])} of {plain(sign.name)}"
        + (f" {factor(value)}" if math.isfinite(value := _told(sign)) else "")
        for sign in worst[:MAX_NAMED]
    ]
    more = f" and {len(worst) - MAX_NAMED} more" if len(worst) > MAX_NAMED else ""
    return ", ".join(named) + more


def _agree(signs: Sequence[Sign]) -> str:
    """The places whose signs agree in words, with the number of clients."""
    places = [word for place, word in _WORDS.items() if word and any(sign.place == place for sign in signs)]
    clients = {s.component.partition("/")[0] for s in signs if s.place in ("target", "client")}
    if clients:
        places.append(f"the wait of {counted(len(clients), 'client')}")
    return f"{', '.join(places)} {'agrees' if len(places) == 1 else 'agree'}"
