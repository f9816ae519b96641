"""One index of a table, by its name and definition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from semlex.store.schema.names import Names


@dataclass(frozen=True, slots=True)
class TableIndex:
    """An index that a collection should have.

    Attributes:
        suffix: End of its name, after the collection's.
        table: Its table.
        definition: SQL that follows the table: method, columns, options.
    """

    suffix: str
    table: sql.Identifier
    definition: sql.Composable

    def create(self, names: Names, *, concurrently: bool = False) -> sql.Composed:
        """The statement that builds it."""
        return sql.SQL("CREATE INDEX {}{} ON {} {}").format(
            sql.SQL("CONCURRENTLY " if concurrently else ""), names.index(self.suffix), self.table, self.definition
        )
