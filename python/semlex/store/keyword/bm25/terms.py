"""The words of a query one by one: what each weighs and adds, to texts as they are or would be; broken conditions."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from psycopg import sql

from semlex.store.keyword.base import TermScores
from semlex.store.keyword.bm25.query import AnalysedQuery
from semlex.store.keyword.bm25.read import IndexRows, index_statement
from semlex.store.keyword.exclusions import Exclusions, texts_of
from semlex.store.query.leg import Statement, key_arrays
from semlex.store.query.run import fetch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from semlex.store.keyword.base import ChangedText
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
    """Every word that a query looks for, in its order. BM25 is a sum over words: each is asked for alone."""
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
    return [(await _one(snapshot, names, query, word, ids))[0] for word in sorted(shown.items())]


async def changed_scores(  # noqa: PLR0917 - as `term_scores`
    snapshot: Snapshot,
    names: Names,
    index: IndexCache,
    text: str,
    keys: Sequence[Key],
    changed: Sequence[ChangedText],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The scores that chunks would have, were the texts of some others.

    In how many chunks a word occurs is counted anew; the average length stays that of the index.

    Returns:
        float64, shape (n,) and shape (m,); 0 where no word of the query is.
    """
    statement = _KEYS.format(columns=sql.SQL("c.keyword_id"), chunk=names.chunk)
    rows = await fetch(snapshot, Statement(statement, key_arrays([*keys, *(one.key for one in changed)])))
    ids = np.array([NO_CHUNK if row[0] is None else row[0] for row in rows], dtype=np.int64)
    query, k1, b = AnalysedQuery.of(index, text, with_phrases=False), index.options.k1, index.options.b
    analyzers = [index.analyzers.of(one.language) for one in changed]
    before = [Counter(analyzer.terms(one.before)) for analyzer, one in zip(analyzers, changed, strict=True)]
    after = [Counter(analyzer.terms(one.after)) for analyzer, one in zip(analyzers, changed, strict=True)]
    others, own = np.zeros(len(keys)), np.zeros(len(changed))
    for slot in sorted({slot for one in query.by_language.values() for slot, _ in one.wanted}):
        one, chunks = await _one(snapshot, names, query, (slot, ""), ids)
        terms = [_term(query, analyzer.language, slot) for analyzer in analyzers]
        old = np.array([counts[term] for counts, term in zip(before, terms, strict=True)], dtype=np.float64)
        new = np.array([counts[term] for counts, term in zip(after, terms, strict=True)], dtype=np.float64)
        scores = one.scores[len(keys) :]
        known = (old > 0) & (scores > 0)
        holding = one.chunks - int(known.sum()) + int((new > 0).sum())
        weight = math.log(1 + (chunks - holding + 0.5) / (holding + 0.5))
        others += one.scores[: len(keys)] * (weight / one.weight)
        if not known.any():
            continue
        # What the length of a chunk counts follows from the score that it has as it is: the index keeps the average.
        first = int(known.argmax())
        ratio = one.weight * old[first] * (k1 + 1) / scores[first] - old[first]
        length = before[first].total()
        per_word = (ratio - k1 * (1 - b)) / length
        own += (
            weight
            * new
            * (k1 + 1)
            / np.maximum(
                new + k1 * (1 - b) + per_word * np.array([counts.total() for counts in after]), np.finfo(float).tiny
            )
        )
    return others, own


def _term(query: AnalysedQuery, language: str, slot: int) -> str:
    """The word of a slot in one language; "", which is no word, where the query has none there."""
    own = query.by_language.get(language)
    return "" if own is None else dict(own.wanted).get(slot, "")


async def _one(
    snapshot: Snapshot, names: Names, query: AnalysedQuery, word: tuple[int, str], ids: NDArray[np.int64]
) -> tuple[TermScores, int]:
    """A word for chunks, by their ids in the index; and how many chunks the index has."""
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
    return TermScores(term, weight, len(found), np.nan_to_num(scores)), postings.chunks


async def broken_conditions(
    snapshot: Snapshot, names: Names, query: AnalysedQuery, keys: Sequence[Key]
) -> list[list[str]]:
    """What of a query's quotes and exclusions each of some chunks breaks, in words; of one that is gone nothing."""
    exclusions = Exclusions.of(query.index.analyzers, query.text)
    broken: list[list[str]] = []
    for row in await fetch(snapshot, texts_of(names, keys)):
        broken.append([])
        language, context, text = row
        analyzer = query.index.analyzers.of(language)
        own = query.by_language.get(analyzer.language)
        if text is not None and own is not None:
            broken[-1] += [
                f'it lacks the phrase "{" ".join(phrase)}"'
                for phrase in query.phrases_of(own)
                if not analyzer.matches([f"{context}\n{text}"], [phrase])[0]
            ]
        if exclusions is not None:
            broken[-1] += exclusions.broken(row)
    return broken
