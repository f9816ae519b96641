"""SQL of `semlex prove`: make the proof's schema, check tables, end processes of the server, and damage rows."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from semlex import _core
from semlex.errors import ConfigurationError, PrivilegeError
from semlex.store.postgres.addresses import describe
from semlex.store.postgres.errors import translate
from semlex.store.schema.names import Names
from semlex.store.schema.registry import ALREADY_DONE, CREATE_EXTENSION, no_extension

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Iterator, Mapping

    from psycopg.abc import Params
    from psycopg.abc import QueryNoTemplate as Query

Connection = psycopg.Connection[Any]
# What decides how much a crash may cost, and what the report names.
SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "wal_level", "max_connections")
CONNECT_SECONDS = 10
PROMOTE_SECONDS = 120


@contextmanager
def connected(url: str, application: str = "semlex-proof") -> Iterator[Connection]:
    """Connect in autocommit mode; an error of the server or the network becomes one of semlex."""
    doing = f"connect to {describe(url)}"
    try:
        address = make_conninfo(url, application_name=application, connect_timeout=CONNECT_SECONDS)
        with psycopg.connect(address, autocommit=True, prepare_threshold=None) as connection:
            doing = "prove"
            yield connection
    except psycopg.Error as error:
        raise translate(error, doing, url) from None


def named_clients(url: str, application: str) -> str:
    """Return the address with an application name, by which `backends` finds connections made with it."""
    return make_conninfo(url, application_name=application)


@dataclass
class Ground:
    """The schema in which a proof makes collections; application names of the proof's clients begin with `clients`."""

    url: str
    schema: str
    clients: str
    _brought_extension: bool = field(default=False, repr=False)
    is_made: bool = field(default=False, repr=False)

    def create(self) -> None:
        """Make the schema; refuse a schema that exists, and a server on which no collection can be made."""
        with connected(self.url) as connection:
            # Through `Names`, which refuses what cannot be a schema.
            schema = sql.Identifier(Names(self.schema, "proof").schema)
            if not _value(connection, "SELECT to_regnamespace(quote_ident(%s)) IS NULL", [self.schema]):
                raise ConfigurationError(
                    f"the schema {self.schema!r} exists, and a proof works only in a schema that it makes itself: name "
                    "another one (--schema NAME), or drop it if an earlier proof left it"
                )
            found = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'vector')"
            self._brought_extension = not _value(connection, found)
            if self._brought_extension:
                _try_extension(connection)
            try:
                self.is_made = True  # also if Ctrl-C comes before the answer
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
            except psycopg.errors.InsufficientPrivilege as error:
                self.is_made = False
                grant = _value(
                    connection, "SELECT format('GRANT CREATE ON DATABASE %I TO %I;', current_database(), current_user)"
                )
                raise PrivilegeError(
                    f"this role may not create the schema {self.schema!r} of the proof; ask the owner of the database "
                    f"to run: {grant}",
                    sqlstate=error.sqlstate,
                ) from None

    def remove(self) -> None:
        """Drop the schema, and the extension ``vector`` if the proof was the first to need it."""
        with connected(self.url) as connection:
            # Sessions that clients of the proof have left.
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE starts_with(application_name, %s) AND datname = current_database() "
                "AND usename = current_user AND pid <> pg_backend_pid()",
                [self.clients],
            )
            # Table by table: one transaction cannot hold locks of any number.
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [self.schema])
            for (name,) in tables.fetchall():
                table = sql.Identifier(self.schema, name)
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {} CASCADE").format(table))
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(self.schema)))
            if self._brought_extension:
                with suppress(psycopg.Error):  # somebody else's column has its type by now
                    connection.execute("DROP EXTENSION IF EXISTS vector")

    def facts(self) -> dict[str, str]:
        """Return versions and settings of the server."""
        with connected(self.url) as connection:
            found = {"postgres": _value(connection, "SELECT current_setting('server_version')")}
            # If it is missing, collections will make it in its default version.
            found["pgvector"] = _value(
                connection,
                "SELECT coalesce((SELECT extversion FROM pg_extension WHERE extname = 'vector'), "
                "(SELECT default_version FROM pg_available_extensions WHERE name = 'vector'), 'not installed')",
            )
            settings = "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s) ORDER BY name"
            return found | dict(connection.execute(settings, [list(SETTINGS)]).fetchall())


