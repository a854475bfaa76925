"""The beginning of a session: encryption requests, cancel requests, who is asking, and the password."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from frostline.errors import DatabaseError, QueryError
from frostline.gateway.control import Control
from frostline.gateway.origin import Origin
from frostline.gateway.wire import messages, scram
from frostline.gateway.wire.messages import CANCEL_REQUEST, GSS_REQUEST, PROTOCOL_3, SSL_REQUEST
from frostline.gateway.wire.stream import ProtocolError, Stream

# "Cannot connect now": libpq goes on to the next address of the entry, which a standby shares with its primary.
_NEXT = "57P03"
_ENCODINGS = ("", "UTF8", "UTF-8", "UNICODE")


@dataclass(frozen=True)
class CancelRequest:
    pid: int
    secret: int


def read_request(stream: Stream, tls: ssl.SSLContext | None) -> CancelRequest | dict[str, str]:
    """A cancel request, or the parameters of a new session; under TLS if the client asks and we have it."""
    for _ in range(3):  # at most one request each for TLS and GSS comes before the real packet
        body = messages.Body(stream.read_startup())
        code = body.int32()
        if code == SSL_REQUEST and tls is not None:
            stream.write(b"S")
            stream.flush()
            stream.secure(tls)
        elif code in (SSL_REQUEST, GSS_REQUEST):
            stream.write(b"N")
            stream.flush()
        elif code == CANCEL_REQUEST:
            return CancelRequest(body.int32(), body.int32() & 0xFFFFFFFF)
        elif code >> 16 == PROTOCOL_3:
            if code & 0xFFFF:
                stream.write(messages.message(b"v", b"\0\0\0\0\0\0\0\0"))  # version 3.0, no options refused
            return messages.startup_parameters(body.rest)
        else:
            raise ProtocolError(f"unsupported protocol {code >> 16}.{code & 0xFFFF}", sqlstate="0A000")
    raise ProtocolError("a start-up packet was expected")


def admit(stream: Stream, parameters: dict[str, str], control: Control) -> str:
    """Authenticate and check that this is our database; returns Postgres's version."""
    try:
        installed = control.installed(Origin.of(parameters.get("application_name", "")))
    except DatabaseError as error:
        error.sqlstate = _NEXT
        raise
    user, database = parameters.get("user", ""), parameters.get("database", "")
    try:
        scram.authenticate(stream, control.verifier(installed.password))
    except scram.WrongPassword:
        raise QueryError(f'password authentication failed for user "{user}"', sqlstate="28P01") from None
    if user != installed.user:
        raise QueryError(f'password authentication failed for user "{user}"', sqlstate="28P01")
    if database != installed.id:
        raise QueryError(
            f'this gateway serves installation {installed.id}, not "{database}"',
            hint="the foreign server was copied from another database; run frostline init in this one",
            sqlstate="3D000",
        )
    if not installed.theirs:
        raise QueryError(
            "this gateway serves another server than the one that asks, which is a copy of it",
            hint="on a standby, start a gateway with the standby's DSN and name it in gateway.standbys; "
            "in a copy that lives by itself, run frostline adopt --copy and start one there",
            sqlstate=_NEXT,
        )
    encoding = parameters.get("client_encoding", "").strip("'\"").upper()
    if encoding not in _ENCODINGS:
        raise QueryError(f"the gateway speaks UTF8, not {encoding}", sqlstate="22023")
    return installed.version


def greeting(version: str, parameters: dict[str, str], pid: int, secret: int) -> bytes:
    """What follows a successful authentication."""
    status = {
        "server_version": version,
        "server_encoding": "UTF8",
        "client_encoding": "UTF8",
        "application_name": parameters.get("application_name", ""),
        "DateStyle": "ISO, MDY",
        "IntervalStyle": "postgres",
        "TimeZone": "GMT",
        "integer_datetimes": "on",
        "standard_conforming_strings": "on",
        "is_superuser": "off",
        "session_authorization": parameters.get("user", ""),
    }
    parts = [messages.authentication(0), *(messages.parameter(name, value) for name, value in status.items())]
    return b"".join([*parts, messages.key_data(pid, secret)])
