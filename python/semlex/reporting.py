"""What is told of an open collection and of the server it lives on."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from semlex.errors import SemlexError
from semlex.store import ingestion, rows
from semlex.store.lexical.bm25 import Bm25Engine
from semlex.store.server import read_server_info

if TYPE_CHECKING:
    from semlex.embedding.cache import QueryEmbeddingCache
    from semlex.store.connection import Database
    from semlex.store.schema import Collection


async def collection_status(
    database: Database, collection: Collection, query_cache: QueryEmbeddingCache
) -> dict[str, Any]:
    """Figures of a collection: counts, model, keyword index, what is remembered, the last run."""
    figures = await database.read("count", lambda c: rows.collection_figures(c, collection))
    run = await database.read("read the log", lambda c: ingestion.last_run(c, collection))
    embedding, engine, cache = collection.embedding, collection.lexical, query_cache.figures
    told: dict[str, Any] = {
        "collection": collection.names.collection,
        "schema": collection.names.schema,
        "postgres": collection.server.postgres,
        "pgvector": ".".join(map(str, collection.server.pgvector or ())),
        "lexical": collection.settings.lexical_engine,
        "language": collection.settings.language,
        "token_counter": collection.settings.token_counter,
        "embedding_model": embedding.model if embedding else None,
        "dimensions": embedding.dimensions if embedding else None,
        "distance": collection.settings.distance,
        **figures,
        "query_cache": asdict(cache) | {"hit_rate": cache.hit_rate},
    }
    if isinstance(engine, Bm25Engine):
        told["keyword_cache"] = engine.cache_figures()
    return told | {"last_run": run}


async def server_health(database: Database) -> dict[str, Any]:
    """Whether the database answers; never raises for one that does not.

    Returns:
        ``ok``, ``milliseconds``, and either ``postgres``, ``pgvector``, ``read_only`` or ``error``.
    """
    started = time.perf_counter()
    try:
        server = await database.read("look at the server", read_server_info)
    except SemlexError as error:
        return {"ok": False, "milliseconds": (time.perf_counter() - started) * 1000, "error": str(error)}
    return {
        "ok": server.pgvector is not None,
        "milliseconds": (time.perf_counter() - started) * 1000,
        "postgres": server.postgres,
        "pgvector": ".".join(map(str, server.pgvector or ())),
        "read_only": server.read_only,
    }
