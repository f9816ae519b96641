"""The hybrid search that is usually built on Postgres: words that must all occur, ts_rank_cd, RRF with pgvector."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from pgvector.psycopg import register_vector
from psycopg import sql

if TYPE_CHECKING:
    import numpy as np

TABLE = sql.Identifier("usual_hybrid")
DEPTH = 20
RRF_K = 60.0
# ISO 639-1 -> Postgres' text-search configuration; `simple` for the others.
CONFIGURATIONS = {
    "ar": "arabic",
    "ca": "catalan",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "eu": "basque",
    "fi": "finnish",
    "fr": "french",
    "ga": "irish",
    "hi": "hindi",
    "hu": "hungarian",
    "hy": "armenian",
    "id": "indonesian",
    "it": "italian",
    "lt": "lithuanian",
    "ne": "nepali",
    "nl": "dutch",
    "no": "norwegian",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sr": "serbian",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
}


def usual_hybrid(
    url: str,
    language: str,
    documents: dict[str, str],
    vectors: np.ndarray,
    queries: dict[str, str],
    query_vectors: np.ndarray,
) -> dict[str, dict[str, float]]:
    """Query id -> document id -> fused score."""
    configuration = CONFIGURATIONS.get(language, "simple")
    words = sql.SQL(
        "SELECT id FROM {table} WHERE words @@ plainto_tsquery({configuration}, %(text)s) "
        "ORDER BY ts_rank_cd(words, plainto_tsquery({configuration}, %(text)s)) DESC, id LIMIT {depth}"
    ).format(table=TABLE, configuration=sql.Literal(configuration), depth=DEPTH)
    nearest = sql.SQL("SELECT id FROM {} ORDER BY embedding <=> %(vector)s, id LIMIT {}").format(TABLE, DEPTH)
    run: dict[str, dict[str, float]] = {}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        register_vector(connection)
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(TABLE))
        connection.execute(
            sql.SQL(
                "CREATE TABLE {table} (id text PRIMARY KEY, body text, embedding vector({dimensions}), "
                "words tsvector GENERATED ALWAYS AS (to_tsvector({configuration}, body)) STORED)"
            ).format(table=TABLE, dimensions=sql.Literal(vectors.shape[1]), configuration=sql.Literal(configuration))
        )
        with connection.cursor() as cursor:
            rows = zip(documents, documents.values(), vectors, strict=True)
            insert = sql.SQL("INSERT INTO {} (id, body, embedding) VALUES (%s, %s, %s)").format(TABLE)
            cursor.executemany(insert, list(rows))
        connection.execute(sql.SQL("CREATE INDEX ON {} USING gin (words)").format(TABLE))
        connection.execute(sql.SQL("ANALYZE {}").format(TABLE))
        for (query, text), vector in zip(queries.items(), query_vectors, strict=True):
            scores: dict[str, float] = {}
            for statement, values in ((words, {"text": text}), (nearest, {"vector": vector})):
                for rank, (document,) in enumerate(connection.execute(statement, values).fetchall(), start=1):
                    scores[document] = scores.get(document, 0.0) + 1 / (RRF_K + rank)
            run[query] = scores
        connection.execute(sql.SQL("DROP TABLE {}").format(TABLE))
    return run
