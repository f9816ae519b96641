"""Search the keyword index: true BM25, from posting lists in ordinary tables, scored in Rust."""

# A search reads three things of one snapshot, in one round trip: the lists of segments and of tombstones, and the rows
# of its terms that are not in memory yet. None of them ever changes once it is written, so what is in memory needs no
# invalidation. Scores are exact at every moment: the number of chunks, their average length and in how many of them a
# word occurs are those of the snapshot.
#
# If the index probably has not changed since the last search, the missing rows are requested right away; if none is
# missing, the search runs in memory first, and one statement brings the keys of the chunks that it found, with the rows
# of the best if nothing else is searched. The same statement checks whether the index has changed; if so, the result is
# discarded.

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from psycopg import sql

from semlex.store.keyword.base import TYPED_BIT, Analyzers, Exclusions, TermScores, analyzer_of, folded, texts_of
from semlex.store.keyword.bm25.index import Bm25Index
from semlex.store.keyword.bm25.read import IndexRows, index_statement
from semlex.store.keyword.bm25.search import NO_CHUNK, AnalysedQuery, Bm25Leg, indexed
from semlex.store.keyword.engine import KeywordEngine, LegRequest
from semlex.store.query.leg import NUMBERED_KEYS, Key, LegPlan, Statement, key_arrays
from semlex.store.query.run import fetch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from semlex import _core
    from semlex.store.keyword.base import ChangedText
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.schema.names import Names


async def _ids(snapshot: Snapshot, names: Names, keys: Sequence[Key]) -> NDArray[np.int64]:
    """Return the ids that chunks have in the keyword index; `NO_CHUNK` for chunks that are gone."""
    text = sql.SQL("SELECT c.keyword_id FROM {} LEFT JOIN {} AS c USING (document_id, chunk_id) ORDER BY k.number")
    rows = await fetch(snapshot, Statement(text.format(NUMBERED_KEYS, names.chunk), key_arrays(keys)))
    return np.array([NO_CHUNK if row[0] is None else row[0] for row in rows], dtype=np.int64)


def _term(query: AnalysedQuery, language: str, slot: int) -> str:
    """Return the term that has the number `slot` in the query's analysis by a language, or ""."""
    own = query.by_language.get(language)
    return "" if own is None else dict(own.wanted).get(slot, "")


async def _one(
    snapshot: Snapshot,
    names: Names,
    query: AnalysedQuery,
    word: tuple[int, str],
    ids: NDArray[np.int64],
    *,
    as_typed: bool = False,
) -> tuple[TermScores, int]:
    """Return the scores of one word for the chunks with these ids, and the number of all chunks in the index."""
    # With `as_typed` its scores include what its accents add.
    slot, term = word
    slots = {slot, slot | TYPED_BIT} if as_typed else {slot}
    cache, options = query.index, query.index.options
    plan = cache.postings.plan(
        [
            (language, [entry for entry in own.wanted if entry[0] in slots], [], [])
            for language, own in query.by_language.items()
        ]
    )
    rows = IndexRows.of(await fetch(snapshot, index_statement(names, plan)))
    # No language is missing: keyword search has read the index in this snapshot.
    postings = indexed(cache, plan, rows, names)
    found, _, scores, _ = postings.search(postings.postings, k1=options.k1, b=options.b, score_ids=ids)
    weight = math.log(1 + (postings.chunks - len(found) + 0.5) / (len(found) + 0.5))
    return TermScores(term, weight, len(found), np.nan_to_num(scores)), postings.chunks


