"""Counts of the values of fields, over the chunks that pass a filter or over some by their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex.store.query import field_values
from semlex.store.query.leg import key_arrays
from semlex.types.fields import Facet, FacetValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from semlex.filters.fields import Field
    from semlex.store.postgres.connection import Connection
    from semlex.store.query.filters import Filter
    from semlex.store.query.leg import Key
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
_SOME_CHUNKS = sql.SQL(
    "unnest(%(document_ids)s::uuid[], %(chunk_ids)s::text[]) AS k(document_id, chunk_id) "
    "JOIN {chunk} AS c ON c.document_id = k.document_id AND c.chunk_id = k.chunk_id"
)
# Fields that stand in other tables.
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
    """The values of each field with their counts, and how many chunks were counted.

    Args:
        connection: In a transaction with one snapshot.
    """
    chunks = (_CHUNKS if keys is None else _SOME_CHUNKS).format(chunk=names.chunk)
    values: dict[str, Any] = condition.parameters | ({} if keys is None else key_arrays(keys))
    counting = sql.SQL("SELECT count(*) FROM {} WHERE {}").format(chunks, condition.expression)
    counted = await (await connection.execute(counting, values)).fetchone()
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
    return facets, 0 if counted is None else int(counted[0])


def _value(one: Field) -> sql.Composable:
    """The value of a field as jsonb; NULL where there is none, and an empty text of semlex's own is none."""
    if not one.is_own:
        return field_values.value(sql.SQL("%(path)s::text[]"))
    column = field_values.COLUMNS[one.path[0]]
    return sql.SQL("to_jsonb(NULLIF({}, ''))" if one.kind == "text" else "to_jsonb({})").format(column)
