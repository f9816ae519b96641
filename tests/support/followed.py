"""A table of articles in a schema of its own, as an application has one, with rows that tests add and change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, LiteralString
from uuid import UUID

import psycopg
from psycopg import sql

from semlex.types.followed import KeyKind, RowKey

Key = Literal["int", "uuid", "text", "composite"]
Relation = Literal["table", "partitioned", "view", "materialized view"]
KEYS: Mapping[Key, tuple[str, ...]] = {
    "int": ("id",),
    "uuid": ("id",),
    "text": ("id",),
    "composite": ("tenant_id", "slug"),
}
RELATIONS: tuple[Relation, ...] = ("table", "partitioned", "view", "materialized view")
WAYS: Mapping[str, Mapping[str, Any]] = {
    "comparison": {},
    "column": {"updated_at": "updated_at", "keys_every": 0},
    "trigger": {"changes": "trigger"},
}
"""Options of each way of noticing changes. It has nothing but what it needs: the column shows every change."""
_KINDS: Mapping[Key, tuple[KeyKind, ...]] = {
    "int": ("int",),
    "uuid": ("uuid",),
    "text": ("text",),
    "composite": ("int", "text"),
}
_TYPES: Mapping[Key, LiteralString] = {
    "int": "id bigint",
    "uuid": "id uuid",
    "text": "id text",
    "composite": "tenant_id int, slug text",
}
_OTHERS: LiteralString = (
    "title text, body text, author text, status text NOT NULL DEFAULT 'public', price numeric, tags text[], "
    "extra jsonb, published_at timestamptz, updated_at timestamptz NOT NULL DEFAULT now()"
)


@dataclass(frozen=True)
class Articles:
    """The table. Rows are numbered from 0; the key of each follows from its number.

    Attributes:
        connection: In autocommit, of a role that may do everything.
        relation: What is followed; rows are written into the table behind a view.
    """

    connection: psycopg.Connection[Any]
    schema: str
    key: Key
    relation: Relation

    @property
    def name(self) -> str:
        """What is followed."""
        return "article_view" if "view" in self.relation else "articles"

    @property
    def key_columns(self) -> tuple[str, ...]:
        return KEYS[self.key]

    @property
    def key_kinds(self) -> tuple[KeyKind, ...]:
        return _KINDS[self.key]

    @property
    def table(self) -> sql.Identifier:
        """The table that has the rows."""
        return sql.Identifier(self.schema, "articles")

    def options(self, **others: Any) -> dict[str, Any]:
        """Arguments of `follow`, with which every kind of table can be followed."""
        return {
            "table": self.name,
            "schema": self.schema,
            "key": self.key_columns,
            "text": ["title", "body"],
            "metadata": ["author", "published_at"],
            **others,
        }

    def key_of(self, number: int) -> RowKey:
        """The key of a row, as a hit has it."""
        keys: dict[Key, RowKey] = {
            "int": number,
            "uuid": UUID(int=number),
            "text": f"é {number}/%s",
            "composite": (number % 3, f"slug {number}"),
        }
        return keys[self.key]

    def _condition(self, number: int) -> tuple[sql.Composed, list[Any]]:
        key = self.key_of(number)
        parts = list(key) if isinstance(key, tuple) else [key]
        equal = [sql.SQL("{} = %s").format(sql.Identifier(name)) for name in self.key_columns]
        return sql.SQL(" AND ").join(equal), parts

    def insert(self, number: int, body: str = "apple", **others: Any) -> None:
        """Add a row."""
        _, parts = self._condition(number)
        values = dict(zip(self.key_columns, parts, strict=True))
        values |= {"title": f"title {number}", "body": body, "author": "ann", **others}
        names = sql.SQL(", ").join(map(sql.Identifier, values))
        self.connection.execute(
            sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
                self.table, names, sql.SQL(", ").join([sql.Placeholder()] * len(values))
            ),
            list(values.values()),
        )

    def update(self, number: int, **values: Any) -> None:
        """Change columns of a row; `updated_at` is the present unless it is given."""
        condition, parts = self._condition(number)
        assignments = [sql.SQL("{} = %s").format(sql.Identifier(name)) for name in values]
        if "updated_at" not in values:
            assignments.append(sql.SQL("updated_at = clock_timestamp()"))
        self.connection.execute(
            sql.SQL("UPDATE {} SET {} WHERE {}").format(self.table, sql.SQL(", ").join(assignments), condition),
            [*values.values(), *parts],
        )

    def delete(self, number: int) -> None:
        """Delete a row."""
        condition, parts = self._condition(number)
        self.connection.execute(sql.SQL("DELETE FROM {} WHERE {}").format(self.table, condition), parts)

    def refresh(self) -> None:
        """Let a materialized view have the rows of its table."""
        if self.relation == "materialized view":
            view = sql.Identifier(self.schema, self.name)
            self.connection.execute(sql.SQL("REFRESH MATERIALIZED VIEW {}").format(view))


def trigger_function(connection: psycopg.Connection[Any]) -> str:
    """The function of the triggers that semlex has made, as SQL names it."""
    [(name,)] = connection.execute(
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'semlex'::regnamespace"
    ).fetchall()
    return str(name)


@contextmanager
def articles(
    url: str, key: Key = "int", relation: Relation = "table", *, rows: int = 0, schema: str = "shop"
) -> Iterator[Articles]:
    """A new table, or view of one, in a new schema; with so many rows.

    A partitioned table has a partition for each remainder of the hash of its key by 3.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        made = Articles(connection, schema, key, relation)
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        names = sql.SQL(", ").join(map(sql.Identifier, made.key_columns))
        partitions = sql.SQL(" PARTITION BY HASH ({})").format(names)
        connection.execute(
            sql.SQL("CREATE TABLE {} ({}, {}, PRIMARY KEY ({})){}").format(
                made.table,
                sql.SQL(_TYPES[key]),
                sql.SQL(_OTHERS),
                names,
                partitions if relation == "partitioned" else sql.SQL(""),
            )
        )
        if relation == "partitioned":
            for number in range(3):
                connection.execute(
                    sql.SQL("CREATE TABLE {} PARTITION OF {} FOR VALUES WITH (MODULUS 3, REMAINDER {})").format(
                        sql.Identifier(schema, f"articles_{number}"), made.table, sql.Literal(number)
                    )
                )
        for number in range(rows):
            made.insert(number)
        if relation in ("view", "materialized view"):
            connection.execute(
                sql.SQL("CREATE {} {} AS SELECT * FROM {}").format(
                    sql.SQL("VIEW" if relation == "view" else "MATERIALIZED VIEW"),
                    sql.Identifier(schema, made.name),
                    made.table,
                )
            )
        yield made
