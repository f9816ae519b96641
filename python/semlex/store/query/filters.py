"""Turn filters into SQL conditions over a chunk's row; `semlex.filters.evaluate` defines their meaning."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, LiteralString

from psycopg import sql

from semlex.errors import ConfigurationError
from semlex.filters.evaluate import folded, holds, is_index
from semlex.filters.fields import COLUMNS, OWN, ROW, SHOWN_CHARACTERS, Field, is_number, is_scalar, json_text, nearest
from semlex.filters.forms import Filters, filter_tree
from semlex.filters.tree import LISTS, ORDER, PATTERNS, Condition, FilterTree, Group, Not, joined, leaves, node_of
from semlex.store.query.chunk_keys import chunk_keys
from semlex.store.query.rows import LiveTable, check_live, of_rows, read_live_tables, text_of_type, visible_rows
from semlex.store.write.copy import array_text

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.store.postgres.connection import Connection
    from semlex.store.query.passing_rows import PassingRows
    from semlex.store.schema.names import Names


ValueType = Literal["number", "text", "boolean"]

# Postgres does not promise in which order conditions are computed: only CASE keeps a cast from what it cannot cast.
_TYPED: dict[ValueType, sql.SQL] = {
    "number": sql.SQL("(CASE WHEN jsonb_typeof({value}) = 'number' THEN {value}::numeric END)"),
    "boolean": sql.SQL("(CASE WHEN jsonb_typeof({value}) = 'boolean' THEN {value}::boolean END)"),
    "text": sql.SQL("((CASE WHEN jsonb_typeof({value}) = 'string' THEN {value} #>> '{{}}' END) COLLATE \"C\")"),
}
# Columns of the chunk table; "" in them is as good as missing.
OWN_COLUMNS = {
    "source_document": sql.SQL("c.source_document"),
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


def text_hash(text: sql.Composable) -> sql.Composed:
    """Return SQL of the hash of a text by which the names of documents are indexed."""
    # A B-tree of the texts refuses long ones. A hash index reads all equal entries for each new one.
    return sql.SQL("pg_catalog.hashtextextended({}, 0)").format(text)


def is_of_document(value: sql.Composable) -> sql.Composed:
    """Return SQL of whether a chunk's document has this name, in a form that the index on names serves."""
    column = OWN_COLUMNS["source_document"]
    return sql.SQL("({} = {} AND {} = {})").format(text_hash(column), text_hash(value), column, value)


def is_of_one_document(values: sql.Composable) -> sql.Composed:
    """Return SQL of whether a chunk's document has one of these names, in a form that the index on names serves."""
    column = OWN_COLUMNS["source_document"]
    hashes = sql.SQL("ARRAY(SELECT {} FROM unnest({}) AS given(value))").format(
        text_hash(sql.SQL("given.value")), values
    )
    return sql.SQL("({} = ANY({}) AND {} = ANY({}))").format(text_hash(column), hashes, column, values)


# Fields of documents are in other tables; looking them up once is faster than for every chunk.
_OF_DOCUMENTS = {
    "title": sql.SQL("c.document_id IN (SELECT d.document_id FROM {document} AS d WHERE {condition})"),
    "source": sql.SQL(
        "c.document_id IN (SELECT d.document_id FROM {document} AS d JOIN {source} AS s ON s.source_id = d.source_id "
        "WHERE {condition})"
    ),
}


def constant_path(path: Sequence[str]) -> sql.Composable:
    """Return SQL of a path into the metadata, as a constant."""
    return sql.SQL("{}::text[]").format(sql.Literal(list(path)))


def value_at(path: sql.Composable, metadata: sql.Composable = sql.SQL("c.metadata")) -> sql.Composed:  # noqa: B008
    """Return SQL of the value at a path in the metadata, as jsonb; NULL if missing."""
    return sql.SQL("({} #> {})").format(metadata, path)


def typed_value(value: sql.Composable, of: ValueType) -> sql.Composed:
    """Return SQL that casts a JSON value to a type; NULL if the value has another type."""
    return _TYPED[of].format(value=value)


def about_document(name: str, condition: sql.Composable, names: Names) -> sql.Composable:
    """Turn a condition on one of semlex's own fields, which may be a field of documents, into a condition on chunks."""
    if name not in _OF_DOCUMENTS:
        return condition
    return _OF_DOCUMENTS[name].format(document=names.document, source=names.source, condition=condition)


