"""Triggers that queue the changed rows of a followed table, in the transaction that changes them."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, LiteralString

from psycopg import sql

from semlex.errors import ConfigurationError, PrivilegeError, StoreError
from semlex.store.followed.definitions import StoredTable, is_as_read
from semlex.store.followed.source import SourceTable, literal
from semlex.store.postgres.errors import LOCK_NOT_AVAILABLE
from semlex.store.postgres.rows import fetch_row, fetch_rows, fetch_value
from semlex.store.schema.locks import (
    LOCK_TIMEOUT,
    SETUP_LOCK,
    TABLE_SECONDS,
    between_writes,
    lock_briefly,
    take_locks,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.names import Names

logger = logging.getLogger("semlex")

# For how long writers of a table are waited for when triggers are removed.
REMOVING_SECONDS = 5.0
# Of statements, the transition tables that each has.
TRANSITIONS: Mapping[LiteralString, LiteralString] = {
    "insert": "REFERENCING NEW TABLE AS new_rows ",
    "update": "REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows ",
    "delete": "REFERENCING OLD TABLE AS old_rows ",
    "truncate": "",
}
# The triggers are triggers of statements with transition tables, on the table and on everything below it: a statement
# fires those of the table that it names, and none of its partitions. One function serves all of them. It looks the
# table up by its name in the collection, and does nothing once the table is not followed any more, so that triggers
# that could not be removed do no harm. If it cannot queue the changed rows, it queues a comparison of every row; if
# that fails too, it warns, and the next comparison finds the change. It has the rights of the role that made it, which
# may write to the queue, and nobody else may use it in a trigger.

# A name of an expression is a column's, even if a variable has it, too.
_BODY = sql.SQL("""
#variable_conflict use_column
<<noted>>
DECLARE
    source uuid;
BEGIN
    SELECT f.source_id INTO noted.source FROM {followed_table} AS f
    WHERE f.collection = {collection} AND f.name = {name} AND f.definition ->> 'changes' = 'trigger';
    IF noted.source IS NULL THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' THEN
        {insertion} SELECT noted.source, {key}, statement_timestamp(), 0
        FROM new_rows AS t WHERE {complete};
    ELSIF TG_OP = 'UPDATE' THEN
        {insertion} SELECT noted.source, coalesce(o.row_key, n.row_key), statement_timestamp(), 0
        FROM (SELECT {key} AS row_key, {values} FROM old_rows AS t WHERE {complete}) AS o
        FULL JOIN (SELECT {key} AS row_key, {values} FROM new_rows AS t WHERE {complete}) AS n
        ON o.row_key COLLATE "C" = n.row_key COLLATE "C"
        WHERE o.row_key IS NULL OR n.row_key IS NULL OR ROW({old})::record *<> ROW({new})::record;
    ELSIF TG_OP = 'DELETE' THEN
        {insertion} SELECT noted.source, {key}, statement_timestamp(), 0
        FROM old_rows AS t WHERE {complete};
    ELSE
        {insertion} VALUES (noted.source, NULL, statement_timestamp(), 0);
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    DECLARE
        error text := SQLSTATE;
    BEGIN
        {insertion} VALUES (noted.source, NULL, statement_timestamp(), 0);
    EXCEPTION WHEN OTHERS THEN
        RAISE WARNING USING MESSAGE = {warning} || error;
    END;
    RETURN NULL;
