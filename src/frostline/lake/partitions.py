"""Iceberg's partition transforms over a whole column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import DateType, IcebergType
from pyiceberg.utils import datetime as human


def _day(day_ordinal: int) -> str:
    return str(np.datetime64(day_ordinal, "D"))


def _hour(hour_ordinal: int) -> str:
    return str(np.datetime64(hour_ordinal, "h")).replace("T", "-")


# How PyIceberg calls directories of days and hours, and names them in a snapshot's summary: the same, but it goes on
# where Python's own dates end, before the year 1 and after 9999.
human.to_human_day, human.to_human_hour = _day, _hour

_CALENDAR = {YearTransform: "Y", MonthTransform: "M", DayTransform: "D", HourTransform: "h"}


def values(transform: Transform[Any, Any], type_: IcebergType, column: pa.ChunkedArray) -> Any:
    """The partition of every row, as the number a manifest keeps."""
    if isinstance(transform, TruncateTransform):
        whole = column.to_numpy()
        # In the column's own width: below its least value Java's writers turn over, and so must we.
        width = whole.dtype.type(transform.width)
        with np.errstate(over="ignore"):
            return whole - np.mod(whole, width)
    unit = _CALENDAR[type(transform)]
    number, step = (pa.int32(), "D") if isinstance(type_, DateType) else (pa.int64(), "us")
    whole = pa.chunked_array([chunk.view(number) for chunk in column.chunks]).to_numpy().astype(np.int64)
    return whole.view(f"datetime64[{step}]").astype(f"datetime64[{unit}]").astype(np.int64)
