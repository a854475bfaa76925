"""Sockets of clients that may vanish: half-open connections are found, one that reads nothing is let go."""

from __future__ import annotations

import socket
import struct

# A peer that is gone without a word is noticed after some minutes; the kernel's own default is two hours.
GONE_SECONDS = 120.0
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}


def guard(sock: socket.socket, send_timeout: float) -> None:
    """Set what the kernel watches for us.

    Reading may wait for ever, for a session may be idle; writing may not. Python's own timeout is for both, so the
    kernel's is used: a send that makes no progress for this long fails, and the session ends.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):  # macOS has other names for some
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    seconds, fraction = divmod(send_timeout, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds), int(fraction * 1e6)))
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # For data that nobody acknowledges; it would be repeated for a quarter of an hour.
        patience = max(send_timeout, GONE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(patience * 1000))
