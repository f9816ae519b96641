"""Filters: a mapping of equalities and containments, as bound SQL.

Names of chunk columns (``source_document``, ``chapter_title``, ``section_title``, ``chunk_type``, ``parent_chunk_id``)
compare that column with one text; every other name is a key of the chunk's metadata, whose value must contain the given
one (JSONB ``@>``): equal for a scalar, a superset for a list or a mapping. All conditions must hold.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex import _core
from semlex.errors import FieldError, ValidationError
from semlex.types.documents import MAX_METADATA_DEPTH

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.names import Names

logger = logging.getLogger("semlex")

COLUMNS = ("source_document", "chapter_title", "section_title", "chunk_type", "parent_chunk_id")
MAX_FILTER_BYTES = 64 * 1024
SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class OneOf:
    """Values of a metadata field of which any may be contained."""

    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition over a chunk row with the alias ``c``.

    Attributes:
        conditions: All of them must hold; none means that nothing is filtered.
        parameters: Their bound values.
        fields: Names of the metadata fields that they look at.
        ids: Ids in the keyword index of the chunks that pass, ascending, int64; None where they were not read.
        share: About which share of the chunks passes, 0 to 1; None where nothing is known of it.
    """

    conditions: tuple[sql.Composable, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    fields: tuple[str, ...] = ()
    ids: NDArray[np.int64] | None = None
    share: float | None = None

    @property
    def key(self) -> Hashable:
        """Equal for equal conditions."""
        return repr((self.conditions, self.parameters))

    def selecting(self, ids: NDArray[np.int64]) -> Filter:
        """The same filter as a list of ids, which holds in one snapshot only."""
        # As text: that costs the driver less than a list of numbers.
        array = "{" + ",".join(map(str, ids.tolist())) + "}"
        condition = sql.SQL("c.keyword_id = ANY(%(selected)s::bigint[])")
        return Filter((condition,), {"selected": array}, self.fields, ids, self.share)

    @property
    def expression(self) -> sql.Composable:
        """The condition; TRUE when nothing is filtered."""
        if self.is_empty:
            return sql.SQL("TRUE")
        return sql.SQL("(") + sql.SQL(" AND ").join(self.conditions) + sql.SQL(")")

    @property
    def is_empty(self) -> bool:
        """Whether every chunk passes."""
        return not self.conditions


def parse_filters(filters: Mapping[str, Any] | None) -> Filter:
    """Checks a filter mapping and turns it into SQL; keys and values are bound, never composed.

    Args:
        filters: Field name -> value.

    Raises:
        ValidationError: No mapping, a key that is no text, a value that is no JSON, a column that is compared with
            something else than one text, or an operator such as ``$gt``.
    """
    if filters is None:
        return Filter()
    if not isinstance(filters, Mapping):
        limit = "a mapping of field names to values, such as {'source_document': 'a.md'}"
        raise ValidationError([FieldError(-1, None, "filters", "wrong_type", limit, type(filters).__name__)])
    asked = dict(filters)
    plain = {key: list(value.values) if isinstance(value, OneOf) else value for key, value in asked.items()}
    limits = {"max_bytes": MAX_FILTER_BYTES, "max_depth": MAX_METADATA_DEPTH}
    found = _core.validate_rows([("filters", "jsonb", [plain], limits)], None)
    errors = [FieldError(-1, None, *error[2:]) for error in found] or list(_unusable(plain))
    if errors:
        raise ValidationError(errors)
    conditions: list[sql.Composable] = []
    parameters: dict[str, Any] = {}
    contained: dict[str, Any] = {}

    def contains(value: object) -> sql.Composable:
        name = f"filter_{len(parameters)}"
        parameters[name] = _core.to_json(value).decode()
        return sql.SQL("c.metadata @> {}::jsonb").format(sql.Placeholder(name))

    for key, value in asked.items():
        if key in COLUMNS:
            parameters[f"filter_{key}"] = value
            conditions.append(sql.SQL("c.{} = {}").format(sql.Identifier(key), sql.Placeholder(f"filter_{key}")))
        elif isinstance(value, OneOf):
            either = sql.SQL(" OR ").join(contains({key: one}) for one in value.values)
            conditions.append(sql.SQL("({})").format(either))
        else:
            contained[key] = value
    if contained:
        conditions.append(contains(contained))
    return Filter(tuple(conditions), parameters, tuple(key for key in asked if key not in COLUMNS))


def _unusable(filters: Mapping[str, Any]) -> Iterator[FieldError]:
    """What would be taken for something else than what was meant."""
    for key, value in filters.items():
        place = f"filters[{key[:SHOWN_CHARACTERS]!r}]"
        if key.startswith("$"):
            limit = "the name of a field: filters know equality only, and all of them must hold"
            yield FieldError(-1, None, place, "wrong_type", limit, "operator")
        elif key in COLUMNS and not isinstance(value, str):
            limit = "one text to be equal to (for several, search once for each)"
            yield FieldError(-1, None, place, "wrong_type", limit, type(value).__name__)
        elif operator := _operator_in(value):
            limit = "a value to be equal to, or a list or mapping to be contained: filters know no operators"
            shown = operator[:SHOWN_CHARACTERS]
            yield FieldError(-1, None, place, "wrong_type", limit, f"the operator {shown!r}")


def _operator_in(value: object) -> str | None:
    """The first key that looks like an operator of other stores' filters."""
    if isinstance(value, Mapping):
        inner = (_operator_in(one) for one in value.values())
        return next((key for key in value if key.startswith("$")), None) or next(filter(None, inner), None)
    if isinstance(value, (list, tuple)):
        return next(filter(None, map(_operator_in, value)), None)
    return None


def value_from_text(text: str) -> str | OneOf:
    """What a value of the command line stands for, where nobody can say whether a number or its text is meant.

    Returns:
        The text, and beside it the number or truth value that it is in JSON.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(value, (bool, int, float)) or (isinstance(value, float) and not math.isfinite(value)):
        return text
    return OneOf((text, value))


async def unknown_fields(connection: Connection, names: Names, condition: Filter) -> list[str]:
    """Sentences about metadata fields that a filter looks at and no chunk has; none for a collection without chunks.

    Args:
        connection: In a transaction; every chunk may have to be looked at.
        names: The collection's.
        condition: Of the search that found nothing.
    """
    statement = sql.SQL(
        "SELECT field FROM unnest(%(fields)s::text[]) AS field WHERE EXISTS (SELECT FROM {chunk}) "
        "AND NOT EXISTS (SELECT FROM {chunk} AS c WHERE c.metadata ? field)"
    ).format(chunk=names.chunk)
    cursor = await connection.execute(statement, {"fields": list(condition.fields)})
    return [_unknown(name) for (name,) in await cursor.fetchall()]


async def log_unknown_fields(connection: Connection, names: Names, condition: Filter) -> None:
    """Logs what `unknown_fields` tells."""
    for told in await unknown_fields(connection, names, condition):
        logger.warning("%s", told)


def _unknown(name: str) -> str:
    near = get_close_matches(name, COLUMNS, n=1, cutoff=0.5)
    remedy = f"did you mean {near[0]}?" if near else f"beside metadata, filters know {_listed(COLUMNS)}"
    return f"no chunk has the metadata field {name[:SHOWN_CHARACTERS]!r}; {remedy}"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
