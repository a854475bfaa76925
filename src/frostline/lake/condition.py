"""The state of a table's files in the lake: how many there are of each kind, and which partitions have too many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import StaticTable
from pyiceberg.table import Table as IcebergTable
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
    everything: bool = False  # whatever the others say

    def __bool__(self) -> bool:
        return bool(self.everything or self.small or self.deleted or self.manifests)


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
        head = table_of(catalog, managed)
        kept = len(head.metadata.snapshots)
        table = StaticTable.from_metadata(managed.metadata_location, storage.of(settings).python())
        snapshot = table.snapshot_by_id(managed.snapshot_id)
        assert snapshot is not None
        manifests = snapshot.manifests(table.io)
        files = list(_files(table, snapshot))
    data = [file for file in files if file.content == DataFileContent.DATA]
    key = managed.field_ids[managed.table.key]
    small, deleted = _crowded(_parts(files, key, head), key, limits)
    size = sum(file.file_size_in_bytes for file in files)
    return Condition(len(data), size, len(files) - len(data), len(manifests), kept, tuple(small), tuple(deleted))


def work(found: Condition, limits: Limits, *, everything: bool = False) -> Work:
    """By the limits; of very many partitions the most crowded. Or every file there is."""
    if everything:
        return Work((), (), manifests=found.manifests > 1, least=1, everything=found.files > 0)

    def most(parts: Iterable[Crowded]) -> tuple[Crowded, ...]:
        return tuple(sorted(parts, key=lambda part: -(part.files + part.deletes))[:_MOST_PARTS])

    return Work(most(found.small), most(found.deleted), found.manifests >= limits.manifests, limits.files)


def _files(table: StaticTable, snapshot: Snapshot) -> Iterator[DataFile]:
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file


def _parts(files: Sequence[DataFile], key: int, table: IcebergTable) -> list[list[DataFile]]:
    """Files by their partition; those of an earlier spec that lie in one of today's by that one."""
    parts: dict[tuple[Any, ...], list[DataFile]] = {}
    for file in files:
        parts.setdefault((file.spec_id, *(file.partition[at] for at in range(len(file.partition)))), []).append(file)
    found: dict[tuple[Any, ...], list[DataFile]] = {}
    for name, part in parts.items():
        found.setdefault(_today(name, part, key, table), []).extend(part)
    return list(found.values())


def _today(name: tuple[Any, ...], part: Sequence[DataFile], key: int, table: IcebergTable) -> tuple[Any, ...]:
    ends, spec = _ends(part, key), table.spec()
    if name[0] == spec.spec_id or not ends or [field.source_id for field in spec.fields] != [key]:
        return name
    cut = spec.fields[0].transform.transform(table.schema().find_field(key).field_type)
    first, last = cut(min(ends)), cut(max(ends))
    return (spec.spec_id, first) if first == last else name


def _ends(part: Iterable[DataFile], key: int) -> list[int] | None:
    """The least and greatest keys of files of rows; None where one is not known."""
    data = (file for file in part if file.content == DataFileContent.DATA)
    ends = [side.get(key) for f in data for side in (f.lower_bounds or {}, f.upper_bounds or {})]
    known = [int.from_bytes(end, "little", signed=True) for end in ends if end is not None]
    return known if len(known) == len(ends) else None


def _crowded(parts: Iterable[Sequence[DataFile]], key: int, limits: Limits) -> tuple[list[Crowded], list[Crowded]]:
    small: list[Crowded] = []
    deleted: list[Crowded] = []
    for part in parts:
        data = [file for file in part if file.content == DataFileContent.DATA]
        known = _ends(part, key)
        if not known:
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
