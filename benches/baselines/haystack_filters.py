"""Run by the interpreter of the baseline's environment: filtered vector searches of Haystack's PgvectorDocumentStore.

With `search_strategy="hnsw"` and no further options.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any

import numpy as np
from haystack.utils import Secret
from haystack_integrations.components.retrievers.pgvector import PgvectorEmbeddingRetriever
from haystack_integrations.document_stores.pgvector import PgvectorDocumentStore

from benches.baselines.filtered import TOP, timed

OPERATORS = {"$gte": ">=", "$gt": ">", "$lte": "<=", "$lt": "<", "$ne": "!=", "$in": "in", "$nin": "not in"}


def opened(asked: dict[str, Any], strategy: str = "hnsw") -> PgvectorDocumentStore:
    """The store; it makes its table and indexes when it is first asked."""
    return PgvectorDocumentStore(
        connection_string=Secret.from_token(asked["url"]),
        table_name=asked["table"],
        embedding_dimension=asked["dimensions"],
        search_strategy=strategy,
    )


def haystack_filter(own: dict[str, Any]) -> dict[str, Any]:
    """The filter in Haystack's form."""
    conditions = []
    for name, wanted in own.items():
        for operator, value in (wanted if isinstance(wanted, dict) else {"==": wanted}).items():
            condition = {"field": f"meta.{name}", "operator": OPERATORS.get(operator, operator), "value": value}
            conditions.append(condition)
    return conditions[0] if len(conditions) == 1 else {"operator": "AND", "conditions": conditions}


def search(asked: dict[str, Any]) -> dict[str, Any]:
    """Every cell."""
    retriever = PgvectorEmbeddingRetriever(document_store=opened(asked), top_k=TOP)

    async def ask(vector: list[float], own: dict[str, Any]) -> list[str]:
        return [hit.id for hit in retriever.run(vector, filters=own)["documents"]]

    cells = [cell | {"filters": [haystack_filter(own) for own in cell["filters"]]} for cell in asked["cells"]]
    return asyncio.run(timed(cells, np.load(asked["vectors"]).tolist(), ask))


def main() -> None:
    """Does what is asked."""
    logging.disable(logging.WARNING)  # it says each time that the index is there
    asked = json.load(sys.stdin)
    answer = None
    if asked["do"] == "search":
        answer = search(asked)
    else:
        # Rows are put into the table before it has an index of vectors.
        opened(asked, "exact_nearest_neighbor" if asked["do"] == "create" else "hnsw").count_documents()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
