"""Bloom filters of data files: whether a row group may have a whole number in a column.

Parquet's split-block filters, which Arrow writes and does not ask. What is not understood here may hold anything.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_BLOCK = struct.Struct("<8I")
# Of the header, after its size: blocks, XXH64, not compressed; the only ones Parquet has.
_PLAIN = bytes.fromhex("1c1c0000" * 3 + "00")
_64 = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


@dataclass(frozen=True)
class Filter:
    """One column of one row group; without bits nothing is known."""

    bits: bytes = b""

    @property
    def weight(self) -> int:
        return 100 + len(self.bits)

    def may_have(self, hashed: int) -> bool:
        if not self.bits:
            return True
        at = ((hashed >> 32) * (len(self.bits) // _BLOCK.size)) >> 32
        words = _BLOCK.unpack_from(self.bits, at * _BLOCK.size)
        low = hashed & 0xFFFFFFFF
        return all(word >> ((low * salt & 0xFFFFFFFF) >> 27) & 1 for word, salt in zip(words, _SALT, strict=True))


def read(path: str, offset: int | None, length: int | None) -> Filter:
    """A filter where a footer says it is."""
    if not offset or not length:
        return Filter()
    with open(path, "rb") as file:  # noqa: PTH123 - for one seek and one read
        file.seek(offset)
        return parsed(file.read(length))


def parsed(data: bytes) -> Filter:
    """A header and its bits."""
    if data[:1] != b"\x15":
        return Filter()
    size = shift = 0
    at = 1
    while at < len(data):
        size |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            break
    size >>= 1  # a positive zigzag
    bits = data[at + len(_PLAIN) :]
    known = data[at : at + len(_PLAIN)] == _PLAIN and len(bits) == size and size % _BLOCK.size == 0
    return Filter(bits) if known else Filter()


def hashed(value: int, width: int) -> int:
    """XXH64 of an integer of 4 or 8 bytes, as a filter has it."""
    word = value & (2 ** (8 * width) - 1)
    found = (_P5 + width) & _64
    if width == 8:
        found ^= (_turned(word * _P2 & _64, 31) * _P1) & _64
        found = (_turned(found, 27) * _P1 + _P4) & _64
    else:
        found ^= word * _P1 & _64
        found = (_turned(found, 23) * _P2 + _P3) & _64
    found = ((found ^ (found >> 33)) * _P2) & _64
    found = ((found ^ (found >> 29)) * _P3) & _64
    return found ^ (found >> 32)


def _turned(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _64
