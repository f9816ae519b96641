"""Many searches in one call: their requests, checked together, and how many there may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from semlex.errors import FieldError, ValidationError
from semlex.search.planner import rows_wanted
from semlex.search.request import Request
from semlex.types.queries import SearchQuery
from semlex.validation import refuse, wrong_type

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_QUERIES = 1000
# Rows of all queries together: they are in memory at the same time.
MAX_ROWS = 50_000


def requests_of(queries: Iterable[str | SearchQuery], **options: Any) -> list[Request]:
    """The requests of many queries that have the same options.

    Args:
        queries: As many calls of a search would get them.
        options: As `Request.checked`.

    Raises:
        ValidationError: With every query that is refused, or there are too many.
        ConfigurationError: An option is refused.
    """
    if isinstance(queries, (str, bytes, Mapping, SearchQuery)) or not isinstance(queries, Iterable):
        raise ValidationError(wrong_type("queries", "list of str", queries))
    Request.checked(query="any", vector=None, deadline=None, **options)  # an option that is wrong is told once
    requests: list[Request] = []
    errors: list[FieldError] = []
    for row, query in enumerate(queries):
        if row == MAX_QUERIES:
            raise ValidationError(refuse("queries", "too_long", f"{MAX_QUERIES} queries", "more"))
        try:
            if query is None:
                raise ValidationError(wrong_type("query", "str", query))  # noqa: TRY301 (told with its row)
            requests.append(Request.checked(query=query, vector=None, deadline=None, **options))
        except ValidationError as error:
            errors += [replace(one, row=row) for one in error.errors]
    if errors:
        raise ValidationError(errors)
    return requests


def check_rows_wanted(requests: Sequence[Request], *, reranks: bool) -> None:
    """Refuses queries that together would load too much.

    Raises:
        ValidationError: They would.
    """
    rows = sum(rows_wanted(request, reranks=reranks) for request in requests)
    if rows > MAX_ROWS:
        limit = f"{MAX_ROWS} rows for all queries together; use a smaller top_k, or fewer queries a call"
        raise ValidationError(refuse("top_k", "out_of_range", limit, str(rows)))
