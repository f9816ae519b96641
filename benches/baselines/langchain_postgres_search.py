"""Run by the interpreter of the baseline's environment: hybrid searches of langchain-postgres, several at once.

As its documentation says for speed: a column of type tsvector with its GIN index, and an HNSW index. The words of a
query stay in a store's configuration once they are there, so every search brings a configuration of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_postgres import Column, PGEngine, PGVectorStore
from langchain_postgres.v2.hybrid_search_config import HybridSearchConfig, reciprocal_rank_fusion
from langchain_postgres.v2.indexes import HNSWIndex
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import create_async_engine

from benches.under_load import under_load

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TOP = 10


class GivenVectors(Embeddings):
    """Vectors of texts, looked up."""

    def __init__(self, vectors: dict[str, list[float]]) -> None:
        self._vectors = vectors

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self._vectors[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self._vectors[text]

    async def aembed_query(self, text: str) -> list[float]:
        return self._vectors[text]


def hybrid() -> HybridSearchConfig:
    """A configuration without the words of any query."""
    return HybridSearchConfig(
        tsv_column="content_tsv", fusion_function=reciprocal_rank_fusion, primary_top_k=TOP, secondary_top_k=TOP
    )


async def create(engine: PGEngine, asked: dict[str, Any]) -> None:
    """The table, without indexes."""
    identity = Column("langchain_id", "TEXT", nullable=False)
    await engine.ainit_vectorstore_table(
        asked["table"], asked["dimensions"], id_column=identity, hybrid_search_config=hybrid()
    )


async def index(engine: PGEngine, asked: dict[str, Any]) -> None:
    """Its indexes."""
    store = await PGVectorStore.create(engine, GivenVectors({}), asked["table"], hybrid_search_config=hybrid())
    await store.aapply_hybrid_search_index()
    await store.aapply_vector_index(HNSWIndex())


async def search(engine: PGEngine, asked: dict[str, Any]) -> dict[str, Any]:
    """What the searches cost."""
    queries = asked["queries"]
    given = GivenVectors(dict(zip(queries, np.load(asked["vectors"]).tolist(), strict=True)))
    store = await PGVectorStore.create(engine, given, asked["table"], hybrid_search_config=hybrid())

    async def ask(number: int) -> int:
        return len(await store.asimilarity_search(queries[number], k=TOP, hybrid_search_config=hybrid()))

    return asdict(await under_load(ask, len(queries), asked["at_once"], asked["seconds"]))


async def answered(**actions: Callable[[PGEngine, dict[str, Any]], Awaitable[Any]]) -> None:
    """Does what is asked, and writes the answer."""
    asked = json.load(sys.stdin)
    target = conninfo_to_dict(asked["url"])
    address = URL.create(
        "postgresql+psycopg", target["user"], database=target["dbname"], query={"host": target["host"]}
    )
    pool = create_async_engine(address, pool_size=asked.get("at_once", 1))
    print(json.dumps(await actions[asked["do"]](PGEngine.from_engine(pool), asked)))
    await pool.dispose()


if __name__ == "__main__":
    asyncio.run(answered(create=create, index=index, search=search))
