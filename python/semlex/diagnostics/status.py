"""What is told of an open collection and of the server it lives on."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from semlex.errors import SemlexError
from semlex.store.postgres.addresses import describe_connection
from semlex.store.postgres.server_info import read_server_info
from semlex.store.query.statistics import collection_figures
from semlex.store.write import documents

if TYPE_CHECKING:
    from pathlib import Path

    from semlex.embedding.query_cache import QueryEmbeddingCache
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import Collection


async def collection_status(
    database: Database,
    collection: Collection,
    query_cache: QueryEmbeddingCache,
    *,
    data_folder: Path | None = None,
    exact: bool = False,
) -> dict[str, Any]:
    """Where a collection is, and its figures: counts, model, keyword index, what is remembered, the last run.

    Args:
        database: An open database.
        collection: As opened.
        query_cache: Of the retriever.
        data_folder: Folder of the embedded server, or None.
        exact: Whether large tables are counted; see `semlex.store.query.statistics`.
    """

    async def count(connection: Connection) -> tuple[str, dict[str, Any]]:
        return describe_connection(connection), await collection_figures(connection, collection, exact=exact)

    server, figures = await database.read("count", count)
    run = await database.read("read the log", lambda c: documents.last_run(c, collection))
    embedding, engine, cache = collection.embedding, collection.lexical, query_cache.figures
    told: dict[str, Any] = {
        "collection": collection.names.collection,
        "schema": collection.names.schema,
        "server": server,
        "data_folder": None if data_folder is None else str(data_folder),
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
    if engine.index is not None:
        told["keyword_cache"] = engine.index.cache_figures()
    return told | {"last_run": run}


async def server_health(database: Database, models: dict[str, str | None]) -> dict[str, Any]:
    """Whether the database answers; never raises for one that does not.

    Returns:
        ``ok``, ``milliseconds``, and either ``postgres``, ``pgvector``, ``read_only`` and the models, or ``error``.
    """
    started = time.perf_counter()
    try:
        server = await database.read("look at the server", read_server_info, deadline=database.timeout)
    except SemlexError as error:
        return {"ok": False, "milliseconds": (time.perf_counter() - started) * 1000, "error": str(error)}
    return {
        "ok": server.pgvector is not None,
        "milliseconds": (time.perf_counter() - started) * 1000,
        "postgres": server.postgres,
        "pgvector": ".".join(map(str, server.pgvector or ())),
        "read_only": server.read_only,
        **models,
    }
