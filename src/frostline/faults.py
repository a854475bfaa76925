"""Named points of an operation at which a test can kill or fail it, or whatever it works with; free when unused.

With FROSTLINE_FAULTS naming a Unix socket, every point is announced there and waits for the answer: "go", or anything
else to fail. While it waits the test can do as it likes, to this process too.
"""

from __future__ import annotations

import os
import socket

VARIABLE = "FROSTLINE_FAULTS"
_GO = b"go"
_STEPS = ("capture", "export", "verify", "swap", "drop")

# Every point, and what is true there. A test fails when one of them is never reached.
POINTS = {
    "operation.begin": "nothing is recorded",
    "operation.begun": "the operation has a row",
    **{f"{step}.begin": f"{step}: its start is not recorded" for step in _STEPS},
    **{f"{step}.begun": f"{step}: its start is recorded" for step in _STEPS},
    **{f"{step}.end": f"{step}: done, its end is not recorded" for step in _STEPS},
    **{f"{step}.ended": f"{step}: its end is recorded" for step in _STEPS},
    "capture.commit": "the triggers stand, not committed",
    "export.table": "the Iceberg table stands on the registry's snapshot",
    "export.snapshot": "a Postgres snapshot is exported, nothing is written",
    "export.written": "the data files are written, nothing refers to them",
    "export.commit": "the Iceberg commit is made, nobody knows",
    "export.flush": "the commit is found by the operation's id, its files are not flushed",
    "export.flushed": "the files are flushed, the snapshot is not recorded",
    "export.recorded": "the snapshot is recorded",
    "verify.table": "the foreign table to compare with stands, not committed",
    "verify.heap": "the leaf is read, the lake is not",
    "verify.compared": "both are read and equal",
    "carry.commit": "changes of the leaf are carried into the delta, not committed",
    "swap.locked": "all locks are held, nothing is changed",
    "swap.detached": "the leaf is detached, not committed",
    "swap.hot_detached": "the hot partition is detached too, not committed",
    "swap.parked": "the leaf is renamed and closed to writers, not committed",
    "swap.foreign": "the foreign partition stands, not committed",
    "swap.attached": "the hot partition is attached again, not committed",
    "swap.commit": "seam and snapshot are set, not committed",
    "statistics.begin": "the swap is committed and recorded",
    "drop.commit": "the leaf is dropped, not committed",
    "operation.end": "all is done, the operation is not recorded as done",
    "operation.ended": "the operation is recorded as done",
    "release.begin": "a capture is to be given up",
    "release.triggers": "its triggers are gone, its captured rows are not",
    "release.end": "its captured rows are gone too",
    "recover.begin": "nothing of what an earlier run left is touched",
    "recover.finish": "a swap that was made is to be finished",
    "recover.failed": "an operation that cannot go on is recorded as failed",
    "recover.rows": "captured rows of nobody are to be removed",
    "recover.end": "what an earlier run left is settled",
    "clean.snapshots": "snapshots nobody will read are to be expired",
    "clean.claimed": "nobody can pin them any more, none is expired",
    "clean.expired": "they are expired, the files they alone had are not removed",
    "clean.files": "files that nothing refers to are to be removed",
    "clean.removed": "they are removed, that it was done is not recorded",
    "coalesce.locked": "the table is locked, nothing is changed",
    "coalesce.dropped": "the small periods are dropped, not committed",
    "coalesce.made": "the large one stands, not committed",
    "coalesce.commit": "the registry knows it, not committed",
    "coalesce.joined": "it is committed, the planner knows nothing of it",
}

# And of archiving a table with a DEFAULT partition.
DEFAULT_POINTS = {
    "default.closed": "the DEFAULT partition has a CHECK, or it is validated too",
}

