"""Rows of a table in a collection, as `Tables.sync` leaves them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from psycopg import sql
from psycopg.types.json import Jsonb

from semlex import Document
from semlex.store.followed.definitions import definition_to_json
from semlex.store.query.chunk_keys import indexed_chunk_id, indexed_document_id
from semlex.types.followed import FollowedTable

if TYPE_CHECKING:
    from semlex import SyncRetriever
    from tests.support.followed import Articles

KINDS = {"int": ["int"], "uuid": ["uuid"], "text": ["text"], "composite": ["int", "text"]}


def follow(retriever: SyncRetriever, table: Articles, name: str = "articles", **options: Any) -> None:
    """Follow a table, whose rows are in the collection then."""
    names, connection = retriever.names, table.connection
    definition: dict[str, Any] = {
        "name": name,
        "schema": table.schema,
        "table": table.name,
        "key": list(table.key_columns),
        "key_kinds": KINDS[table.key],
        "text": ["title", "body"],
        "metadata": ["author"],
        "live": ["status", "price", "tags", "extra", "published_at"],
        **options,
    }
    stored = definition_to_json(FollowedTable(**definition), {})
    source = uuid4()
    connection.execute(
        sql.SQL("INSERT INTO {} VALUES (%s, %s, %s, %s, 'table', now(), now())").format(names.source),
        [source, name, name, f"{table.schema}.{table.table}"],
    )
    connection.execute(
        sql.SQL(
            "INSERT INTO {} (collection, name, source_id, definition, look_at, created_at, updated_at) "
            "VALUES (%s, %s, %s, %s, now(), now(), now())"
        ).format(names.followed_table),
        [names.collection, name, source, Jsonb(stored)],
    )
    columns = sql.SQL(", ").join(map(sql.Identifier, (*table.key_columns, "title", "body", "author")))
    rows = connection.execute(sql.SQL("SELECT {} FROM {}").format(columns, table.table)).fetchall()
    documents, places = [], []
    for *key, title, body, author in rows:
        parts = [{"uuid": str(part)} if isinstance(part, UUID) else part for part in key]
        uri = f"{name}/{str(key[0]) if len(key) == 1 else json.dumps(key)}"
        document, text = indexed_document_id(name, uri), "\n\n".join(filter(None, (title, body)))
        chunk = indexed_chunk_id(document, hashlib.sha256(text.encode()).digest(), 0)
        documents.append(Document(text, {"author": author} if author else {}, id=chunk))
        places.append([Jsonb({"table": name, "key": parts}), uri, chunk])
        connection.execute(
            sql.SQL(
                "INSERT INTO {} VALUES (%s, %s, %s, %s, 'row', NULL, '\\x00', NULL, 1, now(), 1, '{{}}', 1, 1, 1, 1, "
                "1, '{{}}', now(), now())"
            ).format(names.document),
            [document, source, uri, uri],
        )
    retriever.add_documents(documents)
    with connection.cursor() as cursor:
        cursor.executemany(
            sql.SQL("UPDATE {} SET place = %s, source_document = %s WHERE chunk_id = %s").format(names.chunk), places
        )
