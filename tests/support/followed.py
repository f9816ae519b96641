"""A table of articles in a schema of its own, as an application has one, with rows that tests add and change."""

from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

import psycopg
from psycopg import sql

KEYS = {"int": ("id",), "uuid": ("id",), "text": ("id",), "composite": ("tenant_id", "slug")}
RELATIONS = ("table", "partitioned", "view", "materialized view")
WAYS = {"comparison": {}, "column": {"updated_at": "updated_at", "keys_every": 0}, "trigger": {"changes": "trigger"}}
"""Options of each way of noticing changes. It has nothing but what it needs: the column shows every change."""
_KINDS = {"int": ("int",), "uuid": ("uuid",), "text": ("text",), "composite": ("int", "text")}
_TYPES = {"int": "id bigint", "uuid": "id uuid", "text": "id text", "composite": "tenant_id int, slug text"}
_OTHERS = (
    "title text, body text, author text, status text NOT NULL DEFAULT 'public', price numeric, tags text[], "
    "extra jsonb, published_at timestamptz, updated_at timestamptz NOT NULL DEFAULT now()"
)


@dataclass(frozen=True)
class Articles:
    """The table. Rows are numbered from 0; the key of each follows from its number."""

    connection: psycopg.Connection  # in autocommit, of a role that may do everything
    schema: str
    key: str  # one of `KEYS`
    relation: str  # what is followed, one of `RELATIONS`; rows are written into the table behind a view

    @property
    def name(self):
        return "article_view" if "view" in self.relation else "articles"

    @property
    def key_columns(self):
        return KEYS[self.key]

    @property
    def key_kinds(self):
        return _KINDS[self.key]

    @property
    def table(self):
        return sql.Identifier(self.schema, "articles")

    def options(self, **others):
        """Arguments of `follow`, with which every kind of table can be followed."""
        named = {"table": self.name, "schema": self.schema, "key": self.key_columns}
        return {**named, "text": ["title", "body"], "metadata": ["author", "published_at"], **others}

    def key_of(self, number):
        """The key of a row, as a hit has it."""
        composite = (number % 3, f"slug {number}")
        return {"int": number, "uuid": UUID(int=number), "text": f"é {number}/%s", "composite": composite}[self.key]

    def _condition(self, number):
        key = self.key_of(number)
        parts = list(key) if isinstance(key, tuple) else [key]
        equal = [sql.SQL("{} = %s").format(sql.Identifier(name)) for name in self.key_columns]
        return sql.SQL(" AND ").join(equal), parts

    def insert(self, number, body="apple", **others):
        values = dict(zip(self.key_columns, self._condition(number)[1], strict=True))
        values |= {"title": f"title {number}", "body": body, "author": "ann", **others}
        names = sql.SQL(", ").join(map(sql.Identifier, values))
        places = sql.SQL(", ").join([sql.Placeholder()] * len(values))
        statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(self.table, names, places)
        self.connection.execute(statement, list(values.values()))

    def update(self, number, **values):
        """Change columns of a row; `updated_at` is the present unless it is given."""
        condition, parts = self._condition(number)
        assignments = [sql.SQL("{} = %s").format(sql.Identifier(name)) for name in values]
        if "updated_at" not in values:
            assignments.append(sql.SQL("updated_at = clock_timestamp()"))
        statement = sql.SQL("UPDATE {} SET {} WHERE {}").format(self.table, sql.SQL(", ").join(assignments), condition)
        self.connection.execute(statement, [*values.values(), *parts])

    def delete(self, number):
        condition, parts = self._condition(number)
        self.connection.execute(sql.SQL("DELETE FROM {} WHERE {}").format(self.table, condition), parts)

    def refresh(self):
        if self.relation == "materialized view":
            view = sql.Identifier(self.schema, self.name)
            self.connection.execute(sql.SQL("REFRESH MATERIALIZED VIEW {}").format(view))


def trigger_function(connection):
    """The function of the triggers that semlex has made, as SQL names it."""
    query = "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'semlex'::regnamespace"
    [(name,)] = connection.execute(query).fetchall()
    return name


@contextmanager
def articles(url, key="int", relation="table", *, rows=0, schema="shop"):
    """A new table, or view of one, in a new schema; with so many rows.

    A partitioned table has a partition for each remainder of the hash of its key by 3.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        made = Articles(connection, schema, key, relation)
        names = ", ".join(made.key_columns)
        parted = f" PARTITION BY HASH ({names})" if relation == "partitioned" else ""
        connection.execute(
            f"CREATE SCHEMA {schema};"
            f"CREATE TABLE {schema}.articles ({_TYPES[key]}, {_OTHERS}, PRIMARY KEY ({names})){parted}"
        )
        for number in range(3) if parted else ():
            part = f"articles_{number} PARTITION OF {schema}.articles FOR VALUES WITH (MODULUS 3, REMAINDER {number})"
            connection.execute(f"CREATE TABLE {schema}.{part}")
        for number in range(rows):
            made.insert(number)
        if "view" in relation:
            connection.execute(f"CREATE {relation} {schema}.{made.name} AS SELECT * FROM {schema}.articles")
        yield made
