"""The data files of an Iceberg snapshot with their statistics: read once, for neither ever changes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, FloatType, NestedField

from frostline.errors import LakeError
from frostline.lake.bounds import Decoder, Value, decoders
from frostline.lake.cache import ByteCache
from frostline.lake.storage import Storage

# About 300 bytes a file and 150 a column of it: room for a hundred thousand files of ten columns.
CAPACITY = 256 * 1024 * 1024
_FILE_BYTES = 600
_BOUND_BYTES = 150
Fields = Mapping[int, NestedField]  # a schema's columns by their ids
_NAME_MAPPING = "schema.name-mapping.default"


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file: where it is, how large, and what its columns hold at most, by field id."""

    path: str
    rows: int
    size: int
    partition: tuple[Any, ...]
    lower: Mapping[int, bytes]
    upper: Mapping[int, bytes]
    nulls: Mapping[int, int]
    nans: Mapping[int, int]


@dataclass(frozen=True)
class Manifest:
    """What one manifest adds to a snapshot: files, or the partitions its delete files concern."""

    files: tuple[DataFile, ...] = ()
    deleted: frozenset[tuple[Any, ...]] = frozenset()
    deletes_anywhere: bool = False
    vectors: bool = False
    parquet: bool = True

    @property
    def weight(self) -> int:
        bounds = sum(len(f.lower) + len(f.upper) for f in self.files)
        return _FILE_BYTES * (1 + len(self.files) + len(self.deleted)) + _BOUND_BYTES * bounds


@dataclass(frozen=True)
class ColumnStatistics:
    """One column of all files, in the files' order; None: not known."""

    lower: tuple[Value | None, ...]
    upper: tuple[Value | None, ...]
    nulls: tuple[int | None, ...]


@dataclass(frozen=True)
class Snapshot:
    """The files a snapshot consists of, and its schema by field id."""

    files: tuple[DataFile, ...]
    fields: Fields
    deleted: frozenset[tuple[Any, ...]]
    plain: bool  # whether the files' own field ids say all there is to know about their columns
    vectors: bool  # whether rows are deleted by deletion vectors (format version 3)
    staged: int = 0  # how many of the files, the last, no snapshot has yet
    periods: dict[Hashable, list[int]] = field(default_factory=dict)  # places of the files of a period
    kept: dict[Hashable, object] = field(default_factory=dict)  # what a reader worked out from all this
    _columns: dict[int, ColumnStatistics] = field(default_factory=dict)

    @property
    def weight(self) -> int:
        """The files themselves are counted with their manifests; decoded bounds are as large again."""
        return _FILE_BYTES + sum(100 + _BOUND_BYTES * len(f.lower) for f in self.files)

    def readable(self, chosen: list[int]) -> bool:
        """Whether these files can be read one by one: no delete file takes rows from them."""
        return self.plain and not any(self.files[at].partition in self.deleted for at in chosen)

    def column(self, field_id: int) -> ColumnStatistics | None:
        """A column's bounds in every file, decoded once."""
        found = self.fields.get(field_id)
        if found is None:
            return None
        if found.field_id not in self._columns:
            self._columns[found.field_id] = _statistics(self.files, found)
        return self._columns[found.field_id]


_manifests: ByteCache[Manifest] = ByteCache(CAPACITY)
_snapshots: ByteCache[Snapshot] = ByteCache(CAPACITY)


def snapshot(storage: Storage, metadata_location: str, snapshot_id: int) -> Snapshot:
    """One snapshot's files, from the cache or the lake."""
    return _snapshots.get((metadata_location, snapshot_id), lambda: _read(storage, metadata_location, snapshot_id))


def extended(storage: Storage, metadata_location: str, snapshot_id: int, staged: tuple[DataFile, ...]) -> Snapshot:
    """The same with files that are staged and no snapshot has yet; they come last."""
    base = snapshot(storage, metadata_location, snapshot_id)
    if not staged:
        return base
    key = (metadata_location, snapshot_id, *(file.path for file in staged))
    return _snapshots.get(key, lambda: _with(base, staged))


def _with(base: Snapshot, staged: tuple[DataFile, ...]) -> Snapshot:
    return Snapshot((*base.files, *staged), base.fields, base.deleted, base.plain, base.vectors, staged=len(staged))


