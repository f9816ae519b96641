"""Run by the interpreter of the baseline's environment: filtered vector searches of langchain-postgres.

The fields are columns of their own, as its documentation advises for fields that are filtered by; the index is what
`apply_vector_index` makes without further options.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from langchain_postgres import Column, PGEngine, PGVectorStore
from langchain_postgres.v2.indexes import HNSWIndex

from benches.baselines.filtered import TOP, timed
from benches.baselines.langchain_postgres_search import GivenVectors, answered


async def create(engine: PGEngine, asked: dict[str, Any]) -> None:
    """The table, without its index."""
    identity = Column("langchain_id", "TEXT", nullable=False)
    columns = [Column(name, "INTEGER") for name in asked["fields"]]
    await engine.ainit_vectorstore_table(
        asked["table"], asked["dimensions"], metadata_columns=columns, id_column=identity
    )


async def opened(engine: PGEngine, asked: dict[str, Any]) -> PGVectorStore:
    """The store; vectors are given, so it needs no model."""
    return await PGVectorStore.create(engine, GivenVectors({}), asked["table"], metadata_columns=asked["fields"])


async def index(engine: PGEngine, asked: dict[str, Any]) -> None:
    """The vectors' index."""
    await (await opened(engine, asked)).aapply_vector_index(HNSWIndex())


async def search(engine: PGEngine, asked: dict[str, Any]) -> dict[str, Any]:
    """Every cell."""
    store = await opened(engine, asked)

    async def ask(vector: list[float], own: dict[str, Any]) -> list[str]:
        return [hit.id for hit in await store.asimilarity_search_by_vector(vector, k=TOP, filter=own)]

    return await timed(asked["cells"], np.load(asked["vectors"]).tolist(), ask)


if __name__ == "__main__":
    asyncio.run(answered(create=create, index=index, search=search))
