"""The columns of a collection's tables, by the types in which they travel in a COPY."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.store.write.chunk_batch import COLUMNS
from semlex.store.write.documents import DOCUMENT_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from psycopg import sql

    from semlex.store.schema.names import Names

TIMES = {"created_at": "timestamptz", "updated_at": "timestamptz"}
# What a dump holds, in the order in which it is restored. Ids in the keyword index are no part of it: it is made anew.
TABLES: Mapping[str, Mapping[str, str]] = {
    "sources": {"source_id": "uuid", "name": "text", "root": "text", "key": "text", "kind": "text", **TIMES},
    "documents": {**DOCUMENT_COLUMNS, **TIMES},
    "runs": {
        "run_id": "uuid",
        "source_uri": "text",
        "command": "text",
        "client": "text",
        "embedding_model": "text",
        "started_at": "timestamptz",
        "finished_at": "timestamptz",
        "seconds": "float8",
        "added": "int4",
        "changed": "int4",
        "unchanged": "int4",
        "deleted": "int4",
        "failed": "int4",
        "chunks": "int4",
        "problems": "jsonb",
    },
    "chunks": {column.name: column.wire for column in COLUMNS},
}
CHUNKS = "chunks"
VECTOR = "embedding"


def table_of(names: Names, table: str) -> sql.Identifier:
    """A table by its name in `TABLES`."""
    return {
        "sources": names.source,
        "documents": names.document,
        "runs": names.ingestion_log,
        "chunks": names.chunk,
    }[table]
