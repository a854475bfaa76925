from __future__ import annotations

import socket

import pytest

from frostline.errors import StackError
from frostline.local.ports import choose_port, free_port, port_is_free
from frostline.report import Report


def test_the_port_of_last_time_is_kept_when_it_is_free(report: Report) -> None:
    last = free_port()
    assert choose_port("Postgres", "local.port", 0, last, report) == last


def test_a_port_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert not port_is_free(other.getsockname()[1])


def test_a_port_whose_connections_linger_is_free() -> None:
    """A server that was stopped a moment ago can have its port back."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = server.accept()
            accepted.close()  # the side that closes first keeps the port in TIME_WAIT
    assert port_is_free(port)


def test_an_address_of_another_machine_is_named(report: Report) -> None:
    with pytest.raises(StackError, match=r"can listen on 203\.0\.113\.1 here"):
        choose_port("the gateway", "gateway.port", 0, 0, report, "203.0.113.1")
