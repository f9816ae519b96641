"""Queries, their terms, and the kinds of questions. This module does no I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast

from semlex.errors import FieldError, ValidationError
from semlex.types.documents import utc_now
from semlex.validation import Errors, strings_errors, text_errors, time_errors, vector_of, whole_number_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from semlex.filters.forms import Filters


# A query of one character is legitimate ("C"); the upper bounds keep one call from occupying the server.
MAX_QUERY_BYTES = 4096
MAX_TERMS_BYTES = 1024
# For a language model that calls a tool.
TERMS_TO_WRITE = (
    "3 to 8 words or phrases that the documents themselves would use in the passage that answers: words of its "
    "heading, technical words, names, synonyms."
)
MAX_EXCLUDED = 64
MAX_TOP_K = 1000
MAX_OVERSAMPLING = 100
# Minimum of options that are shares (of a section's chunks, of a hit's words): everything reaches a share of 0.
MIN_SHARE = 0.01
DEFAULT_TOP_K = 5


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A checked query: a text, a vector, or both.

    Attributes:
        query_text: 1 character to 4 KiB after trimming.
        query_embedding: Numbers (a list or an array), as many as the collection's dimension.
        top_k: Number of results, 1 to 1,000.
        filters: A mapping, a text, or a filter made with `F`; see docs/reference/filters.md.
        terms: Words that the documents themselves would use, searched together with the text: a text or a list.

    Raises:
        ValidationError: With every rule that is broken.
    """

    query_text: str | None = None
    query_embedding: tuple[float, ...] | None = None
    top_k: int = DEFAULT_TOP_K
    filters: Filters | None = None
    timestamp: datetime = field(default_factory=utc_now)
    terms: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        errors = []
        if self.query_text is None and self.query_embedding is None:
            errors.append(FieldError(-1, None, "query", "missing", "a text or a vector"))
        if self.query_text is not None:
            # What is searched is trimmed.
            text = self.query_text.strip() if isinstance(self.query_text, str) else self.query_text
            errors += text_errors("query", text, max_bytes=MAX_QUERY_BYTES, blank=False)
        if self.query_embedding is not None:
            embedding, faults = vector_of("vector", self.query_embedding)
            object.__setattr__(self, "query_embedding", embedding)
            errors += faults
        errors += whole_number_errors("top_k", self.top_k, 1, MAX_TOP_K)
        from semlex.filters.forms import filter_tree  # noqa: PLC0415 - the bounds above are for programs without filters

        try:
            filter_tree(self.filters)
        except ValidationError as error:
            errors += error.errors
        errors += time_errors("timestamp", self.timestamp)
        errors += terms_errors(self.terms)
        if errors:
            raise ValidationError(errors)


# In a query, dashes exclude words and quotes require them; a question mark may turn both off.
_MARKS = re.compile('["\u201c-\u201f\u00ab\u00bb?\uff1f\u061f]|(?<!\\w)[-\u2010-\u2015\u2212]+')


def terms_errors(terms: object) -> Errors:
    """Return what is wrong with terms, which may be None, a text or a list of texts."""
    if terms is None or isinstance(terms, str):
        return [] if terms is None else text_errors("terms", terms, max_bytes=MAX_TERMS_BYTES)
    found = strings_errors("terms", terms)
    return found or text_errors("terms", " ".join(cast("Iterable[str]", terms)), max_bytes=MAX_TERMS_BYTES)


def words_of_terms(terms: str | Iterable[str] | None) -> str:
    """Return terms as plain words, without dashes and quotes, which would exclude or require words."""
    text = terms if isinstance(terms, str) else " ".join(terms or ())
    return " ".join(_MARKS.sub(" ", text).split())


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Search terms that the language model `model` wrote for a question; if it wrote none, `warning` says why."""

    terms: tuple[str, ...] = ()
    model: str | None = None
    warning: str | None = None


RouteKind = Literal["factual", "analytical", "exploratory"]
RouteBy = Literal["rules", "chat"]


@dataclass(frozen=True, slots=True)
class Route:
    """The kind of a question, and why it was chosen; ``str()`` gives a line for people.

    Attributes:
        kind: ``factual``: one place answers it. ``analytical``: several places together do. ``exploratory``: everything
            on a subject is wanted.
        by: What chose the kind: ``rules``, or ``chat`` for the language model.
        warning: Why the rules decided instead of the language model, or None.
    """

    kind: RouteKind
    by: RouteBy
    reason: str
    warning: str | None = None

    def __str__(self) -> str:
        return f"{self.kind}, by {'rules' if self.by == 'rules' else 'the language model'}: {self.reason}"
