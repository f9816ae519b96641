"""Find problems of a database and its collections (rows, privileges, indexes, tables) without changing anything."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import sql

from semlex.clock import SYSTEM
from semlex.store import embedding_versions
from semlex.store.indexes.field_indexes import is_of_field
from semlex.store.postgres.rows import fetch_value, only_row
from semlex.store.postgres.server_info import SAFE_PGVECTOR, ServerInfo
from semlex.store.postgres.settings import set_local
from semlex.store.query.filters import parse_filters
from semlex.store.query.score_calibration import sample_vectors
from semlex.store.query.statistics import SMALL_BYTES, is_orphaned
from semlex.store.query.vector import VectorLeg, register_vector_parameter, vector_leg
from semlex.store.schema import migrations
from semlex.store.schema.migrations import collection_origin, m0001_initial, registry_origin
from semlex.store.schema.names import JOB_TABLE, REGISTRY_TABLES, Names, oid_of, stored_in
from semlex.store.schema.registry import collection_names, last_migration
from semlex.store.segments import tombstone_ids
from semlex.types.checkups import Finding, of_collection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.indexes.catalog import VectorIndexes
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo


# Large tables are sampled, by pages that a fixed seed selects.
SEED = 1
# More rows than wanted are drawn, because a share of the pages is only about that share of the rows.
SPARE = 1.5


@dataclass(frozen=True, slots=True)
class RowSample:
    """A sample of the rows of a table, as SQL."""

    rows: sql.Composed  # SQL of a subquery, without its name
    is_whole: bool  # whether it is the whole table
    estimated: int | None  # about how many rows the table has, if known

    def described(self, looked: int, noun: str) -> str:
        """Return in words how many rows were examined, such as "all 12 chunks"."""
        if self.is_whole:
            return f"all {looked:,} {noun}"
        return f"{looked:,} {noun} of about {self.estimated or 0:,}"


async def sample_rows(connection: Connection, table: sql.Identifier, columns: sql.Composable, most: int) -> RowSample:
    """Return a sample of up to `most` rows of a table."""
    estimated, few = await only_row(
        connection,
        sql.SQL(
            "SELECT (SELECT sum(l.reltuples::float8) FILTER (WHERE l.reltuples >= 0) FROM {}), "
            "(SELECT count(*) FROM (SELECT FROM {} LIMIT {}) AS few)"
        ).format(stored_in(oid_of(table)), table, sql.Literal(most + 1)),
    )
    if few <= most:
        rows = sql.SQL("(SELECT {} FROM {})").format(columns, table)
        return RowSample(rows, is_whole=True, estimated=few)
    number = max(round(estimated or 0), few)
    percent = sql.Literal(min(100.0, 100.0 * SPARE * most / number))
    rows = sql.SQL("(SELECT {} FROM {} TABLESAMPLE system ({}) REPEATABLE ({}) LIMIT {})").format(
        columns, table, percent, sql.Literal(SEED), sql.Literal(most)
    )
    return RowSample(rows, is_whole=False, estimated=number)


MAX_ROWS = 20_000


class Share(NamedTuple):
    """How many rows of a sample meet a condition."""

    found: int
    looked: int  # rows that were examined
    sample: RowSample  # where they were drawn from

    def counted(self, noun: str) -> str:
        """Return in words how many rows meet the condition, such as "2 of 500 sampled chunks"."""
        found = noun if self.found == 1 else f"{noun}s"
        return (
            f"{self.found:,} {found}" if self.sample.is_whole else f"{self.found:,} of {self.looked:,} sampled {noun}s"
        )


KEY = sql.SQL("document_id, chunk_id")


async def _share(
    connection: Connection, table: sql.Identifier, columns: sql.Composable, condition: sql.Composable
) -> Share:
    """Count the rows of a sample that meet a condition; in the condition, a row is called ``e``."""
    sample = await sample_rows(connection, table, columns, MAX_ROWS)
    counting = sql.SQL("SELECT count(*) FILTER (WHERE {}), count(*) FROM {} AS e").format(condition, sample.rows)
    found, looked = await only_row(connection, counting)
    return Share(found, looked, sample)


async def orphaned_vectors(connection: Connection, names: Names, version: int) -> list[Finding]:
    """Return a finding if there are vectors of chunks that are gone."""
    table, orphaned = names.embedding(version), is_orphaned(names.chunk)
    share = await _share(connection, table, KEY, orphaned)
    if not share.found:
        return []
    return [
        Finding(
            "vectors_orphaned",
            "warning",
            of_collection(names.schema, names.collection),
            f"has {share.counted('vector')} whose chunk is gone",
            "they only take space; delete them",
            sql.SQL("DELETE FROM {} AS e WHERE {};").format(table, orphaned).as_string(connection),
        )
    ]


async def orphaned_chunks(connection: Connection, names: Names) -> Share:
    """Return how many chunks belong to a document that is missing."""
    # The id of a chunk that was read begins with the key of its document. The ids of added texts do not; such
    # texts have no document.
    condition = sql.SQL(
        "starts_with(e.chunk_id, replace(e.document_id::text, '-', '') || '-') "
        "AND NOT EXISTS (SELECT FROM {} AS d WHERE d.document_id = e.document_id)"
    ).format(names.document)
    return await _share(connection, names.chunk, KEY, condition)


async def chunks_without_vector(connection: Connection, names: Names, version: int) -> Share:
    """Return how many chunks have no vector, so that vector search does not find them."""
    condition = sql.SQL(
        "NOT EXISTS (SELECT FROM {} AS v WHERE v.document_id = e.document_id AND v.chunk_id = e.chunk_id)"
    ).format(names.embedding(version))
    return await _share(connection, names.chunk, KEY, condition)


async def documents_without_source(connection: Connection, names: Names) -> Share:
    """Return how many documents belong to a source that is missing."""
    condition = sql.SQL("NOT EXISTS (SELECT FROM {} AS s WHERE s.source_id = e.source_id)").format(names.source)
    return await _share(connection, names.document, sql.SQL("source_id"), condition)


async def documents_without_text(connection: Connection, names: Names) -> Share:
    """Return how many documents have no chunk."""
    condition = sql.SQL("NOT EXISTS (SELECT FROM {} AS c WHERE c.document_id = e.document_id)").format(names.chunk)
    return await _share(connection, names.document, sql.SQL("document_id"), condition)


async def long_chunks(connection: Connection, names: Names, tokens: int) -> Share:
    """Return how many chunks have more than `tokens` tokens."""
    condition = sql.SQL("e.token_count > {}").format(sql.Literal(tokens))
    return await _share(connection, names.chunk, sql.SQL("token_count"), condition)


async def some_texts(connection: Connection, names: Names, most: int, characters: int) -> tuple[list[str], RowSample]:
    """Return the first `characters` of the texts of some chunks, in the order of their keys."""
    columns = sql.SQL("document_id, chunk_id, left(chunk_text, {}) AS beginning").format(sql.Literal(characters))
    sample = await sample_rows(connection, names.chunk, columns, most)
    cursor = await connection.execute(
        sql.SQL("SELECT e.beginning FROM {} AS e ORDER BY e.document_id, e.chunk_id").format(sample.rows)
    )
    return [text for (text,) in await cursor.fetchall()], sample


async def is_large(connection: Connection, table: sql.Identifier) -> bool:
    """Return whether a table is too large to be read by a check."""
    statement = sql.SQL("SELECT sum(pg_catalog.pg_relation_size(l.oid)) > {} FROM {}")
    found = await fetch_value(connection, statement.format(sql.Literal(SMALL_BYTES), stored_in(oid_of(table))))
    return bool(found)


async def tombstone_share(connection: Connection, names: Names, generation: int) -> tuple[int, int]:
    """Return how many deleted chunks the segments of a keyword index's generation hold, and how many chunks in all."""
    statement = sql.SQL("SELECT coalesce(sum(chunks), 0)::bigint FROM {} WHERE generation = %s").format(names.segment)
    chunks = await fetch_value(connection, statement, [generation])
    gone = sum(ids.count for ids in (await tombstone_ids(connection, names, generation)).values())
    return gone, chunks


