"""A bounded cache of immutable things."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from frostline.lake.cache import ByteCache


@dataclass(frozen=True)
class Thing:
    key: int
    weight: int


def test_a_value_is_read_once() -> None:
    cache: ByteCache[Thing] = ByteCache(100)
    read: list[int] = []

    def reader() -> Thing:
        read.append(1)
        return Thing(1, 10)

    assert cache.get(1, reader) is cache.get(1, reader)
    assert len(read) == 1
    assert cache.counts() == {"hits": 1, "misses": 1, "entries": 1, "bytes": 10}


def test_the_least_recently_used_goes_first() -> None:
    cache: ByteCache[Thing] = ByteCache(30)
    for key in (1, 2, 3, 1, 4):
        cache.get(key, lambda key=key: Thing(key, 10))  # type: ignore[misc]
    misses = cache.misses
    for key in (3, 1, 4):
        cache.get(key, lambda key=key: Thing(key, 10))  # type: ignore[misc]
    assert cache.misses == misses
    cache.get(2, lambda: Thing(2, 10))
    assert cache.misses == misses + 1


def test_what_is_larger_than_the_cache_is_used_and_not_kept() -> None:
    cache: ByteCache[Thing] = ByteCache(30)
    assert cache.get(1, lambda: Thing(1, 31)) == Thing(1, 31)
    assert cache.counts()["entries"] == 0
    assert cache.counts()["bytes"] == 0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=60))
def test_it_never_holds_more_than_its_capacity(asked: list[tuple[int, int]]) -> None:
    cache: ByteCache[Thing] = ByteCache(100)
    weights = dict(asked)
    for key, _ in asked:
        assert cache.get(key, lambda key=key: Thing(key, weights[key])).key == key  # type: ignore[misc]
        assert cache.weight <= 100
    assert cache.weight == sum(thing.weight for thing in cache._values.values())