logger = logging.getLogger("semlex")

# Up to this many values are looked up in the index on the metadata one by one; more become a hash table.
MAX_LOOKED_UP = 32
# Fields that are looked for where nothing was found.
MAX_LOOKED_FOR = 10
_COMPARING = ("==", "in", *ORDER, *PATTERNS)

_IS_MISSING = sql.SQL("NOT EXISTS (SELECT FROM {chunk} AS c WHERE c.metadata #> {path}::text[] IS NOT NULL)")
# Keys of some chunks, for the one that is most like an unknown one.
_KEYS = sql.SQL(
    "ARRAY(SELECT DISTINCT jsonb_object_keys(CASE WHEN jsonb_typeof(s.v) = 'object' THEN s.v ELSE '{{}}' END) "
    "FROM (SELECT c.metadata #> {path}::text[] AS v FROM {chunk} AS c LIMIT 1000) AS s LIMIT 1000)"
)
# Kinds of the values of a field, by some chunks that have it.
_KINDS = sql.SQL(
    "ARRAY(SELECT DISTINCT jsonb_typeof(s.v) FROM (SELECT c.metadata #> {path}::text[] AS v FROM {chunk} AS c "
    "WHERE c.metadata #> {path}::text[] IS NOT NULL LIMIT 1000) AS s)"
)
# Kind of the compared values -> the kind of stored values that never match; the names of both, and what to do.
_NEVER = {
    "number": ("string", "texts", "a number", "compare it with a text, or store numbers"),
    "string": ("number", "numbers", "a text", "write the number without quotes"),
}

