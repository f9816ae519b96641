"""Filters: a mapping of equalities and containments, as bound SQL.

Names of chunk columns (``source_document``, ``chapter_title``, ``section_title``, ``chunk_type``, ``parent_chunk_id``)
compare that column; every other name is a key of the chunk's metadata, whose value must contain the given one (JSONB
``@>``): equal for a scalar, a superset for a list or a mapping. All conditions must hold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex import _core
from semlex.errors import FieldError, ValidationError
from semlex.types import MAX_METADATA_DEPTH

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS = ("source_document", "chapter_title", "section_title", "chunk_type", "parent_chunk_id")
MAX_FILTER_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition over a chunk row with the alias ``c``.

    Attributes:
        expression: The condition; TRUE when nothing is filtered.
        parameters: Its bound values.
    """

    expression: sql.Composable = field(default_factory=lambda: sql.SQL("TRUE"))
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether every chunk passes."""
        return not self.parameters


def parse_filters(filters: Mapping[str, Any] | None) -> Filter:
    """Checks a filter mapping and turns it into SQL; keys and values are bound, never composed.

    Args:
        filters: Field name -> value.

    Raises:
        ValidationError: A key that is no text, or a value that is no JSON.
    """
    if not filters:
        return Filter()
    limits = {"max_bytes": MAX_FILTER_BYTES, "max_depth": MAX_METADATA_DEPTH}
    found = _core.validate_rows([("filters", "jsonb", [dict(filters)], limits)], None)
    if found:
        raise ValidationError([FieldError(-1, None, *error[2:]) for error in found])
    conditions: list[sql.Composable] = []
    parameters: dict[str, Any] = {}
    contained: dict[str, Any] = {}
    for key, value in filters.items():
        if key in COLUMNS and isinstance(value, str):
            parameters[f"filter_{key}"] = value
            conditions.append(sql.SQL("c.{} = {}").format(sql.Identifier(key), sql.Placeholder(f"filter_{key}")))
        else:
            contained[key] = value
    if contained:
        parameters["filter_metadata"] = _core.to_json(contained).decode()
        conditions.append(sql.SQL("c.metadata @> %(filter_metadata)s::jsonb"))
    return Filter(sql.SQL("(") + sql.SQL(" AND ").join(conditions) + sql.SQL(")"), parameters)
