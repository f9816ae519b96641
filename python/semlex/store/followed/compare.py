"""Compare a followed table with its stored documents, read its rows, and replace metadata where texts are the same."""

# The table's server computes two hashes of each row: of what its chunks are made of, and of its metadata. Only keys and
# hashes travel. One statement in the collection's database compares them; if the table is in another database, they are
# sent there.

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import psycopg
from psycopg import sql

from semlex.store.followed.connection import fix_formatting, formatted, source_address, source_connection
from semlex.store.followed.source import SourceTable, document_id, find_source
from semlex.store.postgres.errors import translate
from semlex.store.postgres.rows import fetch_rows
from semlex.store.postgres.settings import READ_SETTINGS, set_local

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from types import TracebackType
    from uuid import UUID

    from semlex.store.followed.definitions import StoredTable
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.names import Names

T = TypeVar("T")

# Classes of errors that the values of a row cause: data exceptions, a subquery with two rows, limits of a value's size,
# errors of functions in SQL and PL/pgSQL.
_ROW_CLASSES = ("22", "21", "54", "P0", "2F", "39")
_KEYS = sql.Placeholder("keys")


def is_of_row(sqlstate: str | None) -> bool:
    """Return whether the values of a single row can cause an error with this code."""
    return sqlstate is not None and sqlstate.startswith(_ROW_CLASSES)


@dataclass(frozen=True, slots=True)
class Part:
    """A condition that selects rows of the table (alias ``t``), with the values that it binds."""

    condition: sql.Composable
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Differences:
    """The result of `compare`: how many rows were compared, and the keys of those that differ from what is stored."""

    rows: int = 0  # that were compared
    known: int = 0  # of which something is stored, each key once
    new: list[tuple[str, int]] = field(default_factory=list)  # keys, with the bytes of their texts
    changed: list[tuple[str, int]] = field(default_factory=list)  # keys, with the bytes of their texts
    refreshed: list[str] = field(default_factory=list)  # of which only metadata differ
    same: list[str] = field(default_factory=list)  # if they were asked for


class RowState(NamedTuple):
    """A row as it was read: hashes of its text and its metadata, and its version in the table."""

    text: bytes
    metadata: str  # in hexadecimal digits, as documents store it
    version: str | None  # see `SourceTable.version`

    @property
    def hashes(self) -> tuple[bytes, str]:
        """Hashes of text and metadata; if they are equal, the row has not changed."""
        return self.text, self.metadata