_COMPARED = {word: sql.SQL(word) for word in ("=", *ORDER)}
_MATCHED = {
    "startswith": sql.SQL("{} ^@ {}"),
    "like": sql.SQL("{} LIKE {}"),
    "ilike": sql.SQL("lower({}) LIKE {}"),  # of collation "C": ASCII only
}
_WITH_IDS = sql.SQL("(c.document_id, c.chunk_id) IN (SELECT * FROM unnest({documents}, {ids}))")
ELEMENTS = sql.SQL("jsonb_array_elements(CASE WHEN jsonb_typeof({value}) = 'array' THEN {value} ELSE '[]' END)")


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition over a chunk row with the alias ``c``."""

    conditions: tuple[sql.Composable, ...] = ()  # all must hold; none: nothing is filtered
    parameters: dict[str, Any] = field(default_factory=dict)
    tree: FilterTree | None = None  # None: nothing is filtered
    # Keyword ids of the chunks that pass, ascending, int64; None if they were not read.
    ids: NDArray[np.int64] | None = None
    # Estimated share of the chunks that pass, 0 to 1; None if unknown.
    share: float | None = None
    # The rows that pass, with the places of their vectors, if they are known; then `ids` are theirs.
    rows: PassingRows | None = None
    # Where the filter was given, and how its values are named: set while `with_rows` has to write it.
    unwritten: tuple[str, str] | None = None
    # Whether the conditions look at rows of followed tables though the tree does not.
    sees_rows: bool = False

    @property
    def key(self) -> Hashable:
        """A key for caches, which is equal for filters with equal conditions."""
        return blake2b(repr((self.conditions, self.parameters)).encode()).digest()

    def selecting(self, ids: NDArray[np.int64]) -> Filter:
        """Return this filter with the condition replaced by the ids that pass in one snapshot."""
        condition = sql.SQL("c.keyword_id = ANY(%(selected)s::bigint[])")
        return replace(self, conditions=(condition,), parameters={"selected": array_text(ids.tolist())}, ids=ids)

    def among(self, rows: PassingRows) -> Filter:
        """Return this filter with `rows`, the rows that are known to pass it."""
        return replace(self, ids=rows.ids, rows=rows)

    @property
    def expression(self) -> sql.Composable:
        """SQL of the condition; TRUE if nothing is filtered."""
        if self.unwritten is not None:
            raise RuntimeError("use `with_rows` for a filter on live columns")
        if self.is_empty:
            return sql.SQL("TRUE")
        return sql.SQL("(") + sql.SQL(" AND ").join(self.conditions) + sql.SQL(")")

    @property
    def is_empty(self) -> bool:
        """Whether every chunk passes."""
        return not self.conditions and self.unwritten is None

    @property
    def names_rows(self) -> bool:
        """Whether rows of followed tables decide which chunks pass."""
        return self.sees_rows or (self.tree is not None and any(one.field.is_row for one in leaves(self.tree)))

    @property
    def metadata_fields(self) -> Sequence[Field]:
        """The metadata fields that the filter compares, each once."""
        found = () if self.tree is None else leaves(self.tree)
        return tuple(dict.fromkeys(one.field for one in found if not one.field.is_own))


def parse_filters(filters: Filters | None, names: Names, *, place: str = "filters", prefix: str = "filter") -> Filter:
    """Check a filter and turn it into SQL, with keys and values bound or quoted."""
    # A filter that names live columns is turned into SQL by `with_rows`, which knows their tables.
    tree = filter_tree(filters, place)
    if tree is None:
        return Filter()
    made = Filter(tree=tree)
    return replace(made, unwritten=(place, prefix)) if made.names_rows else _written(tree, names, prefix)


async def with_rows(connection: Connection, names: Names, condition: Filter) -> Filter:
    """Turn a filter that names columns of followed tables into SQL, with the tables as this transaction sees them."""
    if condition.unwritten is None:
        return condition
    return write_filter(condition, names, await read_live_tables(connection, names))


def write_filter(condition: Filter, names: Names, tables: Sequence[LiveTable]) -> Filter:
    """Turn a filter that names columns of followed tables into SQL; return any other filter unchanged."""
    if condition.unwritten is None or condition.tree is None:
        return condition
    place, prefix = condition.unwritten
    for found in dict.fromkeys(one.field for one in leaves(condition.tree) if one.field.is_row):
        check_live(tables, found.path[1], found.place(place))
    return _written(condition.tree, names, prefix, tables)


def _written(tree: FilterTree, names: Names, prefix: str, tables: Sequence[LiveTable] = ()) -> Filter:
    writer = _Writer(names, prefix, tables)
    parts = _with_joined_rows("and", tree.parts if isinstance(tree, Group) and tree.word == "and" else (tree,))
    conditions = list(map(writer.expression, parts))
    if tables and not any(map(_is_of_rows, parts)):
        # A filter that looks at rows lets no chunk pass whose row is gone or hidden, whatever it negates.
        conditions.append(visible_rows(tables))
    return Filter(tuple(conditions), writer.parameters, tree)


def _is_of_rows(tree: FilterTree) -> bool:
    """Return whether all conditions of a tree are about rows of followed tables."""
    return all(one.field.is_row for one in leaves(tree))


def _with_joined_rows(word: Literal["and", "or"], parts: Sequence[FilterTree]) -> Sequence[FilterTree]:
    """Join the parts of a group that are about rows of followed tables, so that each row is read once."""
    of_rows = [part for part in parts if _is_of_rows(part)]
    if len(of_rows) < 2:  # noqa: PLR2004
        return parts
    return [*(part for part in parts if not _is_of_rows(part)), joined(word, of_rows)]


# A condition is written bare, so that an index can serve it, and gives NULL or FALSE if it does not hold; a negated one
# is ``(…) IS NOT TRUE``. Equality and membership of single values are containment (``@>``), which the index on the
# metadata serves; comparisons use the one expression that `typed_value` gives.
class _Writer:
    """Writes a tree as SQL, and collects the values that it binds."""

    def __init__(self, names: Names, prefix: str, tables: Sequence[LiveTable]) -> None:
        self._names = names
        self._prefix = prefix
        self._tables = tables
        self._table: LiveTable | None = None  # whose row the conditions are about
        self.parameters: dict[str, Any] = {}

    def _bound(self, value: object, cast: LiteralString) -> sql.Composed:
        name = f"{self._prefix}_{len(self.parameters)}"
        self.parameters[name] = value
        return sql.SQL("{}::{}").format(sql.Placeholder(name), sql.SQL(cast))

    def expression(self, tree: FilterTree) -> sql.Composable:
        """Return SQL of a filter's tree."""
        node = node_of(tree)
        if self._table is None and _is_of_rows(node):
            return self._of_rows(node)
        if isinstance(node, Group):
            word = sql.SQL(" AND ") if node.word == "and" else sql.SQL(" OR ")
            parts = node.parts if self._table is not None else _with_joined_rows(node.word, node.parts)
            return sql.SQL("({})").format(word.join(map(self.expression, parts)))
        if isinstance(node, Not):
            return sql.SQL("(({}) IS NOT TRUE)").format(self.expression(node.part))
        if node.field.is_own and not node.field.is_row:
            return self._of_own(node)
        if self._table is not None:
            return self._of_column(node, self._table)
        return self._of_value(node, value_at(self._path(node.field.path)))

    def _of_rows(self, tree: FilterTree) -> sql.Composable:
        """Return SQL of a tree whose conditions are all on live columns; chunks of files have none of these columns."""
        conditions = {}
        for table in self._tables:
            self._table = table
            conditions[table.name] = self.expression(tree)
        self._table = None
        return of_rows(self._tables, conditions, others=holds(tree, {}))

    def _of_column(self, condition: Condition, table: LiveTable) -> sql.Composable:
        """Return SQL of a condition on a live column; an index on the user's table can serve it for most types."""
        path, operator, operand = condition.field.path, condition.operator, condition.value
        value = table.value(path[1])
        found = self._of_value(condition, value_at(self._path(path[2:]), value) if path[2:] else value)
        kind = None if path[2:] else table.own_type(path[1])
        if kind is None or operator not in {"==", "in", *ORDER}:
            return found
        given = [text_of_type(one, kind) for one in (operand if operator == "in" else [operand])]
        wanted = [text for text in given if text is not None]
        if operator in ORDER and (not wanted or kind not in {"bigint", "numeric"}):
            return found
        word = _COMPARED[operator if operator in ORDER else "="]
        bound = self._bound(wanted, f"{kind}[]")
        return sql.SQL("({} {} ANY({}) AND {})").format(table.column(path[1]), word, bound, found)

    def _of_value(self, condition: Condition, value: sql.Composable) -> sql.Composable:
        """Return SQL of a condition on a JSON value; NULL if the value is missing."""
        path, operator, operand = condition.field.path, condition.operator, condition.value
        if operator == "exists":
            return sql.SQL("{} IS NOT NULL").format(value)
        if operator == "empty":
            return sql.SQL("({} IN ('null', '\"\"', '[]', '{{}}')) IS NOT FALSE").format(value)
        if operator in ORDER:
            kind: ValueType = "number" if is_number(operand) else "text"
            return self._compared(typed_value(value, kind), operator, operand, kind)
        if operator in PATTERNS:
            return self._matched(typed_value(value, "text"), operator, operand)
        return self._equal(path, value, condition)

    def _equal(self, path: tuple[str, ...], value: sql.Composable, condition: Condition) -> sql.Composable:
        """Return SQL of a condition on equality: of the value itself, or of elements if the value is a list."""
        operator, operand = condition.operator, condition.value
        wanted = operand if operator in LISTS else [operand]
        are_few = operator not in {"in", "any"} or len(wanted) <= MAX_LOOKED_UP
        # A key that is a number may lead into a list, which containment does not know; and it compares lists and
        # objects by their parts.
        is_plain = all(map(is_scalar, wanted)) and not any(map(is_index, path[1:]))
        if self._table is None and are_few and is_plain:
            return self._looked_up(path, operator, wanted)
        if operator == "==":
            return sql.SQL("{} = {}").format(value, self._bound(json_text(operand), "jsonb"))
        several = self._bound([json_text(one) for one in wanted], "jsonb[]")
        if operator == "in":
            return sql.SQL("{} = ANY({})").format(value, several)
        elements = ELEMENTS.format(value=value)
        if operator == "any":
            return sql.SQL("EXISTS (SELECT FROM {} AS e WHERE e = ANY({}))").format(elements, several)
        return sql.SQL("ARRAY(SELECT {}) @> {}").format(elements, several)

    def _looked_up(self, path: tuple[str, ...], operator: str, wanted: list[Any]) -> sql.Composable:
        """Return an equality condition as containment (``@>``), which the index on the metadata serves."""
        if operator in {"==", "contains", "all"}:
            inner = json_text(wanted if operator != "==" else wanted[0])
            return sql.SQL("c.metadata @> {}").format(self._bound(_at(path, inner), "jsonb"))
        each = [_at(path, json_text(one if operator == "in" else [one])) for one in wanted]
        return sql.SQL("c.metadata @> ANY({})").format(self._bound(each, "jsonb[]"))

    def _of_own(self, condition: Condition) -> sql.Composable:
        """Return SQL of a condition on one of semlex's own fields."""
        if condition.field.is_id and condition.operator in {"==", "in"}:
            return self._with_ids(condition.value if condition.operator == "in" else [condition.value])
        name = condition.field.path[0]
        if name == "source_document" and condition.operator == "==":
            return is_of_document(self._bound(condition.value, "text"))
        if name == "source_document" and condition.operator == "in":
            return is_of_one_document(self._bound(condition.value, "text[]"))
        made = (self._on_number if condition.field.kind == "number" else self._on_column)(condition, OWN_COLUMNS[name])
        if condition.operator == "empty":
            return sql.SQL("({}) IS NOT TRUE").format(about_document(name, made, self._names))
        return about_document(name, made, self._names)

    def _with_ids(self, ids: list[str]) -> sql.Composable:
        """Return SQL of a condition on ids that compares whole keys, so that the index of the primary key serves it."""
        documents = self._bound([key.hex() for key in chunk_keys(ids)], "uuid[]")
        return _WITH_IDS.format(documents=documents, ids=self._bound(ids, "text[]"))

    def _on_column(self, condition: Condition, column: sql.Composable) -> sql.Composable:
        kind, operator, operand = condition.field.kind, condition.operator, condition.value
        if operator in {"exists", "empty"}:
            return sql.SQL("{} <> {}").format(column, sql.SQL("'{}'" if kind == "texts" else "''"))
        if kind == "texts":
            bound = self._bound(operand if isinstance(operand, list) else [operand], "text[]")
            word = {"==": sql.SQL("="), "any": sql.SQL("&&")}.get(operator, sql.SQL("@>"))
            return sql.SQL("{} {} {}").format(column, word, bound)
        cast = {"instant": "timestamptz", "key": "uuid"}.get(str(kind), "text")
        if operator == "in":
            return sql.SQL("{} = ANY({})").format(column, self._bound(operand, f"{cast}[]"))
        if operator == "==":
            return self._compared(column, "=", operand, cast)
        if kind == "instant":
            return self._compared(column, operator, operand, cast)
        there = sql.SQL("NULLIF({}, '') COLLATE \"C\"").format(column)
        return (self._compared if operator in ORDER else self._matched)(there, operator, operand)

    def _on_number(self, condition: Condition, column: sql.Composable) -> sql.Composable:
        operator, operand = condition.operator, condition.value
        if operator in {"exists", "empty"}:
            return sql.SQL("{} IS NOT NULL").format(column)
        several = [json_text(one) for one in (operand if operator == "in" else [operand])]
        word = _COMPARED[operator if operator in ORDER else "="]
        return sql.SQL("{} {} ANY({})").format(column, word, self._bound(several, "numeric[]"))

    def _compared(self, expression: sql.Composable, operator: str, operand: Any, kind: str = "text") -> sql.Composable:
        bound = self._bound(json_text(operand), "numeric") if kind == "number" else self._bound(operand, kind)
        return sql.SQL("{} {} {}").format(expression, _COMPARED[operator], bound)

    def _matched(self, expression: sql.Composable, operator: str, pattern: str) -> sql.Composable:
        bound = self._bound(folded(pattern) if operator == "ilike" else pattern, "text")
        return _MATCHED[operator].format(expression, bound)

    def _path(self, path: tuple[str, ...]) -> sql.Composable:
        """Return SQL of a path, as a constant so that an index can serve it; a path with ``%`` is bound instead."""
        if any("%" in part for part in path):
            return self._bound(list(path), "text[]")
        return constant_path(path)


