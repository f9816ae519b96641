"""The checks of `semlex doctor`: this machine's models, the server, and its collections one by one."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from semlex.diagnostics.checks import CHECKS, ModelFacts, Results, Subject, findings_of_pooling, findings_of_settings
from semlex.diagnostics.server_settings import examine_settings
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
from semlex.types.checkups import Diagnosis, Finding, NotChecked, by_severity, of_collection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import CollectionInfo

# Time limit of each statement.
CHECK_SECONDS = 15
# A collection whose tables cannot be read has no other check.
EVERY_CHECK = "all checks of rows"

T = TypeVar("T")


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
    found = Results()
    tell("the server")
    only = None if collection is None else Names(schema, collection)
    server = await _look_at_server(database, schema, only, found)
    names = await _names(database, schema, collection, found)
    looked = [name for name in names if await _look_at_collection(database, Names(schema, name), models, found, tell)]
    return Diagnosis(
        server, schema, tuple(looked), by_severity(found.findings), tuple(found.not_checked), tuple(found.looked_at)
    )


async def _look_at_server(database: Database, schema: str, only: Names | None, found: Results) -> str:
    async with database.connection() as connection:
        server = describe_connection(connection)
        pooling = await look_for_pooler(connection)

    async def look(connection: Connection) -> list[Finding]:
        info = await read_server_info(connection)
        problems = await find_problems(connection, info, only)
        return problems + await find_missing_schema(connection, info, schema)

    async def look_at_settings(connection: Connection) -> list[Finding]:
        return list(findings_of_settings(await examine_settings(connection)))

    for check, work in (("tables", look), ("settings", look_at_settings)):
        with _errors_noted(found, check, f"server {server}"):
            found.findings += await _limited(database, check, work)
    found.findings += findings_of_pooling(pooling, server)
    return server


async def _names(database: Database, schema: str, collection: str | None, found: Results) -> list[str]:
    known = None
    with _errors_noted(found, "collections", f"schema {schema}"):
        known = [listed.name for listed in await list_collections(database, schema)]
    if known is None or collection is None:
        return known or []
    if collection not in known:
        raise no_such_collection(collection, known)
    return [collection]


async def _look_at_collection(
    database: Database, names: Names, models: ModelFacts, found: Results, tell: Callable[[str], None]
) -> bool:
    """Check a collection; return whether that was possible."""
    where = of_collection(names.schema, names.collection)
    collection = None
    with _errors_noted(found, EVERY_CHECK, where):
        collection = await _limited(database, "collection", lambda connection: find(connection, names))
    if collection is None:
        return False  # dropped in the meantime, or not readable
    if collection.schema_version != len(migrations.COLLECTION):
        reason = "its tables are of an older semlex; semlex maintain migrate updates them"
        found.not_checked.append(NotChecked(EVERY_CHECK, where, reason))
        return False
    for name, check in CHECKS.items():
        tell(f"{names.collection}: {name}")
        with _errors_noted(found, name, where):
            done = await _limited(database, name, partial(_results_of, check, collection, models, name))
            found.findings += done.findings
            found.not_checked += done.not_checked
            found.looked_at += done.looked_at
    return True


async def _results_of(
    check: Callable[[Subject], Awaitable[None]],
    collection: CollectionInfo,
    models: ModelFacts,
    name: str,
    connection: Connection,
) -> Results:
    subject = Subject(collection, models, name, connection)
    await check(subject)
    return subject.results


async def _limited(database: Database, what: str, work: Callable[[Connection], Awaitable[T]]) -> T:
    """Run a check in its own transaction, with time limits; after a lost connection it runs again."""

    async def limited(connection: Connection) -> T:
        await set_local(connection, statement_timeout=f"{CHECK_SECONDS}s", lock_timeout="2s")
        return await work(connection)

    # Not in a pipeline: a check may undo a part of its transaction.
    return await database.read_whole(f"look at the {what}", limited)


@contextmanager
def _errors_noted(found: Results, check: str, where: str) -> Iterator[None]:
    """Record a check that fails, with the reason; a lost connection is raised instead, as no other check can run."""
    try:
        yield
    except ConnectionFailedError:
        raise
    except SemlexError as error:
        found.not_checked.append(NotChecked(check, where, _reason(error)))


def _reason(error: SemlexError) -> str:
    if isinstance(error, PrivilegeError):
        return "this role may not read the tables that the check needs"
    if isinstance(error, SearchTimeoutError):
        return f"a statement of the check took longer than {CHECK_SECONDS} s, or was cancelled on the server"
    if isinstance(error, CollectionNotFoundError):
        return "a table of the collection does not exist, or was dropped in the meantime"
    return str(error)