END
""")
_INSERTION = sql.SQL("INSERT INTO {} (source_id, row_key, due_at, attempts)")
# Children of tables that inherit are as partitions here.
_MEMBERS = """
WITH RECURSIVE member(oid) AS (
    SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = %(table)s
    UNION SELECT i.inhrelid FROM pg_inherits AS i JOIN member ON member.oid = i.inhparent
)
SELECT c.oid, n.nspname, c.relname, c.relkind::text, concat_ws(' ', pg_relation_filenode(c.oid), own.changes), own.names
FROM member JOIN pg_class AS c USING (oid) JOIN pg_namespace AS n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (
    SELECT array_agg(t.tgname::text) AS names, string_agg(t.xmin::text, ' ' ORDER BY t.tgname) AS changes
    FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid JOIN pg_namespace AS f ON f.oid = p.pronamespace
    WHERE t.tgrelid = c.oid AND f.nspname = %(function_schema)s AND p.proname = %(function)s
        AND t.tgenabled <> 'D' AND t.tgargs = convert_to(%(version)s, 'UTF8') || '\\x00'::bytea
) AS own ORDER BY c.oid
"""
_WITH_FUNCTION = """
SELECT c.oid, s.nspname, c.relname, array_agg(t.tgname::text) FROM pg_trigger AS t
JOIN pg_proc AS p ON p.oid = t.tgfoid JOIN pg_namespace AS n ON n.oid = p.pronamespace
JOIN pg_class AS c ON c.oid = t.tgrelid JOIN pg_namespace AS s ON s.oid = c.relnamespace
WHERE n.nspname = %s AND p.proname = %s GROUP BY c.oid, s.nspname, c.relname
"""
_FUNCTION = """
SELECT p.prosrc FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname = %s AND p.proname = %s AND p.pronargs = 0
"""


def trigger_name(names: Names, name: str) -> str:
    """Return the name of a followed table's trigger function; the names of the triggers begin with this name."""
    qualified = f"{names.schema}.{names.collection}.{name}"
    return f"semlex_notice_{hashlib.sha256(qualified.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class Member:
    """The followed table, or a table below it: a partition or a child."""

    oid: int
    schema: str
    name: str
    kind: str
    state: str  # another one after its rows were rewritten, or its triggers made, disabled or enabled
    triggers: frozenset[str]  # that are made as they should be

    @property
    def identifier(self) -> sql.Identifier:
        """The qualified name of the table."""
        return sql.Identifier(self.schema, self.name)


@dataclass(frozen=True, slots=True)
class Noticed:
    """Whether a table has all its triggers, and a hash that changes when triggers may have missed changed rows."""

    # Changes with everything that no trigger notices: when partitions are attached, detached or dropped, a table is
    # rewritten, or a trigger was missing for a while.
    state: str
    is_complete: bool = True  # whether every table has its triggers
    warnings: Sequence[str] = ()  # triggers that could not be made, each with a remedy


