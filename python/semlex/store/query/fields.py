"""Count the values of fields, and find from a sample which fields chunks have and of which types."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex.filters.fields import MAX_PATH_PARTS, OWN, Field
from semlex.filters.tree import OPERATORS
from semlex.store.indexes.field_indexes import read_field_indexes
from semlex.store.postgres.rows import fetch_value, only_row
from semlex.store.query.filters import ELEMENTS, OWN_COLUMNS, Filter, constant_path, parse_filters, value_at
from semlex.store.query.leg import GIVEN_KEYS, Key, key_arrays
from semlex.store.query.selection import sampled_chunks
from semlex.types.fields import Facet, FacetValue, FieldSummaries, FieldSummary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.names import Names


# A value whose JSON is longer is not listed: it would be a text, not a category.
MAX_VALUE_BYTES = 1024

# Of a list, each value once; of all else, the value. A chunk without one has no row.
_COUNTS = sql.SQL(
    "WITH found AS NOT MATERIALIZED (SELECT {value} AS value FROM {chunks} WHERE {condition}), "
    "counted AS MATERIALIZED (SELECT each.value, sum(each.chunks)::bigint AS chunks FROM ("
    "SELECT f.value, count(*) AS chunks FROM found AS f "
    "WHERE f.value IS NOT NULL AND jsonb_typeof(f.value) <> 'array' GROUP BY f.value "
    "UNION ALL SELECT e.value, count(*) FROM found AS f CROSS JOIN LATERAL (SELECT DISTINCT x.value FROM "
    "jsonb_array_elements(CASE WHEN jsonb_typeof(f.value) = 'array' THEN f.value ELSE '[]' END) AS x(value)) AS e "
    "WHERE jsonb_typeof(f.value) = 'array' GROUP BY e.value) AS each GROUP BY each.value) "
    "SELECT t.number, v.value, v.chunks FROM (SELECT count(*) AS number FROM counted) AS t LEFT JOIN LATERAL ("
    "SELECT c.value, c.chunks FROM counted AS c WHERE octet_length(c.value::text) <= %(longest)s "
    'ORDER BY c.chunks DESC, c.value::text COLLATE "C" LIMIT %(limit)s) AS v ON true '
    'ORDER BY v.chunks DESC, v.value::text COLLATE "C"'
)
_CHUNKS = sql.SQL("{chunk} AS c")
_SOME_CHUNKS = sql.SQL("{keys} JOIN {chunk} AS c ON c.document_id = k.document_id AND c.chunk_id = k.chunk_id")
# Fields in other tables.
_BESIDE = {
    "title": sql.SQL("JOIN {document} AS d ON d.document_id = c.document_id"),
    "source": sql.SQL(
        "JOIN {document} AS d ON d.document_id = c.document_id JOIN {source} AS s ON s.source_id = d.source_id"
    ),
}


async def count_values(
    connection: Connection,
    names: Names,
    fields: Mapping[str, Field],
    *,
    condition: Filter,
    keys: Sequence[Key] | None = None,
    limit: int,
) -> tuple[dict[str, Facet], int]:
    """Return the values of each field with their counts, and how many chunks were counted."""
    # The transaction must have one snapshot.
    chunks = (_CHUNKS if keys is None else _SOME_CHUNKS).format(keys=GIVEN_KEYS, chunk=names.chunk)
    values: dict[str, Any] = condition.parameters | ({} if keys is None else key_arrays(keys))
    counting = sql.SQL("SELECT count(*) FROM {} WHERE {}").format(chunks, condition.expression)
    counted = await fetch_value(connection, counting, values)
    facets = {}
    for name, one in fields.items():
        beside = _BESIDE.get(one.path[0]) if one.is_own else None
        tables = sql.SQL("") if beside is None else beside.format(document=names.document, source=names.source)
        statement = _COUNTS.format(
            value=_value(one), chunks=sql.SQL("{} {}").format(chunks, tables), condition=condition.expression
        )
        bound = {"longest": MAX_VALUE_BYTES, "limit": limit} | ({} if one.is_own else {"path": list(one.path)})
        rows = await (await connection.execute(statement, values | bound)).fetchall()
        listed = [FacetValue(value, count) for _, value, count in rows if count is not None]
        facets[name] = Facet(name, listed, rows[0][0] - len(listed))
    return facets, counted


def _value(one: Field) -> sql.Composable:
    """Return SQL of a field's value as jsonb; NULL if it is missing, or an empty text in one of semlex's own fields."""
    if not one.is_own:
        return value_at(sql.SQL("%(path)s::text[]"))
    column = OWN_COLUMNS[one.path[0]]
    return sql.SQL("to_jsonb(NULLIF({}, ''))" if one.kind == "text" else "to_jsonb({})").format(column)


SAMPLE_CHUNKS = 10_000
# Metadata that is read, as it is stored.
SAMPLE_BYTES = 8 * 1024 * 1024
MAX_FIELDS = 1_000
SHOWN_VALUES = 5
SHOWN_CHARACTERS = 40
# Types as JSON calls them, where filters have another word.
_WORDS = {"string": "text", "array": "list"}

_OBJECT = sql.SQL("jsonb_each(CASE WHEN jsonb_typeof({value}) = 'object' THEN {value} ELSE '{{}}' END)")
# Every value of the sample with its path, and the paths that occur most; lists are not entered.
_NODES = sql.SQL(
    "WITH RECURSIVE node(path, value) AS ("
    'SELECT ARRAY[e.key COLLATE "C"], e.value FROM {sample}, {outer} AS e '
    'UNION ALL SELECT n.path || (e.key COLLATE "C"), e.value FROM node AS n, {inner} AS e '
    "WHERE cardinality(n.path) < {depth}), "
    "counted AS (SELECT path, jsonb_typeof(value) AS type, count(*) AS n FROM node GROUP BY 1, 2), "
    "named AS (SELECT path, jsonb_object_agg(type, n) AS types, count(*) OVER () AS names FROM counted "
    "GROUP BY path ORDER BY sum(n) DESC, path LIMIT {limit}), "
    "element AS (SELECT path, e AS value FROM node JOIN named USING (path), {elements} AS e) "
)
_TYPES = sql.SQL(
    "SELECT path, named.types::text, coalesce(parts.types, '{}')::text, names FROM named LEFT JOIN ("
    "SELECT path, jsonb_object_agg(type, n) AS types FROM ("
    "SELECT path, jsonb_typeof(value) AS type, count(*) AS n FROM element GROUP BY 1, 2) AS c GROUP BY path"
    ") AS parts USING (path)"
)
_VALUES = sql.SQL(
    "SELECT path, value::text FROM ("
    "SELECT path, value, row_number() OVER (PARTITION BY path ORDER BY count(*) DESC, value) AS place FROM ("
    "SELECT path, CASE WHEN length(value #>> '{{}}') > {characters} "
    "THEN to_jsonb(left(value #>> '{{}}', {characters}) || '…') ELSE value END AS value FROM ("
    "SELECT path, value FROM node JOIN named USING (path) UNION ALL SELECT path, value FROM element) AS every "
    "WHERE jsonb_typeof(value) IN ('string', 'number', 'boolean')) AS shown "
    "GROUP BY path, value) AS ranked WHERE place <= {limit} ORDER BY path, place"
)


@dataclass(frozen=True, slots=True)
class FieldSample:
    """A sample of chunks that is the same at every call."""

    names: Names
    chunks: int
    are_all: bool  # whether these are all chunks of the collection

    @property
    def source(self) -> sql.Composable:
        """The chunks as a table with the alias ``c``."""
        return _bounded(self.names, self.chunks)

    def nodes(self) -> sql.Composable:
        """Return the WITH clause of a statement: every value in the sample's metadata, with its path."""
        return _NODES.format(
            sample=self.source,
            outer=_OBJECT.format(value=sql.SQL("c.metadata")),
            inner=_OBJECT.format(value=sql.SQL("n.value")),
            depth=sql.Literal(MAX_PATH_PARTS),
            limit=sql.Literal(MAX_FIELDS),
            elements=ELEMENTS.format(value=sql.SQL("node.value")),
        )