class ComparedTable:
    """Compares a followed table with its documents in the collection; use it in an ``async with`` block."""

    source: SourceTable

    def __init__(self, database: Database, names: Names, stored: StoredTable, salt: str) -> None:
        # `salt` identifies the rules that split texts; rows that were stored by other rules count as different.
        self._database, self._names, self._stored, self._salt = database, names, stored, salt
        self._open = AsyncExitStack()
        # Of another database; one transaction at a time.
        self._remote: Connection | None = None
        self._remote_lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            if self._stored.table.source_database is not None:
                self._remote = await stack.enter_async_context(source_connection(self._database, self._stored.table))
            self.source = await self.read(lambda c: find_source(c, self._stored.table, self._stored.types))
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.__aexit__(kind, error, trace)

    # --- transactions -----------------------------------------------------------------------------------------------

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` in one snapshot of the table's database, without a time limit."""
        doing = f"read {self._stored.table.schema}.{self._stored.table.table}"
        if self._remote is None:
            return await self._database.read_whole(doing, formatted(work))
        async with self._remote_lock:
            try:
                async with self._remote.transaction():
                    await set_local(self._remote, **READ_SETTINGS, transaction_read_only="on", statement_timeout=0)
                    return await formatted(work)(self._remote)
            except psycopg.Error as error:
                raise translate(error, doing, source_address(self._stored.table)) from None

    async def _read(
        self, part: Part, *columns: sql.Composable, within: Connection | None = None
    ) -> list[tuple[Any, ...]]:
        """Return these columns of the rows that `part` selects."""
        # `within` is a write transaction of the collection, whose statement sees what is committed by now.
        statement = sql.SQL("SELECT {} FROM {} WHERE {}").format(_listed(columns), self.source.from_, part.condition)
        if within is None or self._remote is not None:
            return await self.read(lambda c: fetch_rows(c, statement, part.values))
        await fix_formatting(within)
        return await fetch_rows(within, statement, part.values)

    # --- comparison -------------------------------------------------------------------------------------------------

    async def bound(self, after: Sequence[str] | None, rows: int) -> list[str] | None:
        """Return the key of the row that is `rows` rows after the key `after`; None if fewer rows follow."""
        source, part = self.source, self.page(after, None)
        statement = sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY {} OFFSET %(skipped)s LIMIT 1").format(
            _listed(source.key_parts), source.from_, part.condition, _listed(source.key_columns)
        )
        found = await self.read(lambda c: fetch_rows(c, statement, {**part.values, "skipped": rows - 1}))
        return list(found[0]) if found else None

    def page(self, after: Sequence[str] | None, until: Sequence[str] | None) -> Part:
        """Select the rows with keys above `after`, up to and including `until`."""
        condition, values = self.source.key_is_complete, dict[str, Any]()
        for name, operator, key in (("after", sql.SQL(">"), after), ("until", sql.SQL("<="), until)):
            if key is not None:
                own = {f"{name}_{number}": part for number, part in enumerate(key)}
                compared = self.source.compared(operator, [*map(sql.Placeholder, own)])
                condition = sql.SQL("{} AND {}").format(condition, compared)
                values |= own
        return Part(condition, values)

    def with_keys(self, keys: Sequence[str]) -> Part:
        """Select the rows with these keys."""
        return Part(self.source.with_keys(_KEYS), {"keys": text_array(keys)})

    async def latest(self, before: str) -> tuple[str, bool]:
        """Return the time of the latest change, or now if that is earlier, and whether `before` is later than now."""
        # Times are texts. If `before`, an earlier result or "", is later than now, the clock has stepped back since.
        mark, kind = self.source.mark, self.source.mark_type
        columns = sql.SQL(
            "least(max({mark}), statement_timestamp()::{kind})::text, "
            "coalesce(nullif(%(before)s::text, '')::{kind} > statement_timestamp()::{kind}, false)"
        ).format(mark=mark, kind=kind)
        part = Part(sql.SQL("{} IS NOT NULL").format(mark), {"before": before})
        [[latest, is_ahead]] = await self._read(part, columns)
        return str(latest), is_ahead

    async def mark_bound(self, part: Part, rows: int) -> str | None:
        """Return the `rows`-th earliest time of a change in `part`, as text; None if `part` has fewer rows."""
        statement = sql.SQL("SELECT ({0})::text FROM {1} WHERE {2} ORDER BY {0} OFFSET %(skipped)s LIMIT 1").format(
            self.source.mark, self.source.from_, part.condition
        )
        found = await self.read(lambda c: fetch_rows(c, statement, {**part.values, "skipped": rows - 1}))
        return found[0][0] if found else None

    def marked_since(self, watermark: str, overlap: float) -> Part:
        """Select the rows that were changed since `watermark`, or up to `overlap` seconds before it."""
        condition = sql.SQL("{} >= %(since)s::text::{} - make_interval(secs => %(overlap)s)").format(
            self.source.mark, self.source.mark_type
        )
        return Part(condition, {"since": watermark, "overlap": overlap})

    def marked_between(self, after: str | None, until: str | None, part: Part) -> Part:
        """Narrow `part` to rows that were last changed after one time and up to another."""
        kind = self.source.mark_type
        condition, values = part.condition, dict(part.values)
        for name, operator, value in (("mark_after", ">", after), ("mark_until", "<=", until)):
            if value is not None:
                condition = sql.SQL("{} AND {} {} {}::text::{}").format(
                    condition, self.source.mark, sql.SQL(operator), sql.Placeholder(name), kind
                )
                values[name] = value
        return Part(condition, values)

    async def compare(self, part: Part, *, every: bool = False, only_keys: bool = False) -> Differences:
        """Compare rows of the table with their stored documents."""
        # With `every`, the keys of equal rows are returned, too. With `only_keys`, a stored row counts as equal unless
        # it has no time of its last change.
        source = self.source
        is_unmarked: sql.Composable = sql.SQL("false")
        if only_keys and self._stored.table.updated_at is not None:
            is_unmarked = sql.SQL("{} IS NULL").format(self.source.mark)
        columns = (
            ("row_key", source.key_text),
            ("bytes", _size(source)),
            ("is_unmarked", is_unmarked),
            ("text_hash", source.text_hash(self._salt)),
            ("metadata_hash", source.metadata_hash),
        )
        rows = sql.SQL("SELECT {} FROM {} WHERE {}").format(
            _listed([sql.SQL("{} AS {}").format(value, sql.Identifier(name)) for name, value in columns]),
            source.from_,
            part.condition,
        )
        asked = {"every": every, "only_keys": only_keys}
        if self._remote is None:
            statement = self._comparing(rows)
            found = await self.read(lambda c: fetch_rows(c, statement, {**part.values, **asked}))
        else:
            hashed = await self.read(lambda c: fetch_rows(c, rows, part.values))
            values = dict(zip((name for name, _ in columns), zip(*hashed, strict=True), strict=False))
            sent = {name: list(values.get(name, ())) for name, _ in columns}
            statement = self._comparing(
                sql.SQL(
                    "SELECT * FROM unnest(%(row_key)s::text[], %(bytes)s::int8[], %(is_unmarked)s::bool[], "
                    "%(text_hash)s::bytea[], %(metadata_hash)s::bytea[]) "
                    "AS t(row_key, bytes, is_unmarked, text_hash, metadata_hash)"
                )
            )
            found = await self._database.read("compare rows", lambda c: fetch_rows(c, statement, {**sent, **asked}))
        [[count, known, new, new_bytes, changed, changed_bytes, refreshed, same]] = found
        return Differences(
            count,
            known,
            list(zip(new or (), new_bytes or (), strict=True)),
            list(zip(changed or (), changed_bytes or (), strict=True)),
            refreshed or [],
            same or [],
        )

    def _comparing(self, rows: sql.Composable) -> sql.Composed:
        key = document_id(self._stored.name, sql.SQL("r.row_key"))
        known = sql.SQL("count({}known)").format(sql.SQL("" if self.source.has_unique_key else "DISTINCT "))
        # The hash of a row that is new is not computed. OFFSET keeps what follows from computing the others twice.
        return sql.SQL(
            "SELECT count(*), {}, "
            "array_agg(row_key) FILTER (WHERE state = 1), array_agg(bytes) FILTER (WHERE state = 1), "
            "array_agg(row_key) FILTER (WHERE state = 2), array_agg(bytes) FILTER (WHERE state = 2), "
            "array_agg(row_key) FILTER (WHERE state = 3), array_agg(row_key) FILTER (WHERE state = 0 AND %(every)s) "
            "FROM (SELECT r.row_key, r.bytes, d.document_id AS known, CASE WHEN d.document_id IS NULL THEN 1 "
            "WHEN %(only_keys)s AND NOT r.is_unmarked THEN 0 WHEN d.content_hash <> r.text_hash THEN 2 "
            "WHEN d.file_state IS DISTINCT FROM encode(r.metadata_hash, 'hex') THEN 3 ELSE 0 END AS state "
            "FROM ({}) AS r LEFT JOIN {} AS d ON d.document_id = {} OFFSET 0) AS compared"
        ).format(known, rows, self._names.document, key)

    async def keys(self, part: Part, within: Connection | None = None) -> list[str]:
        """Return only the keys of the rows that `part` selects; for `within`, see `_read`."""
        return [key for (key,) in await self._read(part, self.source.key_text, within=within)]

    async def count_incomplete(self) -> int:
        """Return how many rows have a NULL in their key."""
        if not any(self.source.columns[name].is_nullable for name in self._stored.table.key):
            return 0
        incomplete = Part(sql.SQL("NOT ({})").format(self.source.key_is_complete))
        [[count]] = await self._read(incomplete, sql.SQL("count(*)"))
        return int(count)

    # --- what is stored ---------------------------------------------------------------------------------------------

    async def count_stored(self) -> int:
        """Return the number of stored documents of the table's rows."""
        statement = sql.SQL("SELECT count(*) FROM {} WHERE source_id = %(source)s").format(self._names.document)
        values = {"source": self._stored.source_id}
        [[count]] = await self._database.read("count rows", lambda c: fetch_rows(c, statement, values))
        return int(count)

    async def stored_keys(self, after: UUID | None, rows: int) -> tuple[list[str], UUID | None]:
        """Return a page of the keys of stored rows, and the value of `after` for the next page."""
        statement = sql.SQL(
            "SELECT document_id, substr(uri, %(start)s) FROM {} WHERE source_id = %(source)s "
            "AND (%(after)s::uuid IS NULL OR document_id > %(after)s) ORDER BY document_id LIMIT %(rows)s"
        ).format(self._names.document)
        start = len(self._stored.name) + 2
        values = {"source": self._stored.source_id, "after": after, "rows": rows, "start": start}
        found = await self._database.read("read keys", lambda c: fetch_rows(c, statement, values))
        return [key for _, key in found], found[-1][0] if found else None

    async def present(self, keys: Sequence[str], within: Connection | None = None) -> set[str]:
        """Return those of `keys` whose rows exist in the table."""
        return set(await self.keys(self.with_keys(keys), within))

    # --- rows -------------------------------------------------------------------------------------------------------

    async def states(self, keys: Sequence[str], within: Connection | None = None) -> dict[str, RowState]:
        """Return the present states of these rows; a key that occurs twice is left out."""
        found = await self._read(self.with_keys(keys), self.source.key_text, *self._state, within=within)
        return {key: RowState(*state) for key, *state in _once(found)}

    @property
    def _state(self) -> list[sql.Composable]:
        return [self.source.text_hash(self._salt), *self._other_state]

    @property
    def _other_state(self) -> list[sql.Composable]:
        return [sql.SQL("encode({}, 'hex')").format(self.source.metadata_hash), self.source.version]

    async def unchanged(self, rows: Mapping[str, RowState], within: Connection) -> set[str]:
        """Return the keys of those rows whose state in the table is still the given one."""
        same: set[str] = set()
        if self.source.relation.has_versions:
            found = await self._read(
                self.with_keys(list(rows)), self.source.key_text, self.source.version, within=within
            )
            same = {key for key, version in _once(found) if rows[key].version == version}
        if written := [key for key in rows if key not in same]:
            now = await self.states(written, within)
            same |= {key for key, state in now.items() if rows[key].hashes == state.hashes}
        return same

    async def rows(self, keys: Sequence[str], max_bytes: int, *, joined: bool) -> list[tuple[Any, ...]]:
        """Return rows as tuples: key, the values of `RowState`, size of the texts, metadata (JSON), heading, texts."""
        # Texts of rows with more than `max_bytes` are NULL. If `joined`, the texts that are not empty come as one, with
        # blank lines between them.
        part, source = self.with_keys(keys), self.source
        # The server unpacks each long text once: it is appended to in a query of its own, which OFFSET keeps apart.
        read: list[sql.Composable] = [sql.SQL("{} || ''").format(text) for text in source.texts]
        read += [source.heading or sql.SQL("NULL::text"), source.key_text, *self._other_state, _size(source)]
        read.append(sql.SQL("{}::text").format(source.metadata))
        names: list[sql.Composable] = [sql.Identifier("r", f"value_{number}") for number in range(len(read))]
        texts = names[: len(source.texts)]
        heading, key, metadata_hash, version, size, metadata = names[len(texts) :]
        decides = [*texts, heading] if source.heading is not None else texts
        if joined:
            filled = [sql.SQL("nullif({}, '')").format(text) for text in texts]
            texts = [sql.SQL("concat_ws(E'\\n\\n', {})").format(_listed(filled))]
        bounded = [
            sql.SQL("CASE WHEN {} <= {} THEN {} END").format(size, sql.Literal(max_bytes), text) for text in texts
        ]
        columns = [
            key,
            source.text_hash(self._salt, decides),
            metadata_hash,
            version,
            size,
            metadata,
            heading,
            *bounded,
        ]
        statement = sql.SQL("SELECT {} FROM (SELECT {} FROM {} WHERE {} OFFSET 0) AS r").format(
            _listed(columns),
            _listed(
                [
                    sql.SQL("{} AS {}").format(value, sql.Identifier(f"value_{number}"))
                    for number, value in enumerate(read)
                ]
            ),
            source.from_,
            part.condition,
        )
        return await self.read(lambda c: fetch_rows(c, statement, part.values))

    async def metadata(self, keys: Sequence[str]) -> list[tuple[str, RowState, dict[str, Any]]]:
        """Return the metadata of rows as they are now, with their state; a key that occurs twice is left out."""
        own = sql.SQL("{}::text").format(self.source.metadata)
        found = _once(await self._read(self.with_keys(keys), self.source.key_text, own, *self._state))
        values = from_json([row[1] for row in found])
        return [(row[0], RowState(*row[2:]), one) for row, one in zip(found, values, strict=True)]


def from_json(texts: Sequence[str]) -> list[Any]:
    """Parse JSON texts all at once, which takes a third of the time of parsing them one by one."""
    values: list[Any] = json.loads(f"[{','.join(texts)}]")
    return values


def _once(rows: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
    """Return the rows whose key occurs only once."""
    times = Counter(row[0] for row in rows)
    return rows if len(times) == len(rows) else [row for row in rows if times[row[0]] == 1]


def text_array(texts: Sequence[str]) -> str:
    """Return an array of texts in the server's text form, ten times as fast as the driver makes it."""
    joined = "\0".join(texts)  # no text holds a NUL
    if not texts:
        return "{}"
    escaped = joined.replace("\\", "\\\\").replace('"', '\\"').replace("\0", '","')
    return f'{{"{escaped}"}}'


def _listed(parts: Sequence[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)


def _size(source: SourceTable) -> sql.Composed:
    """Return SQL of the size of a row's texts in bytes, which the server knows without reading the texts."""
    sizes = [sql.SQL("coalesce(octet_length({})::int8, 0)").format(text) for text in source.texts]
    return sql.SQL("({})").format(sql.SQL(" + ").join(sizes))


class RowMetadata(NamedTuple):
    """The present metadata of a row."""

    document_id: UUID
    text_hash: bytes
    metadata_hash: str
    json: bytes  # of the metadata


async def refresh_metadata(connection: Connection, names: Names, rows: Sequence[RowMetadata]) -> set[UUID]:
    """Replace the metadata of documents whose stored text equals their row's; return the ids of these documents."""
    # The transaction must have begun as that of every writer does.
    ordered = sorted(rows, key=lambda row: row.document_id.bytes)
    found = await fetch_rows(
        connection,
        sql.SQL(
            "WITH locked AS MATERIALIZED (SELECT d.document_id, k.hash FROM {document} AS d "
            "JOIN unnest(%(documents)s::uuid[], %(texts)s::bytea[], %(hashes)s::text[]) AS k(document_id, text, hash) "
            "USING (document_id) WHERE d.content_hash = k.text ORDER BY d.document_id FOR UPDATE OF d) "
            "UPDATE {document} AS d SET file_state = l.hash, updated_at = clock_timestamp() FROM locked AS l "
            "WHERE d.document_id = l.document_id RETURNING d.document_id"
        ).format(document=names.document),
        {
            "documents": [row.document_id for row in ordered],
            "texts": [row.text_hash for row in ordered],
            "hashes": [row.metadata_hash for row in ordered],
        },
    )
    refreshed = {document_id for (document_id,) in found}
    kept = [row for row in ordered if row.document_id in refreshed]
    await connection.execute(
        sql.SQL(
            "WITH given AS MATERIALIZED (SELECT k.document_id, m.value FROM unnest(%(documents)s::uuid[]) "
            "WITH ORDINALITY AS k(document_id, number) JOIN jsonb_array_elements(%(metadata)s::jsonb) "
            "WITH ORDINALITY AS m(value, number) USING (number)), "
            "locked AS MATERIALIZED (SELECT c.document_id, c.chunk_id, g.value FROM {chunk} AS c JOIN given AS g "
            "USING (document_id) ORDER BY c.document_id, c.chunk_id FOR UPDATE OF c) "
            "UPDATE {chunk} AS c SET metadata = l.value, updated_at = clock_timestamp() FROM locked AS l "
            "WHERE c.document_id = l.document_id AND c.chunk_id = l.chunk_id"
        ).format(chunk=names.chunk),
        {
            "documents": [row.document_id for row in kept],
            # One text: the driver makes arrays value by value, which takes ten times as long.
            "metadata": f"[{','.join(row.json.decode() for row in kept)}]",
        },
    )
    return refreshed
