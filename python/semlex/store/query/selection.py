"""Estimate the share of chunks that pass a filter, and apply boosts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from psycopg import sql

from semlex.clock import SYSTEM, Clock
from semlex.errors import FieldError, ValidationError
from semlex.store.query.filters import Filter, parse_filters, with_rows
from semlex.store.query.leg import NUMBERED_KEYS, Key, Statement, key_arrays
from semlex.store.query.run import fetch
from semlex.store.schema.names import Names, oid_of, stored_in
from semlex.validation import number_errors, refuse, wrong_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semlex.filters.forms import Boosts
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.schema.collection import CollectionInfo


# Chunks of a sample: the standard deviation of a share of 5 % is then 0.5 %.
SAMPLE_CHUNKS = 2_000
# Chunks on a page, while the server has not counted them.
CHUNKS_A_PAGE = 5
REMEMBERED_SECONDS = 60.0
REMEMBERED_FILTERS = 256


# The server's own estimate of a filter on JSON is mostly a constant, so a sample of the table's pages is read instead.
# The estimate is remembered for a minute: it decides how chunks are searched, never which are found.
class RememberedShares:
    """Remembers for a minute, for each of the filters used last, which share of the chunks passes."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._shares: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def get(self, condition: Filter) -> float | None:
        """Return the remembered share of a filter, 0 to 1; None if it is missing or too old."""
        taken, share = self._shares.get(condition.key, (0.0, None))
        return share if self._clock.monotonic() - taken < REMEMBERED_SECONDS else None

    def put(self, condition: Filter, share: float) -> None:
        """Keep the measured share of a filter."""
        self._shares.pop(condition.key, None)
        self._shares[condition.key] = (self._clock.monotonic(), share)
        if len(self._shares) > REMEMBERED_FILTERS:
            self._shares.popitem(last=False)


def sampled_chunks(names: Names, chunks: int) -> sql.Composable:
    """Return SQL for FROM: about `chunks` chunks (alias ``c``) on pages chosen at random, the same ones every time."""
    return sql.SQL(
        "{chunk} AS c TABLESAMPLE SYSTEM (("
        "SELECT least(100, 100.0 * {chunks} / greatest(1, sum(pg_relation_size(l.oid)) / 8192 * "
        "coalesce(sum(l.reltuples) FILTER (WHERE l.reltuples > 0) / nullif(sum(l.relpages), 0), {density}))) "
        "FROM {stored})) REPEATABLE (0)"
    ).format(
        chunk=names.chunk,
        chunks=sql.Literal(chunks),
        density=sql.Literal(CHUNKS_A_PAGE),
        stored=stored_in(oid_of(names.chunk)),
    )


async def sampled_share(snapshot: Snapshot, collection: CollectionInfo, condition: Filter) -> float:
    """Return the share of chunks that pass, in a fixed sample of about 2,000; 1 for an empty collection."""
    text = sql.SQL("SELECT count(*) FILTER (WHERE {condition}), count(*) FROM {sampled}").format(
        condition=condition.expression, sampled=sampled_chunks(collection.names, SAMPLE_CHUNKS)
    )
    ((passing, chunks),) = await fetch(snapshot, Statement(text, condition.parameters))
    return float(passing / chunks) if chunks else 1.0


MAX_BOOSTS = 100
MAX_FACTOR = 1000
# Of several factors together, so that no score leaves the finite numbers.
MAX_PRODUCT = 1e100
_PAIR = 2


@dataclass(frozen=True, slots=True)
class Boost:
    """A factor on the scores of chunks that meet a condition."""

    condition: Filter
    factor: float  # above 0, at most 1,000; below 1 it moves chunks down


def parse_boosts(boost: Boosts | None, names: Names) -> tuple[Boost, ...]:
    """Check boosts and turn their filters into SQL."""
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
        errors += number_errors(place, factor, above=0, maximum=MAX_FACTOR)
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


async def boost_factors(
    snapshot: Snapshot, names: Names, keys: Sequence[Key], boosts: Sequence[Boost]
) -> NDArray[np.float64]:
    """Return for each chunk the product of the factors whose filter it passes: float64, shape (n,)."""
    boosts = [
        replace(boost, condition=await with_rows(snapshot.connection, names, boost.condition)) for boost in boosts
    ]
    columns = sql.SQL(", ").join(sql.SQL("{} IS TRUE").format(boost.condition.expression) for boost in boosts)
    text = sql.SQL("SELECT {} FROM {} LEFT JOIN {} AS c USING (document_id, chunk_id) ORDER BY k.number").format(
        columns, NUMBERED_KEYS, names.chunk
    )
    parameters = {name: value for boost in boosts for name, value in boost.condition.parameters.items()}
    rows = await fetch(snapshot, Statement(text, parameters | key_arrays(keys)))
    matches = np.array(rows, dtype=bool).reshape(len(keys), len(boosts))
    products = np.where(matches, [float(boost.factor) for boost in boosts], 1.0).prod(axis=1)
    bounded: NDArray[np.float64] = np.clip(products, 1 / MAX_PRODUCT, MAX_PRODUCT)
    return bounded
