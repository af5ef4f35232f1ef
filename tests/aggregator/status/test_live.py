"""What others see of the running aggregator."""

from laggard_aggregator.engine.machine import Machine
from laggard_aggregator.status.straggler_list import standings
from laggard_aggregator.status.view import Status
from laggard_common.clock import SystemClock
from tests.support.builders.site import SECOND, SLOW, START, close, new_core, receive, steps
from tests.support.window_clock import window_clock

BATCHES = 40


def view_of(core: Machine) -> Status:
    return Status(core, window_clock(SystemClock()))


def stragglers(view: Status) -> set[str]:
    rows = standings(view.judgements(), view.alarms(), view.shown, view.silenced)
    return {row.component for row in rows if row.straggler}


def test_nothing_is_said_of_a_group_that_was_forgotten() -> None:
    core = new_core()
    view = view_of(core)
    for messages, now_ns in steps(BATCHES):
        receive(core, messages)
        view.judged(close(core, now_ns))
    assert any(name.startswith(SLOW) for name in stragglers(view))
    later_ns = START + (5 * BATCHES + 600) * SECOND
    core.admission.acks.durable(core.sequence.last)
    core.forget("*", later_ns, later_ns - 60 * SECOND)
    view.judged(())
    assert (stragglers(view), view.judgements()) == (set(), ())
