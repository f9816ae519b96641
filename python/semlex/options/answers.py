"""Options of contexts and answers: what is added around hits, and when no answer is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypeAlias, TypedDict

from semlex.options.declare import Option
from semlex.options.search import (
    Exclude,
    FilterOption,
    Mode,
    QuestionOptions,
    Rerank,
    RewriteOption,
    RouteOption,
    Terms,
)
from semlex.types.queries import MIN_SHARE

ContextOrder: TypeAlias = Literal["score", "document"]
"""``score``: passages in the order of their best hits; ``document``: by document, in the order of its text."""

Count: TypeAlias = Callable[[str], int]
"""Counts the tokens of a text."""

MAX_TOKENS = 10_000_000
MAX_NEIGHBOURS = 100
# Hits of a context; near-duplicates are looked for by comparing each with each.
MAX_HITS = 200
DEFAULT_TOKENS = 4000
DEFAULT_HITS = 20
DEFAULT_NEIGHBOURS = 1
DEFAULT_SECTIONS = 0.5
DEFAULT_NEAR_DUPLICATES = 0.9

Question: TypeAlias = Annotated[str, Option("A question, 1 character to 4 KiB after trimming.")]
Tokens: TypeAlias = Annotated[int, Option("Maximum number of tokens of the whole text.", minimum=1, maximum=MAX_TOKENS)]
Hits: TypeAlias = Annotated[int, Option("Number of hits from which passages are made.", minimum=1, maximum=MAX_HITS)]


class ContextOptions(QuestionOptions, total=False):
    """Options of `Collection.context`."""

    top_k: Hits
    neighbours: Annotated[int, Option("Chunks before and after each hit to add.", minimum=0, maximum=MAX_NEIGHBOURS)]
    sections: Annotated[
        float | None,
        Option("Add a whole section if at least this share of its chunks are hits.", minimum=MIN_SHARE, maximum=1),
    ]
    parents: Annotated[bool, Option("Add the chunk that a hit names as its parent.")]
    per_document: Annotated[int | None, Option("Maximum number of hits per document.", minimum=1, maximum=MAX_HITS)]
    near_duplicates: Annotated[
        float | None,
        Option(
            "Leave out a hit if at least this share of its five-word sequences is in a better one.",
            minimum=MIN_SHARE,
            maximum=1,
        ),
    ]
    diversity: Annotated[
        float | None,
        Option(
            "How much a hit gains by differing from better ones (maximal marginal relevance).", minimum=0, maximum=1
        ),
    ]
    order: Annotated[ContextOrder, Option("Order of the passages.")]
    count: Annotated[
        Count | None, Option("Function that counts tokens for another model.", form="object", offered=False)
    ]


class AnswerOptions(TypedDict, total=False):
    """Options of `Collection.answer`."""

    top_k: Hits
    filters: FilterOption
    mode: Mode
    rerank: Rerank
    exclude: Exclude
    route: RouteOption
    terms: Terms
    rewrite: RewriteOption
    min_coverage: Annotated[
        float | None,
        Option(
            "Refuse to answer if the hits contain a smaller share of the question's words than this and do not reach "
            "min_similarity (if given); 0: never. Default: refuse if the documents probably hold no answer.",
            minimum=0,
            maximum=1,
        ),
    ]
    min_similarity: Annotated[
        float | None,
        Option(
            "Refuse to answer if the best hit's similarity is below this and the hits do not reach min_coverage "
            "(if given); 0: never.",
            minimum=0,
            maximum=1,
        ),
    ]


class ContextArguments(ContextOptions, total=False):
    """All arguments of `Collection.context`."""

    question: Question
    tokens: Tokens
    filters: FilterOption
    mode: Mode
    rerank: Rerank


class AnswerArguments(AnswerOptions, total=False):
    """All arguments of `Collection.answer`."""

    question: Question
    tokens: Tokens
