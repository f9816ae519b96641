"""The words of a query one by one: what each weighs and adds to scores; which of its conditions a text breaks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from psycopg import sql

from semlex.store.keyword.base import TermScores
from semlex.store.keyword.bm25.query import AnalysedQuery
from semlex.store.keyword.bm25.read import IndexRows, index_statement
from semlex.store.query.leg import Statement, key_arrays
from semlex.store.query.run import fetch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from semlex.store.keyword.bm25.index import IndexCache
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.leg import Key
    from semlex.store.schema.names import Names

# The id of no chunk.
NO_CHUNK = -1
_KEYS = sql.SQL(
    "SELECT {columns} FROM unnest(%(document_ids)s::uuid[], %(chunk_ids)s::text[]) "
    "WITH ORDINALITY AS k(document_id, chunk_id, number) "
    "LEFT JOIN {chunk} AS c USING (document_id, chunk_id) ORDER BY k.number"
)


async def term_scores(
    snapshot: Snapshot, names: Names, index: IndexCache, text: str, keys: Sequence[Key]
) -> list[TermScores]:
    """Every word that a query looks for, in its order. BM25 is a sum over words: each is asked for alone.

    Args:
        snapshot: Of the search, which has read the index.
        names: The collection's tables.
        index: What is in memory of the index.
        text: The query.
        keys: Of n chunks.
    """
    statement = _KEYS.format(columns=sql.SQL("c.keyword_id"), chunk=names.chunk)
    rows = await fetch(snapshot, Statement(statement, key_arrays(keys)))
    ids = np.array([NO_CHUNK if row[0] is None else row[0] for row in rows], dtype=np.int64)
    query = AnalysedQuery.of(index, text, with_phrases=False)
    # The collection's own language first: its form of a word is the one that is shown.
    own = index.analyzers.of(None).language
    shown: dict[int, str] = {}
    for language in sorted(query.by_language, key=lambda language: language != own):
        for slot, term in query.by_language[language].wanted:
            shown.setdefault(slot, term)
    return [await _one(snapshot, names, query, word, ids) for word in sorted(shown.items())]


async def _one(
    snapshot: Snapshot, names: Names, query: AnalysedQuery, word: tuple[int, str], ids: NDArray[np.int64]
) -> TermScores:
    slot, term = word
    cache, options = query.index.postings, query.index.options
    plan = cache.plan(
        [
            (language, [entry for entry in own.wanted if entry[0] == slot], [], [])
            for language, own in query.by_language.items()
        ]
    )
    rows = IndexRows(await fetch(snapshot, index_statement(names, plan)))
    postings = cache.snapshot(plan, rows.segments, rows.tombstones, rows.postings)
    found, _, scores = postings.search(postings.postings, k1=options.k1, b=options.b, score_ids=ids)
    weight = math.log(1 + (postings.chunks - len(found) + 0.5) / (len(found) + 0.5))
    return TermScores(term, weight, len(found), np.nan_to_num(scores))


async def broken_conditions(
    snapshot: Snapshot, names: Names, query: AnalysedQuery, keys: Sequence[Key]
) -> list[list[str]]:
    """What of a query's quotes and exclusions each of some chunks breaks, in words; of one that is gone nothing."""
    columns = sql.SQL("c.language, c.context, c.chunk_text")
    statement = Statement(_KEYS.format(columns=columns, chunk=names.chunk), key_arrays(keys))
    broken: list[list[str]] = []
    for language, context, text in await fetch(snapshot, statement):
        broken.append([])
        if text is None:
            continue
        analyzer = query.index.analyzers.of(language)
        own = query.by_language.get(analyzer.language)
        if own is None:
            continue
        whole = [f"{context}\n{text}"]
        for phrase in query.phrases_of(own):
            if not analyzer.matches(whole, [phrase])[0]:
                broken[-1].append(f'it lacks the phrase "{" ".join(phrase)}"')
        for group in own.excluded:
            if not analyzer.matches(whole, [], [group])[0]:
                broken[-1].append(f'it holds "{" ".join(group)}", which the question excludes')
    return broken
