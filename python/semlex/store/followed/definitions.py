"""Store the definitions of followed tables, and how far each table has been read; report the state of the tables."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg import sql
from psycopg.types.json import Jsonb

from semlex.errors import ConfigurationError
from semlex.store.followed.queue import LONGEST_WAIT, ChangeQueue
from semlex.store.postgres.rows import fetch_row, fetch_rows, fetch_value
from semlex.store.schema.locks import hold_collection
from semlex.store.write.sources import OF_TABLES, is_present
from semlex.types.followed import FollowedStatus, FollowedTable, TableSync, stored_definition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.names import Names

NOW = sql.SQL("pg_catalog.clock_timestamp()")
# When a worker looks at a table that nobody has synced yet.
NEVER = sql.SQL("timestamptz '9999-12-31Z'")


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A followed table as it is stored, with its state."""

    source_id: UUID  # another one each time that the table is followed
    table: FollowedTable
    types: Mapping[str, str]  # of its columns when it was followed or changed last, as Postgres writes them
    # How texts were split, and behind a blank the greatest value of the column that grows, or the state of triggers.
    watermark: str | None
    keys_compared_at: datetime | None  # when all keys were compared last, or all rows
    last_run: Mapping[str, Any] | None
    synced_at: datetime | None  # when the last run ended
    error_message: str | None
    updated_at: datetime  # when its definition changed last

    @property
    def name(self) -> str:
        """The name of the table in the collection, from which the keys of its documents derive."""
        return self.table.name