def _bounded(names: Names, chunks: int) -> sql.Composable:
    return sql.SQL("(SELECT c.* FROM {} LIMIT {}) AS c").format(
        sampled_chunks(names, SAMPLE_CHUNKS), sql.Literal(chunks)
    )


async def take_field_sample(connection: Connection, names: Names) -> FieldSample:
    """Choose the sample: 10,000 chunks on random pages, fewer if their metadata is large."""
    # The transaction must have one snapshot.
    chunks, there = await only_row(
        connection,
        sql.SQL(
            "SELECT count(*) FILTER (WHERE size <= {bytes} OR place = 1), "
            "(SELECT count(*) FROM (SELECT FROM {chunk} LIMIT {more}) AS bounded) FROM ("
            "SELECT sum(pg_column_size(c.metadata)) OVER w AS size, row_number() OVER w AS place FROM {sample} "
            "WINDOW w AS (ROWS UNBOUNDED PRECEDING)) AS s"
        ).format(
            bytes=sql.Literal(SAMPLE_BYTES),
            chunk=names.chunk,
            more=sql.Literal(SAMPLE_CHUNKS + 1),
            sample=_bounded(names, SAMPLE_CHUNKS),
        ),
    )
    return FieldSample(names, chunks, chunks == there)


async def summarize_fields(connection: Connection, names: Names, *, with_values: bool = False) -> FieldSummaries:
    """Return which fields the chunks of a sample have; the transaction must have one snapshot."""
    sample = await take_field_sample(connection, names)
    indexes = await read_field_indexes(connection, names)
    cursor = await connection.execute(sample.nodes() + _TYPES)
    rows = await cursor.fetchall()
    found = {Field(tuple(path)): (json.loads(types), json.loads(parts)) for path, types, parts, _ in rows}
    values = await _read_values(connection, sample) if with_values else {}
    found |= {one.field: ({}, {}) for one in indexes if one.field not in found}
    metadata = sorted((one for one in found if not one.is_own), key=str)
    own = await _count_own(connection, sample)
    found |= own
    fields = [
        FieldSummary(
            name=str(one),
            types=_by_count(found[one][0]),
            elements=_by_count(found[one][1]),
            values=tuple(values.get(one, ())),
            indexed=tuple(index.type for index, is_valid in indexes.items() if index.field == one and is_valid),
            unfinished=tuple(index.type for index, is_valid in indexes.items() if index.field == one and not is_valid),
        )
        for one in (*metadata, *own)
    ]
    left_out = rows[0][3] - len(rows) if rows else 0
    return FieldSummaries(fields, chunks=sample.chunks, are_all=sample.are_all, left_out=left_out)


