"""Truncation: counts the texts that a model cut, and logs the count now and then."""

from __future__ import annotations

import logging

from semlex.forks import new_lock

logger = logging.getLogger(__name__)

# A line is logged for the first cut text, and again when there are so many times more of them than at the last line: at
# most six lines for 100,000 texts, and each says how many there are so far.
LOGGED_AGAIN = 10


class CutTexts:
    """Counts the texts that a model did not read to their end. Safe for several threads."""

    def __init__(self, what: str, model: str) -> None:
        self.count = 0
        self._what, self._model = what, model
        self._read, self._said = 0, 0
        self._lock = new_lock()

    def add(self, read: int, cut: int, limit: str) -> None:
        """Counts the texts of a call, and logs a line when one is due.

        Args:
            limit: What they did not fit into, for example ``max_length=128 tokens``.
        """
        with self._lock:
            self._read += read
            self.count += cut
            if self.count < max(1, self._said * LOGGED_AGAIN):
                return
            self._said = self.count
            found = f"{self.count} of {self._read}"
        logger.warning("%s %s for %s so far did not fit into %s and were cut", found, self._what, self._model, limit)
