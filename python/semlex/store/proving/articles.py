"""A table of articles, as an application has one, with rows that a proof adds, changes and deletes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semlex.store.proving.ground import Connection


@dataclass(frozen=True, slots=True)
class Articles:
    """The table, in the schema of the proof."""

    schema: str
    name: str

    @property
    def _table(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    def create(self, connection: Connection) -> None:
        """Make the table."""
        connection.execute(sql.SQL("CREATE TABLE {} (id bigint PRIMARY KEY, body text NOT NULL)").format(self._table))

    def put(self, connection: Connection, rows: Mapping[int, str]) -> None:
        """Insert rows, or change their texts."""
        statement = sql.SQL(
            "INSERT INTO {} (id, body) SELECT * FROM unnest(%s::bigint[], %s::text[]) "
            "ON CONFLICT (id) DO UPDATE SET body = excluded.body"
        ).format(self._table)
        connection.execute(statement, [list(rows), list(rows.values())])

    def delete(self, connection: Connection, ids: list[int]) -> None:
        """Delete rows."""
        connection.execute(sql.SQL("DELETE FROM {} WHERE id = ANY(%s)").format(self._table), [ids])

    def move(self, connection: Connection, ids: Mapping[int, int]) -> None:
        """Change the keys of rows, in one statement; keys of rows that exist are left out."""
        statement = sql.SQL(
            "UPDATE {table} AS t SET id = m.after FROM unnest(%s::bigint[], %s::bigint[]) AS m (before, after) "
            "WHERE t.id = m.before AND NOT EXISTS (SELECT FROM {table} AS o WHERE o.id = m.after)"
        ).format(table=self._table)
        connection.execute(statement, [list(ids), list(ids.values())])

    def truncate(self, connection: Connection) -> None:
        """Remove all rows at once."""
        connection.execute(sql.SQL("TRUNCATE {}").format(self._table))

    def rows(self, connection: Connection) -> dict[int, str]:
        """Return the texts by their ids."""
        return dict(connection.execute(sql.SQL("SELECT id, body FROM {}").format(self._table)).fetchall())
