"""Alembic: ``op.follow_table`` and ``op.unfollow_table``, in the transaction of a migration; importing it adds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semlex.errors import ConfigurationError, MissingExtraError

try:
    from alembic.operations import MigrateOperation, Operations
except ModuleNotFoundError as error:
    if error.name != "alembic":
        raise
    raise MissingExtraError("alembic", "alembic", "semlex.integrations.alembic") from None

from psycopg import AsyncConnection, Connection
from psycopg.conninfo import make_conninfo
from sqlalchemy.util import await_only

from semlex.retriever.client import Client
from semlex.retriever.synchronous import SyncClient

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

# Following a table needs no model: the sync does, which comes later.
WITHOUT_MODELS: dict[str, Any] = {"embedding_model": "none", "use_reranking": False}


@Operations.register_operation("follow_table")
class FollowTable(MigrateOperation):
    """Follows a table; see `Tables.follow`."""

    def __init__(self, table: str, collection: str, name: str | None = None, **options: Any) -> None:
        self.table, self.collection, self.name, self.options = table, collection, name, options

    @classmethod
    def follow_table(
        cls, operations: Operations, table: str, collection: str, *, name: str | None = None, **options: Any
    ) -> Any:
        """Follow a table in a collection, which is made if it does not exist.

        Args:
            operations: Alembic's ``op``.
            table: Its name, or ``schema.name``.
            collection: Name of the collection.
            name: Of the followed table in the collection. Default: the table's.
            **options: As for `Tables.follow`; and ``semlex_schema``, if the collection is not in the schema ``semlex``.
        """
        return operations.invoke(cls(table, collection, name, **options))

    def reverse(self) -> MigrateOperation:
        """Return the operation that stops it."""
        schema = self.options.get("semlex_schema")
        return UnfollowTable(self.name or self.table.rpartition(".")[2], self.collection, semlex_schema=schema)


@Operations.register_operation("unfollow_table")
class UnfollowTable(MigrateOperation):
    """Stops following a table; see `Tables.stop`."""

    def __init__(self, name: str, collection: str, *, keep: bool = False, semlex_schema: str | None = None) -> None:
        self.name, self.collection, self.keep, self.schema = name, collection, keep, semlex_schema

    @classmethod
    def unfollow_table(
        cls,
        operations: Operations,
        name: str,
        collection: str,
        *,
        keep: bool = False,
        semlex_schema: str | None = None,
    ) -> Any:
        """Stop following a table, and delete the documents of its rows.

        Args:
            operations: Alembic's ``op``.
            name: Of the followed table in the collection.
            collection: Name of the collection.
            keep: Whether the documents stay.
            semlex_schema: Schema of the collection. Default: ``semlex``.
        """
        return operations.invoke(cls(name, collection, keep=keep, semlex_schema=semlex_schema))


@Operations.implementation_for(FollowTable)
def follow_table(operations: Operations, operation: FollowTable) -> None:
    """Follow the table."""
    options = dict(operation.options)
    schema = options.pop("semlex_schema", None)
    _run(
        operations,
        operation.collection,
        schema,
        lambda tables: tables.follow(operation.table, name=operation.name, **options),
    )


@Operations.implementation_for(UnfollowTable)
def unfollow_table(operations: Operations, operation: UnfollowTable) -> None:
    """Stop following the table."""
    _run(
        operations,
        operation.collection,
        operation.schema,
        lambda tables: tables.stop(operation.name, keep=operation.keep),
    )


def _run(operations: Operations, collection: str, schema: str | None, work: Callable[[Any], Any]) -> None:
    """Call a method of a collection's `Tables` in the transaction of the migration."""
    context = operations.migration_context
    if context.as_sql:
        raise ConfigurationError(
            "a table is followed by a migration that runs on its database (without --sql); semlex follow --sql prints "
            "the statements of its triggers"
        )
    bind = operations.get_bind()
    driver: Any = bind.connection.driver_connection
    if not isinstance(driver, (Connection, AsyncConnection)):
        raise ConfigurationError("the engine must be one on psycopg 3: postgresql+psycopg://…")
    address = make_conninfo(driver.info.dsn, password=driver.info.password or None)
    options = WITHOUT_MODELS if schema is None else {**WITHOUT_MODELS, "schema": schema}
    if isinstance(driver, Connection):
        with SyncClient(address, **options) as client:
            work(client.collection(collection).using(bind).tables)
        return

    async def awaited() -> None:
        async with Client(address, **options) as client:
            called: Coroutine[Any, Any, Any] = work(client.collection(collection).using(driver).tables)
            await called

    await_only(awaited())
