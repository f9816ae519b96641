"""Describe the content of a collection in a sentence: by its owner's text, else by titles of sampled documents."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.names import Names

MAX_DESCRIPTION_BYTES = 1000
# Keys are hashes: the first ones are a sample of the documents that is always the same.
SAMPLED_CHUNKS = 1000
MAX_TITLES = 8
MAX_TITLE = 60

# Only a description that somebody wrote is stored. Titles are read when they are needed: they are never out of date,
# and storing them would change the registry's row, by which writers know that nothing has changed.
TITLES = sql.SQL(
    "SELECT CASE WHEN c.chapter_title <> '' THEN c.chapter_title ELSE coalesce(d.title, '') END "
    "FROM (SELECT document_id, chapter_title FROM {chunk} ORDER BY document_id, chunk_id LIMIT {rows}) AS c "
    "LEFT JOIN {document} AS d USING (document_id)"
)


async def read_own_description(connection: Connection, names: Names) -> str | None:
    """Return the description that was written for a collection; None if none was written."""
    cursor = await connection.execute(
        sql.SQL("SELECT description FROM {} WHERE name = %s").format(names.registry), [names.collection]
    )
    row = await cursor.fetchone()
    return row[0] if row else None


async def write_description(connection: Connection, names: Names, text: str | None) -> None:
    """Store the description of a collection; None removes it, so that titles describe the collection."""
    await connection.execute(
        sql.SQL("UPDATE {} SET description = %s WHERE name = %s").format(names.registry), [text, names.collection]
    )


async def read_titles(connection: Connection, names: Names) -> list[str]:
    """Return the titles with the most chunks among a sample, best first; each on one line, shortened."""
    statement = TITLES.format(chunk=names.chunk, document=names.document, rows=sql.Literal(SAMPLED_CHUNKS))
    cursor = await connection.execute(statement)
    counts = Counter(" ".join(title.split()) for (title,) in await cursor.fetchall())
    ordered = sorted((title for title in counts if title), key=lambda title: (-counts[title], title))
    return [title if len(title) <= MAX_TITLE else f"{title[: MAX_TITLE - 1]}…" for title in ordered[:MAX_TITLES]]


async def read_description(connection: Connection, names: Names) -> str:
    """Return the description that was written for a collection, else one of its titles; empty without any."""
    own = await read_own_description(connection, names)
    if own is not None:
        return own
    titles = await read_titles(connection, names)
    return f"Among its titles: {'; '.join(titles)}." if titles else ""
