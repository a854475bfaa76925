"""What a table's head stands on, also where the catalog keeps no history.

Iceberg's metadata names every snapshot and its parent, but some REST catalogs (Nessie is one) keep the current snapshot
alone and forget its parent. There the data files themselves are compared: a snapshot is the files it consists of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import StaticTable, Transaction
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import SetDefaultSpecUpdate

from frostline.catalog.registry import Managed
from frostline.errors import LakeError
from frostline.lake.layout import OPERATION

_UNDONE = "frostline.undone"  # snapshot property: the operation whose files this snapshot removed


class File(NamedTuple):
    """A file of a snapshot, of rows or of deletes."""

    path: str
    content: DataFileContent


def made_by(snapshot: Snapshot) -> str | None:
    """The operation that made a snapshot, if one of ours did."""
    return snapshot.summary.get(OPERATION) if snapshot.summary is not None else None


def stands_on(table: IcebergTable, head: Snapshot, managed: Managed, files: Mapping[str, str]) -> bool:
    """Whether the head adds to the registry's snapshot and to nothing else; `files`: how they are read."""
    if head.parent_snapshot_id is not None:
        if head.parent_snapshot_id == managed.snapshot_id:
            return True
        if managed.snapshot_id is not None and table.snapshot_by_id(managed.snapshot_id) is not None:
            return False  # a history that says otherwise
    kept = {_file(entry) for entry in _entries(table.io, head) if not _added(entry, head)}
    return kept == set(_registered(managed, files))


def only_changes(
    table: IcebergTable, head: Snapshot, managed: Managed, files: Mapping[str, str], noted: Set[int] = frozenset()
) -> bool:
    """Whether the head consists of files of the registry's snapshot and of its own, and of nothing else.

    `noted`: snapshots below it that are known to be ours.
    """
    kept = {
        _file(entry) for entry in _entries(table.io, head) if not _added(entry, head) and entry.snapshot_id not in noted
    }
    return kept <= set(_registered(managed, files))


def undoable(
    table: IcebergTable, managed: Managed, operations: set[str], files: Mapping[str, str], noted: Set[int]
) -> bool:
    """Whether a catalog that has forgotten the registry's snapshot shows that one and our own changes of it alone."""
    head = table.current_snapshot()
    if head is None or managed.snapshot_id is None or table.snapshot_by_id(managed.snapshot_id) is not None:
        return False
    return made_by(head) in operations and only_changes(table, head, managed, files, noted)


def shows(table: IcebergTable, managed: Managed, files: Mapping[str, str]) -> bool:
    """Whether the head is the registry's snapshot, or one of the same files where that is forgotten."""
    head = table.current_snapshot()
    if head is None or head.snapshot_id == managed.snapshot_id or managed.snapshot_id is None:
        return (head.snapshot_id if head is not None else None) == managed.snapshot_id
    if table.snapshot_by_id(managed.snapshot_id) is not None:
        return False
    return {_file(entry) for entry in _entries(table.io, head)} == set(_registered(managed, files))


def set_back(table: IcebergTable, managed: Managed, operations: set[str], files: Mapping[str, str]) -> None:
    """Make the head show what the registry's snapshot does."""
    assert managed.snapshot_id is not None
    if table.snapshot_by_id(managed.snapshot_id) is not None:
        table.manage_snapshots().set_current_snapshot(snapshot_id=managed.snapshot_id).commit()
    else:
        _undo(table, managed, operations, files)


def _undo(table: IcebergTable, managed: Managed, operations: set[str], files: Mapping[str, str]) -> None:
    """Undo what was done to the registry's snapshot, which the catalog no longer knows: by a run that died, or in a
    future that a restore has taken back."""
    head = table.current_snapshot()
    assert head is not None
    base = _registered(managed, files)
    now = {_file(entry): entry.data_file for entry in _entries(table.io, head)}
    if base.keys() == now.keys():
        return
    extra = [now[file] for file in now.keys() - base.keys()]
    missing = [base[file] for file in base.keys() - now.keys()]
    ours = made_by(head) in operations
    if not ours or any(file.content != DataFileContent.DATA for file in (*extra, *missing)):
        raise LakeError(
            f"the Iceberg table of {managed.table} was changed by somebody else, and its catalog does not know the "
            f"snapshot {managed.snapshot_id} that Postgres reads any more; nothing was changed",
            hint="if `frostline maintain` was ended before its time, run it again;"
            f" the rows are safe in {managed.metadata_location}: else put the table back to that metadata file",
        )
    with table.transaction() as transaction:
        _replace(transaction, extra, missing, {_UNDONE: made_by(head) or ""})


def _replace(
    transaction: Transaction, gone: Sequence[DataFile], back: Sequence[DataFile], properties: Mapping[str, str]
) -> None:
    """Files out and files in. PyIceberg adds files under the spec the table has: for those of another it has that."""
    today = transaction.table_metadata.default_spec_id
    for spec in sorted({file.spec_id for file in back} - {today}):
        transaction._apply((SetDefaultSpecUpdate.model_validate({"spec-id": spec}),))
        with transaction.update_snapshot(dict(properties)).overwrite() as update:
            for file in back:
                if file.spec_id == spec:
                    update.append_data_file(file)
    if transaction.table_metadata.default_spec_id != today:
        transaction._apply((SetDefaultSpecUpdate.model_validate({"spec-id": today}),))
    with transaction.update_snapshot(dict(properties)).overwrite() as update:
        for file in gone:
            update.delete_data_file(file)
        for file in back:
            if file.spec_id == today:
                update.append_data_file(file)


def entries(table: IcebergTable) -> list[ManifestEntry]:
    """Every file of the head."""
    head = table.current_snapshot()
    return _entries(table.io, head) if head is not None else []


def _registered(managed: Managed, files: Mapping[str, str]) -> dict[File, DataFile]:
    """The files of the snapshot that Postgres reads; none before the first archive run."""
    if managed.snapshot_id is None or managed.metadata_location is None:
        return {}
    table = StaticTable.from_metadata(managed.metadata_location, dict(files))
    snapshot = table.snapshot_by_id(managed.snapshot_id)
    if snapshot is None:
        raise LakeError(f"{managed.metadata_location} has no snapshot {managed.snapshot_id}")
    return {_file(entry): entry.data_file for entry in _entries(table.io, snapshot)}


def _entries(io: FileIO, snapshot: Snapshot) -> list[ManifestEntry]:
    return [
        entry
        for manifest in snapshot.manifests(io)
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)
    ]


def _added(entry: ManifestEntry, head: Snapshot) -> bool:
    return entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == head.snapshot_id


def _file(entry: ManifestEntry) -> File:
    return File(entry.data_file.file_path, entry.data_file.content)
