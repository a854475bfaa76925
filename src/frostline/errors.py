"""Every error a person or a client can meet.

FrostlineError
 |- ConfigError        a setting is unknown, ill-typed or missing
 |- SetupError         Java, a download, the cache or the platform
 |- StackError         a local server could not be started or stopped
 |- DatabaseError      Postgres is out of reach, or a grant is missing
 |- RefusedError       we will not do this to that table; nothing was changed
 |- LakeError          the lake's catalog or files
 |- OperationError     a step failed; what was done before it is kept and a re-run resumes
 |   |- Interrupted    something outside stood in the way; a re-run goes on from here
 |   |- Differs        a copy is not what it is a copy of; it was not taken over
 |   `- UnknownOutcome it may have happened: look before trying again
 `- QueryError         the gateway's answer to one statement, with its SQLSTATE

Stopped is none of these: it ends what runs, as Ctrl-C does.
"""

from __future__ import annotations


class FrostlineError(Exception):
    """Frostline could not do that."""

    sqlstate = "XX000"

    def __init__(
        self,
        message: str | None = None,
        *,
        detail: str | None = None,
        hint: str | None = None,
        sqlstate: str | None = None,
    ) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        self.detail = detail
        self.hint = hint
        if sqlstate is not None:
            self.sqlstate = sqlstate
        super().__init__(self.message)

    def __str__(self) -> str:
        return "\n".join(part for part in (self.message, self.detail, self.hint) if part)


class ConfigError(FrostlineError):
    """A setting is unknown, ill-typed or missing."""

    sqlstate = "F0000"


class SetupError(FrostlineError):
    """Something this machine needs is missing."""


class StackError(FrostlineError):
    """A local server could not be started or stopped."""


class DatabaseError(FrostlineError):
    """Postgres is out of reach or does not allow this."""

    sqlstate = "08006"


class RefusedError(FrostlineError):
    """This table cannot be treated that way; nothing was changed."""

    sqlstate = "0A000"


class LakeError(FrostlineError):
    """The lake's catalog or files could not be used."""

    sqlstate = "58030"


class OperationError(FrostlineError):
    """A step failed; what was finished before it is kept, and a re-run resumes."""


class Interrupted(OperationError):
    """Something outside stood in the way; what was done is kept, and a re-run goes on from here."""


class Occupied(OperationError):
    """Another run is at work on the same thing; nothing was changed."""

    sqlstate = "55P03"


class Differs(OperationError):
    """A copy is not what it is a copy of; it was not taken over."""

    sqlstate = "XX001"


class UnknownOutcome(OperationError):
    """The step may or may not have happened; a re-run finds out."""


class Stopped(KeyboardInterrupt):
    """The worker is to end, or leads no longer: what was done is kept, and the next one goes on from here."""


class QueryError(FrostlineError):
    """The gateway's answer to one statement."""
