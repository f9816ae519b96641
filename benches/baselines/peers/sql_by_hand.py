"""Hand-written SQL: HNSW of pgvector, tsvector with GIN, ts_rank_cd, and reciprocal ranks, all in one statement.

Words must all occur, as pgvector's own example of a hybrid search has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, LiteralString

from pgvector.psycopg import register_vector
from psycopg import Connection, sql
from psycopg_pool import ConnectionPool

from benches.baselines.peers.protocol import DEPTH, RRF_K, TOP, Peer, Rows, Where

if TYPE_CHECKING:
    import numpy as np

ALL_WORDS: LiteralString = "plainto_tsquery('english', %(text)s)"


def opened(place: str, name: str) -> SqlByHand:
    """A table in a database."""
    return SqlByHand(place, name, ALL_WORDS)


class SqlByHand(Peer):
    """One table and one statement.

    Args:
        place: Address of the server.
        name: Of the table.
        query: The text as a tsquery.
    """

    def __init__(self, place: str, name: str, query: LiteralString) -> None:
        super().__init__(place, name)
        self._table = sql.Identifier(f"rows_{name}")
        with Connection.connect(place, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        self._pool = ConnectionPool(
            place, min_size=1, max_size=8, open=True, configure=register_vector, kwargs={"autocommit": True}
        )
        self._hybrid = sql.SQL(
            "WITH nearest AS (SELECT id, row_number() OVER () AS rank FROM ({nearest}) AS n), "
            "words AS (SELECT id, row_number() OVER (ORDER BY score DESC) AS rank FROM "
            "(SELECT id, ts_rank_cd(words, query) AS score FROM {table}, (SELECT {query} AS query) AS asked "
            "WHERE words @@ query ORDER BY score DESC LIMIT {depth}) AS w), "
            "fused AS (SELECT id, sum(1.0 / ({k} + rank)) AS score FROM "
            "(SELECT * FROM nearest UNION ALL SELECT * FROM words) AS ranked "
            "GROUP BY id ORDER BY score DESC LIMIT {top}) "
            "SELECT id, body, score FROM fused JOIN {table} USING (id) ORDER BY score DESC"
        ).format(
            nearest=self._nearest(sql.SQL(""), DEPTH),
            table=self._table,
            query=sql.SQL(query),
            depth=DEPTH,
            k=RRF_K,
            top=TOP,
        )

    def _nearest(self, condition: sql.Composable, number: int) -> sql.Composed:
        return sql.SQL("SELECT id FROM {} {} ORDER BY embedding <=> %(vector)s LIMIT {}").format(
            self._table, condition, number
        )

    def load(self, rows: Rows) -> None:
        fields = [sql.Identifier(field) for field in rows.fields]
        typed = sql.SQL("").join(sql.SQL(", {} integer").format(field) for field in fields)
        named = sql.SQL("").join(sql.SQL(", {}").format(field) for field in fields)
        with self._pool.connection() as connection:
            connection.execute(
                sql.SQL(
                    "CREATE TABLE {} (id integer PRIMARY KEY, body text, embedding vector({}), words tsvector "
                    "GENERATED ALWAYS AS (to_tsvector('english', body)) STORED{})"
                ).format(self._table, rows.vectors.shape[1], typed)
            )
            statement = sql.SQL("COPY {} (id, body, embedding{}) FROM STDIN (FORMAT binary)")
            with connection.cursor().copy(statement.format(self._table, named)) as copy:
                copy.set_types(["integer", "text", "vector", *["integer"] * len(fields)])
                for row, text in enumerate(rows.texts):
                    copy.write_row([row, text, rows.vectors[row], *rows.of(row).values()])

    def index(self, rows: Rows) -> None:
        with self._pool.connection() as connection:
            connection.execute(sql.SQL("CREATE INDEX ON {} USING gin (words)").format(self._table))
            connection.execute(
                sql.SQL("CREATE INDEX ON {} USING hnsw (embedding vector_cosine_ops)").format(self._table)
            )
            for field in rows.fields:
                connection.execute(sql.SQL("CREATE INDEX ON {} ({})").format(self._table, sql.Identifier(field)))

    def search(self, text: str, vector: np.ndarray[Any, Any]) -> list[int]:
        with self._pool.connection() as connection:
            found = connection.execute(self._hybrid, {"text": text, "vector": vector}, binary=True)
            return [row[0] for row in found.fetchall()]

    def nearest(self, vector: np.ndarray[Any, Any], where: Where) -> list[int]:
        condition = sql.SQL("") if where is None else sql.SQL("WHERE {} = %(value)s").format(sql.Identifier(where[0]))
        statement = self._nearest(condition, TOP)
        with self._pool.connection() as connection:
            value = None if where is None else where[1]
            found = connection.execute(statement, {"vector": vector, "value": value}, binary=True)
            return [row for (row,) in found.fetchall()]

    def close(self) -> None:
        self._pool.close()
