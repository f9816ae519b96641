"""The checks of `semlex doctor`: this machine's models, the server, and its collections one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from semlex.diagnostics.checks import CHECKS, Check, ModelFacts, Subject, findings_of_pooling, findings_of_settings
from semlex.diagnostics.tuning import examine_settings
from semlex.errors import (
    CollectionNotFoundError,
    ConnectionFailedError,
    PrivilegeError,
    SearchTimeoutError,
    SemlexError,
)
from semlex.store.postgres.addresses import describe_connection
from semlex.store.postgres.connection import Connection, look_for_pooler
from semlex.store.postgres.server_info import read_server_info
from semlex.store.postgres.settings import set_local
from semlex.store.query.health import find_missing_schema, find_problems
from semlex.store.schema import migrations
from semlex.store.schema.locks import no_such_collection
from semlex.store.schema.names import Names
from semlex.store.schema.registry import find, list_collections
from semlex.types.checkups import Diagnosis, Finding, Looked, NotChecked, by_severity, of_collection

if TYPE_CHECKING:
    from collections.abc import Callable

    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import CollectionInfo

# Time limit of each statement.
CHECK_SECONDS = 15


@dataclass(slots=True)
class _Found:
    findings: list[Finding] = field(default_factory=list)
    not_checked: list[NotChecked] = field(default_factory=list)
    looked_at: list[Looked] = field(default_factory=list)


async def diagnose(
    database: Database,
    schema: str,
    models: ModelFacts,
    *,
    collection: str | None = None,
    tell: Callable[[str], None] | None = None,
) -> Diagnosis:
    """Check a server and the collections of a schema, read-only, with one short transaction for each check."""
    tell = tell or (lambda _what: None)
    found = _Found()
    tell("the server")
    only = None if collection is None else Names(schema, collection)
    server = await _look_at_server(database, schema, only, found)
    names = await _names(database, schema, collection, found)
    looked = [name for name in names if await _look_at_collection(database, Names(schema, name), models, found, tell)]
    return Diagnosis(
        server, schema, tuple(looked), by_severity(found.findings), tuple(found.not_checked), tuple(found.looked_at)
    )


async def _look_at_server(database: Database, schema: str, only: Names | None, found: _Found) -> str:
    async with database.connection() as connection:
        server = describe_connection(connection)
        pooling = await look_for_pooler(connection)

    async def look(connection: Connection) -> list[Finding]:
        await _limit(connection)
        info = await read_server_info(connection)
        problems = await find_problems(connection, info, only)
        return problems + await find_missing_schema(connection, info, schema)

    async def look_at_settings(connection: Connection) -> list[Finding]:
        await _limit(connection)
        return list(findings_of_settings(await examine_settings(connection)))

    for check, work in (("tables", look), ("settings", look_at_settings)):
        try:
            found.findings += await database.read_whole(f"look at the {check}", work)
        except ConnectionFailedError:
            raise
        except SemlexError as error:
            found.not_checked.append(NotChecked(check, f"server {server}", _reason(error)))
    found.findings += findings_of_pooling(pooling, server)
    return server


async def _names(database: Database, schema: str, collection: str | None, found: _Found) -> list[str]:
    try:
        known = [listed.name for listed in await list_collections(database, schema)]
    except ConnectionFailedError:
        raise
    except SemlexError as error:
        found.not_checked.append(NotChecked("collections", f"schema {schema}", _reason(error)))
        return []
    if collection is None:
        return known
    if collection not in known:
        raise no_such_collection(collection, known)
    return [collection]


async def _look_at_collection(
    database: Database, names: Names, models: ModelFacts, found: _Found, tell: Callable[[str], None]
) -> bool:
    """Check a collection; return whether that was possible."""

    async def look(connection: Connection) -> tuple[CollectionInfo, int] | None:
        await _limit(connection)
        return await find(connection, names)

    stored = None
    try:
        stored = await database.read_whole("look for the collection", look)
    except ConnectionFailedError:
        raise
    except SemlexError as error:
        found.not_checked.append(_all(names, _reason(error)))
        return False
    if stored is None:
        return False  # dropped in the meantime
    collection, version = stored
    if version != len(migrations.COLLECTION):
        found.not_checked.append(_all(names, "its tables are of an older semlex; semlex maintain migrate updates them"))
        return False
    for check in CHECKS:
        tell(f"{names.collection}: {check.name}")
        await _run(database, check, Subject(collection, models, check.name), found)
    return True


async def _run(database: Database, check: Check, subject: Subject, found: _Found) -> None:
    async def work(connection: Connection) -> Subject:
        await _limit(connection)
        running = subject.begun(connection)  # this may be repeated
        await check.work(running)
        return running

    try:
        # Not in a pipeline: a check may undo a part of its transaction.
        done = await database.read_whole(f"look at the {check.name}", work)
    except ConnectionFailedError:
        raise
    except SemlexError as error:
        found.not_checked.append(NotChecked(check.name, subject.where, _reason(error)))
    else:
        found.findings += done.findings
        found.not_checked += done.not_checked
        found.looked_at += done.looked_at


def _all(names: Names, reason: str) -> NotChecked:
    return NotChecked("all checks of rows", of_collection(names.schema, names.collection), reason)


def _reason(error: SemlexError) -> str:
    if isinstance(error, PrivilegeError):
        return "this role may not read the tables that the check needs"
    if isinstance(error, SearchTimeoutError):
        return f"the check took longer than {CHECK_SECONDS} s, or than a lower statement_timeout of the server"
    if isinstance(error, CollectionNotFoundError):
        return "a table of the collection does not exist, or was dropped in the meantime"
    return str(error)


async def _limit(connection: Connection) -> None:
    await set_local(connection, statement_timeout=f"{CHECK_SECONDS}s", lock_timeout="2s")