def cache_counts() -> dict[str, int]:
    """For whoever watches the process."""
    return {
        f"{name}_{what}": count
        for name, counts in (("snapshots", _snapshots.counts()), ("manifests", _manifests.counts()))
        for what, count in counts.items()
    }


def _read(storage: Storage, metadata_location: str, snapshot_id: int) -> Snapshot:
    try:
        table = StaticTable.from_metadata(metadata_location, storage.python())
        found = table.metadata.snapshot_by_id(snapshot_id)
        if found is None:
            raise LakeError(f"{metadata_location} has no snapshot {snapshot_id}")
        specs = table.metadata.specs()
        manifests = [_manifest(table.io, m, specs[m.partition_spec_id]) for m in found.manifests(table.io)]
    except (OSError, ValueError, KeyError, NoSuchTableError) as error:
        raise storage.unreadable(error) from error
    schemas = {schema.schema_id: schema for schema in table.metadata.schemas}
    schema: Schema = schemas.get(found.schema_id, table.schema()) if found.schema_id is not None else table.schema()
    return Snapshot(
        files=tuple(file for manifest in manifests for file in manifest.files),
        fields={column.field_id: column for column in schema.fields},
        deleted=frozenset().union(*(manifest.deleted for manifest in manifests)),
        plain=_plain(table, manifests),
        vectors=any(manifest.vectors for manifest in manifests),
    )


def _plain(table: StaticTable, manifests: list[Manifest]) -> bool:
    """Not so: other formats, names instead of field ids, columns kept only as partition values, deletes by value."""
    identities = any(
        isinstance(part.transform, IdentityTransform) for spec in table.metadata.partition_specs for part in spec.fields
    )
    ordinary = all(manifest.parquet and not manifest.deletes_anywhere for manifest in manifests)
    return ordinary and not identities and _NAME_MAPPING not in table.metadata.properties


def _manifest(io: FileIO, manifest: ManifestFile, spec: PartitionSpec) -> Manifest:
    return _manifests.get(manifest.manifest_path, lambda: _read_manifest(io, manifest, spec))


def _read_manifest(io: FileIO, manifest: ManifestFile, spec: PartitionSpec) -> Manifest:
    entries = [entry.data_file for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)]
    if manifest.content == ManifestContent.DELETES:
        return Manifest(
            deleted=frozenset(_partition(file, spec) for file in entries),
            # Without a partition a delete by value concerns every file there is.
            deletes_anywhere=any(file.content == DataFileContent.EQUALITY_DELETES for file in entries)
            and spec.is_unpartitioned(),
            vectors=any(file.file_format == FileFormat.PUFFIN for file in entries),
        )
    parquet = all(file.file_format == FileFormat.PARQUET for file in entries)
    return Manifest(tuple(_data_file(file, spec) for file in entries), parquet=parquet)


def _data_file(file: ManifestDataFile, spec: PartitionSpec) -> DataFile:
    return DataFile(
        path=file.file_path,
        rows=file.record_count,
        size=file.file_size_in_bytes,
        partition=_partition(file, spec),
        lower=dict(file.lower_bounds or {}),
        upper=dict(file.upper_bounds or {}),
        nulls=dict(file.null_value_counts or {}),
        nans=dict(file.nan_value_counts or {}),
    )


def _partition(file: ManifestDataFile, spec: PartitionSpec) -> tuple[Any, ...]:
    return (spec.spec_id, *(file.partition[at] for at in range(len(spec.fields))))


def _statistics(files: tuple[DataFile, ...], column: NestedField) -> ColumnStatistics:
    number = column.field_id
    lower, upper = decoders(column.field_type)
    floating = isinstance(column.field_type, FloatType | DoubleType)
    return ColumnStatistics(
        lower=tuple(_value(lower, file.lower.get(number)) for file in files),
        # NaN is above every number to Postgres, and in no bound.
        upper=tuple(
            None if floating and file.nans.get(number) != 0 else _value(upper, file.upper.get(number)) for file in files
        ),
        nulls=tuple(file.nulls.get(number) for file in files),
    )


def _value(decode: Decoder, raw: bytes | None) -> Value | None:
    try:
        return None if raw is None else decode(raw)
    except (ValueError, ArithmeticError, IndexError):
        return None
