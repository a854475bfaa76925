"""Ports: the one the user fixed, the one of last time, or any free one."""

from __future__ import annotations

import errno
import socket

from frostline.errors import StackError
from frostline.report import Report


def choose_port(who: str, key: str, fixed: int, last: int, report: Report, address: str = "127.0.0.1") -> int:
    """A port that can be listened on now; a fixed one that is taken is an error."""
    if fixed:
        if not port_is_free(fixed, address):
            raise StackError(
                f"port {fixed} is taken by another program, so {who} was not started",
                hint=f"free it, or choose another one with {key} (0: any free one)",
            )
        return fixed
    if last and port_is_free(last, address):
        return last
    port = free_port(address)
    if last:
        report.line(f"Port {last} of last time is taken by another program: {who} moves to port {port}")
    return port


def port_is_free(port: int, address: str = "127.0.0.1") -> bool:
    with _socket(address) as probe:
        # As servers do: connections of the last minute in TIME_WAIT don't occupy a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise _cannot_listen(address, port, error) from None
    return True


def free_port(address: str = "127.0.0.1") -> int:
    with _socket(address) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            raise _cannot_listen(address, 0, error) from None
        return int(probe.getsockname()[1])


def _socket(address: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)


def _cannot_listen(address: str, port: int, error: OSError) -> StackError:
    where = f"{address} port {port}" if port else address
    return StackError(
        f"no program of this user can listen on {where} here: {error.strerror}",
        hint="look at gateway.listen, gateway.port and local.port in `frostline config`",
    )
