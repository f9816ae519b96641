"""Alembic: importing this adds ``op.follow_table`` and ``op.unfollow_table``; they run in a migration's transaction."""

from __future__ import annotations

from typing import Any

from semlex.errors import ConfigurationError, needing

with needing("alembic", "alembic", "alembic", __name__):
    from alembic.operations import MigrateOperation, Operations

from psycopg import AsyncConnection, Connection
from psycopg.conninfo import make_conninfo
from sqlalchemy.util import await_only

from semlex.retriever.client import Client
from semlex.retriever.synchronous import SyncClient

# Following a table needs no model: the sync does, which comes later.
WITHOUT_MODELS: dict[str, Any] = {"embedding_model": "none", "use_reranking": False}


@Operations.register_operation("follow_table")
class FollowTable(MigrateOperation):
    """Follows a table, as `Tables.follow` does."""

    def __init__(
        self, table: str, collection: str, name: str | None = None, semlex_schema: str | None = None, **options: Any
    ) -> None:
        self.table, self.collection, self.name, self.options = table, collection, name, options
        self.schema = semlex_schema

    @classmethod
    def follow_table(
        cls, operations: Operations, table: str, collection: str, *, name: str | None = None, **options: Any
    ) -> Any:
        """Follow a table in a collection, which is made if it does not exist.

        Args:
            operations: Alembic's ``op``.
            table: Name of the table, or ``schema.name``.
            collection: Name of the collection.
            name: Name of the followed table in the collection. Default: the table's.
            **options: As for `Tables.follow`; and ``semlex_schema``, if the collection is not in the schema ``semlex``.
        """
        return operations.invoke(cls(table, collection, name, **options))

    def reverse(self) -> MigrateOperation:
        """Return the operation that stops following the table."""
        return UnfollowTable(self.name or self.table.rpartition(".")[2], self.collection, semlex_schema=self.schema)

    def call(self, tables: Any) -> Any:
        """Follow the table with a collection's `Tables`."""
        return tables.follow(self.table, name=self.name, **self.options)


@Operations.register_operation("unfollow_table")
class UnfollowTable(MigrateOperation):
    """Stops following a table, as `Tables.stop` does."""

    def __init__(self, name: str, collection: str, *, keep: bool = False, semlex_schema: str | None = None) -> None:
        self.name, self.collection, self.keep, self.schema = name, collection, keep, semlex_schema

    @classmethod
    def unfollow_table(
        cls, operations: Operations, name: str, collection: str, *, keep: bool = False, semlex_schema: str | None = None
    ) -> Any:
        """Stop following a table, and delete the documents of its rows.

        Args:
            operations: Alembic's ``op``.
            name: Name of the followed table in the collection.
            collection: Name of the collection.
            keep: Whether the documents stay.
            semlex_schema: Schema of the collection. Default: ``semlex``.
        """
        return operations.invoke(cls(name, collection, keep=keep, semlex_schema=semlex_schema))

    def call(self, tables: Any) -> Any:
        """Stop following the table with a collection's `Tables`."""
        return tables.stop(self.name, keep=self.keep)


@Operations.implementation_for(FollowTable)
@Operations.implementation_for(UnfollowTable)
def _run(operations: Operations, operation: FollowTable | UnfollowTable) -> None:
    """Do an operation in the transaction of the migration."""
    context = operations.migration_context
    if context.as_sql:
        raise ConfigurationError(
            "following a table needs a migration that runs on the database, without --sql; semlex follow --sql prints "
            "the statements of the triggers"
        )
    bind = operations.get_bind()
    driver: Any = bind.connection.driver_connection
    if not isinstance(driver, (Connection, AsyncConnection)):
        raise ConfigurationError("the engine must be one on psycopg 3: postgresql+psycopg://…")
    address = make_conninfo(driver.info.dsn, password=driver.info.password or None)
    options = WITHOUT_MODELS if operation.schema is None else {**WITHOUT_MODELS, "schema": operation.schema}
    if isinstance(driver, Connection):
        with SyncClient(address, **options) as client:
            operation.call(client.collection(operation.collection).using(bind).tables)
        return

    async def awaited() -> None:
        async with Client(address, **options) as client:
            await operation.call(client.collection(operation.collection).using(driver).tables)

    await_only(awaited())
