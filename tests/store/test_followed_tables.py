"""Definitions of followed tables, and the SQL of their rows' keys, texts and hashes."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from semlex.store.followed.connection import fix_formatting
from semlex.store.followed.source import SourceTable, find_source
from semlex.store.postgres.settings import SETTINGS, set_local
from semlex.store.query.chunk_keys import indexed_document_id
from semlex.types.followed import FollowedTable
from tests.support.followed import KEYS, Articles, Key, Relation, articles

KINDS: dict[Key, Any] = {"int": ("int",), "uuid": ("uuid",), "text": ("text",), "composite": ("int", "text")}


def definition(of: Articles, **others: Any) -> FollowedTable:
    made = {"name": "news %s", "text": ("title", "body"), "metadata": ("author", "tags", "extra", "published_at")}
    return FollowedTable(
        schema=of.schema, table=of.name, key=of.key_columns, key_kinds=KINDS[of.key], **{**made, **others}
    )


async def read(url: str, wanted: FollowedTable, *columns: str, **values: Any) -> tuple[SourceTable, list[Any]]:
    """The table, and columns of its rows in the order of the key."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await set_local(connection, **SETTINGS)
        await fix_formatting(connection)
        source = await find_source(connection, wanted)
        listed = sql.SQL(", ").join(getattr(source, column) for column in columns)
        condition = values.pop("condition", None)
        cursor = await connection.execute(
            sql.SQL("SELECT {} FROM {} WHERE %(true)s AND {} ORDER BY {}").format(
                listed,
                source.from_,
                sql.SQL("true") if condition is None else condition(source),
                sql.SQL(", ").join(source.key_columns),
            ),
            {"true": True, **values},
        )
        return source, await cursor.fetchall()


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("relation", ["table", "partitioned", "view", "materialized view"])
async def test_keys_places_and_documents_follow_from_rows(database_url: str, key: Key, relation: Relation) -> None:
    with articles(database_url, key, relation, rows=5) as table:
        _, rows = await read(database_url, definition(table), "key_text", "uri", "document_id", "place")
    assert len(rows) == 5
    expected = [table.key_of(number) for number in range(5)]
    for key_text, uri, document_id, place in rows:
        assert uri == f"news %s/{key_text}"
        assert document_id == indexed_document_id("news %s", uri)
        parts = [UUID(part["uuid"]) if isinstance(part, dict) else part for part in place["key"]]
        found = tuple(parts) if len(parts) > 1 else parts[0]
        assert found in expected
        assert place["table"] == "news %s"
        assert key_text == (str(found) if len(parts) == 1 else json.dumps(parts))


@pytest.mark.parametrize("key", KEYS)
async def test_rows_are_found_by_their_keys_and_in_pages(database_url: str, key: Key) -> None:
    with articles(database_url, key, rows=7) as table:
        wanted = definition(table)
        _, every = await read(database_url, wanted, "key_text")
        names = [name for (name,) in every]
        some = names[1::2]
        _, found = await read(
            database_url, wanted, "key_text", condition=lambda s: s.with_keys(sql.Placeholder("keys")), keys=some
        )
        assert [name for (name,) in found] == some
        third = json.loads(names[3]) if key == "composite" else [names[3]]
        last = {f"part_{number}": str(part) for number, part in enumerate(third)}
        _, rest = await read(
            database_url,
            wanted,
            "key_text",
            condition=lambda s: s.after([sql.Placeholder(name) for name in last]),
            **last,
        )
        assert [name for (name,) in rest] == names[4:]


async def test_metadata_are_json_values_without_nulls(database_url: str) -> None:
    with articles(database_url) as table:
        table.insert(1, author=None, tags=["a", "b"], extra=psycopg.types.json.Jsonb({"deep": None}))
        table.insert(2, extra=psycopg.types.json.Jsonb(None), published_at="2026-01-01 02:00:00.5+02")
        _, rows = await read(database_url, definition(table), "metadata")
    assert [row for (row,) in rows] == [
        {"tags": ["a", "b"], "extra": {"deep": None}},
        {"author": "ann", "published_at": "2026-01-01T00:00:00.500000+00:00"},
    ]