class DeadRows(NamedTuple):
    """The rows of a table that were deleted or replaced and still take space."""

    table: str  # quoted and qualified
    live: int  # both are estimates
    dead: int


async def dead_rows(connection: Connection, tables: Sequence[sql.Identifier]) -> list[DeadRows]:
    """Read the server's counts of dead rows in tables and partitions; a crash loses them, and a standby has none."""
    cursor = await connection.execute(
        sql.SQL(
            "SELECT s.schemaname, s.relname, s.n_live_tup, s.n_dead_tup "
            "FROM unnest(%s::text[]) WITH ORDINALITY AS t(name, place) CROSS JOIN LATERAL (SELECT l.oid FROM {}) AS l "
            "JOIN pg_catalog.pg_stat_all_tables AS s ON s.relid = l.oid ORDER BY t.place, s.relid"
        ).format(stored_in(sql.SQL("pg_catalog.to_regclass(t.name)"))),
        [[table.as_string(connection) for table in tables]],
    )
    return [
        DeadRows(sql.Identifier(schema, name).as_string(connection), live, dead)
        for schema, name, live, dead in await cursor.fetchall()
    ]


READING = ("SELECT",)
WRITING = ("INSERT", "UPDATE", "DELETE")


class TablePrivileges(NamedTuple):
    """The privileges of this role on a table."""

    table: str
    missing: tuple[str, ...]  # those of `READING` and `WRITING` that it lacks
    owner: str
    is_owner: bool  # whether this role is the owner, or a member of it


