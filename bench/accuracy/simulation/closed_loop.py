"""The event loop: clients that wait for the slowest stripe, over FIFO LUNs and links, many runs at once.

One step takes the next client of every run that is due, follows its record through the servers' links and
LUNs, and puts the client back for when its slowest part is done and it has thought. Nothing is approximated
but what README.md names: service is in order of the record's issue, and the client's own link is part of
its thinking.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.accuracy.simulation.scenario import Array, BoolArray, Conditions, Scenario
from bench.accuracy.simulation.shapes import IntArray

PACKET_BYTES = 1448.0
RTO_SECONDS = 0.2
_BLOCK = 128


@dataclass(frozen=True, slots=True)
class Work:
    """What R runs did, per interval t of T (one more for what ended after the run).

    `parts` (R, T + 1, L, 2): parts finished, read and written. `waited` the same for their seconds from
    arrival at the LUN to the middle of its requests' completions. `busy` (R, T, L): seconds that the LUN
    has worked by the interval's end. `served`, `served_wait` (R, T, L, 2): parts and their waiting by the
    interval's end, a part in service by the share of its time that has passed. `issued` (R, T, L): parts
    asked for. `records` (R,): records of the workload's own clients finished within the run, of `asked`.
    """

    parts: Array
    waited: Array
    busy: Array
    served: Array
    served_wait: Array
    issued: Array
    records: IntArray
    asked: IntArray


@dataclass(slots=True)
class Times:
    """Request times of R runs, by interval t of T in which they ended; last axis: read and written.

    `parts`, `seconds` (R, T, clients, L, 2): as each client counts them for each OST, from asking until the
    answer. `inside` (R, T, L, 2): seconds of the same parts within their servers, without the network. Those
    of guests are not counted.
    """

    parts: Array
    seconds: Array
    inside: Array

    @classmethod
    def of(cls, runs: int, samples: int, luns: int) -> "Times":
        """Times of nothing; there is a client a LUN."""
        shape = (runs, samples, luns, luns, 2)
        return cls(np.zeros(shape), np.zeros(shape), np.zeros((runs, samples, luns, 2)))


class _Draws:
    """Each run's own chances, so that a run does not depend on which others share the batch."""

    def __init__(self, scenarios: Sequence[Scenario], popularity: Array) -> None:
        self._of = [np.random.default_rng((scenario.seed, 1)) for scenario in scenarios]
        self._luns = scenarios[0].shape.luns
        self._cv = np.array([s.workload.service_cv for s in scenarios])
        self._think = np.array([s.workload.think_cv for s in scenarios])
        self._popularity = np.cumsum(popularity, axis=1)
        self._at = _BLOCK

    def next(self) -> tuple[Array, Array, Array, IntArray]:
        """By run: service factors (R, L), uniforms (R, 4), think factors (R,), where new files start (R,)."""
        if self._at == _BLOCK:
            self._service = np.stack(
                [
                    g.gamma(cv**-2, cv**2, (_BLOCK, self._luns))
                    for g, cv in zip(self._of, self._cv, strict=True)
                ],
                1,
            )
            self._uniform = np.stack([g.random((_BLOCK, 4)) for g in self._of], 1)
            self._thinks = np.stack(
                [g.gamma(cv**-2, cv**2, _BLOCK) for g, cv in zip(self._of, self._think, strict=True)], 1
            )
            self._start = np.stack(
                [
                    np.minimum(np.searchsorted(p, u), self._luns - 1)
                    for p, u in zip(self._popularity, self._uniform[..., 3].T, strict=True)
                ],
                1,
            )
            self._at = 0
        at, self._at = self._at, self._at + 1
        return self._service[at], self._uniform[at], self._thinks[at], self._start[at]


