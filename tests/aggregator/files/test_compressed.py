"""Compressed files as people have them: of several streams, padded, cut short, damaged."""

import gzip
import lzma
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from laggard_aggregator.files.compressed import open_input
from laggard_common.errors import InputError

Compress = Callable[[bytes], bytes]
COMPRESS: dict[str, Compress] = {
    "gz": gzip.compress,
    "xz": partial(lzma.compress, preset=0),
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
OF_ALL = pytest.mark.parametrize("compress", COMPRESS.values(), ids=COMPRESS.keys())
TEXT = "".join(f"{random.Random(3).random()} {n}\n" for n in range(3000)).encode()


def read(path: Path, packed: bytes, size: int = -1) -> tuple[bytes, list[str]]:
    """The data, read in portions of `size`, and the sentences about its end."""
    path.write_bytes(packed)
    said: list[str] = []
    with open_input(path, cut=said.append) as file:
        data = b"".join(iter(lambda: file.read(size), b""))
    return data, said


@OF_ALL
@given(
    parts=st.lists(st.binary(max_size=9000), min_size=1, max_size=4).filter(lambda p: p[0][:1] < b"\xef"),
    padding=st.integers(0, 3),
    size=st.sampled_from([-1, 1000, 70_000]),
)
def test_streams_one_after_another_are_one_file(
    tmp_path_factory: pytest.TempPathFactory, compress: Compress, parts: list[bytes], padding: int, size: int
) -> None:
    packed = b"".join(compress(part) + bytes(4 * padding) for part in parts)
    path = tmp_path_factory.mktemp("files") / "f"
    assert read(path, packed, size) == (b"".join(parts), [])


@OF_ALL
@given(share=st.floats(0.01, 0.999), size=st.sampled_from([-1, 1 << 23, 100]), whole=st.booleans())
def test_what_is_cut_short_is_read_as_far_as_it_goes(
    tmp_path_factory: pytest.TempPathFactory, compress: Compress, share: float, size: int, whole: bool
) -> None:
    before, packed = compress(TEXT) if whole else b"", compress(TEXT)
    path = tmp_path_factory.mktemp("files") / "f"
    kept = max(int(len(packed) * share), 6)
    try:
        data, said = read(path, before + packed[:kept], size)
    except InputError:
        assert not whole  # nothing of the first block came out
        return
    assert (TEXT * 2).startswith(data)
    assert len(data) >= len(TEXT) * whole
    assert said == ["compressed data is cut short: read as far as it goes"]
    with pytest.raises(InputError, match="compressed data is cut short"), open_input(path) as file:
        file.read()


@pytest.mark.parametrize("compress", [bytes, *COMPRESS.values()])
def test_the_mark_of_utf_8_is_no_text_and_that_of_utf_16_is_refused(
    tmp_path: Path, compress: Compress
) -> None:
    assert read(tmp_path / "f", compress("a,b\n".encode("utf-8-sig"))) == (b"a,b\n", [])
    assert read(tmp_path / "f", compress("a\n\ufeffb\n".encode())) == ("a\n\ufeffb\n".encode(), [])
    for encoding in ("utf-16-le", "utf-16-be"):
        with pytest.raises(InputError, match="is text in UTF-16"):
            read(tmp_path / "f", compress("\ufeffa,b\n".encode(encoding)))


@OF_ALL
def test_most_of_a_cut_file_is_there(tmp_path: Path, compress: Compress) -> None:
    chance = random.Random(1)
    text = "".join(f"{n},sda,{chance.random()}\n" for n in range(200_000)).encode()
    packed = compress(text)
    data, _ = read(tmp_path / "f", packed[: len(packed) // 2])
    assert len(data) > len(text) / 3


@OF_ALL
def test_what_is_no_stream_behind_one_is_damage(tmp_path: Path, compress: Compress) -> None:
    with pytest.raises(InputError, match="damaged"):
        read(tmp_path / "f", compress(TEXT) + b"nothing that begins a stream")


@OF_ALL
def test_any_damage_is_one_error_or_other_data(tmp_path: Path, compress: Compress) -> None:
    chance = random.Random(2)
    for _ in range(60):
        packed = bytearray(compress(TEXT))
        packed[chance.randrange(6, len(packed))] ^= 1 << chance.randrange(8)
        with suppress(InputError):
            data, said = read(tmp_path / "f", bytes(packed))
            assert said or data == TEXT