async def table_privileges(connection: Connection, schema: str, tables: Sequence[str]) -> list[TablePrivileges]:
    """Read which privileges the current role lacks on tables; the result is ordered by name."""
    cursor = await connection.execute(
        "SELECT c.relname, ARRAY(SELECT p FROM unnest(%s::text[]) AS p "
        "WHERE NOT pg_catalog.has_table_privilege(c.oid, p)), "
        "pg_catalog.pg_get_userbyid(c.relowner), pg_catalog.pg_has_role(c.relowner, 'USAGE') "
        "FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = ANY(%s) AND c.relkind IN ('r', 'p') ORDER BY c.relname",
        [[*READING, *WRITING], schema, list(tables)],
    )
    return [TablePrivileges(name, tuple(missing), *more) for name, missing, *more in await cursor.fetchall()]


def grant(connection: Connection, schema: str, privileges: Sequence[str], tables: Sequence[str]) -> str:
    """Return the GRANT statements with which the owner of the tables gives this role the privileges."""
    role = sql.Identifier(connection.info.user)
    words = sql.SQL(", ").join(sql.SQL(privilege) for privilege in privileges)
    names = sql.SQL(", ").join(sql.Identifier(schema, table) for table in tables)
    statement = sql.SQL("GRANT USAGE ON SCHEMA {} TO {}; GRANT {} ON {} TO {};")
    return statement.format(sql.Identifier(schema), role, words, names, role).as_string(connection)


NEIGHBOURS = 10
# Rounding: the index may compare in another order of additions.
EQUAL = 1e-6


class Recall(NamedTuple):
    """A measurement of which share of the nearest vectors an index finds."""

    # Share of the nearest ten, 0 to 1; None if there was no time for one vector.
    found: float | None
    vectors: int  # how many stored vectors were measured
    wanted: int  # how many were to be measured
    plan: str  # in words


