"""One column of every type whose bounds are used, with values at all the edges."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from frostline.catalog.cold import ColdColumn, ColdTable
from frostline.lake.duck import quote
from frostline.model.types import storage

NUMERIC_20_4 = ((20 << 16) | 4) + 4
_PREFIX = "the same sixteen characters, then "
TEXTS = ["", "a", "b", "é", "z" * 40, _PREFIX + "a", _PREFIX + "b", "😀" * 20, chr(0x10FFFF) * 20, "￿" * 20, "\x01"]
# Years 4713 BC, 44 BC, 1, before and after 1970, 9999, 294246.
_DAYS = [-2_440_000, -735_160, -719_162, -1, 0, 1, 20_000, 2_932_896, 106_000_000]


@dataclass(frozen=True, repr=False)
class Spec:
    """A column: its types everywhere, its values as Arrow takes them, and how DuckDB writes one."""

    name: str
    typname: str
    iceberg: IcebergType
    arrow: Any
    values: tuple[Any, ...]
    literal: str  # DuckDB, {v} is the value
    label: str
    typmod: int = -1
    byte_ordered: bool = True

    def __repr__(self) -> str:
        return self.name

    def array(self, values: list[Any]) -> Any:
        raw = {"date32[day]": pa.int32(), "timestamp[us]": pa.int64(), "timestamp[us, tz=UTC]": pa.int64()}
        plain = raw.get(str(self.arrow))
        return pa.array(values, plain).cast(self.arrow) if plain is not None else pa.array(values, self.arrow)

    def duckdb(self, value: Any) -> str:
        if isinstance(value, bytes):
            return self.literal.format(v=value.hex())
        return self.literal.format(v=quote(value) if isinstance(value, str) else value)


_FLOATS = (float("-inf"), -1.5, -0.0, 0.0, 1e-40, 0.1, 3.5, 1e30, float("inf"), float("nan"))
SPECS = (
    Spec("i4", "int4", IntegerType(), pa.int32(), (-(2**31), -7, 0, 1, 5, 2**31 - 1), "({v})", "integer"),
    Spec("i8", "int8", LongType(), pa.int64(), (-(2**63), -7, 0, 3, 2**53 + 1, 2**63 - 1), "({v})", "bigint"),
    Spec(
        *("n", "numeric", DecimalType(20, 4), pa.decimal128(20, 4)),
        tuple(map(Decimal, ("-9999999999999999.9999", "-0.0001", "0", "0.1", "12.5", "9999999999999999.9999"))),
        *("CAST('{v}' AS DECIMAL(20, 4))", "numeric", NUMERIC_20_4),
    ),
    Spec("f4", "float4", FloatType(), pa.float32(), _FLOATS, "CAST('{v}' AS FLOAT)", "real"),
    Spec("f8", "float8", DoubleType(), pa.float64(), _FLOATS, "CAST('{v}' AS DOUBLE)", "double precision"),
    Spec("b", "bool", BooleanType(), pa.bool_(), (False, True), "{v}", "boolean"),
    Spec("d", "date", DateType(), pa.date32(), tuple(_DAYS), "(DATE '1970-01-01' + ({v}))", "date"),
    Spec(
        *("tm", "timestamp", TimestampType(), pa.timestamp("us")),
        tuple(day * 86_400_000_000 + 1 for day in _DAYS),
        *("make_timestamp({v})", "timestamp without time zone"),
    ),
    Spec(
        *("tz", "timestamptz", TimestamptzType(), pa.timestamp("us", "UTC")),
        tuple(day * 86_400_000_000 - 1 for day in _DAYS),
        *("make_timestamptz({v})", "timestamp with time zone"),
    ),
    Spec(
        *("u", "uuid", UUIDType(), pa.string()),
        tuple(str(uuid.UUID(f"{first}{middle}{'0' * 28}ab")) for first in ("0", "7", "8", "f") for middle in "0f"),
        *("CAST({v} AS UUID)", "uuid"),
    ),
    Spec(
        *("raw", "bytea", BinaryType(), pa.binary()),
        (b"", b"\x00", b"\x7f", b"\x80", b"\xff" * 3, b"\xff" * 20, b"a" * 20 + b"\x00", b"a" * 20 + b"\xff"),
        *("unhex('{v}')", "bytea"),
    ),
    Spec("t", "text", StringType(), pa.string(), tuple(TEXTS), "{v}", "text"),
    Spec("v", "varchar", StringType(), pa.string(), tuple(TEXTS), "{v}", "text", byte_ordered=False),
)


def cold_column(number: int, spec: Spec) -> ColdColumn:
    return ColdColumn(
        number=number,
        name=spec.name,
        type=spec.label,
        oid=0,
        typmod=spec.typmod,
        typname=spec.typname,
        domain=False,
        enum=False,
        storage=storage(spec.typname, spec.typmod),
        base_type=spec.label,
        field_id=number,
        delta_name=spec.name,
        collation=None,
        deterministic=True,
        byte_ordered=spec.byte_ordered,
    )


COLUMNS = {spec.name: cold_column(number, spec) for number, spec in enumerate(SPECS, 2)}
TABLE = ColdTable(
    id=1,
    schema="public",
    name="everything",
    seam=None,
    snapshot_id=1,
    metadata_location="x",
    delta=("frostline_delta", "everything"),
    key=COLUMNS["tz"],
    primary_key=(COLUMNS["i8"],),
    columns=COLUMNS,
)
