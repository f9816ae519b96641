"""Boosts: factors on the scores of chunks that pass a filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from psycopg import sql

from semlex.errors import FieldError, ValidationError
from semlex.store.query.filters import Filter, parse_filters
from semlex.store.query.leg import Statement, key_arrays
from semlex.store.query.run import fetch
from semlex.validation import number_errors, refuse, wrong_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semlex.filters.forms import Boosts
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.leg import Key
    from semlex.store.schema.names import Names

MAX_BOOSTS = 100
MAX_FACTOR = 1000
# Of several factors together, so that no score leaves the finite numbers.
MAX_PRODUCT = 1e100
_PAIR = 2


@dataclass(frozen=True, slots=True)
class Boost:
    """What is multiplied, and by what.

    Attributes:
        condition: Of the chunks that are meant.
        factor: Above 0, at most 1,000; below 1 it moves chunks down.
    """

    condition: Filter
    factor: float


def parse_boosts(boost: Boosts | None, names: Names) -> tuple[Boost, ...]:
    """Checks boosts."""
    if boost is None:
        return ()
    if isinstance(boost, (str, bytes)) or not isinstance(boost, (Mapping, Sequence)):
        raise ValidationError(wrong_type("boost", "a mapping of filters to factors, or a list of such pairs", boost))
    pairs = list(boost.items()) if isinstance(boost, Mapping) else list(boost)
    if len(pairs) > MAX_BOOSTS:
        raise ValidationError(refuse("boost", "too_long", f"{MAX_BOOSTS} boosts", f"{len(pairs)} boosts"))
    made: list[Boost] = []
    errors: list[FieldError] = []
    for number, pair in enumerate(pairs):
        place = f"boost[{number}]"
        if not isinstance(pair, (tuple, list)) or len(pair) != _PAIR:
            errors += wrong_type(place, "a pair of a filter and a factor", pair)
            continue
        filters, factor = pair
        errors += number_errors(place, factor, 0, MAX_FACTOR) or ([] if factor else _no_factor(place))
        try:
            condition = parse_filters(filters, names, place=place, prefix=f"boost_{number}")
        except ValidationError as error:
            errors += error.errors
            continue
        if condition.is_empty:
            errors += wrong_type(place, "a filter with a condition", filters)
        made.append(Boost(condition, factor))
    if errors:
        raise ValidationError(errors)
    return tuple(made)


def _no_factor(place: str) -> list[FieldError]:
    return refuse(place, "wrong_type", "a factor above 0", "0")


async def boost_factors(
    snapshot: Snapshot, names: Names, keys: Sequence[Key], boosts: Sequence[Boost]
) -> NDArray[np.float64]:
    """The product of the factors that each of some chunks has: float64, shape (n,); one statement for all."""
    text = sql.SQL(
        "SELECT {matches} FROM unnest(%(document_ids)s::uuid[], %(chunk_ids)s::text[]) "
        "WITH ORDINALITY AS k(document_id, chunk_id, number) "
        "LEFT JOIN {chunk} AS c USING (document_id, chunk_id) ORDER BY k.number"
    ).format(
        matches=sql.SQL(", ").join(sql.SQL("{} IS TRUE").format(boost.condition.expression) for boost in boosts),
        chunk=names.chunk,
    )
    parameters = {name: value for boost in boosts for name, value in boost.condition.parameters.items()}
    rows = await fetch(snapshot, Statement(text, parameters | key_arrays(keys)))
    matches = np.array(rows, dtype=bool).reshape(len(keys), len(boosts))
    products = np.where(matches, [float(boost.factor) for boost in boosts], 1.0).prod(axis=1)
    bounded: NDArray[np.float64] = np.clip(products, 1 / MAX_PRODUCT, MAX_PRODUCT)
    return bounded