def _at(path: tuple[str, ...], inner: str) -> str:
    """Return the text of a JSON object that has the value `inner` (JSON, too) at a path."""
    for part in reversed(path):
        inner = f"{{{json_text(part)}: {inner}}}"
    return inner


async def unknown_fields(connection: Connection, names: Names, condition: Filter) -> list[str]:
    """Return warnings about fields of a filter that no chunk has, or whose values have another type."""
    # A collection without chunks has none. The first of three statements may have to read every chunk.
    asked = list(condition.metadata_fields)[:MAX_LOOKED_FOR]
    is_missing = await _for_each(connection, names, _IS_MISSING, [one.path for one in asked])
    unknown = [one for one, missing in zip(asked, is_missing, strict=False) if missing]
    beside = await _for_each(connection, names, _KEYS, [one.path[:-1] for one in unknown])
    compared = [] if condition.tree is None else list(dict.fromkeys(_compared(condition.tree)))[:MAX_LOOKED_FOR]
    compared = [one for one in compared if one[0] not in unknown]
    stored = [one for one, _ in compared if not one.is_row]
    columns = [one for one, _ in compared if one.is_row]
    of_stored = await _for_each(connection, names, _KINDS, [one.path for one in stored])
    kinds: dict[Field, Iterable[str | None]] = dict(zip(stored, of_stored, strict=False))
    tables = await _live_tables(connection, names) if unknown or columns else ()
    for one in columns:
        kinds[one] = [table.json_kind(one.path[1]) for table in tables if one.path[1] in table.live]
    live = {name for table in tables for name in table.live}
    return [
        *(
            _unknown(one, [str(Field((*one.path[:-1], key))) for key in keys], live)
            for one, keys in zip(unknown, beside, strict=False)
        ),
        *(
            f"the {'live column' if one.is_row else 'metadata field'} {str(one)[:SHOWN_CHARACTERS]!r} contains {held}, "
            f"and the filter compares it with {given}, which never matches: {remedy}"
            for one, kind in compared
            for never, held, given, remedy in [_NEVER[kind]]
            if set(kinds.get(one, ())) == {never}
        ),
    ]