class Bm25Engine(KeywordEngine):
    """The keyword engine ``bm25``: true BM25."""

    name = "bm25"
    index: Bm25Index

    def __init__(self, language: str, *, stop_words: bool = True) -> None:
        super().__init__(Analyzers(analyzer_of(language, stop_words).language, stop_words))
        self.index = Bm25Index(self._analyzers)

    def create(self, names: Names) -> Sequence[sql.Composed]:
        """Return the statements that make the tables of the keyword index."""
        # A segment holds up to 65,536 chunks of one language: their ids and lengths in its header, and its terms in
        # order, cut into posting rows with their first terms as keys. A tombstone lists deleted chunks that segments
        # still contain. All of them belong to a generation; one generation answers, a second may be under construction.
        #
        # The manifest lists segments and tombstones a second time, and `row_keys` is a hash of the keys of a segment's
        # posting rows, so that a row that is lost or has another key is noticed.
        #
        # The bytes are packed already, so the server must not try to compress them. Pages are filled completely,
        # because no row is ever updated. Merging deletes whole segments: vacuum after a tenth of the rows instead of
        # the default fifth.
        kept = sql.SQL("WITH (autovacuum_vacuum_scale_factor = 0.1)")
        return (
            sql.SQL("""
                CREATE TABLE {} (
                    segment_id uuid PRIMARY KEY,
                    generation int NOT NULL,
                    language text NOT NULL,
                    chunks int NOT NULL,
                    postings bigint NOT NULL,
                    row_keys bytea NOT NULL,
                    header bytea NOT NULL
                ) {}""").format(names.segment, kept),
            sql.SQL("""
                CREATE TABLE {} (
                    segment_id uuid NOT NULL,
                    first_term bytea NOT NULL,
                    data bytea NOT NULL,
                    PRIMARY KEY (segment_id, first_term)
                ) {}""").format(names.posting, kept),
            sql.SQL("""
                CREATE TABLE {} (
                    tombstone_id uuid PRIMARY KEY,
                    generation int NOT NULL,
                    data bytea NOT NULL
                ) {}""").format(names.tombstone, kept),
            sql.SQL("CREATE TABLE {} (part_id uuid PRIMARY KEY, generation int NOT NULL) {}").format(
                names.manifest, kept
            ),
            sql.SQL("ALTER TABLE {} ALTER COLUMN header SET STORAGE EXTERNAL").format(names.segment),
            sql.SQL("ALTER TABLE {} ALTER COLUMN data SET STORAGE EXTERNAL").format(names.posting),
            sql.SQL("ALTER TABLE {} ALTER COLUMN data SET STORAGE EXTERNAL").format(names.tombstone),
        )

    def leg(self, request: LegRequest) -> LegPlan:
        """Plan the search for chunks with any word, all phrases and no excluded word, best first; ties by key."""
        cache = self.index.cache
        analysed = AnalysedQuery.of(cache, request.query, with_phrases=request.with_phrases)
        return Bm25Leg(
            request.collection,
            analysed,
            request.limit,
            request.condition,
            request.rows,
            analysed.in_memory(),
            cache.passing.depth(request.condition, request.query),
        )

    async def term_scores(self, snapshot: Snapshot, names: Names, query: str, keys: Sequence[Key]) -> list[TermScores]:
        """Return what each word of a query adds to the scores of chunks; each word is searched separately."""
        ids = await _ids(snapshot, names, keys)
        analysed = AnalysedQuery.of(self.index.cache, query, with_phrases=False)
        # The collection's own language first, because its form of a word is shown.
        own = self._analyzers.of(None).language
        shown: dict[int, str] = {}
        for language in sorted(analysed.by_language, key=lambda language: language != own):
            for slot, term in analysed.by_language[language].wanted:
                if not slot & TYPED_BIT:
                    shown.setdefault(slot, term)
        return [(await _one(snapshot, names, analysed, word, ids, as_typed=True))[0] for word in sorted(shown.items())]

    async def changed_scores(
        self, snapshot: Snapshot, names: Names, query: str, keys: Sequence[Key], changed: Sequence[ChangedText]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the scores of `keys`, then of `changed`, as if the changed texts were stored."""
        # A score is 0 for a chunk without any word of the query.
        #
        # Document frequencies are counted again; the average length stays that of the index. Accents make no
        # difference.
        ids = await _ids(snapshot, names, [*keys, *(one.key for one in changed)])
        analysed = AnalysedQuery.of(self.index.cache, query, with_phrases=False)
        k1, b = self.index.options.k1, self.index.options.b
        analyzers = [self._analyzers.of(one.language) for one in changed]
        before = [Counter(folded(analyzer.terms(one.before))) for analyzer, one in zip(analyzers, changed, strict=True)]
        after = [Counter(folded(analyzer.terms(one.after))) for analyzer, one in zip(analyzers, changed, strict=True)]
        others, own = np.zeros(len(keys)), np.zeros(len(changed))
        slots = {slot for one in analysed.by_language.values() for slot, _ in one.wanted if not slot & TYPED_BIT}
        for slot in sorted(slots):
            one, chunks = await _one(snapshot, names, analysed, (slot, ""), ids)
            terms = [_term(analysed, analyzer.language, slot) for analyzer in analyzers]
            old = np.array([counts[term] for counts, term in zip(before, terms, strict=True)], dtype=np.float64)
            new = np.array([counts[term] for counts, term in zip(after, terms, strict=True)], dtype=np.float64)
            scores = one.scores[len(keys) :]
            known = (old > 0) & (scores > 0)
            holding = one.chunks - int(known.sum()) + int((new > 0).sum())
            weight = math.log(1 + (chunks - holding + 0.5) / (holding + 0.5))
            others += one.scores[: len(keys)] * (weight / one.weight)
            if not known.any():
                continue
            # The weight of a chunk's length follows from its present score: the index keeps the average.
            first = int(known.argmax())
            ratio = one.weight * old[first] * (k1 + 1) / scores[first] - old[first]
            per_word = (ratio - k1 * (1 - b)) / before[first].total()
            lengths = np.array([counts.total() for counts in after])
            saturation = np.maximum(new + k1 * (1 - b) + per_word * lengths, np.finfo(float).tiny)
            own += weight * new * (k1 + 1) / saturation
        return others, own

    async def broken_conditions(
        self, snapshot: Snapshot, names: Names, query: str, keys: Sequence[Key], *, with_phrases: bool = True
    ) -> list[list[str]]:
        """Describe, for each chunk, the required phrases and the exclusions that it violates."""
        analysed = AnalysedQuery.of(self.index.cache, query, with_phrases=with_phrases)
        exclusions = Exclusions.of(self._analyzers, query)
        broken: list[list[str]] = []
        for row in await fetch(snapshot, texts_of(names, keys)):
            language, context, text = row
            analyzer = self._analyzers.of(language)
            own = analysed.by_language.get(analyzer.language)
            phrases = [] if text is None or own is None else analysed.phrases_of(own)
            found = [
                f'it lacks the phrase "{" ".join(phrase)}"'
                for phrase in phrases
                if not analyzer.matches([f"{context}\n{text}"], [phrase])[0]
            ]
            broken.append(found if exclusions is None else found + exclusions.broken(row))
        return broken

    def analyzer_for(self, language: str | None) -> _core.Analyzer:
        """Return the analyzer of a language; None means the collection's language."""
        return self._analyzers.of(language)