def run(scenarios: Sequence[Scenario], conditions: Sequence[Conditions], times: Times | None = None) -> Work:
    """What the clients of each scenario did; all of one shape, workload and length; fills `times`."""
    shape, workload = scenarios[0].shape, scenarios[0].workload
    samples, interval = scenarios[0].samples, scenarios[0].interval_seconds
    runs, luns, servers = len(scenarios), shape.luns, shape.servers
    service = np.stack([c.service for c in conditions])
    seconds_on_link = workload.part_bytes / shape.link_bytes_per_s * np.stack([c.link for c in conditions])
    lossy = any(c.loss.any() or c.server_seconds.any() for c in conditions)
    delay = np.stack([_delay(c, workload.part_bytes, workload.read_share) for c in conditions])
    within = np.stack([c.server_seconds for c in conditions])
    slower = np.stack([c.client for c in conditions])
    work = np.stack([c.work for c in conditions]) - 1.0
    activity, hot = np.stack([c.activity for c in conditions]), np.stack([c.hot for c in conditions])
    hot_lun = np.array([c.hot_lun for c in conditions])
    draws = _Draws(scenarios, np.stack([c.popularity for c in conditions]))
    mean_seconds = np.array([workload.service_seconds(read=True), workload.service_seconds(read=False)])
    patterns = _stripes(luns, workload.stripe)

    due, rest = _first_arrivals(scenarios)
    guests = _Guests.of(conditions, workload.requests, samples * interval)
    due, rest = np.hstack([due, guests.due]), np.hstack([np.tile(rest[:, None], (1, luns)), guests.rest])
    slower = np.pad(slower, ((0, 0), (0, 0), (0, guests.due.shape[1])), constant_values=1.0)
    start_lun = np.tile(np.arange(due.shape[1]) % luns, (runs, 1))
    free, rx_free, tx_free = np.zeros((runs, luns)), np.zeros((runs, servers)), np.zeros((runs, servers))
    parts, waited = np.zeros((2, runs * (samples + 1) * luns * 2))
    # A LUN has worked for the sum of (end - begin) so far: kept as slopes and moments of both.
    slope, moment = np.zeros((2, runs * (samples + 1) * luns))
    # The same for what a part in service adds: a share of it, and of its waiting, each second.
    flow, flow_moment, wait_flow, wait_moment = np.zeros((4, parts.size))
    issued = np.zeros((runs, samples, luns))
    records, asked = np.zeros((2, runs), dtype=np.intp)
    r = np.arange(runs)
    cell = (r[:, None] * (samples + 1) * luns + np.arange(luns)).ravel()
    horizon = samples * interval

    while True:
        c = due.argmin(axis=1)
        t = due[r, c]
        live = t < horizon
        if not live.any():
            break
        b = np.minimum((t / interval).astype(np.intp), samples - 1)
        noise, uniform, think, new_lun = draws.next()
        write = uniform[:, 0] >= workload.read_share
        begin = np.where(uniform[:, 1] < workload.new_file, new_lun, start_lun[r, c])
        begin = np.where(uniform[:, 2] < hot[r, b], hot_lun, begin)
        start_lun[r, c] = begin
        guest = c >= luns
        on = np.where(guest[:, None], guests.pattern, patterns[begin]) & live[:, None]
        part = np.where(guest, guests.part, 1.0)
        half_request = (part * workload.requests + 1) / (2 * part * workload.requests)
        needs = np.where(on, service[r, b] * noise, 0.0) * mean_seconds[write.astype(np.intp)][:, None]
        needs *= part[:, None]
        by_server = on.reshape(runs, servers, -1)
        on_link = by_server.sum(axis=2)[:, :, None] * seconds_on_link[r, b]
        on_link *= np.where(guest, guests.on_link, 1.0)[:, None, None]

        through = np.maximum(rx_free, t[:, None]) + on_link[:, :, 0]
        receiving = write[:, None] & (on_link[:, :, 0] > 0)
        rx_free = np.where(receiving, through, rx_free)
        arrival = np.repeat(np.where(receiving, through, t[:, None]), shape.luns_per_server, axis=1)
        begun = np.maximum(free, arrival)
        done = begun + needs
        free = np.where(on, done, free)
        ready = np.where(by_server, done.reshape(runs, servers, -1), 0.0).max(axis=2)
        sent = np.maximum(tx_free, ready) + on_link[:, :, 1]
        sending = ~write[:, None] & (on_link[:, :, 1] > 0)
        tx_free = np.where(sending, sent, tx_free)
        answered, ready = ready, np.where(sending, sent, ready)
        came = arrival[:, :: shape.luns_per_server]
        longer = np.where(answered > 0, (answered - came) * work[r, b], 0.0)
        ready = ready + longer
        if lossy:
            ready = ready + np.where(ready > 0, delay[r, b] * think[:, None], 0.0)
        end = t + (np.maximum(ready.max(axis=1), t) - t) * slower[r, b, c]
        eager = activity[r, b]
        due[r, c] = np.where(live, end + rest[r, c] * think / eager, t)
        due[:, luns:] = np.where(due[:, luns:] < guests.end, due[:, luns:], horizon)

        if times is not None:
            middle = begun + needs * half_request[:, None]
            network = np.repeat(np.where(ready > 0, ready - answered, 0.0), shape.luns_per_server, axis=1)
            own = np.repeat(within[r, b] * think[:, None] + longer, shape.luns_per_server, axis=1)
            wait = (middle + network - t[:, None]) * slower[r, b, c][:, None]
            at_end = ((t[:, None] + wait) / interval).astype(np.intp)
            of, lun = np.nonzero(on & ~guest[:, None] & (at_end < samples))
            when, kind = at_end[of, lun], write[of].astype(np.intp)
            times.parts[of, when, c[of], lun, kind] += 1.0
            times.seconds[of, when, c[of], lun, kind] += wait[of, lun]
            times.inside[of, when, lun, kind] += (middle - arrival + own)[of, lun]

        some = np.flatnonzero(on)
        begins, ends = begun.ravel()[some], done.ravel()[some]
        at = cell[some] + np.minimum((ends / interval).astype(np.intp), samples) * luns
        slope[at] -= 1.0
        moment[at] -= ends
        at = at * 2 + write[some // luns]
        seconds, amount = needs.ravel()[some], part[some // luns]
        wait = (begins - arrival.ravel()[some] + seconds * half_request[some // luns]) * amount
        parts[at] += amount
        waited[at] += wait
        flow[at] -= amount / seconds
        flow_moment[at] -= amount * ends / seconds
        wait_flow[at] -= wait / seconds
        wait_moment[at] -= wait * ends / seconds
        at = cell[some] + np.minimum((begins / interval).astype(np.intp), samples) * luns
        slope[at] += 1.0
        moment[at] += begins
        at = at * 2 + write[some // luns]
        flow[at] += amount / seconds
        flow_moment[at] += amount * begins / seconds
        wait_flow[at] += wait / seconds
        wait_moment[at] += wait * begins / seconds
        issued[r, b] += on * part[:, None]
        asked += live & ~guest
        records += live & ~guest & (end < horizon)
    by_interval = (runs, samples + 1, luns)
    by_kind = (*by_interval, 2)
    return Work(
        parts.reshape(by_kind),
        waited.reshape(by_kind),
        _so_far(slope.reshape(*by_interval, 1), moment.reshape(*by_interval, 1), interval)[..., 0],
        _so_far(flow.reshape(by_kind), flow_moment.reshape(by_kind), interval),
        _so_far(wait_flow.reshape(by_kind), wait_moment.reshape(by_kind), interval),
        issued,
        records,
        asked,
    )


def _so_far(slope: Array, moment: Array, interval: float) -> Array:
    """What has run up by the end of each interval, from changes of slope (R, T + 1, L, K), and moments."""
    ends = (np.arange(slope.shape[1]) + 1)[:, None, None] * interval
    total = ends * np.cumsum(slope, axis=1) - np.cumsum(moment, axis=1)
    found: Array = np.maximum.accumulate(total[:, :-1], axis=1)  # rounding
    return found


def _stripes(luns: int, stripe: int) -> BoolArray:
    """For each LUN that a file can start at, the LUNs that its parts lie on; (L, L)."""
    ahead = (np.arange(luns)[None, :] - np.arange(luns)[:, None]) % luns
    pattern: BoolArray = ahead < min(stripe, luns)
    return pattern


def _first_arrivals(scenarios: Sequence[Scenario]) -> tuple[Array, Array]:
    """When each client first asks (R, clients), spread over a cycle, and the mean think time (R,)."""
    clients = scenarios[0].shape.luns
    think = np.array([s.workload.think_ms / 1000 for s in scenarios])
    spread = np.stack([np.random.default_rng((s.seed, 2)).random(clients) for s in scenarios])
    return spread * 2 * think[:, None], think


@dataclass(frozen=True, slots=True)
class _Guests:
    """The guests of R runs, G columns after the clients': `due`, `rest` (R, G) as of `_first_arrivals`.

    `end` (R, 1): when they leave. `pattern` (R, L): their LUN. `part` (R,): of a part, how much they ask for.
    `on_link` (R,): 0 for those without the server's link.
    """

    due: Array
    rest: Array
    end: Array
    pattern: BoolArray
    part: Array
    on_link: Array

    @classmethod
    def of(cls, conditions: Sequence[Conditions], requests: int, horizon: float) -> "_Guests":
        """The guests in `conditions`; a run without any has none before `horizon`."""
        runs, luns = len(conditions), conditions[0].service.shape[1]
        most = max(c.guests.count if c.guests else 0 for c in conditions)
        due, rest = np.full((runs, most), horizon), np.zeros((runs, most))
        end, part, on_link = np.zeros((runs, 1)), np.ones(runs), np.ones(runs)
        pattern = np.zeros((runs, luns), dtype=np.bool_)
        for r, own in enumerate(c.guests for c in conditions):
            if own is None:
                continue
            due[r, : own.count] = own.start + own.think_seconds * np.arange(own.count) / own.count
            rest[r, : own.count] = own.think_seconds
            end[r], part[r], pattern[r, own.lun] = own.end, own.requests / requests, True
            on_link[r] = 0.0 if own.local else part[r]
        return cls(due, rest, end, pattern, part, on_link)


def _delay(conditions: Conditions, part_bytes: float, read_share: float) -> Array:
    """Seconds (T, S) that lost packets and a busy CPU add to a part on its way, without occupying anything.

    By the dominant term of Padhye's TCP model for the direction that data goes: every packet is lost with
    probability p, and a loss ends in a timeout with probability min(1, 3 sqrt(3 p / 8)). Losing only
    acknowledgements costs a twentieth of that.
    """
    packets = np.ceil(part_bytes / PACKET_BYTES)
    share = np.array([1 - read_share, read_share])
    effective = conditions.loss @ np.maximum(share, 0.05)
    loss = conditions.loss.max(axis=2)
    timeout = np.minimum(1.0, 3 * np.sqrt(3 * loss / 8))
    delay: Array = packets * effective * timeout * RTO_SECONDS + conditions.server_seconds
    return delay