_FOLD_STEPS = ("versions", "merge", "record")
# The same for a fold.
FOLD_POINTS = {
    "fold.begin": "nothing is recorded",
    "fold.begun": "the operation has a row",
    **{f"{step}.begin": f"{step}: its start is not recorded" for step in _FOLD_STEPS},
    **{f"{step}.begun": f"{step}: its start is recorded" for step in _FOLD_STEPS},
    **{f"{step}.end": f"{step}: done, its end is not recorded" for step in _FOLD_STEPS},
    **{f"{step}.ended": f"{step}: its end is recorded" for step in _FOLD_STEPS},
    "versions.snapshot": "a Postgres snapshot is exported, its versions are not noted",
    "merge.ready": "the Iceberg table can be merged into",
    "merge.commit": "the Iceberg commit is made, nobody knows",
    "merge.flush": "the commit is found by the operation's id, its files are not flushed",
    "merge.recorded": "the snapshot is recorded with the operation",
    "record.counted": "what the periods hold now is known",
    "record.fenced": "no cold writer is at work, nothing is changed",
    "record.commit": "snapshot and periods are set, the versions removed, not committed",
    "fold.end": "all is done, the operation is not recorded as done",
    "adopt.begin": "a commit of an earlier run is found",
}

# The same for files that were staged.
APPEND_POINTS = {
    "append.begin": "nothing is recorded",
    "append.begun": "the operation has a row",
    "append.commit": "the Iceberg commit is made, nobody knows",
    "append.adopt": "a commit of an earlier run is found",
    "append.anew": "an earlier run that made no commit is recorded as failed",
    "append.flush": "the commit is found by the operation's id, its files are not flushed",
    "append.recorded": "the snapshot is recorded with the operation",
    "append.show": "readers get it and the files are the lake's, not committed",
    "append.shown": "it is committed, the operation is not recorded as done",
}

# For the removal of old periods.
RETENTION_POINTS = {
    "retention.locked": "the table is locked, nothing is changed",
    "retention.made": "the old periods are one partition, not committed",
    "retention.commit": "the registry knows the line, not committed",
    "retention.done": "it is committed, the lake has their files still",
}

_UNTIER_STEPS = ("load", "follow", "compare", "attach")
# The same for a period that comes back.
UNTIER_POINTS = {
    "untier.begin": "nothing is recorded",
    "untier.begun": "the operation has a row",
    **{f"{step}.begin": f"{step}: its start is not recorded" for step in _UNTIER_STEPS},
    **{f"{step}.begun": f"{step}: its start is recorded" for step in _UNTIER_STEPS},
    **{f"{step}.end": f"{step}: done, its end is not recorded" for step in _UNTIER_STEPS},
    **{f"{step}.ended": f"{step}: its end is recorded" for step in _UNTIER_STEPS},
    "load.snapshot": "what the leaf is made like stands, and a Postgres snapshot is exported",
    "load.copied": "the new leaf has the rows, not committed",
    "load.commit": "it has its keys and indexes too, not committed",
    "load.committed": "the leaf stands, its foreign keys do not",
    "follow.applied": "what was changed while it loaded is in it, not committed",
    "follow.commit": "changes of the period reach the leaf from here on, not committed",
    "compare.leaf": "the leaf is read, the cold tier is not",
    "attach.locked": "all locks are held, nothing is changed",
    "attach.detached": "the hot partition is detached, not committed",
    "attach.dropped": "the foreign partition is gone, not committed",
    "attach.attached": "the leaf stands in its place, not committed",
    "attach.commit": "the seam is moved, not committed",
    "attach.committed": "the rows are hot, the delta still has versions of them",
    "untier.tidied": "they are gone, the lake still has the rows",
    "trim.begin": "rows nobody reads are to be removed from the lake",
    "trim.commit": "the Iceberg commit is made, nobody knows",
    "trim.recorded": "readers have the new snapshot",
    "abandon.begin": "a leaf that cannot be attached is to be dropped",
    "abandon.end": "it is dropped",
}

