"""Reading and writing protocol messages on a blocking socket, with bounds on what a client may send."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct

from frostline.errors import QueryError

MAX_MESSAGE = 64 * 1024 * 1024
MAX_STARTUP = 10_000  # what Postgres itself allows
# Small answers are gathered; anything longer goes straight to the socket.
FLUSH_AT = 64 * 1024
_LENGTH = struct.Struct("!i")


class Disconnected(Exception):
    """The client went away."""


class ProtocolError(QueryError):
    """The client sent something that is not the protocol; its session ends."""

    sqlstate = "08P01"


class Stream:
    """One client's socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._in = bytearray()
        self._out = bytearray()
        self._bell: tuple[socket.socket, socket.socket] | None = None  # rung to end a wait under TLS

    def read_startup(self) -> bytes:
        """The body of a start-up packet, which has no kind."""
        (length,) = struct.unpack("!i", self._exactly(4))
        if not 8 <= length <= MAX_STARTUP:
            raise ProtocolError(f"invalid length of start-up packet: {length}")
        return self._exactly(length - 4)

    def read(self, limit: int = MAX_MESSAGE) -> tuple[bytes, bytes]:
        """The next message's kind and body."""
        if len(self._in) < 5:
            self._at_least(5)
        kind = bytes(self._in[:1])
        (length,) = _LENGTH.unpack_from(self._in, 1)
        if not 4 <= length <= limit:
            raise ProtocolError(f"invalid length of message {kind!r}: {length}")
        if len(self._in) <= length:
            self._at_least(length + 1)
        body = bytes(self._in[5 : length + 1])
        del self._in[: length + 1]
        return kind, body

    def follows(self, data: bytes) -> bool:
        """Take exactly these bytes, if they have arrived and are next."""
        if not self._in.startswith(data):
            return False
        del self._in[: len(data)]
        return True

    def before(self, kind: bytes, data: bytes) -> bytes | None:
        """Take a message of this kind and exactly these bytes behind it, if all have arrived and are next: its body."""
        if len(self._in) < 5 or self._in[:1] != kind:
            return None
        (length,) = _LENGTH.unpack_from(self._in, 1)
        if length < 4 or not self._in.startswith(data, length + 1):
            return None
        body = bytes(self._in[5 : length + 1])
        del self._in[: length + 1 + len(data)]
        return body

    def secure(self, context: ssl.SSLContext) -> None:
        """Go on under TLS. Whatever came in the clear behind the request may be somebody else's."""
        if self._in:
            raise ProtocolError("data was sent before the TLS handshake")
        try:
            self.sock = context.wrap_socket(self.sock, server_side=True)
        except OSError as error:
            raise Disconnected from error
        self._bell = socket.socketpair()

    def hang_up(self) -> None:
        """From another thread: the next read finds the end, and what is written still arrives."""
        with contextlib.suppress(OSError):
            if self._bell is None:
                self.sock.shutdown(socket.SHUT_RD)
            else:
                # To OpenSSL an end of file is an attack, after which it writes nothing any more.
                self._bell[1].send(b"!")

    def close(self) -> None:
        for sock in (self.sock, *(self._bell or ())):
            sock.close()

    def write(self, data: bytes | memoryview) -> None:
        if len(data) < FLUSH_AT:
            self._out += data
            if len(self._out) >= FLUSH_AT:
                self.flush()
            return
        self.flush()
        self._send(data)

    def flush(self) -> None:
        if self._out:
            data, self._out = self._out, bytearray()
            self._send(data)

    def _send(self, data: bytes | bytearray | memoryview) -> None:
        try:
            self.sock.sendall(data)
        except OSError as error:
            raise Disconnected from error

    def _exactly(self, size: int) -> bytes:
        self._at_least(size)
        found = bytes(self._in[:size])
        del self._in[:size]
        return found

    def _at_least(self, size: int) -> None:
        while len(self._in) < size:
            try:
                if self._bell is not None:
                    self._wait(self._bell[0])
                chunk = self.sock.recv(max(size - len(self._in), 8192))
            except OSError as error:
                raise Disconnected from error
            if not chunk:
                raise Disconnected
            self._in += chunk

    def _wait(self, bell: socket.socket) -> None:
        """Until there is something to decrypt, or the bell rings."""
        if isinstance(self.sock, ssl.SSLSocket) and self.sock.pending():
            return
        poll = select.poll()  # select() knows no descriptors above 1023
        for sock in (self.sock, bell):
            poll.register(sock, select.POLLIN)
        seconds = self.sock.gettimeout()
        ready = poll.poll(None if seconds is None else seconds * 1000)
        if not ready or any(descriptor == bell.fileno() for descriptor, _ in ready):
            raise Disconnected
