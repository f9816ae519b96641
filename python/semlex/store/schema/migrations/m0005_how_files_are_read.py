"""The third of the settings that texts are cut with, and the fields that the rows of a file are read by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.schema.names import Names


def registry(schema: str) -> Sequence[sql.Composed]:
    """NULL until the first file is cut, and where that was done before: with the default of its ``chunk_tokens``."""
    table = sql.Identifier(schema, "collection")
    return (sql.SQL("ALTER TABLE {} ADD COLUMN min_tokens int").format(table),)


def collection(names: Names) -> Sequence[sql.Composed]:
    """The same of a document; ``fields`` is empty where none were named."""
    return (
        sql.SQL("ALTER TABLE {} ADD COLUMN min_tokens int, ADD COLUMN fields jsonb NOT NULL DEFAULT '{{}}'").format(
            names.document
        ),
    )
