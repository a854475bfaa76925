"""Failures at named points of what runs in this process."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from frostline import faults


@contextmanager
def at(directory: Path, act: Callable[[str], bool | None]) -> Iterator[list[str]]:
    """Every point of what runs in this block is told to `act`; False makes it fail there."""
    path, seen = str(directory / "faults"), []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def answer(client: socket.socket) -> None:
            with client:
                point = client.recv(200).decode().split()[1]
                seen.append(point)
                said = b"fail" if act(point) is False else b"go"
                with suppress(OSError):  # whoever asked may have been stopped
                    client.sendall(said)

        def serve() -> None:
            asked = []
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    break
                # Each by itself: what is done at one point may come to another.
                asked.append(threading.Thread(target=answer, args=(client,)))
                asked[-1].start()
            for thread in asked:
                thread.join()

        thread = threading.Thread(target=serve)
        thread.start()
        os.environ[faults.VARIABLE] = path
        try:
            yield seen
        finally:
            del os.environ[faults.VARIABLE]
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
    Path(path).unlink()
