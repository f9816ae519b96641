"""Options of searches: those of a call, and the defaults of a retriever for calls that do not give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypedDict

from semlex.options.declare import Option
from semlex.types.queries import DEFAULT_TOP_K, MAX_EXCLUDED, MAX_OVERSAMPLING, MAX_TERMS_BYTES, MAX_TOP_K, RouteBy
from semlex.types.results import SearchMode

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from semlex.filters.forms import Boosts, Filters

# Three arguments (fusion, weights, rrf_k), and not an object for each fusion: the command line needs them apart.
FusionMethod: TypeAlias = Literal["score", "rrf", "linear"]

# An older name of score fusion, which calls, settings and cursors may hold.
OLD_SCORE = "completed"

# With small rerankers, half, equal and double weight differ by less than .02 nDCG@10.
RERANK_WEIGHT = 0.5
RRF_K = 60.0  # Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion outperforms Condorcet …", SIGIR 2009
MAX_CANDIDATES = 10_000
MAX_EF_SEARCH = 1000  # pgvector's own bound
MAX_LISTS = 32_768  # likewise
# If fewer than this share of the chunks pass a filter, the exact answer is computed; else the vector index is used.
# 100,000 x 256 real texts, 30 rows: 1/30 exact 19 ms, index 19 ms with recall .95; 1/10 exact 44 ms, index 13 ms.
MIN_FILTER_SHARE = 0.08
MAX_FILTER_IDS = 20_000
# More rows than that are not compared exactly if the index can answer, which takes half a second to a second; nor are
# their places remembered, unless `max_filter_ids` is given.
MAX_FILTER_ROWS = 100_000
# Far below what the server's own time limits can hold.
MAX_DEADLINE_SECONDS = 1_000_000
# Chunks of all documents together, of a search that is grouped.
MAX_GROUPED = 10_000
DEFAULT_GROUP_SIZE = 3
# Candidates of each search, if all are wanted.
DEFAULT_DEPTH = 50
MAX_DEPTH = 500
# Of followed tables, brought with hits.
MAX_COLUMNS = 100
# Of facets: fields, values of each, and candidates that are counted.
MAX_FIELDS = 20
MAX_VALUES = 1000
DEFAULT_VALUES = 20
DEFAULT_COUNTED = 1000

Query: TypeAlias = Annotated[str, Option("A question or words, 1 character to 4 KiB after trimming.")]
TopK: TypeAlias = Annotated[
    int | None, Option(f"Number of results. Default: {DEFAULT_TOP_K}.", minimum=1, maximum=MAX_TOP_K)
]
FilterOption: TypeAlias = Annotated[
    "Filters | None", Option("Conditions that chunks must pass, such as lang == 'de' and year >= 2020.", form="filter")
]
Mode: TypeAlias = Annotated[
    SearchMode | None, Option("Which searches run. Default: hybrid, if the collection has vectors and keywords.")
]
Rerank: TypeAlias = Annotated[
    bool | None, Option("Whether a reranker orders the best hits. Default: if one is configured.")
]
Explain: TypeAlias = Annotated[
    bool, Option("Add the query plan and, for each hit, the words it shares with the query.")
]
Deadline: TypeAlias = Annotated[
    float | None,
    Option(
        "Seconds from the start of the call. A search that has not answered by then is left out of the result.",
        above=0,
        maximum=MAX_DEADLINE_SECONDS,
    ),
]
Fusion: TypeAlias = Annotated[
    FusionMethod | Literal["completed"] | None,
    Option(
        "How vector and keyword results become one ranking. Default: score, which adds the exact scores of "
        "both; its older name is completed."
    ),
]
Weights: TypeAlias = Annotated[
    Mapping[str, float] | None,
    Option(
        "Weights of 'vector' and 'keyword' search; for score fusion, their shares. Default: the embedding model's.",
        offered=False,
    ),
]
BoostOption: TypeAlias = Annotated[
    "Boosts | None",
    Option("Factors (above 0, up to 1,000) on the fused score of chunks that pass a filter.", form="boosts"),
]
Vector: TypeAlias = Annotated[
    "ArrayLike | None",
    Option("A query vector of your own, of shape (d,); the model is not used.", form="vector", offered=False),
]
RrfK: TypeAlias = Annotated[
    float | None, Option(f"Constant of reciprocal rank fusion. Default: {RRF_K:g}.", minimum=0, offered=False)
]
Exclude: TypeAlias = Annotated[
    Sequence[str] | None,
    Option(f"Words and phrases that no hit may contain, at most {MAX_EXCLUDED}.", form="texts", maximum=MAX_EXCLUDED),
]
MinSimilarity: TypeAlias = Annotated[
    float | None, Option("Minimum cosine similarity of a hit. The result may be empty.", minimum=-1, maximum=1)
]
RouteOption: TypeAlias = Annotated[
    RouteBy | Literal[False] | None,
    Option(
        "Choose candidates, reranking and grouping by the kind of question, which rules or the chat model decide.",
        form="choice",
    ),
]
Terms: TypeAlias = Annotated[
    str | Sequence[str] | None,
    Option(
        f"Words that the documents themselves would use, searched together with the question: a text or a list, "
        f"up to {MAX_TERMS_BYTES:,} bytes.",
        form="words",
    ),
]
RewriteOption: TypeAlias = Annotated[
    bool | None, Option("Let the chat model write search terms for the question, unless terms are given.")
]
Candidates: TypeAlias = Annotated[
    int | None,
    Option(
        "Candidates of each search. Default: 3 x top_k, at least 30; 4 x top_k before a reranker.",
        minimum=1,
        maximum=MAX_CANDIDATES,
    ),
]


class Tuning(TypedDict, total=False):
    """Options of how many candidates a search examines. The defaults suit most collections."""

    candidates: Candidates
    ef_search: Annotated[
        int | None,
        Option(
            "Size of the HNSW index's own candidate list. Default: 120 up to 100,000 vectors, longer for more vectors "
            "and with a filter; at least one more than candidates.",
            minimum=1,
            maximum=MAX_EF_SEARCH,
            offered=False,
        ),
    ]
    probes: Annotated[
        int | None,
        Option(
            "Lists of an IVFFlat index to search. Default: as set when the index was built.",
            minimum=1,
            maximum=MAX_LISTS,
            offered=False,
        ),
    ]
    max_filter_ids: Annotated[
        int | None,
        Option(
            "If a filter matches at most this many chunks, their ids are read once and used by both searches. "
            f"Default: {MAX_FILTER_IDS:,}.",
            minimum=0,
            maximum=1_000_000,
            offered=False,
        ),
    ]
    min_filter_share: Annotated[
        float | None,
        Option(
            "The vector index is used if at least this share of the chunks passes the filter; else the search is "
            f"exact. Default: {MIN_FILTER_SHARE:g}, or less if this share is more than {MAX_FILTER_ROWS:,} chunks.",
            minimum=0,
            maximum=1,
            offered=False,
        ),
    ]


class RankingOptions(TypedDict, total=False):
    """Options of every search: how hits are found, ordered and kept."""

    fusion: Fusion
    weights: Weights
    rrf_k: RrfK
    boost: BoostOption
    exclude: Exclude
    min_similarity: MinSimilarity
    min_rerank: Annotated[
        float | None, Option("Minimum score by the reranker (most give 0 to 1). The result may be empty.")
    ]
    rerank_weight: Annotated[
        float | None,
        Option(
            "Share of the reranker in the order of reranked hits: 0 (the fusion alone) to 1 (the reranker alone). "
            f"Default: {RERANK_WEIGHT:g}.",
            minimum=0,
            maximum=1,
        ),
    ]
    tuning: Annotated[Tuning | None, Option("How many candidates each search examines, and when it is exact.")]


class QuestionOptions(RankingOptions, total=False):
    """Options of a search for one question."""

    vector: Vector
    deadline: Deadline
    route: RouteOption
    terms: Terms
    rewrite: RewriteOption


class SearchOptions(QuestionOptions, total=False):
    """Options of `Collection.search`."""

    max_results: Annotated[
        int | None,
        Option(
            "Find up to this many hits and return them in pages of top_k. Each result has a cursor for the next page.",
            minimum=1,
            maximum=MAX_TOP_K,
        ),
    ]
    group_by: Annotated[Literal["document"] | None, Option("Return the best top_k documents instead of chunks.")]
    group_size: Annotated[
        int | None,
        Option(
            f"Maximum number of chunks per document, if grouped. Default: {DEFAULT_GROUP_SIZE}.",
            minimum=1,
            maximum=MAX_GROUPED,
        ),
    ]
    columns: Annotated[
        Sequence[str] | None,
        Option(
            f"Columns of a followed table to return with the hits, as they are now; at most {MAX_COLUMNS}. Hits "
            "whose row is gone are left out.",
            form="texts",
            maximum=MAX_COLUMNS,
        ),
    ]


class SearchArguments(SearchOptions, total=False):
    """All arguments of a search."""

    query: Query
    queries: Annotated[list[str], Option("Questions, up to 1,000 (100 over HTTP).", form="texts")]
    top_k: TopK
    filters: FilterOption
    mode: Mode
    rerank: Rerank
    explain: Explain


class PageArguments(TypedDict, total=False):
    """All arguments of `Collection.search_page`."""

    cursor: Annotated[str, Option("`next_cursor` of the previous page.")]
    filters: FilterOption
    deadline: Deadline


class WhyArguments(TypedDict, total=False):
    """Arguments of `Collection.why`, in addition to those of the search that is explained."""

    document: Annotated[str, Option("Path of a document, with or without its source and a line, or the id of a chunk.")]
    question: Query


class CandidateOptions(TypedDict, total=False):
    """Options of `Collection.candidates`."""

    weights: Weights
    boost: BoostOption
    deadline: Deadline


class CandidateArguments(CandidateOptions, total=False):
    """All arguments of `Collection.candidates`."""

    query: Query
    depth: Annotated[int, Option(f"Candidates of each search. Default: {DEFAULT_DEPTH}.", minimum=1, maximum=MAX_DEPTH)]
    filters: FilterOption


class FacetOptions(TypedDict, total=False):
    """Options of `Fields.facets`."""

    vector: Vector
    mode: Mode
    candidates: Annotated[
        int,
        Option(
            f"Candidates of each search that are counted. Default: {DEFAULT_COUNTED:,}.",
            minimum=1,
            maximum=MAX_CANDIDATES,
        ),
    ]
    limit: Annotated[
        int, Option(f"Maximum number of values per field. Default: {DEFAULT_VALUES}.", minimum=1, maximum=MAX_VALUES)
    ]


class FacetArguments(FacetOptions, total=False):
    """All arguments of `Fields.facets`."""

    fields: Annotated[
        list[str], Option(f"1 to {MAX_FIELDS} fields as in filters: year, author.name, @source.", form="texts")
    ]
    filters: FilterOption
    query: Annotated[str | None, Option("Count among the candidates of a question instead of all chunks.")]


class SearchDefaults(TypedDict, total=False):
    """Options that searches use if their call does not give them.

    `min_similarity` is ignored, with a warning in the results, if the call asks for mode ``keyword``, for pages
    (`max_results`), or for a fusion that computes no cosines.
    """

    top_k: TopK
    mode: Mode
    fusion: Fusion
    hybrid_weight: Annotated[
        float | None,
        Option(
            "Share of the vector search, 0 (words alone) to 1 (vectors alone). Default: the embedding model's.",
            minimum=0,
            maximum=1,
        ),
    ]
    rrf_k: RrfK
    oversampling: Annotated[
        float | None, Option("Candidates of each search, as a multiple of top_k.", minimum=1, maximum=MAX_OVERSAMPLING)
    ]
    min_similarity: MinSimilarity
    route: Annotated[RouteBy | None, Option("As the search option of this name.")]
    rewrite: Annotated[bool | None, Option("As the search option of this name, if a chat model is configured.")]
