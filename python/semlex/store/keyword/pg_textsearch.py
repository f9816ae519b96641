"""Keyword search by the extension pg_textsearch: BM25 over the server's own text-search configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex.errors import UnsupportedServerError
from semlex.store.keyword.engine import KeywordEngine, LegRequest
from semlex.store.keyword.extensions import Extension, RefusingLeg, first_words
from semlex.store.keyword.tsvector import analyzers_of
from semlex.store.query.leg import GIVEN_KEYS, KeyedScores, PlainKeywordLeg, Scorer, Statement, key_arrays, ranked
from semlex.store.query.run import fetch
from semlex.store.schema.names import Names, TableIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.leg import Key, LegPlan, LegResult

INDEX = "keyword_text"
# The extension reads no more than this many chunks for one query (TP_MAX_QUERY_LIMIT).
MAX_DEPTH = 100_000
# Chunks that the index returns per wanted one, because several may score like the last; and the factor by which it
# goes deeper if that was too little.
OVERSAMPLING = 8
DEEPER = 8
# If a filter keeps no more chunks than this, each is scored separately, at about 0.1 ms.
NARROW_FILTER_ROWS = 20_000


class PgTextsearchEngine(KeywordEngine):
    """BM25 of pg_textsearch, with its k1 1.2 and b 0.75; text lengths are rounded to 256 values, as in Lucene."""

    reads_operators = False
    name = "pg_textsearch"

    def __init__(self, language: str, extension: Extension | None = None) -> None:
        super().__init__(analyzers_of(language))
        self._language = language
        self._extension = extension or Extension(self.name)

    def create(self, names: Names) -> Sequence[sql.Composed]:
        """Return the statements that add a generated column (old versions index no expressions) and the BM25 index."""
        if self._extension.problem is not None:
            raise UnsupportedServerError(self._extension.problem)
        column = sql.SQL(
            "ALTER TABLE {} ADD COLUMN keyword_text text NOT NULL "
            "GENERATED ALWAYS AS (context || E'\\n' || chunk_text) STORED"
        ).format(names.chunk)
        return (column, *(index.create(names) for index in self.indexes(names)))

    def indexes(self, names: Names) -> Sequence[TableIndex]:
        """Return the BM25 index, which is made with the collection, and made again if it was dropped."""
        definition = sql.SQL("USING bm25 (keyword_text) WITH (text_config = {})").format(sql.Literal(self._language))
        return (TableIndex(INDEX, names.chunk, definition),)

    def leg(self, request: LegRequest) -> LegPlan | None:
        """Plan the search for chunks with any of the words, best score first; ties by key."""
        if self._extension.problem is not None:
            return RefusingLeg(self._extension.problem)
        return PgTextsearchLeg(self._extension, request)


class PgTextsearchLeg(PlainKeywordLeg, Scorer):
    """The planned keyword search of one query."""

    # The index returns chunks of equal score in any order, so all that are equal to the last one are taken, and ordered
    # here. The server computes the score of each chunk that it returns once more from the text, which takes longer than
    # finding it: no more of them are returned than needed.

    def __init__(self, extension: Extension, request: LegRequest) -> None:
        text, self._warnings = first_words(request.query)
        self._names, self._limit, self._condition = request.collection.names, request.limit, request.condition
        self._parameters = {"query": text, "limit": self._limit, **self._condition.parameters}
        schema = sql.Identifier(extension.schema or "")
        # Negative, the lower the better: an index can be read in ascending order only.
        self._distance = sql.SQL(
            "c.keyword_text OPERATOR({schema}.<@>) {schema}.to_bm25query(%(query)s::text, {index})"
        ).format(schema=schema, index=sql.Literal(f"{self._names.schema}.{self._names.collection}_{INDEX}"))

    @property
    def statements(self) -> tuple[Statement]:
        """The statement that reads the best chunks from the index."""
        return (self._best(self._first_depth),)

    @property
    def _first_depth(self) -> int:
        return min(OVERSAMPLING * self._limit, MAX_DEPTH)

    async def read(self, snapshot: Snapshot, rows: list[list[Any]]) -> LegResult:
        """Return the result; read more chunks if ties with the last one may be missing, or too few pass the filter."""
        found, depth, warnings = rows[0], self._first_depth, self._warnings
        while found and found[0][3] == depth < MAX_DEPTH:  # there may be more that are equal
            depth = min(DEEPER * depth, MAX_DEPTH)
            found = await fetch(snapshot, self._best(depth))
        if len(found) < self._limit and not self._condition.is_empty:
            large, narrow = (await fetch(snapshot, self._sizes()))[0]
            if large and narrow:
                found = await fetch(snapshot, self._every_chunk())
            elif large:
                warning = f"keyword search filtered only its best {MAX_DEPTH:,} chunks: hits may be missing"
                warnings = (*warnings, warning)
        return ranked(found, self, warnings=warnings)

    def _best(self, depth: int) -> Statement:
        """Return the statement for the best chunks that pass the filter; each row also has their number with ties."""
        # Past the depth the extension continues while the filter keeps too few; a chunk may then come twice.
        text = sql.SQL(
            "SELECT DISTINCT document_id, chunk_id, -distance AS score, count(*) OVER () FROM ("
            "SELECT document_id, chunk_id, distance FROM ("
            "SELECT c.document_id, c.chunk_id, {distance} AS distance FROM {chunk} AS c WHERE {condition} "
            "ORDER BY {distance} LIMIT %(depth)s) AS best "
            "ORDER BY distance FETCH FIRST (%(limit)s) ROWS WITH TIES) AS tied WHERE distance < 0 "
            "ORDER BY score DESC, document_id, chunk_id LIMIT %(limit)s"
        ).format(distance=self._distance, condition=self._condition.expression, chunk=self._names.chunk)
        return Statement(text, {**self._parameters, "depth": depth})

    def _sizes(self) -> Statement:
        """Return the statement that tells whether the collection exceeds `MAX_DEPTH`, and whether few chunks pass."""
        text = sql.SQL(
            "SELECT (SELECT count(*) FROM (SELECT FROM {chunk} LIMIT {deepest} + 1) AS bounded) > {deepest}, "
            "(SELECT count(*) FROM (SELECT FROM {chunk} AS c WHERE {condition} LIMIT {narrow} + 1) AS kept) <= {narrow}"
        ).format(
            chunk=self._names.chunk,
            condition=self._condition.expression,
            deepest=sql.Literal(MAX_DEPTH),
            narrow=sql.Literal(NARROW_FILTER_ROWS),
        )
        return Statement(text, self._parameters)

    def _every_chunk(self) -> Statement:
        """Return the statement that scores every chunk that passes the filter, one by one."""
        text = sql.SQL(
            "WITH scored AS MATERIALIZED (SELECT c.document_id, c.chunk_id, -({distance}) AS score FROM "
            "(SELECT c.document_id, c.chunk_id, c.keyword_text FROM {chunk} AS c WHERE {condition} OFFSET 0) AS c) "
            "SELECT document_id, chunk_id, score FROM scored WHERE score > 0 "
            "ORDER BY score DESC, document_id, chunk_id LIMIT %(limit)s"
        ).format(distance=self._distance, condition=self._condition.expression, chunk=self._names.chunk)
        return Statement(text, self._parameters)

    def missing_scores(self, keys: Sequence[Key]) -> KeyedScores:
        """Return the query for the scores of given chunks: 0 for one with none of the words, NaN for a deleted one."""
        text = sql.SQL(
            "SELECT c.document_id, c.chunk_id, -({}) FROM {} JOIN {} AS c USING (document_id, chunk_id)"
        ).format(self._distance, GIVEN_KEYS, self._names.chunk)
        return KeyedScores((Statement(text, {**self._parameters, **key_arrays(keys)}),), keys)
