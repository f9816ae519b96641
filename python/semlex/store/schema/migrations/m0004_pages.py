"""Pages of chunks, and by what a file that did not change is known without reading it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.schema.names import Names


def collection(names: Names) -> Sequence[sql.Composed]:
    """Columns that are NULL for what is stored: added without writing a row."""
    return (
        sql.SQL("ALTER TABLE {} ADD COLUMN page int").format(names.chunk),
        sql.SQL("ALTER TABLE {} ADD COLUMN file_state text, ADD COLUMN encoding text").format(names.document),
    )