def _try_extension(connection: Connection) -> None:
    """Refuse a server on which this role cannot create ``vector``; if it can, the trial is rolled back."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(CREATE_EXTENSION)
    except psycopg.Error as error:
        if error.sqlstate not in ALREADY_DONE:
            raise no_extension(error) from None


def _value(connection: Connection, statement: Query, values: Params | None = None) -> Any:
    """Return the first value of the first row; None without a row."""
    row = connection.execute(statement, values).fetchone()
    return None if row is None else row[0]


def backends(connection: Connection, application: str) -> list[int]:
    """Return the ids of the server's processes for clients with the name `application`."""
    statement = "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()"
    return [pid for (pid,) in connection.execute(statement, [application])]


def has_busy_backends(connection: Connection) -> bool:
    """Return whether a client of the database, other than this one, is inside a transaction."""
    statement = (
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend' AND state <> 'idle')"
    )
    return bool(_value(connection, statement))


def end_backends(connection: Connection, pids: list[int]) -> int:
    """End these processes of the server; return how many of them still existed."""
    statement = "SELECT count(*) FROM unnest(%s::int[]) AS pid WHERE pg_terminate_backend(pid)"
    return int(_value(connection, statement, [pids]))


def end_leases(connection: Connection, schema: str) -> None:
    """End all leases on embedding versions that are being filled, as if they had expired."""
    connection.execute(sql.SQL("UPDATE {} SET run_until = now()").format(sql.Identifier(schema, "embedding_version")))


def set_server(connection: Connection, settings: Mapping[str, str]) -> None:
    """Change settings of a server that a proof has started, for all sessions, permanently."""
    for name, value in settings.items():
        connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
    connection.execute("SELECT pg_reload_conf()")


def end_job_leases(connection: Connection, schema: str) -> None:
    """End the leases of all running jobs, as if they had expired."""
    statement = sql.SQL("UPDATE {} SET due_at = due_at - interval '1 day' WHERE state = 'running'")
    connection.execute(statement.format(sql.Identifier(schema, "job")))


def end_table_leases(connection: Connection, names: Names) -> None:
    """End all leases on followed tables and on claimed entries of their queues, as if they had expired."""
    connection.execute(sql.SQL("UPDATE {} SET leased_until = NULL, look_at = now()").format(names.followed_table))
    connection.execute(sql.SQL("UPDATE {} SET due_at = now() WHERE error_code IS NULL").format(names.row_change))


# Times of the server's clock by which processes decide.
TIMES = {
    "job": ("due_at", "submitted_at", "started_at", "finished_at"),
    "followed_table": ("look_at", "leased_until", "keys_compared_at", "synced_at"),
    "row_change": ("due_at",),
    "embedding_version": ("run_until", "served_until", "last_used_at"),
}


def jump_clock(connection: Connection, schema: str, seconds: float) -> None:
    """Change stored times as if the server's clock had jumped ahead by `seconds` (negative: back)."""
    for name, columns in TIMES.items():
        table = sql.Identifier(schema, name)
        moved = sql.SQL(", ").join(
            sql.SQL("{0} = {0} - {1} * interval '1 second'").format(sql.Identifier(column), sql.Literal(seconds))
            for column in columns
        )
        # A row that somebody writes at this moment gets the time after the jump.
        free = sql.SQL("SELECT ctid FROM {} FOR NO KEY UPDATE SKIP LOCKED").format(table)
        connection.execute(sql.SQL("UPDATE {} SET {} WHERE ctid = ANY(ARRAY({}))").format(table, moved, free))


