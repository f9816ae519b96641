"""What the tables of a collection hold, what they never may, and what is always true of its keyword index."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from semlex import _core
from semlex.store.proving.ground import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from semlex.store.proving.ground import Connection
    from semlex.store.schema.names import Names

# SQL that counts what must not be there; the collection's tables are named in it.
FAULTS = {
    "a chunk id that stands twice": "SELECT count(*) - count(DISTINCT chunk_id) FROM {chunk}",
    "a chunk without a vector": "SELECT count(*) FROM {chunk} c WHERE NOT EXISTS (SELECT FROM {vectors} e "
    "WHERE (e.document_id, e.chunk_id) = (c.document_id, c.chunk_id))",
    "a vector without a chunk": "SELECT count(*) FROM {vectors} e WHERE NOT EXISTS (SELECT FROM {chunk} c "
    "WHERE (e.document_id, e.chunk_id) = (c.document_id, c.chunk_id))",
    "a wrong number of chunks": "SELECT count(*) FROM {document} d WHERE chunk_count <> "
    "(SELECT count(*) FROM {chunk} c WHERE c.document_id = d.document_id)",
    "a chunk without a document": "SELECT count(*) FROM {chunk} c WHERE NOT EXISTS "
    "(SELECT FROM {document} d WHERE d.document_id = c.document_id)",
    "a file that stands twice": "SELECT count(*) - count(DISTINCT (source_id, uri)) FROM {document}",
    "a chunk under another name than its document": "SELECT count(*) FROM {chunk} c JOIN {document} d "
    "USING (document_id) WHERE c.source_document <> d.uri",
}


def count_faults(connection: Connection, names: Names, version: int = 1) -> dict[str, int]:
    """Return the faults of a collection, with their numbers; `version` is that of its vectors."""
    tables = {"chunk": names.chunk, "document": names.document, "vectors": names.embedding(version)}
    found = {}
    for fault, statement in FAULTS.items():
        row = connection.execute(sql.SQL(statement).format(**tables)).fetchone()
        assert row is not None  # noqa: S101 - a count returns a row
        found[fault] = row[0]
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
    """What a collection has in one snapshot.

    Attributes:
        chunks: Those of a document in their order.
        documents: Key, name and content hash of each that was read from a file.
        faults: As of `count_faults`.
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
    """Return all chunks, those of a document in their order, with the vectors of a version."""
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
    """Return whether the tables of a collection are there, those of a version of its vectors included."""
    wanted = names.embedding(version).as_string(connection)
    return connection.execute("SELECT to_regclass(%s) IS NOT NULL", [wanted]).fetchone() == (True,)


def serving_version(connection: Connection, names: Names) -> int:
    """Return the number of the vectors that searches use."""
    statement = sql.SQL("SELECT embedding_version FROM {} WHERE name = %s").format(names.registry)
    row = connection.execute(statement, [names.collection]).fetchone()
    return 0 if row is None else int(row[0])


def count_rows(connection: Connection, names: Names) -> tuple[int, ...]:
    """Return the number of rows in each table to which an added document adds rows."""
    tables = (names.chunk, names.document, names.embedding(1), names.tombstone)
    counts = sql.SQL(", ").join(sql.SQL("(SELECT count(*) FROM {})").format(table) for table in tables)
    row = connection.execute(sql.SQL("SELECT {}").format(counts)).fetchone()
    return () if row is None else tuple(row)


class IndexFindings:
    """What a check of a keyword index found.

    Attributes:
        missing: Ids of chunks that the index lacks.
        surplus: Ids in the index that no chunk has, or that it has twice.
        wrong: Other faults, in words.
        figures: Numbers of its parts.
    """

    def __init__(self) -> None:
        self.missing: set[int] = set()
        self.surplus: set[int] = set()
        self.wrong: list[str] = []
        self.figures: dict[str, int] = {}

    @property
    def is_well(self) -> bool:
        """Whether nothing was found."""
        return not (self.missing or self.surplus or self.wrong)

    def __str__(self) -> str:
        parts = [f"missing {sorted(self.missing)}"] if self.missing else []
        parts += [f"too many {sorted(self.surplus)}"] if self.surplus else []
        return "; ".join([*parts, *self.wrong]) or "well"


def check_keyword_index(connection: Connection, names: Names) -> IndexFindings:
    """Compare the keyword index of a collection with the stored texts; the caller's transaction sees one state."""
    # Every chunk is in exactly one segment of the generation that answers, and in that of its language; what else is
    # there is named by a tombstone. A segment's bytes, without the dead, are those that a plain analysis of the stored
    # texts gives. No posting row is without its segment, and the manifest lists what is there.
    findings = IndexFindings()
    row = connection.execute(
        sql.SQL(
            "SELECT keyword_generation, language, stop_words, coalesce(building_generation, 0) FROM {} WHERE name = %s"
        ).format(names.registry),
        [names.collection],
    ).fetchone()
    if row is None:
        findings.wrong.append("the collection is not in the registry")
        return findings
    generation, language, stop_words, building = row
    analysis = (language, stop_words)
    _check_generation(connection, names, generation, analysis, findings)
    parts = connection.execute(
        sql.SQL(
            "SELECT (SELECT array_agg(part_id ORDER BY part_id) FROM {} WHERE generation = %(of)s) "
            "IS NOT DISTINCT FROM (SELECT array_agg(id ORDER BY id) FROM ("
            "SELECT segment_id AS id FROM {} WHERE generation = %(of)s "
            "UNION ALL SELECT tombstone_id FROM {} WHERE generation = %(of)s) AS parts)"
        ).format(names.manifest, names.segment, names.tombstone),
        {"of": generation},
    ).fetchone()
    if parts != (True,):
        findings.wrong.append("the parts that the manifest lists differ from the stored ones")
    orphans = connection.execute(
        sql.SQL("SELECT count(*) FROM {} WHERE segment_id NOT IN (SELECT segment_id FROM {})").format(
            names.posting, names.segment
        )
    ).fetchone()
    if orphans != (0,):
        findings.wrong.append(f"posting rows without a segment: {orphans}")
    findings.figures |= {"generation": generation, "building": building}
    return findings


def _check_generation(
    connection: Connection,
    names: Names,
    generation: int,
    analysis: tuple[str, bool],
    findings: IndexFindings,
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
    findings.figures = {
        "segments": len(segments),
        "tombstones": len(tombstones),
        "dead": len(set(counted) - alive),
    }
    for segment_id, own, count, header in segments:
        if len(held[segment_id]) != count:
            findings.wrong.append(f"segment {segment_id} says {count} chunks and has {len(held[segment_id])}")
        columns = "SELECT first_term, data FROM {} WHERE segment_id = {} ORDER BY first_term"
        rows = _rows(connection, columns, names.posting, segment_id)
        found = _core.merge_segments(bytes(16), [(segment_id.bytes, header, rows)], dead)
        expected = _plainly_built(own, stop_words, {one: texts[one] for one in held[segment_id] if one in texts})
        if expected is None:
            findings.wrong.append(f"segment {segment_id} has chunks of another language than its own")
        elif (found.chunks, found.header, list(found.first_terms), list(found.data)) != (
            expected.chunks,
            expected.header,
            list(expected.first_terms),
            list(expected.data),
        ):
            findings.wrong.append(f"segment {segment_id} is another than its texts give")


def _plainly_built(language: str, stop_words: bool, texts: dict[int, list[str]]) -> _core.EncodedSegment | None:
    """Return the segment of these texts (id -> language, context, text); None if one has another language."""
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
