"""Which locks partitioning, registering and archiving take, and for how long: what one wants to know before."""

from __future__ import annotations

from dataclasses import dataclass

from frostline.catalog import queries
from frostline.catalog.database import LOCK_TIMEOUT_MS, Connection
from frostline.tiering.ddl import IDENTITY_IN_PARTITIONS

_ROWS_PER_SECOND = 400_000  # an export on two cores; more cores, more rows
_BYTES_PER_SECOND = 500_000_000  # a scan that checks a condition
_SHORT = "ms *"
SHORT = f"* nobody waits longer than {LOCK_TIMEOUT_MS} ms behind it: it is given up and tried again"


@dataclass(frozen=True)
class Lock:
    step: str
    mode: str
    on: str
    held: str


@dataclass(frozen=True)
class Extent:
    """What there is to be done."""

    partitions: int
    bytes: int  # of all heaps
    largest_rows: float  # of a partition that goes to the lake
    identity: bool


def partitioning(connection: Connection, oid: int, heap: int) -> list[Lock]:
    """Of a plain table that is cut into partitions while it is used."""
    referenced = _referenced(connection, oid)
    found = [
        Lock("partition", "SHARE ROW EXCLUSIVE", "the table: two triggers, readers go on", _SHORT),
        Lock("partition", "ACCESS SHARE", "the table: copied and compared", "until it is"),
        Lock("partition", "ACCESS EXCLUSIVE", "the table and its views: exchanged", _SHORT),
    ]
    if referenced:
        proven = duration(heap / _BYTES_PER_SECOND)
        found += [
            Lock("partition", "SHARE ROW EXCLUSIVE", f"{referenced}: with the exchange", _SHORT),
            Lock("partition", "SHARE UPDATE EXCLUSIVE", "the table: foreign keys proven, writers go on", proven),
        ]
    return found


def locks(connection: Connection, oid: int, extent: Extent) -> list[Lock]:
    referenced = _referenced(connection, oid)
    every = f"each of {extent.partitions} partitions"
    others = extent.identity and connection.info.server_version >= IDENTITY_IN_PARTITIONS
    export = duration(extent.largest_rows / _ROWS_PER_SECOND)
    found = [
        Lock("register", "ACCESS EXCLUSIVE", f"{every}: a CHECK, not valid yet", _SHORT),
        Lock(
            "register",
            "SHARE UPDATE EXCLUSIVE",
            f"{every}: read once, writers go on",
            f"{duration(extent.bytes / _BYTES_PER_SECOND)} in all",
        ),
        Lock("register", "ACCESS EXCLUSIVE", "the table with its partitions", _SHORT),
        Lock("archive", "SHARE ROW EXCLUSIVE", "the partition: two triggers, readers go on", _SHORT),
        Lock("archive", "ACCESS SHARE", "the partition: copied and compared", export),
        Lock(
            "archive",
            "ACCESS EXCLUSIVE",
            "the table, its hot partition, " + ("every partition" if others else "the partition"),
            _SHORT,
        ),
        Lock("archive", "ACCESS EXCLUSIVE", "the partition, detached: dropped", _SHORT),
    ]
    if referenced:
        found.insert(3, Lock("register", "SHARE ROW EXCLUSIVE", f"{referenced}: a trigger that asks the lake", _SHORT))
        found.append(Lock("archive", "SHARE ROW EXCLUSIVE", f"{referenced}: with the swap and the drop", _SHORT))
    return found


def _referenced(connection: Connection, oid: int) -> str:
    found = queries.rows(connection, "referenced", relations=[oid])
    return ", ".join(f"{schema}.{name}" for schema, name, _ in found)


def duration(seconds: float) -> str:
    if seconds < 1:
        return "< 1 s"
    if seconds < 120:
        return f"~{seconds:.0f} s"
    return f"~{seconds / 60:.0f} min" if seconds < 7200 else f"~{seconds / 3600:.0f} h"