class TableTriggers:
    """The triggers of one followed table."""

    def __init__(self, names: Names, source: SourceTable) -> None:
        self._names, self._source, definition = names, source, source.definition
        self.table = f"{definition.schema}.{definition.table}"
        self._name = trigger_name(names, definition.name)
        self._function = sql.Identifier(names.schema, self._name)
        self._body = self._composed_body()
        # Triggers of another version are made again, and so is what they have noticed until then.
        self._version = hashlib.sha256(self._body.encode()).hexdigest()[:16]

    def _composed_body(self) -> str:
        source, names = self._source, self._names
        values = [
            sql.SQL("{} AS {}").format(value, sql.Identifier(f"c{number}"))
            for number, value in enumerate(source.followed)
        ]
        columns = [sql.Identifier(f"c{number}") for number in range(len(values))]
        old, new = (
            sql.SQL(", ").join(sql.SQL("{}.{}").format(sql.SQL(side), column) for column in columns)
            for side in ("o", "n")
        )
        warning = (
            f"semlex could not note what changed in {self.table}, which the collection {names.collection!r} follows; "
            "the next comparison finds it. Error "
        )
        body = _BODY.format(
            followed_table=names.followed_table,
            collection=literal(names.collection),
            name=literal(source.definition.name),
            insertion=_INSERTION.format(names.row_change),
            key=source.key_text,
            complete=source.key_is_complete,
            values=sql.SQL(", ").join(values),
            old=old,
            new=new,
            warning=literal(warning),
        )
        # The source's SQL is made to be run with values.
        return body.as_string().replace("%%", "%")

    @property
    def function_statements(self) -> list[sql.Composed]:
        """The statements that make the trigger function."""
        # Who may use it in a trigger of a table with types of their own may let it run their functions.
        return [
            sql.SQL(
                "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER\n"
                "SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS {}"
            ).format(self._function, _dollar_quoted(self._body)),
            sql.SQL("REVOKE ALL ON FUNCTION {}() FROM PUBLIC").format(self._function),
        ]

    def trigger_statements(self, member: Member) -> list[sql.Composed]:
        """Return the statements that make the triggers of one table: the followed one, or a partition of it."""
        return [
            sql.SQL("CREATE OR REPLACE TRIGGER {} AFTER {} ON {} {}FOR EACH STATEMENT EXECUTE FUNCTION {}({})").format(
                sql.Identifier(f"{self._name}_{event}"),
                sql.SQL(event.upper()),
                member.identifier,
                sql.SQL(tables),
                self._function,
                sql.Literal(self._version),
            )
            for event, tables in TRANSITIONS.items()
        ]

    async def ddl(self, connection: Connection) -> str:
        """Return a script for psql that makes the function and all triggers; it also runs if some of them exist."""
        members = await self._members(connection)
        statements = [*self.function_statements, *(one for m in members for one in self.trigger_statements(m))]
        return _script(
            statements,
            (
                f"Makes triggers that queue changed rows of {self.table} for collection {self._names.collection!r}.",
                f"The role that runs it needs in schema {self._names.schema}: CREATE, INSERT on row_change, SELECT on",
                "followed_table; and TRIGGER on the table and every table below it. Writers wait until it has ended.",
                "If it waits too long for writers, it fails and changes nothing: run it again.",
            ),
        )

    async def keep(self, database: Database, stored: StoredTable, *, seconds: float = TABLE_SECONDS) -> Noticed:
        """Make the missing triggers, unless the table's definition has changed since `stored` was read."""
        # `seconds` is how long to wait for transactions that write the table.
        #
        # Compare all rows afterwards if the triggers are not complete or `Noticed.state` has changed since the last
        # comparison.
        members, has_function = await database.read("look at the triggers", self._found)
        lacking = [member for member in members if not member.triggers >= self._trigger_names]
        if not has_function or lacking:
            await self._make(database, stored, members, lacking, seconds, with_function=not has_function)
            members = await database.read("look at the triggers", self._members)
        return replace(self._noticed(members), warnings=await self._drop_strays(database, members, seconds))

    async def look(self, database: Database, stored: StoredTable) -> Noticed:
        """Make missing triggers as `keep` does, but return a warning for those that cannot be made now."""
        try:
            return await self.keep(database, stored, seconds=0)
        except StoreError as error:
            _refuse_unless_lasting(error)
            members, _ = await database.read("look at the triggers", self._found)
            return self._noticed(members, str(error))

    def _noticed(self, members: Sequence[Member], *warnings: str) -> Noticed:
        stored = repr([(member.oid, member.state) for member in members] + [self._version])
        return Noticed(hashlib.sha256(stored.encode()).hexdigest(), not warnings, warnings)

    @property
    def _trigger_names(self) -> frozenset[str]:
        return frozenset(f"{self._name}_{event}" for event in TRANSITIONS)

    async def _found(self, connection: Connection) -> tuple[list[Member], bool]:
        body = await fetch_value(connection, _FUNCTION, [self._names.schema, self._name])
        return await self._members(connection), body == self._body

    async def _members(self, connection: Connection) -> list[Member]:
        definition = self._source.definition
        found = await fetch_rows(
            connection,
            _MEMBERS,
            {
                "schema": definition.schema,
                "table": definition.table,
                "function_schema": self._names.schema,
                "function": self._name,
                "version": self._version,
            },
        )
        members = [
            Member(oid, schema, name, kind, state, frozenset(triggers or ()))
            for oid, schema, name, kind, state, triggers in found
        ]
        for member in members:
            if member.kind == "f":
                raise ConfigurationError(
                    f"{member.schema}.{member.name} is a foreign table, where these triggers cannot work: follow "
                    f"{self.table} by comparison or by a column (--changes comparison, --updated-at COLUMN)"
                )
        return members

    async def _make(
        self,
        database: Database,
        stored: StoredTable,
        members: Sequence[Member],
        lacking: Sequence[Member],
        seconds: float,
        *,
        with_function: bool,
    ) -> None:
        async def make(connection: Connection, statements: Sequence[sql.Composed]) -> None:
            await take_locks(connection, SETUP_LOCK)
            if await is_as_read(connection, self._names, stored, held=True):
                await lock_briefly(connection, *statements)

        doing = f"make the triggers of {self.table}"
        try:
            if with_function:
                await database.write(doing, partial(make, statements=self.function_statements))
            # Each of these transactions waits for writers that began with another function. Each is short, so that a
            # table with many partitions is never locked as a whole.
            for member in lacking:
                statements = self.trigger_statements(member)
                await between_writes(database, doing, [member.oid], partial(make, statements=statements), seconds)
        except PrivilegeError as error:
            below = " and every table below it" if len(members) > 1 else ""
            raise PrivilegeError(
                f"{error}; the role needs CREATE on schema {self._names.schema}, and TRIGGER on {self.table}{below}. "
                f"Or let a role with these rights run the SQL of: semlex follow {self._source.definition.name} "
                f"-c {self._names.collection} --sql",
                sqlstate=error.sqlstate,
            ) from None

    async def _drop_strays(self, database: Database, members: Sequence[Member], seconds: float) -> list[str]:
        """Drop triggers on tables that are not part of the followed one any more, such as detached partitions."""
        own = {member.oid for member in members}
        found = await database.read("look for triggers", partial(_with_function, self._names, self._name))
        warnings = []
        for stray in found:
            if stray.oid in own:
                continue
            statements = [
                sql.SQL("DROP TRIGGER IF EXISTS {} ON {}").format(sql.Identifier(trigger), stray.identifier)
                for trigger in sorted(stray.triggers)
            ]

            async def drop(connection: Connection, statements: Sequence[sql.Composed] = statements) -> None:
                await lock_briefly(connection, *statements)

            try:
                await between_writes(
                    database, f"drop triggers of {stray.schema}.{stray.name}", [stray.oid], drop, seconds
                )
            except StoreError as error:
                _refuse_unless_lasting(error)
                remedy = " ".join(f"{statement.as_string()};" for statement in statements)
                warnings.append(f"{error}; these triggers are not needed any more; the table's owner can run: {remedy}")
        return warnings


