import random
from collections import deque
from itertools import pairwise

from laggard_agent.spool.segments import SpooledBatch
from laggard_agent.transport.pacing import LATE_SECONDS, MAX_IN_FLIGHT, BacklogRate
from laggard_common.wire import Ack, Envelope, Kind

STREAM = bytes(16)


def message(seq: int, stream: bytes = STREAM, count: int = 1) -> SpooledBatch:
    return SpooledBatch(Envelope(Kind.JOINED, "oss-1", "net", stream, seq, 0, 0, 10**9, 60, 1, b""), count)


def ack(low: int, high: int, stream: bytes = STREAM) -> Ack:
    return Ack(stream, "net", ((low, high),))


def begun(
    waiting_seconds: float = 3600.0, *, per_second: float = 0.6, span_seconds: float = 60.0
) -> BacklogRate:
    rate = BacklogRate(per_second, span_seconds, random.Random(1))
    rate.connected(0.0, waiting_seconds)
    return rate


def went(rate: BacklogRate, until: float, answer_seconds: float | None) -> list[float]:
    """When messages went until then, each acknowledged after so long."""
    now, under_way = 0.0, deque[tuple[int, float]]()
    times: list[float] = []
    while now < until:
        now += 0.05
        while answer_seconds is not None and under_way and under_way[0][1] + answer_seconds <= now:
            seq, _ = under_way.popleft()
            rate.acknowledged(ack(seq, seq), now)
        if rate.due <= now and rate.may_send(now):
            rate.sent(message(len(times)), now)
            under_way.append((len(times), now))
            times.append(now)
    return times


def test_an_hour_of_three_sources_goes_in_well_under_five_minutes() -> None:
    times = went(begun(), 600.0, answer_seconds=1.2)
    assert times[3 * 60] < 240


def test_after_a_short_outage_nobody_waits() -> None:
    assert len(went(begun(waiting_seconds=20.0), 2.0, answer_seconds=1.2)) >= 4


def test_an_aggregator_that_is_slow_is_asked_ever_less() -> None:
    times = went(begun(), 2000.0, answer_seconds=LATE_SECONDS + 1)
    pauses = [b - a for a, b in pairwise(times)]
    assert len(times) < 40
    assert all(pause > LATE_SECONDS for pause in pauses)
    assert pauses[-1] > 45


def test_an_agent_that_samples_often_does_not_wait_for_longer_than_a_message_is_about() -> None:
    """Ten samples a second: a message of sixty is 6 s of the outage."""
    slow = went(begun(per_second=2.0, span_seconds=6.0), 600.0, answer_seconds=LATE_SECONDS + 1)
    assert 6 * len(slow) > 600 / 2
    quick = went(begun(per_second=2.0, span_seconds=6.0), 30.0, answer_seconds=1.2)
    assert 6 * len(quick) > 10 * 30


def test_so_many_may_be_under_way_and_a_late_one_stops_all() -> None:
    rate = begun(waiting_seconds=0.0)
    for seq in range(MAX_IN_FLIGHT):
        assert rate.may_send(1.0)
        rate.sent(message(seq), 1.0)
    assert not rate.may_send(1.5)
    rate.acknowledged(ack(1, 1), 2.0)
    rate.acknowledged(ack(0, 3, stream=b"another stream.."), 2.0)
    assert rate.may_send(2.1)
    assert not rate.may_send(1.0 + LATE_SECONDS + 0.1)
    rate.acknowledged(ack(0, 3), 4.0)
    assert rate.may_send(4.0)


def test_of_joined_batches_all_have_to_be_acknowledged() -> None:
    rate = begun(waiting_seconds=0.0)
    for seq in range(0, 12 * MAX_IN_FLIGHT, 12):
        assert rate.may_send(1.0)
        rate.sent(message(seq, count=12), 1.0)
    rate.acknowledged(Ack(STREAM, "net", ((0, 10), (12, 22), (36, 40))), 1.1)
    assert not rate.may_send(1.1)
    rate.acknowledged(ack(0, 11), 1.2)
    assert rate.may_send(1.2)


def test_where_nobody_acknowledges_the_pause_is_the_only_bound() -> None:
    times = went(begun(), 120.0, answer_seconds=None)
    assert len([t for t in times if t < 30]) <= MAX_IN_FLIGHT
    assert len([t for t in times if t > 60]) > 100


def test_what_was_lost_on_the_way_does_not_stop_it_for_good() -> None:
    rate = begun(waiting_seconds=0.0)
    rate.sent(message(0), 1.0)
    rate.acknowledged(ack(5, 5), 2.0)
    assert not rate.may_send(50.0)
    assert rate.may_send(61.5)


def test_hundreds_of_nodes_do_not_outrun_an_aggregator_that_takes_little() -> None:
    """The queue before it stays at a few seconds' work in the mean, and it is never idle for long."""
    nodes, capacity, messages = 500, 22, 40
    chance = random.Random(2)
    rates = [BacklogRate(0.1, 60.0, chance) for _ in range(nodes)]
    for rate in rates:
        rate.connected(0.0, 3600.0)
    left, queue, depths = [messages] * nodes, deque[tuple[int, SpooledBatch]](), []
    now = 0.0
    while (any(left) or queue) and now < 2000:
        now += 1.0
        for number, rate in enumerate(rates):
            if left[number] and rate.due <= now and rate.may_send(now):
                sent = message(messages - left[number], number.to_bytes(16))
                rate.sent(sent, now)
                left[number] -= 1
                queue.append((number, sent))
        for _ in range(min(capacity, len(queue))):
            number, taken = queue.popleft()
            rates[number].acknowledged(ack(*taken.seqs, taken.envelope.stream), now)
        depths.append(len(queue) / capacity)
    assert not any(left)
    assert sum(depths) / len(depths) < LATE_SECONDS
    assert now < 1.5 * nodes * messages / capacity


def test_what_is_lost_and_sent_again_is_not_waited_for() -> None:
    rate = begun(waiting_seconds=0.0)
    rate.sent(message(0), 1.0)
    rate.sent(message(0, b"o" * 16), 1.0)
    assert not rate.may_send(1.0 + 2 * LATE_SECONDS)
    rate.lost([(STREAM, "net")])
    assert not rate.may_send(1.0 + 2 * LATE_SECONDS)
    rate.lost([(b"o" * 16, "net")])
    assert rate.may_send(1.0 + 2 * LATE_SECONDS)


def test_one_late_answer_halves_the_speed_once_however_many_messages_it_covers() -> None:
    pauses = []
    for messages in (1, MAX_IN_FLIGHT):
        rate = begun(waiting_seconds=0.0)
        for seq in range(messages):
            rate.sent(message(seq), 1.0)
        rate.acknowledged(ack(0, messages - 1), 2.0 + 2 * LATE_SECONDS)
        pauses.append(rate.due)
    assert pauses[0] == pauses[1]
