"""Where files lie, by a tree of /sys: partitions, loop devices, mapped devices."""

import io
import os
from pathlib import Path

from laggard_aggregator.layers.record.file_devices import FileDevices


def tree(root: Path, number: str) -> Path:
    place = root / number.replace(",", ":")
    place.mkdir(parents=True)
    return place


def number_of(path: Path) -> str:
    known = path.stat().st_dev
    return f"{os.major(known)},{os.minor(known)}"


def added(path: Path, system: Path) -> FileDevices:
    found = FileDevices()
    found.add_files([path], io.StringIO(), system)
    return found


def test_a_partition_has_its_disk_and_its_first_byte(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(b"x" * 8192)
    disk = tmp_path / "devices" / "sda"
    part = disk / "sda1"
    part.mkdir(parents=True)
    (disk / "dev").write_text("8:0\n")
    (part / "partition").write_text("1\n")
    (part / "start").write_text("2048\n")
    system = tmp_path / "sys"
    system.mkdir()
    number = number_of(data)
    (system / number.replace(",", ":")).symlink_to(part)
    if number.startswith("0,"):  # an overlay or a tmpfs has none
        assert "without a block device of its own" in added(data, system).remarks[0]
        return
    found = added(data, system)
    assert found.partitions == {number: ("8,0", 2048 * 512)}
    assert found.all() == [number, "8,0"]


def test_devices_below_mapped_and_loop_devices(tmp_path: Path) -> None:
    system = tmp_path / "sys"
    for number, slaves in (("253,0", ["8,16"]), ("9,0", ["8,0", "8,16"]), ("8,16", []), ("8,0", [])):
        place = tree(system, number)
        for slave in slaves:
            each = place / "slaves" / slave.replace(",", "-")
            each.mkdir(parents=True)
            (each / "dev").write_text(slave.replace(",", ":") + "\n")
    found = FileDevices()
    assert found._look_below("253,0", system) == ""
    assert found._look_below("9,0", system) == ""
    assert found.lies_on == {"253,0": "8,16"}
    assert "device 253,0 is mapped" in found.remarks[0]
    assert "device 9,0 lies on 2 devices" in found.remarks[1]
    image = tmp_path / "image"
    image.write_bytes(b"x")
    loop = tree(system, "7,5") / "loop"
    loop.mkdir()
    (loop / "backing_file").write_text(f"{image}\n")
    assert found._look_below("7,5", system) == str(image)
    assert found.backing_files == {"7,5": str(image)}
    assert found.lies_on["7,5"] == number_of(image)


def test_below_the_disk_of_a_partition(tmp_path: Path) -> None:
    system = tmp_path / "sys"
    disk = tmp_path / "devices" / "loop0"
    part = disk / "loop0p1"
    part.mkdir(parents=True)
    (disk / "dev").write_text("7:0\n")
    (part / "partition").write_text("1\n")
    (part / "start").write_text("2048\n")
    image = tmp_path / "image"
    image.write_bytes(b"x")
    (tree(system, "7,0") / "loop").mkdir()
    (system / "7:0" / "loop" / "backing_file").write_text(f"{image}\n")
    (system / "259:0").symlink_to(part)
    (tree(system, "253,0") / "slaves" / "loop0p1").mkdir(parents=True)
    (system / "253:0" / "slaves" / "loop0p1" / "dev").write_text("259:0\n")
    found = FileDevices()
    assert found._look_below("253,0", system) == str(image)
    assert found.partitions == {"259,0": ("7,0", 2048 * 512)}
    assert found.lies_on == {"253,0": "259,0", "7,0": number_of(image)}


def test_a_fifo_in_the_place_of_a_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/etc/passwd")
    found = FileDevices()
    found.add_files([tmp_path / "fifo", tmp_path / "link", tmp_path / "gone"], io.StringIO(), tmp_path)
    assert found.file_devices == {}
    assert len(found.remarks) == 3