def _by_count(types: dict[str, int]) -> dict[str, int]:
    return {_WORDS.get(name, name): n for name, n in sorted(types.items(), key=lambda one: (-one[1], one[0]))}


async def _count_own(connection: Connection, sample: FieldSample) -> dict[Field, tuple[dict[str, int], dict[str, int]]]:
    """Count the chunks that have each of semlex's own fields."""
    conditions = [
        parse_filters(f"exists @{name}", sample.names).expression if "exists" in OPERATORS[kind] else sql.SQL("true")
        for name, kind in OWN.items()
    ]
    counts = sql.SQL(", ").join(sql.SQL("count(*) FILTER (WHERE {})").format(one) for one in conditions)
    row = await only_row(connection, sql.SQL("SELECT {} FROM {}").format(counts, sample.source))
    return {Field((name,), is_own=True): ({kind: n}, {}) for (name, kind), n in zip(OWN.items(), row, strict=True)}


async def _read_values(connection: Connection, sample: FieldSample) -> dict[Field, list[Any]]:
    """Return the most frequent values of each field; elements of lists count as values, lists and objects do not."""
    values = _VALUES.format(characters=sql.Literal(SHOWN_CHARACTERS), limit=sql.Literal(SHOWN_VALUES))
    found = defaultdict(list)
    cursor = await connection.execute(sample.nodes() + values)
    for path, text in await cursor.fetchall():
        found[Field(tuple(path))].append(json.loads(text))
    return found


async def count_types(connection: Connection, sample: FieldSample, field: Field) -> dict[str, int]:
    """Return how many chunks of a sample have a value of each type, the most frequent type first."""
    # Call it in the transaction of the sample.
    cursor = await connection.execute(
        sql.SQL(
            "SELECT v.type, count(*) FROM (SELECT jsonb_typeof({value}) AS type FROM {sample}) AS v "
            "WHERE v.type IS NOT NULL GROUP BY 1"
        ).format(value=value_at(constant_path(field.path)), sample=sample.source)
    )
    return _by_count(dict(await cursor.fetchall()))