def job_states(connection: Connection, schema: str, ids: list[str]) -> dict[str, str]:
    """Return the state of jobs by their ids."""
    statement = sql.SQL("SELECT job_id::text, state FROM {} WHERE job_id = ANY(%s::uuid[])")
    return dict(connection.execute(statement.format(sql.Identifier(schema, "job")), [ids]).fetchall())


def waits_for_standby(connection: Connection) -> bool:
    """Return whether commits wait for a standby, so that the standby has every acknowledged commit."""
    return bool(_value(connection, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')"))


def promote(connection: Connection) -> bool:
    """Promote a standby; return whether it has become a primary."""
    return bool(_value(connection, "SELECT pg_promote(true, %s)", [PROMOTE_SECONDS]))


@dataclass(frozen=True, slots=True)
class Articles:
    """A table of articles in the schema of the proof, for collections that follow a table."""

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
        """Change the keys of rows in one statement; a row keeps its key if another row has the new one."""
        statement = sql.SQL(
            "UPDATE {table} AS t SET id = m.after FROM unnest(%s::bigint[], %s::bigint[]) AS m (before, after) "
            "WHERE t.id = m.before AND NOT EXISTS (SELECT FROM {table} AS o WHERE o.id = m.after)"
        ).format(table=self._table)
        connection.execute(statement, [list(ids), list(ids.values())])

    def truncate(self, connection: Connection) -> None:
        """Remove all rows at once."""
        connection.execute(sql.SQL("TRUNCATE {}").format(self._table))

    def rows(self, connection: Connection) -> dict[int, str]:
        """Return the text of each row by id."""
        return dict(connection.execute(sql.SQL("SELECT id, body FROM {}").format(self._table)).fetchall())


# SQL that counts what must not be there; the collection's tables are named in it.
FAULTS = {
    "a chunk id that is stored twice": "SELECT count(*) - count(DISTINCT chunk_id) FROM {chunk}",
    "a chunk without a vector": "SELECT count(*) FROM {chunk} c WHERE NOT EXISTS (SELECT FROM {vectors} e "
    "WHERE (e.document_id, e.chunk_id) = (c.document_id, c.chunk_id))",
    "a vector without a chunk": "SELECT count(*) FROM {vectors} e WHERE NOT EXISTS (SELECT FROM {chunk} c "
    "WHERE (e.document_id, e.chunk_id) = (c.document_id, c.chunk_id))",
    "a wrong number of chunks": "SELECT count(*) FROM {document} d WHERE chunk_count <> "
    "(SELECT count(*) FROM {chunk} c WHERE c.document_id = d.document_id)",
    "a chunk without a document": "SELECT count(*) FROM {chunk} c WHERE NOT EXISTS "
    "(SELECT FROM {document} d WHERE d.document_id = c.document_id)",
    "a file that is stored twice": "SELECT count(*) - count(DISTINCT (source_id, uri)) FROM {document}",
    "a chunk with a different document name than its document": "SELECT count(*) FROM {chunk} c JOIN {document} d "
    "USING (document_id) WHERE c.source_document <> d.uri",
}


def count_faults(connection: Connection, names: Names, version: int = 1) -> dict[str, int]:
    """Count the faults of `FAULTS` in a collection, with the vectors of embedding version `version`."""
    tables = {"chunk": names.chunk, "document": names.document, "vectors": names.embedding(version)}
    found = {fault: _value(connection, sql.SQL(statement).format(**tables)) for fault, statement in FAULTS.items()}
    return {fault: count for fault, count in found.items() if count}


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk as it is stored."""

    id: str
    document_id: Any
    context: str
    text: str
    vector: list[float] | None


@dataclass(frozen=True, slots=True)
class StoredCollection:
    """The contents of a collection in one snapshot.

    Attributes:
        chunks: All chunks; those of one document in their order.
        documents: Key, name and content hash of each document that was read from a file.
        faults: What `count_faults` returns.
        index: What a check of the keyword index found.
    """

    chunks: list[StoredChunk]
    documents: list[tuple[Any, str, bytes]]
    faults: dict[str, int]
    index: IndexFindings


def stored_collection(url: str, names: Names, version: int = 1) -> StoredCollection | None:
    """Return the stored data of a collection, with the vectors of a version; None if it does not exist."""
    with connected(url) as connection:
        if not is_made(connection, names, version):
            return None
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            return StoredCollection(
                stored_chunks(connection, names, version),
                stored_documents(connection, names),
                count_faults(connection, names, version),
                check_keyword_index(connection, names),
            )


def stored_chunks(connection: Connection, names: Names, version: int = 1) -> list[StoredChunk]:
    """Return all chunks, by document and in the order of the text, with the vectors of a version."""
    statement = sql.SQL(
        "SELECT chunk_id, document_id, context, chunk_text, embedding::real[] FROM {} AS c "
        "LEFT JOIN {} AS e USING (document_id, chunk_id) ORDER BY document_id, chunk_no, chunk_id"
    ).format(names.chunk, names.embedding(version))
    return [StoredChunk(*row) for row in connection.execute(statement).fetchall()]


def stored_documents(connection: Connection, names: Names) -> list[tuple[Any, str, bytes]]:
    """Return key, name and content hash of each document that was read from a file."""
    statement = sql.SQL("SELECT document_id, uri, content_hash FROM {}").format(names.document)
    return connection.execute(statement).fetchall()


def is_made(connection: Connection, names: Names, version: int = 1) -> bool:
    """Return whether the tables of a collection exist, including the tables of a version of its vectors."""
    wanted = names.embedding(version).as_string(connection)
    return bool(_value(connection, "SELECT to_regclass(%s) IS NOT NULL", [wanted]))


def serving_version(connection: Connection, names: Names) -> int:
    """Return the number of the embedding version that searches use; 0 for none."""
    statement = sql.SQL("SELECT embedding_version FROM {} WHERE name = %s").format(names.registry)
    return int(_value(connection, statement, [names.collection]) or 0)


def count_rows(connection: Connection, names: Names) -> tuple[int, ...]:
    """Return the numbers of rows of the tables that adding a document changes."""
    tables = (names.chunk, names.document, names.embedding(1), names.tombstone)
    counts = sql.SQL(", ").join(sql.SQL("(SELECT count(*) FROM {})").format(table) for table in tables)
    row = connection.execute(sql.SQL("SELECT {}").format(counts)).fetchone()
    return () if row is None else tuple(row)


@dataclass
class IndexFindings:
    """The result of a check of a keyword index.

    Attributes:
        missing: Ids of chunks that the index lacks.
        surplus: Ids that the index has although no chunk has them, or that it has twice.
        wrong: Other faults, in words.
        figures: Number of segments, tombstones and deleted chunks in the index.
    """

    missing: set[int] = field(default_factory=set)
    surplus: set[int] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)

    @property
    def is_well(self) -> bool:
        """Whether no fault was found."""
        return not (self.missing or self.surplus or self.wrong)

    def __str__(self) -> str:
        parts = [f"missing {sorted(self.missing)}"] if self.missing else []
        parts += [f"too many {sorted(self.surplus)}"] if self.surplus else []
        return "; ".join([*parts, *self.wrong]) or "well"


def check_keyword_index(connection: Connection, names: Names) -> IndexFindings:
    """Compare the keyword index of a collection with the stored texts; the transaction must have one snapshot."""
    # Every chunk is in exactly one segment of the generation that answers, and in that of its language; what else is
    # there is named by a tombstone. A segment's bytes, without the dead, are those that a plain analysis of the stored
    # texts gives. No posting row is without its segment, and the manifest lists what is there.
    findings = IndexFindings()
    statement = sql.SQL(
        "SELECT keyword_generation, language, stop_words, coalesce(building_generation, 0) FROM {} WHERE name = %s"
    )
    row = connection.execute(statement.format(names.registry), [names.collection]).fetchone()
    if row is None:
        findings.wrong.append("the collection is not in the registry")
        return findings
    generation, language, stop_words, building = row
    _check_generation(connection, names, generation, (language, stop_words), findings)
    is_listed = _value(
        connection,
        sql.SQL(
            "SELECT (SELECT array_agg(part_id ORDER BY part_id) FROM {} WHERE generation = %(of)s) "
            "IS NOT DISTINCT FROM (SELECT array_agg(id ORDER BY id) FROM ("
            "SELECT segment_id AS id FROM {} WHERE generation = %(of)s "
            "UNION ALL SELECT tombstone_id FROM {} WHERE generation = %(of)s) AS parts)"
        ).format(names.manifest, names.segment, names.tombstone),
        {"of": generation},
    )
    if not is_listed:
        findings.wrong.append("the parts that the manifest lists differ from the stored ones")
    orphans = sql.SQL("SELECT count(*) FROM {} WHERE segment_id NOT IN (SELECT segment_id FROM {})")
    if count := _value(connection, orphans.format(names.posting, names.segment)):
        findings.wrong.append(f"posting rows without a segment: {count}")
    findings.figures |= {"generation": generation, "building": building}
    return findings


def _check_generation(
    connection: Connection, names: Names, generation: int, analysis: tuple[str, bool], findings: IndexFindings
) -> None:
    language, stop_words = analysis
    columns = "SELECT segment_id, language, chunks, header FROM {} WHERE generation = {}"
    segments = _rows(connection, columns, names.segment, generation)
    columns = "SELECT tombstone_id, data FROM {} WHERE generation = {}"
    tombstones = _rows(connection, columns, names.tombstone, generation)
    dead = _core.IdSet.union([_core.decode_tombstone(key.bytes, data) for key, data in tombstones])
    columns = "SELECT keyword_id, coalesce(language, {1}), context, chunk_text FROM {0}"
    texts = {keyword_id: rest for keyword_id, *rest in _rows(connection, columns, names.chunk, language)}
    held = {key: _core.segment_ids(key.bytes, header).to_array().tolist() for key, _, _, header in segments}
    counted = Counter(keyword_id for ids in held.values() for keyword_id in ids)
    alive = set(counted) - set(dead.to_array().tolist())
    findings.missing = set(texts) - alive
    findings.surplus = (alive - set(texts)) | {one for one, count in counted.items() if count > 1}
    findings.figures = {"segments": len(segments), "tombstones": len(tombstones), "dead": len(set(counted) - alive)}
    for segment_id, own, count, header in segments:
        if len(held[segment_id]) != count:
            findings.wrong.append(f"segment {segment_id} lists {count} chunks and contains {len(held[segment_id])}")
        columns = "SELECT first_term, data FROM {} WHERE segment_id = {} ORDER BY first_term"
        rows = _rows(connection, columns, names.posting, segment_id)
        found = _core.merge_segments(bytes(16), [(segment_id.bytes, header, rows)], dead)
        expected = _plainly_built(own, stop_words, {one: texts[one] for one in held[segment_id] if one in texts})
        if expected is None:
            findings.wrong.append(f"segment {segment_id} has chunks of another language than the segment's")
        elif (found.chunks, found.header, list(found.first_terms), list(found.data)) != (
            expected.chunks,
            expected.header,
            list(expected.first_terms),
            list(expected.data),
        ):
            findings.wrong.append(f"segment {segment_id} differs from a segment built from its texts")


def _plainly_built(language: str, stop_words: bool, texts: dict[int, list[str]]) -> _core.EncodedSegment | None:
    """Build a segment of these texts (id -> language, context, text); return None if a text has another language."""
    analyzer = _core.Analyzer(language, stop_words)
    builder = _core.SegmentBuilder()
    for keyword_id, (own, context, text) in texts.items():
        if _core.language_named(own) != language:
            return None
        builder.add_terms(keyword_id, [*analyzer.terms(context), *analyzer.terms(text)])
    return builder.finish(bytes(16))


def _rows(connection: Connection, text: Any, table: sql.Identifier, value: object) -> list[Any]:
    with connection.cursor(binary=True) as cursor:
        cursor.execute(sql.SQL(text).format(table, sql.Literal(value)))
        return cursor.fetchall()


AsyncConnection = psycopg.AsyncConnection[Any]


@asynccontextmanager
async def connection_of(url: str) -> AsyncIterator[AsyncConnection]:
    """Connect in autocommit mode."""
    async with await AsyncConnection.connect(url, autocommit=True, prepare_threshold=None) as connection:
        yield connection


@asynccontextmanager
async def in_snapshot(connection: AsyncConnection) -> AsyncIterator[None]:
    """Run the block in a transaction that sees one state."""
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


async def texts_and_vectors(connection: AsyncConnection, names: Names) -> dict[str, tuple[str, list[float] | None]]:
    """Return text and vector of every chunk by its id."""
    statement = sql.SQL(
        "SELECT chunk_id, chunk_text, embedding::real[] FROM {} LEFT JOIN {} USING (document_id, chunk_id)"
    ).format(names.chunk, names.embedding(1))
    cursor = await connection.execute(statement)
    return {chunk_id: (text, vector) for chunk_id, text, vector in await cursor.fetchall()}


# Table -> its columns of bytes, and statements that change a row otherwise.
_BYTES = {"segment": ("header",), "posting": ("data", "first_term"), "tombstone": ("data",)}
_OTHERS: dict[str, tuple[str, ...]] = {
    "segment": ("generation = generation + 1", "segment_id = gen_random_uuid()", "chunks = chunks + 1", "chunks = 0"),
    "posting": ("segment_id = gen_random_uuid()", "data = ''"),
    "tombstone": ("generation = generation + 1", "tombstone_id = gen_random_uuid()"),
    "manifest": ("part_id = gen_random_uuid()", "generation = generation + 1"),
}


def damage_index(connection: Connection, names: Names, chance: random.Random) -> str | None:
    """Damage a random row of a keyword index; return how; None if its table is empty or has a constraint against it."""
    table = chance.choice(sorted(_OTHERS))
    identifier = getattr(names, table)
    rows = connection.execute(sql.SQL("SELECT ctid::text FROM {} ORDER BY ctid").format(identifier)).fetchall()
    if not rows:
        return None
    place = chance.choice(rows)[0]
    ways = ["DELETE", *_OTHERS[table], *(f"bytes of {column}" for column in _BYTES.get(table, ()))]
    way = chance.choice(ways)
    values: dict[str, Any] = {"place": place}
    if way == "DELETE":
        statement = sql.SQL("DELETE FROM {} WHERE ctid = %(place)s::tid").format(identifier)
    else:
        change: sql.Composable = sql.SQL(way)
        if way.startswith("bytes of "):
            column = way.removeprefix("bytes of ")
            change = sql.SQL("{0} = %(bytes)s").format(sql.Identifier(column))
            values["bytes"] = _changed(connection, identifier, column, place, chance)
        statement = sql.SQL("UPDATE {} SET {} WHERE ctid = %(place)s::tid").format(identifier, change)
    try:
        connection.execute(statement, values)
    except psycopg.IntegrityError:
        return None  # the table's own rules refuse it
    return f"{table}: {way}"


def _changed(
    connection: Connection, table: sql.Identifier, column: str, place: str, chance: random.Random
) -> bytes | str:
    statement = sql.SQL("SELECT {} FROM {} WHERE ctid = %s::tid").format(sql.Identifier(column), table)
    value = _value(connection, statement, [place])
    if isinstance(value, str):
        return f"{value}x"
    data = bytearray(value or b"\0")
    way = chance.randrange(3)
    if way == 0:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif way == 1:
        del data[chance.randrange(len(data)) :]
    else:
        data += bytes(chance.randrange(1, 9))
    return bytes(data)