def _compared(tree: FilterTree) -> Iterator[tuple[Field, str]]:
    """Yield each metadata field or live column that a tree compares, and with which type: ``number`` or ``string``."""
    for one in leaves(tree):
        is_column = one.field.is_row and len(one.field.path) == 2  # noqa: PLR2004
        if (one.field.is_own and not is_column) or one.operator not in _COMPARING:
            continue
        values = one.value if one.operator == "in" else [one.value]
        if all(map(is_number, values)):
            yield one.field, "number"
        elif all(isinstance(value, str) for value in values):
            yield one.field, "string"


async def _for_each(
    connection: Connection, names: Names, expression: sql.SQL, paths: Sequence[tuple[str, ...]]
) -> Sequence[Any]:
    """Return the value of an SQL expression for each path; nothing for a collection without chunks."""
    if not paths:
        return ()
    parameters = {f"path_{number}": list(path) for number, path in enumerate(paths)}
    columns = [expression.format(chunk=names.chunk, path=sql.Placeholder(name)) for name in parameters]
    statement = sql.SQL("SELECT {} WHERE EXISTS (SELECT FROM {})").format(sql.SQL(", ").join(columns), names.chunk)
    cursor = await connection.execute(statement, parameters)
    return await cursor.fetchone() or ()


async def log_unknown_fields(connection: Connection, names: Names, condition: Filter) -> None:
    """Log the warnings of `unknown_fields`."""
    for warning in await unknown_fields(connection, names, condition):
        logger.warning("%s", warning)


async def _live_tables(connection: Connection, names: Names) -> Sequence[LiveTable]:
    """Return the followed tables of the collection; an empty list if one of them is gone."""
    with contextlib.suppress(ConfigurationError):
        return await read_live_tables(connection, names)
    return ()


def _unknown(asked: Field, known: list[str], live: set[str]) -> str:
    """Return the warning about a field that no chunk has."""
    name = str(asked)
    own = COLUMNS.get(asked.path[-1], asked.path[-1])
    if len(asked.path) == 1 and asked.path[0] in live:
        remedy = f"; did you mean {Field((ROW, asked.path[0]), is_own=True)}, the live column of a followed table?"
    elif own in OWN and len(asked.path) == 1:
        remedy = f"; did you mean @{own}?"
    else:
        remedy = nearest(name, known) or f"; besides metadata, filters know {', '.join(f'@{one}' for one in OWN)}"
    return f"no chunk has the metadata field {name[:SHOWN_CHARACTERS]!r}{remedy}"
