"""Filtered vector searches of langchain-postgres and Haystack, beside ours on the same server and rows."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from psycopg import sql

from benches.baseline_tables import BaselineTable
from benches.preparing import haystack_python, langchain_python

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def measured(
    url: str,
    state: Path,
    cells: Sequence[dict[str, Any]],
    vectors: NDArray[np.float32],
    *,
    collection: str = "filters",
) -> dict[str, dict[str, dict[str, Any]]]:
    """Asks every query of every cell for its ten nearest rows.

    Args:
        url: Of the server that holds our collection.
        state: Where the baselines' environments are; one that is not there is left out.
        cells: `name`, and `filters`: of each query, as ours takes them. All fields are whole numbers.
        vectors: Of the queries, float32, shape (q, d).
        collection: Ours, which the baselines' tables are filled from.

    Returns:
        By the baseline's name and the cell's: `rows` (in the mean), `p50` (seconds, warm), `hits` (ids, by query).
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.npy"
        np.save(path, vectors)
        found = {}
        for name, table in _tables(state, cells).items():
            if table.python.exists():
                table.fill(url, collection)
                found[name] = table.ask(
                    url, "search", cells=list(cells), vectors=str(path), dimensions=vectors.shape[1]
                )
        return found


def _tables(state: Path, cells: Sequence[dict[str, Any]]) -> dict[str, BaselineTable]:
    """The baselines; a field that is filtered by is a column of langchain-postgres' table."""
    fields = sorted({name for cell in cells for own in cell["filters"] for name in own})
    row = {name: sql.SQL("r.{}").format(sql.Identifier(name)) for name in ("id", "content", "embedding", "metadata")}
    columns = {"langchain_id": row["id"], "content": row["content"], "embedding": row["embedding"]}
    columns["langchain_metadata"] = sql.SQL("r.metadata - {}::text[]").format(fields)
    columns |= {name: sql.SQL("(r.metadata->>{})::integer").format(name) for name in fields}
    meta = {"id": row["id"], "content": row["content"], "embedding": row["embedding"], "meta": row["metadata"]}
    return {
        "langchain-postgres": BaselineTable(
            langchain_python(state), "langchain_postgres_filters", "langchain_filters", columns, {"fields": fields}
        ),
        "haystack": BaselineTable(haystack_python(state), "haystack_filters", "haystack_filters", meta),
    }
