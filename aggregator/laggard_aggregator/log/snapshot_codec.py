"""Encodes a snapshot's sections: plain data with numpy arrays, as compressed MessagePack.

An array is an extension `[dtype, shape, bytes]`. Floats are restored to the bit, NaN included.
"""

from typing import Any

import msgpack
import numpy as np
import zstandard

_ARRAY = 1
_DTYPES = ("<i8", "<f4", "<f8", "|b1")
_LEVEL = 1
MAX_SECTION_BYTES = 2 * 1024 * 1024 * 1024


def pack(value: Any) -> bytes:
    """`value` (dict, list, tuple, str, bytes, int, float, bool, None, numpy array) as compressed bytes."""
    packed = msgpack.packb(value, default=_array, use_bin_type=True)
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=False).compress(packed)


def unpack(data: bytes) -> Any:
    """The value in `data`; tuples become lists. Raises ValueError when it is malformed."""
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= MAX_SECTION_BYTES:
            raise ValueError(f"a section of {size} bytes")
        packed = zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
        return msgpack.unpackb(packed, ext_hook=_ext, strict_map_key=False)
    except (zstandard.ZstdError, msgpack.UnpackException, TypeError, RecursionError, OverflowError) as exc:
        raise ValueError(str(exc)[:200]) from exc


def _array(value: Any) -> msgpack.ExtType:
    if not isinstance(value, np.ndarray) or value.dtype.str not in _DTYPES:
        raise TypeError(f"{type(value).__name__} in a snapshot")
    return msgpack.ExtType(_ARRAY, msgpack.packb((value.dtype.str, value.shape, value.tobytes())))


def _ext(code: int, data: bytes) -> Any:
    if code != _ARRAY:
        raise ValueError(f"extension {code}")
    dtype, shape, raw = msgpack.unpackb(data)
    if (
        dtype not in _DTYPES
        or not isinstance(shape, list)
        or not all(type(n) is int and n >= 0 for n in shape)
    ):
        raise ValueError("an array without type or shape")
    return np.frombuffer(raw, dtype=dtype).reshape(shape).copy()
