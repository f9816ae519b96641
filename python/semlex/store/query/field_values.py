"""A field of a chunk as SQL: a value of the metadata, of one type or of any, or a column of semlex's own.

An index on the expression that `typed_value` gives serves the comparisons of filters, which use the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.schema.names import Names

ValueType = Literal["number", "text", "boolean"]

# Postgres does not promise in which order conditions are computed: only CASE keeps a cast from what it cannot cast.
_TYPED: dict[ValueType, sql.SQL] = {
    "number": sql.SQL("(CASE WHEN jsonb_typeof({value}) = 'number' THEN {value}::numeric END)"),
    "boolean": sql.SQL("(CASE WHEN jsonb_typeof({value}) = 'boolean' THEN {value}::boolean END)"),
    "text": sql.SQL("((CASE WHEN jsonb_typeof({value}) = 'string' THEN {value} #>> '{{}}' END) COLLATE \"C\")"),
}
# Columns of the chunk table; "" in them is as good as missing.
COLUMNS = {
    "uri": sql.SQL("c.source_document"),
    "chapter": sql.SQL("c.chapter_title"),
    "section": sql.SQL("c.section_title"),
    "type": sql.SQL("c.chunk_type"),
    "language": sql.SQL("c.language"),
    "parent": sql.SQL("c.parent_chunk_id"),
    "page": sql.SQL("c.page"),
    "source": sql.SQL("s.name"),
    "title": sql.SQL("d.title"),
    "heading": sql.SQL("array_remove(ARRAY[c.chapter_title, c.section_title] || c.subsection_title, '')"),
    "created": sql.SQL("c.created_at"),
    "updated": sql.SQL("c.updated_at"),
    "document": sql.SQL("c.document_id"),
    "id": sql.SQL("c.chunk_id"),
}
# What is known of a document stands in other tables; looking it up once is faster than for every chunk.
_OF_DOCUMENTS = {
    "title": sql.SQL("c.document_id IN (SELECT d.document_id FROM {document} AS d WHERE {condition})"),
    "source": sql.SQL(
        "c.document_id IN (SELECT d.document_id FROM {document} AS d JOIN {source} AS s ON s.source_id = d.source_id "
        "WHERE {condition})"
    ),
}


def constant_path(path: Sequence[str]) -> sql.Composable:
    """A path into the metadata as a constant."""
    return sql.SQL("{}::text[]").format(sql.Literal(list(path)))


def value(path: sql.Composable, metadata: sql.Composable = sql.SQL("c.metadata")) -> sql.Composed:  # noqa: B008
    """The value at a path, as jsonb; NULL where there is none."""
    return sql.SQL("({} #> {})").format(metadata, path)


def typed_value(value: sql.Composable, of: ValueType) -> sql.Composed:
    """A value of one type; NULL for all others."""
    return _TYPED[of].format(value=value)


def about_document(name: str, condition: sql.Composable, names: Names) -> sql.Composable:
    """A condition on a column of semlex's own as one on a chunk."""
    if name not in _OF_DOCUMENTS:
        return condition
    return _OF_DOCUMENTS[name].format(document=names.document, source=names.source, condition=condition)
