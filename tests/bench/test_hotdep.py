"""What is called right, named and agreed on in the runs of the functions' testbed."""

from pathlib import Path
from typing import Any, cast

import pytest

from bench.testbed.gluster.watch import Watch
from bench.testbed.hotdep.experiments import EXPERIMENTS
from bench.testbed.hotdep.peers import Peer, Service
from bench.testbed.hotdep.report import table
from bench.testbed.hotdep.watch import agree
from bench.testbed.luns import Lun
from bench.testbed.site import Site
from tests.support.wait import LIMIT_SECONDS

HERE = Path("/nowhere")
PEER = Peer("io-2", 3335, Lun(1, "loop21", "loop41", HERE, HERE, 1), HERE, HERE, HERE)


def alarm(**other: Any) -> dict[str, Any]:
    """An alarm on the peer, by the time of its functions."""
    causes = [{"name": f"ioserver/ioserver/{name}", "amount": 1.0} for name in ("take_job", "storage_read")]
    usual = {"group": "storage/fntrace", "component": "io-2", "level": "node", "metric": "time"}
    nowhere = {"located_level": None, "located_component": None, "evidence": None}
    return usual | nowhere | {"raised_at": 90.0, "causes": causes} | other


def test_the_right_alarm() -> None:
    disk = EXPERIMENTS["disk"]
    assert disk.right(PEER, alarm())
    assert disk.named(alarm())
    assert not disk.named(alarm(causes=alarm()["causes"][:1]))
    assert disk.explained(PEER, alarm(component="io-2/loop21", level="component"))
    for other in ({"component": "io-3"}, {"metric": "count"}, {"group": "storage/fnprofile"}):
        assert not disk.right(PEER, alarm(**other))
    assert not disk.explained(PEER, alarm(component="io-3"))
    assert not EXPERIMENTS["control"].explained(PEER, alarm())


def record(first_alarm: float = 90.0, *metrics: str) -> dict[str, Any]:
    """What diagnose says of the peer."""
    names = list(metrics or ("time", "count"))
    return {"group": "storage/fntrace", "component": "io-2", "first_alarm": first_alarm, "metrics": names}


@pytest.mark.parametrize(
    ("live", "afterwards", "same"),
    [
        ([], [], True),
        ([alarm()], [record()], True),
        ([alarm(), alarm(metric="count", raised_at=120.0)], [record()], True),
        ([alarm()], [], False),
        ([alarm()], [record(120.0)], False),
        ([alarm()], [record(90.0, "count")], False),
        ([], [record()], False),
        ([], [record(200.0)], True),  # its window ended when nobody looked any more
    ],
)
def test_diagnose_agrees(live: list[Any], afterwards: list[Any], same: bool) -> None:
    assert agree(live, afterwards, looked_until=150.0) == same


class Answers:
    """A site whose API gives these answers, one after another, and then the last for ever."""

    def __init__(self, *answers: list[dict[str, Any]]) -> None:
        self._answers = list(answers)

    def check(self) -> None:
        """Every process runs."""

    def stragglers(self) -> list[dict[str, Any]]:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def test_an_alarm_that_is_cleared_and_raised_again_counts_from_its_first_time() -> None:
    first, again = alarm(alarm=True), alarm(alarm=True, raised_at=120.0, causes=[])
    watch = Watch(cast("Site", Answers([first], [first | {"alarm": False}], [], [again])))
    watch.during(LIMIT_SECONDS, lambda entry: not entry["causes"])
    ((_, entry),) = watch.seen.values()
    assert entry == again | {"raised_at": 90.0}
    assert agree([entry], [record()], looked_until=150.0)


def test_how_long_a_stripe_took(tmp_path: Path) -> None:
    """Weighted by stripes; the line that is being written is left out."""
    log = tmp_path / "client.log"
    log.write_text("10.0 5 9.0\n11.0 10 1.0\n12.0 30 2.0\n13.0 0 0.000\n14.0 1 7")
    made = Service((), log)
    assert made.stripe_ms(10.0, 13.0) == pytest.approx(70 / 40)
    assert made.stripe_ms(13.0, 20.0) == 0.0


def test_the_table_tells_where_the_fault_is_named() -> None:
    told = alarm(source="fntrace", delay_seconds=89.5)
    run = {
        "run": "disk",
        "healthy_seconds": 60.0,
        "fault_seconds": 90.0,
        "stripe_ms": {"healthy": 2.62, "fault": 708.11},
        "alarms": {"right": [told], "explained": [], "false": [told | {"component": "io-5"}]},
        "diagnose_agrees": False,
    }
    *_, row = table([run]).splitlines()
    assert row == (
        "| disk | io-2 `fntrace` time | 90 | nothing | `ioserver/ioserver/storage_read`, place 2"
        " | 2.6, then 708.1 | 1 in 2.5 min: io-5 `fntrace` time | differs |"
    )
