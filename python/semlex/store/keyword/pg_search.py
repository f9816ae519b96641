"""Keyword search by the extension pg_search (ParadeDB): BM25 in a Tantivy index inside Postgres."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex.errors import ConfigurationError, UnsupportedServerError
from semlex.store.keyword.base import Analyzers
from semlex.store.keyword.engine import KeywordEngine, LegRequest
from semlex.store.keyword.extensions import Extension, RefusingLeg, first_words
from semlex.store.query.leg import GIVEN_KEYS, KeyedScores, PlainKeywordLeg, Scorer, Statement, key_arrays, ranked
from semlex.store.schema.names import Names, TableIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.leg import Key, LegPlan, LegResult

INDEX = "keyword_words"
# Languages that both the extension's stemmers and the server's text-search configurations (for excerpts) know.
STEMMERS = (
    *("arabic", "danish", "dutch", "english", "finnish", "french", "german", "greek", "hungarian", "italian"),
    *("norwegian", "portuguese", "romanian", "russian", "spanish", "swedish", "tamil", "turkish"),
)
WITHOUT_STOP_WORDS = ("arabic", "greek", "romanian", "tamil", "turkish")
TEXT = sql.SQL("(c.context || E'\\n' || c.chunk_text)")


class PgSearchEngine(KeywordEngine):
    """BM25 of pg_search; the length of a text is rounded to one of 256 values, as in Lucene."""

    # The query is an operand of the operator ``|||``, which only cuts it into words and looks for any of them: the
    # extension's query language cannot be reached. The extension always lies in the schemas ``paradedb`` and ``pdb``,
    # its operators in ``pg_catalog``.

    name = "pg_search"
    reads_operators = False

    def __init__(self, language: str, extension: Extension | None = None, *, stop_words: bool = True) -> None:
        if language not in (*STEMMERS, "simple"):
            raise ConfigurationError(
                f"pg_search knows the languages {', '.join(STEMMERS)} and simple; got {language!r}: "
                "choose simple, or another keyword engine"
            )
        super().__init__(Analyzers.known(language, stop_words=stop_words))
        self._extension = extension or Extension(self.name)
        options = ["alias=words"]
        if language in STEMMERS:
            options.append(f"stemmer={language}")
            if stop_words and language not in WITHOUT_STOP_WORDS:
                options.append(f"stopwords_language={language}")
        self._tokenizer = sql.SQL("pdb.unicode_words({})").format(sql.SQL(", ").join(map(sql.Literal, options)))

    def create(self, names: Names) -> Sequence[sql.Composed]:
        """Return the statement that makes the BM25 index."""
        if self._extension.problem is not None:
            raise UnsupportedServerError(self._extension.problem)
        return tuple(index.create(names) for index in self.indexes(names))

    def indexes(self, names: Names) -> Sequence[TableIndex]:
        """Return the BM25 index, which is made with the collection, and made again if it was dropped."""
        # The extension wants one column that names a row, and orders by columns that are in its index.
        definition = sql.SQL(
            "USING bm25 (keyword_id, ((context || E'\\n' || chunk_text)::{}), document_id, "
            "(chunk_id::pdb.literal)) WITH (key_field = 'keyword_id')"
        ).format(self._tokenizer)
        return (TableIndex(INDEX, names.chunk, definition),)

    def leg(self, request: LegRequest) -> LegPlan | None:
        """Plan the search for chunks with any of the words, best score first; ties by key."""
        names, condition = request.collection.names, request.condition
        if self._extension.problem is not None:
            return RefusingLeg(self._extension.problem)
        words, warnings = first_words(request.query)
        # The filter and the order are worked off inside the extension, so there are as many rows as exist.
        text = sql.SQL(
            "SELECT c.document_id, c.chunk_id, pdb.score(c.keyword_id) AS score FROM {chunk} AS c "
            "WHERE {text} OPERATOR(pg_catalog.|||) %(query)s::text AND {condition} "
            "ORDER BY score DESC, c.document_id, c.chunk_id LIMIT %(limit)s"
        ).format(chunk=names.chunk, text=TEXT, condition=condition.expression)
        statement = Statement(text, {"query": words, "limit": request.limit, **condition.parameters})
        return PgSearchLeg((statement,), warnings, names, words)


@dataclass(frozen=True, slots=True)
class PgSearchLeg(PlainKeywordLeg, Scorer):
    """The planned keyword search of one query; its scores are 0 for a chunk without any of the words."""

    statements: tuple[Statement]  # one, of rows that `ranked` takes
    warnings: tuple[str, ...]
    names: Names
    words: str  # the query as far as it is searched

    async def read(self, snapshot: Snapshot, rows: list[list[Any]]) -> LegResult:
        """Return the result of the search."""
        del snapshot
        return ranked(rows[0], self, warnings=self.warnings)

    def missing_scores(self, keys: Sequence[Key]) -> KeyedScores:
        """Read which chunks exist, and the scores of those that contain a word."""
        arrays = key_arrays(keys)
        # The extension adds 1 to the score for a plain condition on a column of its index, hence `const(0)`. The
        # conditions let more chunks pass than are asked for; a join would lose the score.
        scored = sql.SQL(
            "SELECT c.document_id, c.chunk_id, pdb.score(c.keyword_id) FROM {chunk} AS c "
            "WHERE {text} OPERATOR(pg_catalog.|||) %(query)s::text "
            "AND c.document_id OPERATOR(pg_catalog.@@@) pdb.term_set(%(document_ids)s::uuid[])::pdb.const(0) "
            "AND c.chunk_id OPERATOR(pg_catalog.@@@) pdb.term_set(%(chunk_ids)s::text[])::pdb.const(0)"
        ).format(chunk=self.names.chunk, text=TEXT)
        existing = sql.SQL(
            "SELECT c.document_id, c.chunk_id, 0::float8 FROM {} JOIN {} AS c USING (document_id, chunk_id)"
        ).format(GIVEN_KEYS, self.names.chunk)
        statements = Statement(existing, arrays), Statement(scored, {"query": self.words, **arrays})
        return KeyedScores(statements, keys)