# The same for a table that leaves, once its rows are back.
LEAVE_POINTS = {
    "leave.forgotten": "the registry names no snapshot of the lake any more, its table is still there",
    "leave.dropped": "the Iceberg table and its files are gone",
    "leave.locked": "all locks are held, nothing is changed",
    "leave.commit": "the table is as it was, not committed",
    "leave.committed": "it is no longer registered",
}

_MAINTAIN_STEPS = ("rewrite", "compare", "move", "expire")
# The same for maintenance.
MAINTAIN_POINTS = {
    "maintain.begin": "nothing is recorded",
    "maintain.begun": "the operation has a row",
    **{f"{step}.begin": f"{step}: its start is not recorded" for step in _MAINTAIN_STEPS},
    **{f"{step}.begun": f"{step}: its start is recorded" for step in _MAINTAIN_STEPS},
    **{f"{step}.end": f"{step}: done, its end is not recorded" for step in _MAINTAIN_STEPS},
    **{f"{step}.ended": f"{step}: its end is recorded" for step in _MAINTAIN_STEPS},
    "rewrite.deletes": "partitions with deletes are rewritten and committed, nobody knows",
    "rewrite.dangling": "their files of deletes are gone too",
    "rewrite.small": "small files are rewritten and committed",
    "rewrite.commit": "all commits are made, none is recorded",
    "rewrite.flushed": "the files are flushed, the snapshot is recorded with the operation",
    "move.fenced": "no cold writer is at work, nothing is changed",
    "move.commit": "the new snapshot is set, not committed",
    "maintain.adopt": "commits of an earlier run are found",
}

# The same for a cold write, in the gateway.
WRITE_POINTS = {
    "write.held": "a write is worked out, the client does not know",
    "write.staged": "many new rows are written to files, nothing refers to them",
    "write.flushed": "the files are flushed and their keys known to be free",
    "write.netted": "its versions are about to be handed over",
    "write.stored": "the client's transaction has them, or is being sent them, and they count as stored",
    "write.commit": "the client's transaction is about to commit, and waits for the gateway's word",
    "write.answered": "it has that word, and has perhaps not committed",
}

# The same for a plain table that is being partitioned.
PARTITION_POINTS = {
    "partition.made": "the empty copy, the log and the registry's row stand, not committed",
    "partition.rehearsed": "the exchange was tried and taken back",
    "partition.triggers": "changes are logged, not committed",
    "partition.started": "changes are logged, nothing is copied",
    "partition.copied": "a batch is copied, not committed",
    "partition.batch": "a batch is copied",
    "partition.applied": "the log is applied as far as it was",
    "partition.index": "an index stands on the copy",
    "partition.indexed": "all do, and everything is copied",
    "partition.verified": "the copy is what the table is",
    "partition.locked": "the table is locked, nothing is changed",
    "partition.swap": "the exchange is made, not committed",
    "partition.swapped": "the table is partitioned, its foreign keys are not proven",
    "partition.proven": "one of them is, of one partition",
    "partition.end": "all is done, and not recorded",
}


class InjectedFault(OSError):
    """A test wanted this to fail."""


def reached(point: str) -> None:
    """Say where we are; a test may never let us go on."""
    address = os.environ.get(VARIABLE)
    if address is not None:
        _ask(address, point)


def _ask(address: str, point: str) -> None:
    every = (
        POINTS,
        DEFAULT_POINTS,
        FOLD_POINTS,
        APPEND_POINTS,
        RETENTION_POINTS,
        WRITE_POINTS,
        PARTITION_POINTS,
        UNTIER_POINTS,
        LEAVE_POINTS,
        MAINTAIN_POINTS,
    )
    if not any(point in points for points in every):
        raise LookupError(f"{point} is none of the points in faults.py")
    try:
        with socket.socket(socket.AF_UNIX) as test:
            test.connect(address)
            test.sendall(f"{os.getpid()} {point}\n".encode())
            said = test.recv(16)
    except OSError:
        if os.environ.get(VARIABLE) == address:
            raise
        return  # a test in this process has ended since we read where it listens
    if said != _GO:
        raise InjectedFault(f"a test failed this at {point}")
