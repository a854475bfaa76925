"""SCRAM-SHA-256, server side (RFC 5802, RFC 7677): what postgres_fdw's libpq uses for a password."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass

from frostline.gateway.wire import messages
from frostline.gateway.wire.stream import MAX_STARTUP, ProtocolError, Stream

MECHANISM = "SCRAM-SHA-256"
ITERATIONS = 4096  # Postgres's own default


class WrongPassword(Exception):
    """The client does not know the secret."""


@dataclass(frozen=True)
class Verifier:
    """What proves a password without keeping it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, password: str, salt: bytes | None = None) -> Verifier:
        salt = salt or secrets.token_bytes(16)
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, ITERATIONS)
        client_key = _hmac(salted, b"Client Key")
        return cls(salt, hashlib.sha256(client_key).digest(), _hmac(salted, b"Server Key"))


def authenticate(stream: Stream, verifier: Verifier) -> None:
    """Run the exchange up to AuthenticationSASLFinal, or raise WrongPassword."""
    stream.write(messages.authentication(10, MECHANISM.encode() + b"\0\0"))
    first = messages.Body(_response(stream))
    if first.string() != MECHANISM:
        raise ProtocolError("the only authentication mechanism here is SCRAM-SHA-256")
    header, bare = _client_first(_ascii(first.take(first.int32())))
    nonce = _field(bare, "r") + base64.b64encode(secrets.token_bytes(18)).decode()
    server_first = f"r={nonce},s={base64.b64encode(verifier.salt).decode()},i={ITERATIONS}"
    stream.write(messages.authentication(11, server_first.encode()))
    final = _ascii(_response(stream))
    without_proof, _, proof = final.rpartition(",p=")
    if _field(without_proof, "c") != base64.b64encode(header.encode()).decode():
        raise ProtocolError("channel binding does not match")
    auth = f"{bare},{server_first},{without_proof}".encode()
    if _field(without_proof, "r") != nonce or not _proves(verifier, auth, proof):
        raise WrongPassword
    signature = base64.b64encode(_hmac(verifier.server_key, auth)).decode()
    stream.write(messages.authentication(12, f"v={signature}".encode()))


def _proves(verifier: Verifier, auth: bytes, proof: str) -> bool:
    try:
        given = base64.b64decode(proof, validate=True)
    except ValueError:
        return False
    signature = _hmac(verifier.stored_key, auth)
    if len(given) != len(signature):
        return False
    client_key = bytes(a ^ b for a, b in zip(given, signature, strict=True))
    return hmac.compare_digest(hashlib.sha256(client_key).digest(), verifier.stored_key)


def _response(stream: Stream) -> bytes:
    stream.flush()
    kind, body = stream.read(MAX_STARTUP)
    if kind != b"p":
        raise ProtocolError(f"expected a password message, not {kind!r}")
    return body


def _client_first(text: str) -> tuple[str, str]:
    """The header with the channel-binding flag, and the rest that is signed."""
    flag, _, rest = text.partition(",")
    if flag not in ("n", "y"):
        raise ProtocolError("channel binding is not offered here")
    identity, _, bare = rest.partition(",")
    return f"{flag},{identity},", bare


def _field(text: str, name: str) -> str:
    for part in text.split(","):
        if part.startswith(f"{name}="):
            return part[2:]
    raise ProtocolError(f"a SCRAM message lacks {name}=")


def _ascii(data: bytes) -> str:
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise ProtocolError("a SCRAM message is not ASCII") from None


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")