async def vector_recall(
    connection: Connection, collection: CollectionInfo, indexes: VectorIndexes, *, vectors: int, seconds: float
) -> Recall:
    """Compare the neighbours of stored vectors found through the index with the exact ones, for up to `seconds`."""
    # The vectors are those of `VectorSample`, the same at every call while the collection stays the same. A vector does
    # not count as its own neighbour; of equally near ones any counts. What was measured when the time is over counts.
    # The connection must not be in a pipeline, because a part of the transaction may be undone.
    queries = await sample_vectors(connection, collection, vectors)
    until, shares, plan = SYSTEM.monotonic() + seconds, [], ""
    register_vector_parameter(connection)
    condition = parse_filters(None, collection.names)
    for query in queries:
        milliseconds = round(1000 * (until - SYSTEM.monotonic()))
        if milliseconds <= 0:
            break
        through = vector_leg(collection, query, NEIGHBOURS + 1, condition, indexes=indexes)
        exactly = vector_leg(collection, query, NEIGHBOURS + 1, condition, plan="scan")
        plan = through.plan
        try:
            async with connection.transaction():
                await set_local(connection, statement_timeout=milliseconds)
                nearest = await _scores(connection, exactly)
                found = await _scores(connection, through)
        except psycopg.errors.QueryCanceled:
            break
        if len(nearest) > 1:
            least = nearest[-1] - EQUAL * max(1.0, abs(nearest[-1]))
            itself = any(score >= nearest[0] - EQUAL for score in found)
            shares.append((sum(score >= least for score in found) - itself) / (len(nearest) - 1))
    return Recall(min(1.0, sum(shares) / len(shares)) if shares else None, len(shares), len(queries), plan)


async def _scores(connection: Connection, leg: VectorLeg) -> list[float]:
    if leg.settings:
        await set_local(connection, **leg.settings)
    statement = leg.prepare(None).statements[0]
    cursor: Any = connection.cursor(binary=True)
    await cursor.execute(statement.text, statement.parameters)
    return [score for _, _, score in await cursor.fetchall()]


MAX_SHOWN_NAME = 200  # characters of a model's name
TABLES = ("source", "document", "chunk", "ingestion_log", "segment", "posting", "tombstone", "manifest", "query_log")
# Of this engine alone.
BM25, OF_KEYWORD_INDEX = "bm25", ("segment", "posting", "tombstone", "manifest")


async def find_problems(connection: Connection, server: ServerInfo, only: Names | None = None) -> list[Finding]:
    """Return the problems of the server and of every schema with collections; `only` chooses a single collection."""
    # The connection must not be in a pipeline, because a part of the transaction may be undone.
    problems = []
    if server.pgvector is None:
        problems.append(
            Finding(
                "pgvector_missing",
                "error",
                "pgvector",
                "is not installed in this database",
                "install its package on the server if the server lacks it; then let a superuser run",
                "CREATE EXTENSION vector;",
            )
        )
    elif server.pgvector < SAFE_PGVECTOR:
        problems.append(
            Finding(
                "pgvector_old",
                "warning",
                f"pgvector {'.'.join(map(str, server.pgvector))}",
                "has known index defects",
                f"update its package on the server to {'.'.join(map(str, SAFE_PGVECTOR))} or newer, then",
                "ALTER EXTENSION vector UPDATE;",
            )
        )
    cursor = await connection.execute(
        "SELECT n.nspname FROM pg_catalog.pg_namespace AS n "
        "JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = ANY(%s) AND c.relkind = 'r' "
        "GROUP BY n.nspname HAVING count(*) = %s ORDER BY n.nspname",
        [list(REGISTRY_TABLES), len(REGISTRY_TABLES)],
    )
    for (schema,) in await cursor.fetchall():
        if only is not None and schema != only.schema:
            continue
        try:
            async with connection.transaction():
                problems += await _in_schema(connection, schema, only)
        except psycopg.errors.InsufficientPrivilege:
            name = sql.Identifier(schema).as_string(connection)
            problems.append(
                Finding(
                    "privilege_read",
                    "error",
                    f"schema {schema}",
                    "cannot be checked: this role may not read all of its tables",
                    "if the role needs this, let the owner of the tables run",
                    f"GRANT USAGE ON SCHEMA {name} TO {_role(connection)}; "
                    f"GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO {_role(connection)};",
                )
            )
    return problems


