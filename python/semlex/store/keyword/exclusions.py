"""Exclusions of a query, checked in the texts of chunks: for searches without the keyword index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from psycopg import sql

from semlex import _core
from semlex.store.query.leg import Statement, key_arrays
from semlex.types.queries import MAX_QUERY_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from semlex.store.keyword.bm25.analyzers import Analyzers
    from semlex.store.query.leg import Key
    from semlex.store.schema.names import Names

# Finds exclusions in any language, because it has no stop words.
PLAIN = _core.Analyzer("simple", stop_words=False)
# More terms than the longest query has: nothing is cut.
MAX_CONDITIONS = 4 * MAX_QUERY_BYTES
TEXTS = sql.SQL(
    "SELECT c.language, c.context, c.chunk_text FROM unnest(%(document_ids)s::uuid[], %(chunk_ids)s::text[]) "
    "WITH ORDINALITY AS k(document_id, chunk_id, number) "
    "LEFT JOIN {chunk} AS c USING (document_id, chunk_id) ORDER BY k.number"
)
# Language, context and text of a chunk; nothing of one that is gone.
Row = tuple[str | None, str | None, str | None]


def texts_of(names: Names, keys: Sequence[Key]) -> Statement:
    """The statement that reads the `Row` of each chunk, in their order."""
    return Statement(TEXTS.format(chunk=names.chunk), key_arrays(keys))


@dataclass(frozen=True, slots=True)
class Exclusions:
    """The words and phrases that a query excludes, as the keyword index analyses them.

    Attributes:
        analyzers: Of the collection.
        text: The query.
    """

    analyzers: Analyzers
    text: str

    @classmethod
    def of(cls, analyzers: Analyzers, text: str) -> Self | None:
        """Return what a query excludes; None if it excludes nothing."""
        return cls(analyzers, text) if PLAIN.query(text, MAX_CONDITIONS).excluded else None

    def held(self, rows: Sequence[Row]) -> NDArray[np.bool_]:
        """Whether each of n chunks contains an exclusion: bool, shape (n,)."""
        held = np.zeros(len(rows), dtype=bool)
        analyzers = [self.analyzers.of(row[0]) for row in rows]
        for analyzer in set(analyzers):
            numbers = [n for n, own in enumerate(analyzers) if own is analyzer and rows[n][2] is not None]
            held[numbers] = ~analyzer.matches([_whole(rows[n]) for n in numbers], [], self._groups(analyzer))
        return held

    def broken(self, row: Row) -> list[str]:
        """The exclusions that one chunk contains, in words."""
        analyzer = self.analyzers.of(row[0])
        return [
            f'it holds "{" ".join(group)}", which the question excludes'
            for group in self._groups(analyzer)
            if row[2] is not None and not analyzer.matches([_whole(row)], [], [group])[0]
        ]

    def _groups(self, analyzer: _core.Analyzer) -> list[list[str]]:
        return analyzer.query(self.text, MAX_CONDITIONS).excluded


def _whole(row: Sequence[Any]) -> str:
    return f"{row[1]}\n{row[2]}"