async def remove_triggers(database: Database, names: Names, name: str) -> None:
    """Remove the triggers and the function of a table, unless it is followed with triggers again."""
    # If the role may not remove them, or a transaction holds the table, a warning shows the SQL for others. Triggers
    # that stay do nothing.
    function = trigger_name(names, name)
    statement = sql.SQL("DROP FUNCTION IF EXISTS {}() CASCADE").format(sql.Identifier(names.schema, function))

    async def find(connection: Connection) -> list[Member] | None:
        if await fetch_row(connection, _FUNCTION, [names.schema, function]) is None:
            return None
        return await _with_function(names, function, connection)

    async def remove(connection: Connection) -> None:
        await take_locks(connection, SETUP_LOCK)
        followed = sql.SQL(
            "SELECT FROM {} WHERE collection = %s AND name = %s AND definition ->> 'changes' = 'trigger'"
        ).format(names.followed_table)
        if await fetch_row(connection, followed, [names.collection, name]) is None:
            await lock_briefly(connection, statement)

    tables = await database.read("look for triggers", find)
    if tables is None:
        return
    doing = f"remove the triggers of the followed table {name!r}"
    try:
        await between_writes(database, doing, [table.oid for table in tables], remove, REMOVING_SECONDS)
    except StoreError as error:
        _refuse_unless_lasting(error)
        logger.warning(
            "%s; the triggers that remain do nothing; the owner of the tables can remove them: %s;",
            error,
            statement.as_string(),
        )


async def _with_function(names: Names, function: str, connection: Connection) -> list[Member]:
    """Return the tables with triggers that call this function, each with the names of these triggers."""
    found = await fetch_rows(connection, _WITH_FUNCTION, [names.schema, function])
    return [Member(oid, schema, name, "", "", frozenset(triggers)) for oid, schema, name, triggers in found]


def _refuse_unless_lasting(error: StoreError) -> None:
    """Raise the error again, unless its cause may persist: a missing right, or a lock that is not available."""
    if not isinstance(error, PrivilegeError) and error.sqlstate != LOCK_NOT_AVAILABLE:
        raise error


def _script(statements: Sequence[sql.Composed], comments: Sequence[str]) -> str:
    """Return a psql script of one transaction with the statements; it fails if it waits too long for a lock."""
    lines = [f"-- {comment}" for comment in comments]
    lines += ["BEGIN;", f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}';", f"SELECT pg_advisory_xact_lock({SETUP_LOCK});"]
    lines += [f"{statement.as_string()};" for statement in statements]
    return "\n".join([*lines, "COMMIT;", ""])


def _dollar_quoted(text: str) -> sql.SQL:
    """Return a text in dollar quotes, with a tag that the text does not contain."""
    mark = "$semlex$"
    while mark in text:
        mark = f"{mark[:-1]}_$"
    quoted: Any = f"{mark}{text}{mark}"
    return sql.SQL(quoted)