async def find_missing_schema(connection: Connection, server: ServerInfo, schema: str) -> list[Finding]:
    """Return a finding if the schema does not exist and this role may not create it."""
    cursor = await connection.execute(
        "SELECT format('CREATE SCHEMA %%I AUTHORIZATION %%I;', %(schema)s::text, current_user) "
        "WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %(schema)s) "
        "AND NOT has_database_privilege(current_database(), 'CREATE')",
        {"schema": schema},
    )
    if server.read_only or (row := await cursor.fetchone()) is None:
        return []
    what, remedy = "does not exist, and this role may not create it", "let the owner of the database run"
    return [Finding("privilege_create", "warning", f"schema {schema}", what, remedy, row[0])]


def _role(connection: Connection) -> str:
    return sql.Identifier(connection.info.user).as_string(connection)


async def _in_schema(connection: Connection, schema: str, only: Names | None) -> list[Finding]:
    registry = sql.Identifier(schema, "collection")
    version, fingerprint = await last_migration(connection, schema)
    origin = registry_origin(version, fingerprint)
    if origin == "newer":
        newest = len(migrations.REGISTRY)
        what = f"was made by a newer semlex (registry version {version}; this semlex knows up to {newest})"
        return [Finding("schema_newer", "error", f"schema {schema}", what, "update semlex")]
    if origin == "unreleased":
        every = [Names(schema, name) for name in await collection_names(connection, schema)]
        return [_unreleased(names) for names in every if only in (None, names)]
    cursor = await connection.execute(
        sql.SQL(
            "SELECT c.name, c.schema_version, c.schema_fingerprint, c.building_generation IS NOT NULL, "
            "ARRAY(SELECT e.version FROM {versions} AS e WHERE e.name = c.name ORDER BY e.version), "
            "(SELECT e.model FROM {versions} AS e WHERE e.name = c.name AND e.building "
            "AND coalesce(e.run_until NOT BETWEEN clock_timestamp() AND clock_timestamp() + %s, true) LIMIT 1), "
            "c.keyword_engine FROM {registry} AS c ORDER BY c.name"
        ).format(versions=sql.Identifier(schema, "embedding_version"), registry=registry),
        [timedelta(seconds=embedding_versions.RUN_SECONDS)],
    )
    collections = [_Registered(*row) for row in await cursor.fetchall()]
    cursor = await connection.execute(
        "SELECT c.relname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY c.relname",
        [schema],
    )
    present = [name for (name,) in await cursor.fetchall()]
    problems, known = [], {*REGISTRY_TABLES, JOB_TABLE}
    for found in collections:
        known |= {*_own_tables(found.name, found.embeddings)}
        if only is None or found.name == only.collection:
            problems += await _in_collection(connection, Names(schema, found.name), found, present)
    if only is not None:
        return problems
    problems += [_unknown(connection, schema, table) for table in present if table not in known]
    return problems + await _invalid_indexes(connection, schema)


def _unknown(connection: Connection, schema: str, table: str) -> Finding:
    name = sql.Identifier(schema, table).as_string(connection)
    shown = f"{schema}.{table}" if re.fullmatch(r"[a-z_][a-z0-9_]*", table) else repr(table)
    return Finding(
        "table_unknown",
        "hint",
        f"table {shown}",
        "belongs to no collection",
        "if you do not need it",
        f"DROP TABLE {name};",
    )


def tables_of(collection: CollectionInfo) -> list[str]:
    """Return the names of all tables that a collection uses, including the registry's."""
    versions = [one.version for one in collection.versions.standing]
    own = _own_tables(collection.names.collection, versions, indexes_words=collection.keyword.index is not None)
    return [*REGISTRY_TABLES, *own]


def _own_tables(name: str, versions: Sequence[int], *, indexes_words: bool = True) -> list[str]:
    """Return the names of a collection's tables; `indexes_words` tells whether it has semlex's keyword index."""
    tables = [f"{name}_{table}" for table in TABLES if indexes_words or table not in OF_KEYWORD_INDEX]
    return [*tables, *(f"{name}_embedding_{version}" for version in versions)]


class _Registered(NamedTuple):
    """A collection as its row in the registry describes it."""

    name: str
    version: int
    fingerprint: str
    building: bool
    embeddings: list[int]
    unfinished_model: str | None
    engine: str


