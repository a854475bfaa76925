"""Messages of the protocol: what the server sends, and the bodies of what clients send taken apart."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from frostline.gateway.wire.stream import ProtocolError

TEXT_OID = 25
SSL_REQUEST = 80877103
GSS_REQUEST = 80877104
CANCEL_REQUEST = 80877102
PROTOCOL_3 = 3
_LENGTH = struct.Struct("!i").unpack_from


class Field(NamedTuple):
    """One column of a result."""

    name: str
    oid: int = TEXT_OID
    typmod: int = -1


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def text(value: str) -> bytes:
    """A zero-terminated string."""
    return value.replace("\0", "").encode("utf-8", "replace") + b"\0"


PARSE_COMPLETE = message(b"1")
BIND_COMPLETE = message(b"2")
CLOSE_COMPLETE = message(b"3")
NO_DATA = message(b"n")
EMPTY_QUERY = message(b"I")
PORTAL_SUSPENDED = message(b"s")
# What libpq sends behind a Bind: Describe and Execute of the unnamed portal, and Sync. And behind the Parse of a
# statement without parameters, always the same: a Bind of the unnamed statement, and that.
RUN_BOUND = message(b"D", b"P\0") + message(b"E", bytes(5)) + message(b"S")
RUN_ONCE = message(b"B", bytes(6) + b"\0\1\0\0") + RUN_BOUND


@lru_cache(maxsize=3)
def ready(status: bytes) -> bytes:
    return message(b"Z", status)


@lru_cache(maxsize=200)
def complete(tag: str) -> bytes:
    return message(b"C", text(tag))


def parameter(name: str, value: str) -> bytes:
    return message(b"S", text(name) + text(value))


def key_data(pid: int, secret: int) -> bytes:
    return message(b"K", struct.pack("!II", pid, secret))


def authentication(code: int, data: bytes = b"") -> bytes:
    return message(b"R", struct.pack("!i", code) + data)


def row_description(fields: Sequence[Field]) -> bytes:
    return _row_description(tuple(fields))


@lru_cache(maxsize=1000)
def _row_description(fields: tuple[Field, ...]) -> bytes:
    parts = [struct.pack("!h", len(fields))]
    parts += [text(f.name) + struct.pack("!ihIhih", 0, 0, f.oid, -1, f.typmod, 0) for f in fields]
    return message(b"T", b"".join(parts))


def parameter_description(oids: Sequence[int]) -> bytes:
    return message(b"t", struct.pack(f"!h{len(oids)}I", len(oids), *oids))


def data_row(values: Sequence[bytes | None]) -> bytes:
    """One row; results read from DuckDB are encoded by the batch instead."""
    parts = [struct.pack("!h", len(values))]
    for value in values:
        parts.append(b"\xff\xff\xff\xff" if value is None else struct.pack("!i", len(value)) + value)
    return message(b"D", b"".join(parts))


def error(severity: str, sqlstate: str, message_text: str, detail: str | None = None, hint: str | None = None) -> bytes:
    fields = [("S", severity), ("V", severity), ("C", sqlstate), ("M", message_text), ("D", detail), ("H", hint)]
    return message(b"E", b"".join(code.encode() + text(value) for code, value in fields if value) + b"\0")


class Body:
    """Reads a message's body field by field; whatever does not fit is a protocol error."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def string(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise ProtocolError("a string in a message has no end")
        raw, self._at = self._data[self._at : end], end + 1
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise ProtocolError("a string in a message is not UTF-8", sqlstate="22021") from None

    def take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise ProtocolError("a message is shorter than it says")
        self._at += size
        return self._data[self._at - size : self._at]

    def int16(self) -> int:
        return int(struct.unpack("!h", self.take(2))[0])

    def int32(self) -> int:
        return int(struct.unpack("!i", self.take(4))[0])

    def count(self) -> int:
        return int(struct.unpack("!H", self.take(2))[0])

    def values(self, count: int) -> list[bytes | None]:
        """That many values, each behind its length. There may be thousands, so this is no place for calls."""
        data, at, found = self._data, self._at, list[bytes | None]()
        try:
            for _ in range(count):
                (length,) = _LENGTH(data, at)
                at += 4
                if length >= 0:
                    found.append(data[at : at + length])
                    at += length
                elif length == -1:
                    found.append(None)
                else:
                    raise ProtocolError("a value in a message has no length")
        except struct.error:
            at = len(data) + 1
        if at > len(data):
            raise ProtocolError("a message is shorter than it says")
        self._at = at
        return found

    @property
    def rest(self) -> bytes:
        return self._data[self._at :]


@dataclass(frozen=True)
class Parse:
    name: str
    sql: str
    oids: tuple[int, ...]


@dataclass(frozen=True)
class Bind:
    portal: str
    statement: str
    values: list[bytes | None]
    parameter_formats: tuple[int, ...]
    result_formats: tuple[int, ...]


def parse(body: bytes) -> Parse:
    found = Body(body)
    name, sql = found.string(), found.string()
    return Parse(name, sql, tuple(found.int32() for _ in range(found.count())))


def bind(body: bytes) -> Bind:
    found = Body(body)
    portal, statement = found.string(), found.string()
    formats = tuple(found.int16() for _ in range(found.count()))
    values = found.values(found.count())
    return Bind(portal, statement, values, formats, tuple(found.int16() for _ in range(found.count())))


def startup_parameters(body: bytes) -> dict[str, str]:
    """The name/value pairs after the version of a start-up packet."""
    found = Body(body)
    parameters: dict[str, str] = {}
    while name := found.string():
        parameters[name] = found.string()
    return parameters
