"""A cache of bounded size that drops the least recently used values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from semlex.forks import new_lock

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Keeps up to `capacity` values; 0 keeps none. Thread-safe.

    Attributes:
        hits: How often `find` has found a value.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.hits = 0
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = new_lock()

    def find(self, key: K) -> V | None:
        """Return the value of a key and make it the most recently used one; None if it is not kept."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
                self.hits += 1
            return value

    def keep(self, key: K, value: V) -> None:
        """Keep a value as the most recently used one."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self.capacity:
                self._values.popitem(last=False)

    def __len__(self) -> int:
        return len(self._values)
