"""Starts to follow a table, changes its definition, and stops following it."""

from __future__ import annotations

from dataclasses import asdict
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from semlex.errors import ConfigurationError, SemlexError
from semlex.ingest.deletion import Deletion
from semlex.ingest.followed.sync import stored_tables
from semlex.ingest.loaders.office import OfficeLoader
from semlex.ingest.loaders.registry import loaders
from semlex.options.declare import check_options
from semlex.options.following import TableOptions
from semlex.store.followed.connection import read_source
from semlex.store.followed.declaration import changed_table, declared_table, refuse_own, resolve
from semlex.store.followed.definitions import delete_table, insert_table, read_tables, replace_definition
from semlex.store.followed.triggers import TableTriggers, remove_triggers
from semlex.store.query.filters import Filter
from semlex.store.schema.locks import hold_collection
from semlex.store.write.sources import read_sources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semlex.ingest.indexer import Indexer
    from semlex.store.followed.definitions import StoredTable
    from semlex.store.followed.source import SourceTable
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.names import Names
    from semlex.types.followed import FollowedTable


def check_table_options(options: Mapping[str, Any], call: str) -> None:
    """Check the options of a followed table: names, kinds of values, formats."""
    check_options(TableOptions, options, call)
    known = {loader.name for loader in loaders().values() if not isinstance(loader, OfficeLoader)}  # of texts
    formats = options.get("formats")
    for item, named in formats.items() if isinstance(formats, dict) else ():
        if named not in known:
            near = get_close_matches(str(named), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known formats: {', '.join(sorted(known))}"
            raise ConfigurationError(f"formats gives {item!r} the unknown format {named!r}; {hint}")


async def follow(indexer: Indexer, source: SourceTable) -> FollowedTable:
    """Store the definition of a table as it is on its server, as `Tables.follow` does."""
    names, table = indexer.collection.names, source.definition

    async def store(connection: Connection) -> bool:
        await hold_collection(connection, indexer.collection, alone=True)
        found = await read_tables(connection, names, table.name)
        if not found:
            await insert_table(connection, names, table, source.types)
        elif found[0].table != table:
            before, now = asdict(found[0].table), asdict(table)
            other = ", ".join(f"{name}={before[name]!r}" for name in now if now[name] != before[name])
            raise ConfigurationError(
                f"{table.name!r} is followed already, with {other}: change it with tables.change({table.name!r}, …), "
                f"or semlex follow {table.name} --change …; or give this one another name (name=, --name)"
            )
        return not found

    is_new = await indexer.database.write("follow the table", store)
    if table.changes == "trigger":
        stored = await find_followed(indexer.database, names, table.name)
        try:
            await TableTriggers(names, source).keep(indexer.database, stored)
        except SemlexError:
            if is_new:
                await indexer.database.write("forget the table", lambda c: delete_table(c, indexer.collection, stored))
            raise
    return table


async def change(indexer: Indexer, name: str, options: Mapping[str, Any]) -> FollowedTable:
    """Store another definition of a followed table, as `Tables.change` does."""
    stored = await find_followed(indexer.database, indexer.collection.names, name)
    source = await resolved(indexer.database, indexer.collection.names, changed_table(stored.table, options))

    async def store(connection: Connection) -> bool:
        return await replace_definition(connection, indexer.collection, stored, source.definition, source.types)

    if (stored.table, stored.types) == (source.definition, source.types):
        return source.definition
    if not await indexer.database.write("change the followed table", store):
        raise ConfigurationError(f"{name!r} was changed or stopped by another program meanwhile: try again")
    if source.definition.changes == "trigger":
        now = await find_followed(indexer.database, indexer.collection.names, name)
        try:
            await TableTriggers(indexer.collection.names, source).keep(indexer.database, now)
        except SemlexError:
            await indexer.database.write(
                "restore the definition",
                lambda c: replace_definition(c, indexer.collection, now, stored.table, stored.types),
            )
            raise
    elif stored.table.changes == "trigger":
        await remove_triggers(indexer.database, indexer.collection.names, name)
    return source.definition


async def stop(indexer: Indexer, name: str, *, keep: bool) -> int:
    """Delete the definition of a followed table, then its documents, as `Tables.stop` does."""
    if keep or not await _is_stopped(indexer, name):
        stored = await find_followed(indexer.database, indexer.collection.names, name)

        async def forget(connection: Connection) -> bool:
            return await delete_table(connection, indexer.collection, stored)

        if not await indexer.database.write("stop following the table", forget):
            raise ConfigurationError(f"{name!r} was changed or stopped by another program meanwhile: try again")
        await remove_triggers(indexer.database, indexer.collection.names, name)
    if keep or not await _is_stopped(indexer, name):
        return 0
    rows = Deletion(None, None, name, Filter(), vanished=False)
    return (await indexer.delete(rows, dry_run=False)).documents


async def _is_stopped(indexer: Indexer, name: str) -> bool:
    """Return whether that table was stopped while documents of its rows are still stored."""
    found = await indexer.database.read("read the sources", lambda c: read_sources(c, indexer.collection, tables=True))
    return any((source.name, source.kind) == (name, "stopped") for source in found)


async def trigger_sql(database: Database, names: Names, table: str, name: str | None, options: TableOptions) -> str:
    """Return the SQL that makes a table's triggers, as `Tables.ddl` does."""
    by_trigger: TableOptions = {"changes": "trigger", "updated_at": None}
    if name is None and not options:
        wanted = changed_table((await find_followed(database, names, table)).table, by_trigger)
    else:
        wanted = declared_table(table, name, {**options, **by_trigger})
    source = await resolved(database, names, wanted)
    return await database.read("look at the table", TableTriggers(names, source).ddl)


async def find_followed(database: Database, names: Names, name: str) -> StoredTable:
    """Return the followed table of a name; an unknown name is an error."""
    [found] = await stored_tables(database, names, name)
    return found


async def resolved(database: Database, names: Names, wanted: FollowedTable) -> SourceTable:
    """Return a table as it is on its server; a table that cannot be followed is an error."""
    if wanted.source_database is None:
        await database.read("look at the table", lambda c: refuse_own(c, names, wanted))
    return await read_source(database, wanted, "look at the table", lambda c: resolve(c, wanted))
