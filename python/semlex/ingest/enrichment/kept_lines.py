"""Lines that chunks keep when they are stored again: a text that did not change is never asked about again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.ingest.chunk_rows import text_hashes
from semlex.store.descriptions import TEXT_HASH_BYTES, stored_lines, without_line

if TYPE_CHECKING:
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.write.chunk_batch import ChunkBatch


async def keep_lines(connection: Connection, collection: CollectionInfo, rows: ChunkBatch) -> int:
    """Puts the stored lines into rows whose titles and text are those that the lines were written about.

    Args:
        connection: In a transaction.
    """
    keys = rows.keys()
    stored = await stored_lines(connection, collection, keys)
    found = [number for number, key in enumerate(keys) if key in stored] if stored else []
    contexts = [stored[keys[number]][0] for number in found]
    now = text_hashes(contexts, [rows.chunk_text[number] for number in found])
    kept = 0
    for number, context, text_hash in zip(found, contexts, now, strict=True):
        content_hash = stored[keys[number]][1]
        plain = without_line(context, content_hash)
        if plain == rows.context[number] and content_hash[:TEXT_HASH_BYTES] == text_hash:
            rows.context[number], rows.content_hash[number] = context, content_hash
            kept += 1
    return kept
