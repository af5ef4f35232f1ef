"""Ranges of an archive that the product's writer wrote, against the constants that it was made of."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from laggard_aggregator.archive import history
from laggard_aggregator.archive.history import MAX_PEERS, MAX_POINTS, HistoryReader
from laggard_aggregator.archive.retention import compact
from laggard_aggregator.detect.settings import DetectSettings
from laggard_aggregator.groups.membership import PeerGroup
from tests.support.builders.batches import SECOND
from tests.support.builders.history import (
    COMPONENTS,
    DISKS,
    END,
    GROUP,
    MS,
    NODES,
    READS,
    SECTORS,
    SLOW,
    SLOW_FROM,
    SLOW_MS,
    WINDOW,
    written,
)

LUNS = PeerGroup(GROUP, "diskstats", "", ("await",), DetectSettings(interval_seconds=15.0))
BEGUN = END - 2 * 3600


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("archive")
    written(directory)
    return directory


def chart(directory: Path, start: float, end: float, component: str = SLOW) -> history.Chart:
    found = HistoryReader(directory, "site").chart(LUNS, component, COMPONENTS, start, end)
    assert found is not None
    return found


def test_a_chart_has_the_metric_and_the_load_of_a_component_and_its_peers(archive: Path) -> None:
    found = chart(archive, BEGUN, END)
    assert found.step_seconds == 60
    assert found.ends.size <= MAX_POINTS + 1
    assert set(found.components) == set(COMPONENTS)
    own = found.components.index(SLOW)
    before, after = found.ends <= SLOW_FROM, found.ends > SLOW_FROM
    known = np.isfinite(found.metrics["await"][own])
    assert known.sum() >= found.ends.size - 2
    np.testing.assert_allclose(found.metrics["await"][own, before & known], MS, rtol=1e-6)
    np.testing.assert_allclose(found.metrics["await"][own, after & known], SLOW_MS, rtol=0.35)
    np.testing.assert_allclose(found.metrics["await"][own, after & known][2:], SLOW_MS, rtol=1e-6)
    others = np.delete(found.metrics["await"], own, axis=0)
    np.testing.assert_allclose(others[np.isfinite(others)], MS, rtol=1e-6)
    load = {name: np.nanmedian(values[own]) for name, values in found.load.items()}
    assert load["reads"] == pytest.approx(READS)
    assert load["read_throughput"] == pytest.approx(READS * SECTORS * 512 / 1e6)
    assert load["request_size"] == pytest.approx(SECTORS * 512 / 1e3)
    assert load["writes"] == 0
    assert set(load) == {
        *("reads", "writes", "read_throughput", "write_throughput", "request_size"),
        *("r_await", "w_await", "queue", "utilisation"),
    }
    assert np.nanmax(found.load["queue"][own]) == pytest.approx(READS * SLOW_MS / 1e3, rel=1e-4)


def test_a_short_range_has_the_intervals_of_the_detection(archive: Path) -> None:
    found = chart(archive, SLOW_FROM - 300, SLOW_FROM + 300)
    assert found.step_seconds == 15
    assert found.ends[0] == SLOW_FROM - 285
    assert found.ends[-1] == SLOW_FROM + 300
    own = found.metrics["await"][found.components.index(SLOW)]
    np.testing.assert_allclose(own[found.ends <= SLOW_FROM], MS)
    np.testing.assert_allclose(own[found.ends > SLOW_FROM], SLOW_MS)


def test_the_last_point_has_the_newest_reading(archive: Path) -> None:
    found = chart(archive, BEGUN, END + 50)
    assert found.ends[-1] == END + 45
    own = found.metrics["await"][found.components.index(SLOW)]
    last = np.flatnonzero(np.isfinite(own))[-1]
    assert found.ends[last] >= END
    np.testing.assert_allclose(own[last], SLOW_MS, rtol=1e-5)


def test_merged_files_give_the_same(archive: Path, tmp_path: Path) -> None:
    written(tmp_path)
    for ended in (3600, 86_400 * 2):
        compact(tmp_path, (END + ended) * SECOND)
    merged, apart = chart(tmp_path, BEGUN, END), chart(archive, BEGUN, END)
    order = [merged.components.index(name) for name in apart.components]
    np.testing.assert_array_equal(merged.metrics["await"][order], apart.metrics["await"])
    one, other = (HistoryReader(each, "site").verdicts(BEGUN, END, GROUP) for each in (tmp_path, archive))
    assert one == other


def test_restarted_counters_are_no_values(tmp_path: Path) -> None:
    written(tmp_path, restart=True)
    found = chart(tmp_path, BEGUN, END)
    values = found.metrics["await"]
    assert np.isnan(values[:, np.searchsorted(found.ends, (BEGUN + END) / 2, "right")]).all()
    assert np.nanmin(values) >= MS - 1e-3
    assert np.nanmax(values) <= SLOW_MS + 1e-3


def test_only_row_groups_near_a_point_are_read(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    whole = pq.ParquetFile.read_row_group

    def counted(self: object, at: int, **options: object) -> object:
        table = whole(self, at, **options)
        read.append(table.num_rows)
        return table

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    chart(archive, SLOW_FROM, SLOW_FROM + 120)
    samples = len(NODES) * len(DISKS) * 7200 // 5
    assert 0 < sum(read) < samples / 2


def test_peers_and_points_are_bounded(archive: Path) -> None:
    peers = [*COMPONENTS, *(f"none-{at}/id" for at in range(5 * MAX_PEERS))]
    reader = HistoryReader(archive, "site")
    found = reader.chart(LUNS, SLOW, peers, END - 300 * 86_400, END)
    assert found is None or found.ends.size <= MAX_POINTS + 1
    assert not reader.damaged


def test_who_has_no_counters_has_no_chart(archive: Path) -> None:
    reader = HistoryReader(archive, "site")
    assert reader.chart(LUNS, "oss-3", COMPONENTS, BEGUN, END) is None
    assert reader.chart(LUNS, "oss-3/id-z", COMPONENTS, BEGUN, END) is None
    assert reader.chart(LUNS, SLOW, COMPONENTS, BEGUN - 86_400, BEGUN - 7200) is None
    assert reader.chart(replace(LUNS, source="fnprofile"), SLOW, COMPONENTS, BEGUN, END) is None
    assert HistoryReader(archive / "none", "site").chart(LUNS, SLOW, COMPONENTS, BEGUN, END) is None
    assert HistoryReader(archive, "other").verdicts(BEGUN, END) == []


def test_verdicts_windows_and_alarms_of_a_range(archive: Path) -> None:
    reader = HistoryReader(archive, "site")
    rows = reader.verdicts(SLOW_FROM, SLOW_FROM + 2 * WINDOW, GROUP)
    assert [(row["component"], row["end"], row["severity"]) for row in rows] == [
        (SLOW, SLOW_FROM + WINDOW, 4.0),
        (SLOW, SLOW_FROM + 2 * WINDOW, 4.0),
    ]
    assert reader.verdicts(BEGUN, END, "others") == []
    assert len(reader.verdicts(BEGUN, END, under="oss-3")) == 6
    assert reader.verdicts(BEGUN, END, under="oss-") == []
    windows = reader.windows(BEGUN, SLOW_FROM, GROUP)
    assert [(row["end"], row["judged"]) for row in windows] == [
        (BEGUN + at * WINDOW, len(COMPONENTS)) for at in range(1, 7)
    ]
    (alarm,) = reader.alarms(("at", "transition", "component"), BEGUN, END)
    assert (alarm["at"], alarm["transition"], alarm["component"]) == (SLOW_FROM + 2 * WINDOW, "raised", SLOW)


def test_a_damaged_file_is_counted_and_the_rest_is_shown(tmp_path: Path) -> None:
    written(tmp_path)
    parts = sorted(tmp_path.glob("kind=counters/**/*.parquet"))
    assert len(parts) > 4
    parts[1].write_bytes(b"PAR1 no")
    whole = parts[2].read_bytes()
    parts[2].write_bytes(whole[: len(whole) // 2] + b"\xff" * 64 + whole[len(whole) // 2 + 64 :])
    reader = HistoryReader(tmp_path, "site")
    found = reader.chart(LUNS, SLOW, COMPONENTS, BEGUN, END)
    assert parts[1].name in reader.damaged
    assert reader.damaged <= {parts[1].name, parts[2].name}
    assert found is not None
    own = found.metrics["await"][found.components.index(SLOW)]
    assert np.isnan(own[(found.ends > BEGUN + WINDOW) & (found.ends < BEGUN + 2 * WINDOW - 300)]).any()
    assert np.isfinite(own[found.ends > SLOW_FROM]).all()


def test_a_part_that_is_merged_meanwhile_is_read_from_the_merged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path)
    expected = chart(tmp_path, BEGUN, END)
    opened = pq.ParquetFile
    merged = False

    def opens(path: Path, **options: Any) -> object:
        nonlocal merged
        if not merged and "000003" in Path(path).name:
            merged = True
            compact(tmp_path, (END + 2 * 86_400) * SECOND)
        return opened(path, **options)

    monkeypatch.setattr(pq, "ParquetFile", opens)
    reader = HistoryReader(tmp_path, "site")
    found = reader.chart(LUNS, SLOW, COMPONENTS, BEGUN, END)
    assert merged
    assert found is not None
    assert not reader.damaged
    np.testing.assert_array_equal(
        np.sort(found.metrics["await"], axis=0), np.sort(expected.metrics["await"], axis=0)
    )


def test_reading_ends_in_time(archive: Path) -> None:
    reader = HistoryReader(archive, "site", seconds=0.0)
    assert reader.chart(LUNS, SLOW, COMPONENTS, BEGUN, END) is None
    assert reader.verdicts(BEGUN, END) == []
    assert reader.cut


def test_rows_are_bounded(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_ROWS", 2)
    reader = HistoryReader(archive, "site")
    assert 2 < len(reader.verdicts(BEGUN, END, GROUP)) <= 6
    assert reader.cut