def definition_to_json(table: FollowedTable, types: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON form in which a definition is stored, with the types of its columns when it was checked."""
    return {**asdict(table), "types": dict(types)}


def definition_from_json(stored: Mapping[str, Any]) -> tuple[FollowedTable, dict[str, str]]:
    """Read a definition and its column types from the JSON that `definition_to_json` has written."""
    return stored_definition(stored), dict(stored["types"])


async def read_tables(connection: Connection, names: Names, name: str | None = None) -> list[StoredTable]:
    """Return the followed tables of a collection, ordered by name; with `name`, only that table."""
    found = await fetch_rows(
        connection,
        sql.SQL(
            "SELECT source_id, definition, watermark, keys_compared_at, last_run, synced_at, "
            "error_message, updated_at FROM {} WHERE collection = %s AND (%s::text IS NULL OR name = %s) ORDER BY name"
        ).format(names.followed_table),
        [names.collection, name, name],
    )
    return [StoredTable(key, *definition_from_json(definition), *state) for key, definition, *state in found]


async def may_read(connection: Connection, *tables: sql.Identifier) -> bool:
    """Return whether the role has the right to read all of these tables."""
    names = [table.as_string(connection) for table in tables]
    question = "SELECT bool_and(has_table_privilege(one, 'SELECT')) FROM unnest(%s::text[]) AS one"
    return bool(await fetch_value(connection, question, [names]))


async def insert_table(
    connection: Connection, names: Names, source_id: UUID, table: FollowedTable, types: Mapping[str, str]
) -> None:
    """Store a new followed table with its source; call `hold_collection` with `alone` first."""
    same_name = sql.SQL("SELECT s.kind, {}, s.source_id FROM {} AS s WHERE s.name = %s")
    found = await fetch_row(connection, same_name.format(is_present(names), names.source), [table.name])
    if found is not None and found[0] not in OF_TABLES and found[1]:
        raise ConfigurationError(
            f"a source of files is named {table.name!r}: follow the table under another name (name=, --name)"
        )
    values = {
        "id": source_id,
        "before": None if found is None else found[2],
        "name": table.name,
        "root": f"{table.schema}.{table.table}",
        "collection": names.collection,
        "definition": Jsonb(definition_to_json(table, types)),
    }
    if found is not None:  # rows that were kept become rows of this table again
        for statement in (
            sql.SQL("UPDATE {} SET source_id = %(id)s WHERE source_id = %(before)s").format(names.document),
            sql.SQL("DELETE FROM {} WHERE source_id = %(before)s").format(names.source),
        ):
            await connection.execute(statement, values)
    await connection.execute(
        sql.SQL(
            "INSERT INTO {} (source_id, name, root, key, kind, created_at, updated_at) "
            "VALUES (%(id)s, %(name)s, %(root)s, %(name)s, 'table', {now}, {now})"
        ).format(names.source, now=NOW),
        values,
    )
    await connection.execute(
        sql.SQL(
            "INSERT INTO {} (collection, name, source_id, definition, look_at, created_at, updated_at) "
            "VALUES (%(collection)s, %(name)s, %(id)s, %(definition)s, {now}, {now}, {now})"
        ).format(names.followed_table, now=NOW),
        values,
    )


async def restore_tables(connection: Connection, names: Names, tables: Mapping[UUID, Mapping[str, Any]]) -> None:
    """Restore the definitions of a dump, by source id; tables that it does not define are followed no longer."""
    stopped = sql.SQL("UPDATE {} SET kind = 'stopped' WHERE kind = 'table' AND source_id <> ALL(%s)")
    await connection.execute(stopped.format(names.source), [list(tables)])
    await connection.execute(
        sql.SQL(
            "INSERT INTO {} (collection, name, source_id, definition, look_at, created_at, updated_at) "
            # No worker reads the definitions until they have been synced once: their expressions are SQL of the author
            # of the dump.
            "SELECT %s, s.name, s.source_id, d.definition, {never}, {now}, {now} FROM {} AS s "
            "JOIN unnest(%s::uuid[], %s::jsonb[]) AS d(source_id, definition) USING (source_id) WHERE s.kind = 'table'"
        ).format(names.followed_table, names.source, never=NEVER, now=NOW),
        [names.collection, list(tables), [Jsonb(definition) for definition in tables.values()]],
    )


async def replace_definition(
    connection: Connection,
    collection: CollectionInfo,
    stored: StoredTable,
    table: FollowedTable,
    types: Mapping[str, str],
) -> bool:
    """Store a changed definition; return False if another process has changed the definition since it was read."""
    await hold_collection(connection, collection)
    definition = Jsonb(definition_to_json(table, types))
    if not await hold_table(connection, collection.names, stored, alone=True):
        # This may be a second attempt, because the answer to the first one's commit was lost.
        same = sql.SQL("SELECT FROM {} WHERE source_id = %s AND definition = %s")
        values = [stored.source_id, definition]
        return await fetch_row(connection, same.format(collection.names.followed_table), values) is not None
    await connection.execute(
        sql.SQL(
            # The next run compares all rows.
            "UPDATE {} SET definition = %s, watermark = NULL, keys_compared_at = NULL, look_at = {now}, "
            "error_message = NULL, updated_at = {now} WHERE source_id = %s"
        ).format(collection.names.followed_table, now=NOW),
        [definition, stored.source_id],
    )
    return True


async def hold_table(connection: Connection, names: Names, stored: StoredTable, *, alone: bool = False) -> bool:
    """Lock a table's definition until the transaction ends; return False if it differs from `stored`."""
    # The transaction must be READ COMMITTED and hold the collection. `alone` waits for writes of rows that have begun,
    # and keeps others waiting.
    #
    # The lock that counts is that of the row; for this advisory lock they queue. See `locks.writing_lock`.
    queue = sql.SQL("SELECT pg_advisory_xact_lock{}(%s)").format(sql.SQL("" if alone else "_shared"))
    await connection.execute(queue, [int.from_bytes(stored.source_id.bytes[8:], signed=True)])
    locked = sql.SQL("SELECT FROM {} WHERE source_id = %s AND kind = 'table' FOR {}").format(
        names.source, sql.SQL("NO KEY UPDATE" if alone else "SHARE")
    )
    if await fetch_row(connection, locked, [stored.source_id]) is None:
        return False
    return await is_as_read(connection, names, stored)


async def is_as_read(connection: Connection, names: Names, stored: StoredTable, *, held: bool = False) -> bool:
    """Return whether a definition is unchanged since it was read; `held` locks it until the transaction ends."""
    same = sql.SQL("SELECT FROM {} WHERE source_id = %s AND updated_at = %s{}").format(
        names.followed_table, sql.SQL(" FOR SHARE" if held else "")
    )
    return await fetch_row(connection, same, [stored.source_id, stored.updated_at]) is not None


async def delete_table(connection: Connection, collection: CollectionInfo, stored: StoredTable) -> bool:
    """Delete a table's definition and queued changes; return False if the definition has changed since it was read."""
    await hold_collection(connection, collection)
    names = collection.names
    if not await hold_table(connection, names, stored, alone=True):
        # This may be a second attempt, because the answer to the first one's commit was lost.
        stopped = sql.SQL("SELECT FROM {} WHERE source_id = %s AND kind = 'stopped'").format(names.source)
        return await fetch_row(connection, stopped, [stored.source_id]) is not None
    for table in (names.followed_table, names.row_change):
        await connection.execute(sql.SQL("DELETE FROM {} WHERE source_id = %s").format(table), [stored.source_id])
    # The table's documents stay, with their source.
    stopped = sql.SQL("UPDATE {} SET kind = 'stopped' WHERE source_id = %s").format(names.source)
    await connection.execute(stopped, [stored.source_id])
    return True


async def delete_tables(connection: Connection, names: Names) -> list[str]:
    """Delete the definitions of a collection that is being dropped; return the names of tables that had triggers."""
    deleted = sql.SQL("DELETE FROM {} WHERE collection = %s RETURNING source_id, name, definition ->> 'changes'")
    gone = await fetch_rows(connection, deleted.format(names.followed_table), [names.collection])
    if gone:
        changes = sql.SQL("DELETE FROM {} WHERE source_id = ANY(%s)").format(names.row_change)
        await connection.execute(changes, [[source_id for source_id, _, _ in gone]])
    return [name for _, name, changes in gone if changes == "trigger"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The result of a run: where the next run continues, and its counts or its error."""

    report: TableSync
    next_in: float | None  # seconds until a worker looks again; None: as it was going to
    watermark: str | None = None  # None: as before
    keys_compared: bool = False  # whether all keys were compared, or all rows
    error: Exception | None = None


async def write_run(connection: Connection, names: Names, stored: StoredTable, end: RunEnd) -> None:
    """Store the result of a run, unless the definition was changed during the run: then the next compares all rows."""
    counts = {field.name: getattr(end.report, field.name) for field in fields(TableSync) if field.name != "problems"}
    await connection.execute(
        sql.SQL(
            "UPDATE {} SET watermark = coalesce(%(watermark)s, watermark), "
            "keys_compared_at = CASE WHEN %(keys)s THEN {now} ELSE keys_compared_at END, "
            "look_at = coalesce({now} + %(seconds)s::float8 * interval '1 second', look_at), last_run = %(run)s, "
            "synced_at = {now}, error_message = %(message)s "
            "WHERE source_id = %(id)s AND updated_at = %(version)s"
        ).format(names.followed_table, now=NOW),
        {
            "watermark": end.watermark,
            "keys": end.keys_compared,
            "seconds": end.next_in,
            "run": Jsonb(counts),
            "message": None if end.error is None else str(end.error),
            "id": stored.source_id,
            "version": stored.updated_at,
        },
    )


async def take_lease(
    connection: Connection, names: Names, stored: StoredTable, seconds: float, *, again: bool = False
) -> bool:
    """Take a table's lease for `seconds`, or renew it (`again`); return False if another worker has the lease."""
    cursor = await connection.execute(
        sql.SQL(
            "UPDATE {} SET leased_until = {now} + %s * interval '1 second' "
            "WHERE source_id = %s AND (%s OR leased_until IS NULL OR leased_until < {now})"
        ).format(names.followed_table, now=NOW),
        [seconds, stored.source_id, again],
    )
    return cursor.rowcount == 1


async def end_lease(connection: Connection, names: Names, stored: StoredTable) -> None:
    """End this worker's lease on a table, so that other workers can read the table."""
    ended = sql.SQL("UPDATE {} SET leased_until = NULL WHERE source_id = %s").format(names.followed_table)
    await connection.execute(ended, [stored.source_id])


async def read_status(connection: Connection, collection: CollectionInfo) -> list[FollowedStatus]:
    """Return every followed table, by name, with its number of rows, waiting changes and problems."""
    return [await _status(connection, collection, stored) for stored in await read_tables(connection, collection.names)]


async def readable_status(connection: Connection, collection: CollectionInfo) -> list[FollowedStatus] | None:
    """Return what `read_status` returns; None if the role may not read definitions or the queue."""
    names = collection.names
    if await may_read(connection, names.followed_table, names.row_change):
        return await read_status(connection, collection)
    return None


async def _status(connection: Connection, collection: CollectionInfo, stored: StoredTable) -> FollowedStatus:
    counted = sql.SQL("SELECT count(*) FROM {} WHERE source_id = %s").format(collection.names.document)
    rows = await fetch_value(connection, counted, [stored.source_id])
    queue = ChangeQueue(collection.names, stored.source_id)
    counts = await queue.count(connection)
    return FollowedStatus(
        table=stored.table,
        rows=rows,
        waiting=counts.waiting,
        failed=counts.problems,
        problems=await queue.problems(connection),
        last_run=stored.last_run,
        synced_at=stored.synced_at,
        error=stored.error_message,
    )


class TableState(NamedTuple):
    """What a worker has to do for a followed table, and when."""

    collection: str
    name: str
    looks: bool  # its table is to be looked at, and no worker does that
    has_changes: bool  # entries of the queue are due
    by_trigger: bool
    seconds: float  # until it is looked at; negative: since


async def read_states(connection: Connection, schema: str) -> list[TableState]:
    """Return the state of every followed table of a schema, ordered by collection and name."""
    found = await fetch_rows(
        connection,
        sql.SQL(
            "SELECT f.collection, f.name, f.look_at <= statement_timestamp() "
            "AND coalesce(f.leased_until <= statement_timestamp(), true), "
            "EXISTS (SELECT FROM {} AS r WHERE r.source_id = f.source_id AND r.due_at <= statement_timestamp()), "
            "f.definition ->> 'changes' = 'trigger', "
            "extract(epoch FROM greatest(f.look_at, f.leased_until) - statement_timestamp())::float8 "
            "FROM {} AS f ORDER BY f.collection, f.name"
        ).format(sql.Identifier(schema, "row_change"), sql.Identifier(schema, "followed_table")),
    )
    return [TableState(*row) for row in found]


async def bound_times(connection: Connection, schema: str, lease: float, looks: Mapping[str, float]) -> None:
    """Shorten leases and pauses before checks and retries that are too long because the server's clock stepped back."""
    # `looks` has, by the way in which changes are noticed, the seconds between two looks. A lease that another worker
    # has for longer than `lease` is cut, too: that worker renews it, or two do the same work.
    now = sql.SQL("statement_timestamp()")
    next_look = sql.SQL("(%(looks)s::jsonb ->> (definition ->> 'changes'))::float8")
    for table, column, seconds in (
        ("followed_table", "leased_until", sql.SQL("%(lease)s")),
        ("followed_table", "look_at", next_look),
        ("row_change", "due_at", LONGEST_WAIT),
    ):
        most = sql.SQL("{} + {} * interval '1 second'").format(now, seconds)
        await connection.execute(
            # By the first condition, the queue's index skips the entries that are due.
            sql.SQL(
                "UPDATE {} SET {column} = {most} WHERE {column} > {now} AND {column} > {most} AND {column} < {never}"
            ).format(sql.Identifier(schema, table), column=sql.Identifier(column), most=most, now=now, never=NEVER),
            {"lease": lease, "looks": Jsonb(dict(looks))},
        )


async def remove_strays(connection: Connection, schema: str) -> None:
    """Remove entries of the queue for tables that are not followed any more."""
    await connection.execute(
        sql.SQL("DELETE FROM {} AS r WHERE NOT EXISTS (SELECT FROM {} AS f WHERE f.source_id = r.source_id)").format(
            sql.Identifier(schema, "row_change"), sql.Identifier(schema, "followed_table")
        )
    )