async def _in_collection(
    connection: Connection, names: Names, registered: _Registered, present: list[str]
) -> list[Finding]:
    name, newest = of_collection(names.schema, names.collection), len(migrations.COLLECTION)
    version, option = registered.version, f"--collection {names.collection}"
    origin = collection_origin(version, registered.fingerprint)
    if origin == "unreleased":
        return [_unreleased(names)]
    if origin == "newer":
        what = f"was made by a newer semlex (version {version}; this semlex knows up to {newest})"
        return [Finding("collection_newer", "error", name, what, "update semlex")]
    if origin == "older":
        what, remedy = (
            f"has schema version {version}; the newest is {newest}",
            "the collection is migrated when it is opened next; to migrate it now, run",
        )
        return [Finding("collection_old", "hint", name, what, remedy, "semlex maintain migrate")]
    wanted = _own_tables(names.collection, registered.embeddings, indexes_words=registered.engine == BM25)
    missing = [table for table in wanted if table not in present]
    if missing == [f"{names.collection}_query_log"]:
        made = [statement.as_string(connection) for statement in m0001_initial.query_log(names)]
        what, remedy = f"lacks the table {missing[0]}: no query is logged", "let the owner of the tables run"
        return [Finding("table_missing", "warning", name, what, remedy, "; ".join(made) + ";")]
    if missing:
        tables = f"table {missing[0]}" if len(missing) == 1 else f"tables {', '.join(missing)}"
        what, remedy = f"lacks the {tables}", "restore the database from a backup, or drop the collection"
        return [Finding("table_missing", "error", name, what, remedy)]
    problems = []
    if registered.building:
        problems.append(
            Finding(
                "keyword_rebuild_left",
                "warning",
                name,
                "has a rebuild of its keyword index that is running or was interrupted",
                "if no rebuild is running, start it again",
                f"semlex maintain reindex {option}",
            )
        )
    if registered.unfinished_model is not None:
        model = registered.unfinished_model
        shown = model if model.isprintable() and len(model) <= MAX_SHOWN_NAME else "MODEL"
        problems.append(
            Finding(
                "reembed_left",
                "warning",
                name,
                "has an unfinished change to another embedding model",
                f"drop the new model's vectors (semlex models drop {registered.embeddings[-1]} {option}), or continue",
                f"semlex models set {shlex.quote(shown)} {option}",
            )
        )
    for version in registered.embeddings:
        problems += await orphaned_vectors(connection, names, version)
    return problems


def _unreleased(names: Names) -> Finding:
    return Finding(
        "collection_unreleased",
        "error",
        of_collection(names.schema, names.collection),
        "was made by an unreleased semlex with other tables",
        "if you need the contents, dump them with that version (semlex collections dump); then drop the collection, "
        "and index or restore it again",
        f"semlex collections drop {names.collection}",
    )


async def _invalid_indexes(connection: Connection, schema: str) -> list[Finding]:
    """Return findings for unfinished indexes that nobody is building, as far as this role sees running builds."""
    cursor = await connection.execute(
        "SELECT c.relname FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid "
        "JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND NOT (i.indisvalid AND i.indisready) AND NOT EXISTS ("
        "SELECT FROM pg_catalog.pg_stat_progress_create_index AS p WHERE p.index_relid = i.indexrelid "
        "OR p.relid IN (SELECT h.inhrelid FROM pg_catalog.pg_inherits AS h WHERE h.inhparent = i.indrelid)) "
        "ORDER BY c.relname",
        [schema],
    )
    return [
        Finding(
            "index_invalid",
            "warning",
            f"index {schema}.{name}",
            "was not built completely",
            "if nobody is building it now, drop it; "
            + ("semlex fields add" if is_of_field(name) else "the next load, or semlex maintain create-index,")
            + " makes it again",
            f"DROP INDEX {sql.Identifier(schema, name).as_string(connection)};",
        )
        for (name,) in await cursor.fetchall()
    ]
