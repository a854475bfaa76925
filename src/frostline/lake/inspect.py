"""Looking at the data files themselves: are they there, whole, and readable to the last row group."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, InputFile
from pyiceberg.table import StaticTable

from frostline.lake.files import DataFile, Snapshot
from frostline.lake.storage import Storage
from frostline.model.bounds import Range

_DAY = 86_400_000_000  # microseconds: a date's bound counts days


def opened(storage: Storage, metadata_location: str) -> FileIO:
    """What reads the files that a metadata file names."""
    return StaticTable.from_metadata(metadata_location, storage.python()).io


def files_of(snapshot: Snapshot, key: int, key_type: str, range_: Range) -> list[DataFile]:
    """The files that may hold rows of a period, by the bounds of the partition key."""
    return [snapshot.files[at] for at in places_of(snapshot, key, key_type, range_)]


def places_of(snapshot: Snapshot, key: int, key_type: str, range_: Range) -> list[int]:
    """The same by their places in the snapshot."""
    return [at for at, file in enumerate(snapshot.files) if _overlaps(file, key, key_type, range_)]


def ends(file: DataFile, key: int) -> tuple[int, int] | None:
    """The least and the greatest key in a file, as the lake counts; None: not known."""
    lower, upper = file.lower.get(key), file.upper.get(key)
    if lower is None or upper is None:
        return None
    return int.from_bytes(lower, "little", signed=True), int.from_bytes(upper, "little", signed=True)


def inside(file: DataFile, key: int, key_type: str, range_: Range) -> bool:
    """Whether a file holds rows of the period only."""
    lower, upper = _ends(file, key, key_type)
    if range_.lower is not None and (lower is None or lower < range_.lower.order):
        return False
    return range_.upper is None or (upper is not None and upper < range_.upper.order)


def _ends(file: DataFile, key: int, key_type: str) -> tuple[int | None, int | None]:
    unit = _DAY if key_type == "date" else 1
    lower, upper = (
        int.from_bytes(raw, "little", signed=True) * unit if raw is not None else None
        for raw in (file.lower.get(key), file.upper.get(key))
    )
    return lower, upper


def _overlaps(file: DataFile, key: int, key_type: str, range_: Range) -> bool:
    lower, upper = _ends(file, key, key_type)
    if lower is not None and range_.upper is not None and lower >= range_.upper.order:
        return False
    return upper is None or range_.lower is None or upper >= range_.lower.order


def damage(io: FileIO, file: DataFile) -> str | None:
    """What is wrong with a file; None: every row group of it could be read. A store that is away is an OSError."""
    found = io.new_input(file.path)
    try:
        size = len(found)
    except (FileNotFoundError, NotADirectoryError) as error:
        return f"is missing ({error.strerror or error})"
    if size != file.size:
        return f"is {size:,} bytes long instead of {file.size:,}"
    wrong = _content(found, file)
    if wrong is not None:
        len(io.new_input(file.path))  # a store that went away meanwhile is not the file's fault
    return wrong


def _content(found: InputFile, file: DataFile) -> str | None:
    try:
        with found.open() as stream, pq.ParquetFile(stream) as parquet:
            if parquet.metadata.num_rows != file.rows:
                return f"holds {parquet.metadata.num_rows:,} rows instead of {file.rows:,}"
            return next(filter(None, (_group(parquet, n) for n in range(parquet.num_row_groups))), None)
    except (pa.ArrowException, OSError) as error:
        return f"has no readable footer: {_first_line(error)}"


def _group(parquet: pq.ParquetFile, number: int) -> str | None:
    try:
        rows = parquet.read_row_group(number).num_rows
    except (pa.ArrowException, OSError) as error:
        return f"cannot be read in row group {number}: {_first_line(error)}"
    expected = parquet.metadata.row_group(number).num_rows
    return None if rows == expected else f"holds {rows:,} rows in row group {number} instead of {expected:,}"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
