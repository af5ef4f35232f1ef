"""The engine from windows to alarms: one LUN's fault, and a server's."""

import numpy as np

from laggard_aggregator.alarms.judge import Judge, Judgement
from laggard_aggregator.detect.interface import GroupWindow
from laggard_aggregator.detect.settings import DetectSettings

SETTINGS = DetectSettings(interval_seconds=1.0, window_samples=60, shift_samples=30)
COMPONENTS = tuple(f"oss-{server}/lun{lun}" for server in range(6) for lun in range(4))


def run(slow: set[str], windows: int, healthy_after: int, factor: float = 3.0) -> list[Judgement]:
    """The judgements of a group in which `slow` are `factor` times slower until window `healthy_after`."""
    rng = np.random.default_rng(7)
    engine = Judge({"luns": SETTINGS})
    level = np.array([factor if name in slow else 1.0 for name in COMPONENTS])[:, None]
    samples = 60 + 30 * (windows - 1)
    await_ms = 5.0 * np.exp(0.2 * rng.standard_normal((len(COMPONENTS), samples)))
    await_ms[:, : 60 + 30 * (healthy_after - 1)] *= level
    found: list[Judgement] = []
    for w in range(windows):
        start = 1_760_000_000.0 + 30 * w
        values = await_ms[:, 30 * w : 30 * w + 60]
        window = GroupWindow("luns", COMPONENTS, start, start + 60, 0, {"await": values})
        found.extend(engine.evaluate(window))
    assert not engine.alarms.standing
    return found


def episodes(judgements: list[Judgement]) -> list[tuple[str, str, str]]:
    return [
        (transition.kind, transition.alarm.component, transition.alarm.level)
        for judged in judgements
        for transition in judged.transitions
    ]


def test_a_slow_lun_raises_one_alarm_and_clears_it() -> None:
    judgements = run({"oss-2/lun1"}, windows=40, healthy_after=10)
    assert episodes(judgements) == [
        ("raised", "oss-2/lun1", "component"),
        ("cleared", "oss-2/lun1", "component"),
    ]
    raised = next(t for judged in judgements for t in judged.transitions).alarm
    assert 2.0 < raised.severity < 4.5
    assert raised.since == judgements[0].start


def test_a_slow_server_raises_one_alarm_of_its_own() -> None:
    judgements = run({f"oss-4/lun{lun}" for lun in range(4)}, windows=40, healthy_after=10)
    assert episodes(judgements) == [("raised", "oss-4", "node"), ("cleared", "oss-4", "node")]


def test_a_parent_has_the_onset_and_the_duty_cycle_of_its_children() -> None:
    rng = np.random.default_rng(4)
    engine, shift, onset = Judge({"luns": SETTINGS}), 30, 40
    values = 5.0 * np.exp(0.25 * rng.standard_normal((len(COMPONENTS), 60 + 30 * 80)))
    slow = np.array([name.startswith("oss-4/") for name in COMPONENTS])
    values[slow, 60 + onset * shift : 60 + 60 * shift] *= 1.25
    values[np.ix_(slow, np.arange(60 + 60 * shift, values.shape[1], 3))] *= 7.0
    found: list[Judgement] = []
    for w in range(80):
        start = 1_760_000_000.0 + shift * w
        window = GroupWindow(
            "luns", COMPONENTS, start, start + 60, 0, {"await": values[:, shift * w : shift * w + 60]}
        )
        found.extend(engine.evaluate(window))
    (raised,) = (t.alarm for judged in found for t in judged.transitions)
    assert (raised.component, raised.level) == ("oss-4", "node")
    blamed = [judged for judged in found if "oss-4" in judged.components]
    first = next(j for j in blamed if j.verdicts.anomalous[j.components.index("oss-4")])
    true = 1_760_000_000.0 + 60 + onset * shift
    assert abs(raised.since - true) <= 2 * shift
    assert first.start > raised.since
    assert raised.slow_share == 0.0
    (now,) = engine.alarms.standing.values()
    assert 0.25 < now.slow_share < 0.4
    assert 5.0 < now.slow_severity < 9.0


def test_a_healthy_group_raises_nothing() -> None:
    judgements = run(set(), windows=40, healthy_after=10)
    assert episodes(judgements) == []
    assert all(judged.components == COMPONENTS for judged in judgements)
