"""Search keywords with Postgres' own full-text search: a tsvector column, OR of the query's words, ts_rank."""

# This is not BM25 (no inverse document frequency, no saturation), and its score is not called so.

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from psycopg import sql

from semlex.errors import ConfigurationError
from semlex.store.keyword.base import MAX_TERMS, Analyzers, terms_cut
from semlex.store.keyword.engine import KeywordEngine, LegRequest
from semlex.store.query.leg import NUMBERED_KEYS, KnownScores, PlainKeywordLeg, Scorer, Statement, ranked, scores_by_key
from semlex.store.schema.names import Names, TableIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.leg import Key, LegPlan, LegResult, ScoreQuery

# Name of the engine -> the rank function that scores it.
RANK_FUNCTIONS = {"tsvector": sql.SQL("ts_rank"), "tsvector_cd": sql.SQL("ts_rank_cd")}
# 1 divides the rank by 1 + log(length): measured best for both rank functions on nine test collections.
LENGTH_NORMALISATION = 1

# A lexeme in the syntax of tsquery: between quotes, with quote and backslash doubled.
QUOTED_LEXEME = sql.SQL("'''' || replace(replace(lexeme, '\\', '\\\\'), '''', '''''') || ''''")


def analyzers_of(language: str) -> Analyzers:
    """Return the analyzers for a text-search configuration; only the form of its name is checked."""
    if not re.fullmatch(r"[a-z_]{1,63}", language):
        raise ConfigurationError(f"language must be a text-search configuration such as 'english'; got {language!r}")
    return Analyzers.known(language)


class TsvectorEngine(KeywordEngine):
    """Full-text search of Postgres."""

    reads_operators = False

    def __init__(self, language: str, name: str = "tsvector") -> None:
        super().__init__(analyzers_of(language))
        self.name = name
        self._rank = RANK_FUNCTIONS[name]
        # A constant regconfig keeps the generated column immutable; the type is never stored in a column, which
        # pg_upgrade would refuse.
        self._config = sql.SQL("{}::regconfig").format(sql.Literal(f"pg_catalog.{language}"))

    def create(self, names: Names) -> Sequence[sql.Composed]:
        """Return the statement that adds the generated column of words; titles and headings are searched, too."""
        return (
            sql.SQL(
                "ALTER TABLE {} ADD COLUMN text_search tsvector "
                "GENERATED ALWAYS AS (to_tsvector({}, context || E'\\n' || chunk_text)) STORED"
            ).format(names.chunk, self._config),
        )

    def indexes(self, names: Names) -> Sequence[TableIndex]:
        """Return a GIN index on the column."""
        return (TableIndex("text_search", names.chunk, sql.SQL("USING gin (text_search)")),)

    def _tsquery(self) -> sql.Composed:
        """Return SQL of the OR of the query's lexemes."""
        # The parser's own query functions are not used: they AND the words, so a question finds nothing, and they fail
        # on hostile text.
        return sql.SQL(
            "(SELECT coalesce(string_agg({quoted}, ' | '), '')::tsquery FROM ("
            "SELECT lexeme FROM unnest(to_tsvector({config}, %(query)s)) ORDER BY positions[1], lexeme LIMIT {limit}"
            ") AS term)"
        ).format(quoted=QUOTED_LEXEME, config=self._config, limit=sql.Literal(MAX_TERMS))

    def leg(self, request: LegRequest) -> LegPlan | None:
        """Plan the search for chunks with any of the words, best rank first; ties by key."""
        query, condition = request.query, request.condition
        parts = {
            "asked": sql.SQL("WITH asked AS MATERIALIZED (SELECT {} AS terms)").format(self._tsquery()),
            "score": sql.SQL("{}(c.text_search, asked.terms, {})::float8").format(
                self._rank, sql.Literal(LENGTH_NORMALISATION)
            ),
            "chunk": request.collection.names.chunk,
            "condition": condition.expression,
        }
        statement = sql.SQL(
            "{asked} SELECT c.document_id, c.chunk_id, {score} AS score "
            "FROM {chunk} AS c, asked WHERE c.text_search @@ asked.terms AND {condition} "
            "ORDER BY score DESC, c.document_id, c.chunk_id LIMIT %(limit)s"
        ).format(**parts)
        of_others = sql.SQL(
            "{asked} SELECT CASE WHEN c.text_search @@ asked.terms THEN {score} WHEN c.chunk_id IS NOT NULL THEN 0 END "
            "FROM {keys} CROSS JOIN asked LEFT JOIN {chunk} AS c USING (document_id, chunk_id) ORDER BY k.number"
        ).format(**parts, keys=NUMBERED_KEYS)
        count = sql.SQL("SELECT count(*) FROM unnest(to_tsvector({}, %(query)s))").format(self._config)
        parameters = {"query": query, "limit": request.limit, **condition.parameters}
        statements = (Statement(count, {"query": query}), Statement(statement, parameters))
        return TsvectorLeg(statements, request.limit, Statement(of_others, {"query": query}))


@dataclass(frozen=True, slots=True)
class TsvectorLeg(PlainKeywordLeg):
    """The planned keyword search of one query."""

    statements: tuple[Statement, Statement]  # the number of words, and the best chunks
    limit: int
    of_others: Statement  # ranks by key

    async def read(self, snapshot: Snapshot, rows: list[list[Any]]) -> LegResult:
        """Return the result of the search."""
        del snapshot
        counted, found = rows
        scorer = TsvectorScorer(self.of_others, found_all=len(found) < self.limit)
        return ranked(found, scorer, warnings=terms_cut(counted[0][0]))


@dataclass(frozen=True, slots=True)
class TsvectorScorer(Scorer):
    """Computes the ranks of given chunks: 0 for one without any of the words, NaN for a deleted one."""

    of_others: Statement  # ranks by key
    found_all: bool  # whether the leg found all chunks that contain a word

    def missing_scores(self, keys: Sequence[Key]) -> ScoreQuery:
        """Return the query for the ranks; zeros without a query if the search found all chunks that match."""
        return KnownScores(np.zeros(len(keys))) if self.found_all else scores_by_key(self.of_others, keys)
