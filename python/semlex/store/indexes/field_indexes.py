"""Indexes of single metadata fields, for comparisons: how they are defined, and which ones a collection has."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from semlex.errors import ConfigurationError
from semlex.filters.fields import SHOWN_CHARACTERS, Field, nearest, refusal
from semlex.store.query.filters import constant_path, typed_value, value_at
from semlex.store.schema.locks import lock_briefly
from semlex.store.schema.names import Names, TableIndex

if TYPE_CHECKING:
    from semlex.store.postgres.connection import Connection
    from semlex.types.fields import IndexedType

# Of the keys of a field, together: a row of the server's catalog has the expression twice and must fit a page.
MAX_PATH_BYTES = 1_000
# A name of 48 bytes, an underscore and this are Postgres' 63 bytes.
_HASH_CHARACTERS = 8
_TIMES = ("created", "updated")
_METADATA_TYPES: tuple[IndexedType, ...] = ("number", "text")
# A value of any length fits into a radix tree, and none of it fails a write: a B-tree ends at 2,704 bytes. It serves
# comparisons and prefixes in the order of code points. The longest number of a document has a third of those bytes.
_METHODS = {"number": sql.SQL("btree"), "text": sql.SQL("spgist")}

_STORED = sql.SQL(
    "SELECT i.relname, x.indisvalid AND x.indisready, replace(substring(pg_get_expr(x.indexprs, x.indrelid) "
    "FROM '''((?:[^'']|'''')*)''::text\\[\\]'), '''''', '''')::text[] "
    "FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid "
    "WHERE x.indrelid = to_regclass({table}) AND starts_with(i.relname, {prefix}) ORDER BY i.oid"
)


@dataclass(frozen=True, slots=True)
class FieldIndex:
    """An index for comparisons of a field with values of one type."""

    field: Field
    type: IndexedType

    @property
    def suffix(self) -> str:
        """The end of the index's name, after the collection's."""
        if self.field.is_own:
            return f"field_{self.field.path[0]}"
        told = json.dumps([self.type, *self.field.path])
        return "field_" + base64.b32encode(hashlib.sha256(told.encode()).digest()).decode()[:_HASH_CHARACTERS].lower()

    def table_index(self, names: Names) -> TableIndex:
        """Return the definition of the index, over the expression that filters compare, so that filters use it."""
        if self.type == "instant":
            column = sql.Identifier(f"{self.field.path[0]}_at")
            return TableIndex(self.suffix, names.chunk, sql.SQL("({})").format(column))
        value = value_at(constant_path(self.field.path), sql.SQL("metadata"))
        definition = sql.SQL("USING {} ({})").format(_METHODS[self.type], typed_value(value, self.type))
        return TableIndex(self.suffix, names.chunk, definition)


def checked_index(field: Field, of: object) -> FieldIndex:
    """Return the index of a field for values of type `of`; refuse a field or a type that cannot be indexed."""
    of = of if isinstance(of, str) else _shown(of)
    if field.is_own:
        if field.path[0] not in _TIMES:
            raise refusal("name", "wrong_type", "a field of the metadata, @created or @updated", str(field))
        if of != "instant":
            raise refusal("type", "wrong_type", f"'instant', the only type of {field}", _shown(of))
        return FieldIndex(field, "instant")
    size = sum(len(part.encode()) for part in field.path)
    if size > MAX_PATH_BYTES:
        raise refusal("name", "too_long", f"{MAX_PATH_BYTES} bytes to be indexed", f"{size} bytes")
    for known in _METADATA_TYPES:
        if of == known:
            return FieldIndex(field, known)
    limit = "'number' or 'text'"
    if of == "boolean":
        limit += " (true and false need no index of the field: the index on all metadata serves them)"
    elif of == "instant":
        limit += " (times in the metadata are text; in ISO form they sort by time)"
    raise refusal("type", "wrong_type", limit, _shown(of))


def _shown(of: object) -> str:
    return repr(of[:SHOWN_CHARACTERS]) if isinstance(of, str) else type(of).__name__


def is_of_field(name: str) -> bool:
    """Return whether this is the name of an index of a field, or of such an index on one partition."""
    return re.search(r"_field_(created|updated|[a-z2-7]{8})(_p[0-9]+)?$", name) is not None


async def read_field_indexes(connection: Connection, names: Names) -> dict[FieldIndex, bool]:
    """Return which indexes of single fields a collection has, each with whether its build was completed."""
    # They are recognised by their name, which derives from the expression that the server reports.
    prefix = f"{names.collection}_"
    cursor = await connection.execute(
        _STORED.format(table=sql.Literal(names.chunk.as_string(connection)), prefix=sql.Literal(f"{prefix}field_"))
    )
    found: dict[FieldIndex, bool] = {}
    for name, is_valid, path in await cursor.fetchall():
        candidates = [FieldIndex(Field((time,), is_own=True), "instant") for time in _TIMES]
        if path:
            candidates = [FieldIndex(Field(tuple(path)), of) for of in _METADATA_TYPES]
        found |= {one: bool(is_valid) for one in candidates if name == prefix + one.suffix}
    return found


async def drop_field_indexes(connection: Connection, names: Names, field: Field) -> tuple[IndexedType, ...]:
    """Drop the indexes of a field and return their types; call it within `between_searches`."""
    await lock_briefly(connection)
    stored = await read_field_indexes(connection, names)
    dropped = [one for one in stored if one.field == field]
    if not dropped:
        known = sorted({str(one.field) for one in stored})
        near = nearest(str(field), known) or "; semlex fields shows which fields have one"
        raise ConfigurationError(f"the field {str(field)[:SHOWN_CHARACTERS]} has no index{near}")
    for one in dropped:
        await connection.execute(
            sql.SQL("DROP INDEX {}").format(sql.Identifier(names.schema, f"{names.collection}_{one.suffix}"))
        )
    return tuple(one.type for one in dropped)
