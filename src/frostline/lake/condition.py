"""The state of a table's files in the lake: how many there are of each kind, and which partitions have too many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import StaticTable
from pyiceberg.table.snapshots import Snapshot

from frostline.catalog.registry import Managed
from frostline.config import Settings
from frostline.lake import storage
from frostline.lake.catalog import opened, table_of

_MOST_PARTS = 100  # partitions rewritten at a time; the next run goes on
SMALL = 0.75  # of the size a file is to have: Iceberg's own measure


@dataclass(frozen=True)
class Limits:
    """From where on something is done."""

    files: int  # small files in a partition, or files of deletes
    deleted: float  # rows of a partition that files of deletes take away, as a share of all
    manifests: int
    file_bytes: int  # what a data file is to have


@dataclass(frozen=True)
class Crowded:
    """A partition to be rewritten, by the least and greatest key in it, as the lake counts."""

    least: int
    greatest: int
    files: int
    deletes: int


@dataclass(frozen=True)
class Work:
    """What is to be rewritten."""

    small: tuple[Crowded, ...]
    deleted: tuple[Crowded, ...]
    manifests: bool
    least: int  # so many small files that they are joined

    def __bool__(self) -> bool:
        return bool(self.small or self.deleted or self.manifests)


@dataclass(frozen=True)
class Condition:
    """What Postgres reads of a table consists of this."""

    files: int
    bytes: int
    delete_files: int
    manifests: int
    snapshots: int
    small: tuple[Crowded, ...]  # partitions of many small files
    deleted: tuple[Crowded, ...]  # partitions with many deletes


def condition(settings: Settings, managed: Managed, limits: Limits) -> Condition:
    """Of the registry's snapshot."""
    assert managed.metadata_location is not None
    assert managed.snapshot_id is not None
    with opened(settings) as catalog:
        kept = len(table_of(catalog, managed).metadata.snapshots)
        table = StaticTable.from_metadata(managed.metadata_location, storage.of(settings).python())
        snapshot = table.snapshot_by_id(managed.snapshot_id)
        assert snapshot is not None
        manifests = snapshot.manifests(table.io)
        files = list(_files(table, snapshot))
    data = [file for file in files if file.content == DataFileContent.DATA]
    small, deleted = _crowded(files, managed.field_ids[managed.table.key], limits)
    size = sum(file.file_size_in_bytes for file in files)
    return Condition(len(data), size, len(files) - len(data), len(manifests), kept, tuple(small), tuple(deleted))


def work(found: Condition, limits: Limits) -> Work:
    """By the limits; of very many partitions the most crowded."""

    def most(parts: Iterable[Crowded]) -> tuple[Crowded, ...]:
        return tuple(sorted(parts, key=lambda part: -(part.files + part.deletes))[:_MOST_PARTS])

    return Work(most(found.small), most(found.deleted), found.manifests >= limits.manifests, limits.files)


def _files(table: StaticTable, snapshot: Snapshot) -> Iterator[DataFile]:
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file


def _crowded(files: Iterable[DataFile], key: int, limits: Limits) -> tuple[list[Crowded], list[Crowded]]:
    small: list[Crowded] = []
    deleted: list[Crowded] = []
    parts: dict[tuple[Any, ...], list[DataFile]] = {}
    for file in files:
        parts.setdefault((file.spec_id, *(file.partition[at] for at in range(len(file.partition)))), []).append(file)
    for part in parts.values():
        data = [file for file in part if file.content == DataFileContent.DATA]
        ends = [side.get(key) for f in data for side in (f.lower_bounds or {}, f.upper_bounds or {})]
        known = [int.from_bytes(end, "little", signed=True) for end in ends if end is not None]
        if not data or len(known) < len(ends):
            continue  # what another engine wrote without bounds is left as it is
        deletes = len(part) - len(data)
        found = Crowded(min(known), max(known), len(data), deletes)
        crowded = sum(file.file_size_in_bytes < SMALL * limits.file_bytes for file in data) >= limits.files
        taken = sum(file.record_count for file in part) - (rows := sum(file.record_count for file in data))
        # Where small files are joined no delete stays behind: it would be in every reader's way for nothing.
        if deletes and (crowded or deletes >= limits.files or taken >= limits.deleted * rows):
            deleted.append(found)
        elif crowded:
            small.append(found)
    return small, deleted
