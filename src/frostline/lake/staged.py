"""Data files that Iceberg does not know yet: described in the registry, read like the snapshot's own.

Nothing in them is ever in the lake, in the delta or in another of them: whoever stages one has looked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from frostline.lake.files import DataFile
from frostline.lake.writer import Written

PREFIX = "staged"  # of the files' names
# Delete files of the snapshot name other files, so none concerns these, in whatever partition they are.
_NO_DELETES = ("staged",)
_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")


@dataclass(frozen=True)
class StagedFile:
    """A file as it was written, and the partition spec of the table it was written for."""

    written: Written
    spec_id: int

    @property
    def data_file(self) -> DataFile:
        written, metrics = self.written, self.written.metrics
        return DataFile(
            path=written.path,
            rows=written.rows,
            size=written.size,
            partition=_NO_DELETES,
            lower=metrics["lower_bounds"],
            upper=metrics["upper_bounds"],
            nulls=metrics["null_value_counts"],
            nans=metrics["nan_value_counts"],
        )

    def entry(self) -> dict[str, Any]:
        """As the registry keeps it."""
        written = self.written
        return {
            "path": written.path,
            "size": written.size,
            "rows": written.rows,
            "partition": list(written.partition),
            "spec": self.spec_id,
            "offsets": list(written.split_offsets),
            **{name: written.metrics[name] for name in _COUNTS},
            **{name: {number: bound.hex() for number, bound in written.metrics[name].items()} for name in _BOUNDS},
        }


def written_down(files: Iterable[StagedFile]) -> str:
    """What the client's transaction stores."""
    return json.dumps([file.entry() for file in files])


def of_entry(entry: Mapping[str, Any]) -> StagedFile:
    counts = {name: {int(number): count for number, count in entry[name].items()} for name in _COUNTS}
    bounds = {name: {int(number): bytes.fromhex(text) for number, text in entry[name].items()} for name in _BOUNDS}
    written = Written(
        path=entry["path"],
        size=entry["size"],
        rows=entry["rows"],
        partition=tuple(entry["partition"]),
        split_offsets=tuple(entry["offsets"]),
        metrics={**counts, **bounds},
    )
    return StagedFile(written, entry["spec"])


@lru_cache(maxsize=100)
def read(entries: str) -> tuple[DataFile, ...]:
    """The files that a table's description lists."""
    return tuple(of_entry(entry).data_file for entry in json.loads(entries)) if entries else ()


def paths(files: Sequence[StagedFile]) -> list[str]:
    return [file.written.path for file in files]
