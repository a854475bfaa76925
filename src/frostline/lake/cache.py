"""A cache of things that never change, bounded by the bytes they take: the least recently used go first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """Something that knows about how many bytes it takes."""

    @property
    def weight(self) -> int: ...


V = TypeVar("V", bound=Sized)


class ByteCache(Generic[V]):
    """Values by immutable identity; shared by all sessions."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.weight = 0
        self.hits = 0
        self.misses = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable, read: Callable[[], V]) -> V:
        """The value of a key, read when it is not here. Two sessions may read one value at once: both are right."""
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self.hits += 1
                self._values.move_to_end(key)
                return found
            self.misses += 1
        value = read()
        self._keep(key, value)
        return value

    def peek(self, key: Hashable) -> V | None:
        """The value if it is here."""
        with self._lock:
            return self._values.get(key)

    def counts(self) -> dict[str, int]:
        return {"hits": self.hits, "misses": self.misses, "entries": len(self._values), "bytes": self.weight}

    def _keep(self, key: Hashable, value: V) -> None:
        with self._lock:
            before = self._values.pop(key, None)
            self.weight += value.weight - (before.weight if before is not None else 0)
            self._values[key] = value
            # What is larger than the whole cache is not kept, but was read and will be used.
            while self.weight > self.capacity and self._values:
                _, dropped = self._values.popitem(last=False)
                self.weight -= dropped.weight
