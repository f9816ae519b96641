"""What requests hold, with their limits: what is allowed here is not refused by a rule about one value later."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from semlex.options.answers import DEFAULT_HITS, DEFAULT_TOKENS, MAX_HITS, MAX_NEIGHBOURS, MAX_TOKENS
from semlex.options.search import MAX_CANDIDATES, MAX_DEADLINE_SECONDS, MAX_GROUPED
from semlex.retriever.parts.explaining import DEFAULT_DEPTH, MAX_DEPTH
from semlex.search.facets import MAX_FIELDS, MAX_VALUES
from semlex.store.query.selection import MAX_BOOSTS
from semlex.types.answers import MIN_COVERAGE, MIN_SIMILARITY
from semlex.types.documents import MAX_CHUNK_BYTES, MAX_ID_BYTES, StoredChunk
from semlex.types.queries import MAX_QUERY_BYTES, MAX_TOP_K
from semlex.types.reports import DEFAULT_ATTEMPTS, MAX_ATTEMPTS, MAX_PRIORITY
from semlex.types.results import SearchResult

MAX_MANY = 100
MAX_DOCUMENTS = 1_000
MAX_IDS = 1_000
MAX_PATHS = 100
MAX_DIMENSIONS = 16_000
MAX_CURSOR = 1_000_000
MAX_PATH = 4096
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
# A row of the job table is found by it.
JOB_ID = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"


def _whole(value: Any) -> Any:
    """JSON has one kind of numbers: 5.0 is a whole one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _iso_text(value: Any) -> Any:
    """Refuse numbers, also those in a text, which would be read as seconds since 1970."""
    if not isinstance(value, str) or not DATE.match(value):
        raise ValueError("must be a time as text in ISO 8601, such as 2026-01-31T12:00:00Z")
    return value


@dataclass(frozen=True, slots=True)
class Between:
    """A whole number and its bounds.

    Attributes:
        least: The least.
        most: The greatest.
    """

    least: int
    most: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """A whole number of JSON within the bounds."""
        del source, handler
        bounded = core_schema.int_schema(ge=self.least, le=self.most, strict=True)
        return core_schema.no_info_before_validator_function(_whole, bounded)


Name = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,47}$", description="Name of a collection.")]


@dataclass(frozen=True, slots=True)
class Text:
    """Rules of a text that a schema cannot say: `format` names them, their meaning stands in the description.

    Attributes:
        most: Bytes of UTF-8.
        format: Name of the rules.
        description: For people.
    """

    most: int
    format: str
    description: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The rules that a schema can say."""
        del source, handler
        return core_schema.str_schema(min_length=1, max_length=self.most)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The same with the name of the others."""
        return {**handler(schema), "format": self.format, "description": self.description}


Question = Annotated[
    str, Text(MAX_QUERY_BYTES, "question", "A question or words: at most 4,096 bytes of UTF-8, not blank, without NUL.")
]
Id = Annotated[str, Text(MAX_ID_BYTES, "id", "An id: at most 512 bytes of UTF-8, without NUL.")]
DocumentName = Annotated[
    str,
    Text(
        MAX_PATH,
        "document",
        "Id of a chunk or of an added document, or a path as lists show it; a line may follow, as keys.md:9.",
    ),
]
FilterText = Annotated[str, Text(MAX_CURSOR, "filter", "A filter as text, such as \"year >= 2020 and lang == 'de'\".")]
Cursor = Annotated[str, Text(MAX_CURSOR, "cursor", "`next_cursor` of the page before.")]
Path = Annotated[str, Text(MAX_PATH, "path", "A path on the server's machine, below a folder that it may read.")]
Word = Annotated[str, Text(MAX_ID_BYTES, "word", "A text of at most 512 bytes of UTF-8, not blank, without NUL.")]
Position = Annotated[
    str,
    Text(
        MAX_ID_BYTES, "position", "A place in a recording, in your own form: at most 512 bytes of UTF-8, without NUL."
    ),
]
Content = Annotated[str, Text(MAX_CHUNK_BYTES, "content", "The text: 1 byte to 128 KiB of UTF-8, without NUL.")]
Language = Annotated[str, Text(MAX_ID_BYTES, "language", "A language by its English name or ISO 639-1 code.")]
FieldName = Annotated[str, Text(MAX_ID_BYTES, "field", "A field as filters write it.")]
_HIT_FIELDS, _CHUNK_FIELDS = ("|".join(kind.__dataclass_fields__) for kind in (SearchResult, StoredChunk))
HitFields = Annotated[
    list[Annotated[str, Field(pattern=f"^({_HIT_FIELDS})$")]],
    Field(
        min_length=1,
        description="Fields that the hits have in the answer; default: all. Leave content and metadata "
        "out for long lists.",
    ),
]
ChunkFieldNames = Annotated[
    str,
    Field(
        pattern=f"^({_CHUNK_FIELDS})(,({_CHUNK_FIELDS}))*$",
        description="Fields that the chunks have in the answer, with commas between them; default: all.",
    ),
]
# What stands in an address, where every byte may take three.
FilterParameter = Annotated[str, Text(MAX_PATH, "filter", "A filter as text, such as \"lang == 'de'\".")]
FilterMapping = Annotated[
    dict[str, Any],
    Field(
        description='A filter as an object, such as {"lang": "de", "year": {"$gte": 2020}}; see the page on filters.'
    ),
]
Filter = FilterText | FilterMapping
Boosts = Annotated[
    dict[FilterText, Annotated[float, Field(gt=0, le=1000)]],
    Field(max_length=MAX_BOOSTS, description="Filter as text -> factor, for the scores of what passes it."),
]
Share = Annotated[float, Field(ge=0.01, le=1)]
Time = Annotated[datetime, BeforeValidator(_iso_text), Field(strict=False)]
Mode = Literal["vector", "keyword", "hybrid"]
Fusion = Literal["completed", "rrf", "linear"]
Route = Literal["rules", "chat"]
Seconds = Annotated[float, Field(gt=0, le=MAX_DEADLINE_SECONDS)]


class Body(BaseModel):
    """A body: JSON's types are not turned into each other, and unknown names are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    collection: Name | None = Field(None, description="Name of the collection; default: that of the settings.")


def arguments(body: Body) -> dict[str, Any]:
    """What a body gives, by the names of the method's arguments."""
    found = {name: getattr(body, name) for name in type(body).model_fields if name != "collection"}
    if (candidates := found.pop("candidates", None)) is not None:
        found["tuning"] = {"candidates": candidates}
    if found.get("weights") is not None:
        found["weights"] = found["weights"].model_dump()
    return found


class Weights(BaseModel):
    """Weight per leg."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    vector: float = Field(ge=0, le=1)
    keyword: float = Field(ge=0, le=1)


class Searching(Body):
    """What searches have in common."""

    top_k: Annotated[int, Between(1, MAX_TOP_K)] | None = Field(
        None, description="Number of results; default: that of the settings."
    )
    filters: Filter | None = None
    mode: Mode | None = None
    rerank: bool | None = None
    fusion: Fusion | None = Field(None, description="Default: that of the settings.")
    weights: Weights | None = None
    boost: Boosts | None = None
    candidates: Annotated[int, Between(1, MAX_CANDIDATES)] | None = Field(None, description="Candidates of each leg.")
    min_similarity: float | None = Field(None, ge=-1, le=1)
    min_rerank: float | None = Field(None, ge=0, le=1)


class Listing(Searching):
    """What a search of one question has beside that."""

    vector: list[float] | None = Field(None, min_length=1, max_length=MAX_DIMENSIONS, description="A vector of yours.")
    deadline: Seconds | None = Field(None, description="Seconds; what has answered by then is the answer.")
    max_results: Annotated[int, Between(1, MAX_TOP_K)] | None = Field(
        None, description="Opens a list that is read page by page."
    )
    group_by: Literal["document"] | None = None
    group_size: Annotated[int, Between(1, MAX_GROUPED)] | None = None


class SearchBody(Listing):
    """A search."""

    query: Question
    fields: HitFields | None = None
    explain: bool = False
    route: Route | None = None


class CandidatesBody(Body):
    """Every candidate of both legs, to be ordered by whoever asks."""

    query: Question
    fields: HitFields | None = None
    depth: Annotated[int, Between(1, MAX_DEPTH)] = Field(DEFAULT_DEPTH, description="Candidates of each leg.")
    filters: Filter | None = None
    weights: Weights | None = None
    boost: Boosts | None = None
    deadline: Seconds | None = None


class PageBody(Body):
    """The next page of a list."""

    cursor: Cursor
    filters: Filter | None = None
    fields: HitFields | None = None
    deadline: Seconds | None = None


class ManyBody(Searching):
    """Many searches at once."""

    queries: list[Question] = Field(min_length=1, max_length=MAX_MANY)
    fields: HitFields | None = None


class ContextBody(Body):
    """Passages for a prompt."""

    question: Question
    tokens: Annotated[int, Between(1, MAX_TOKENS)] = DEFAULT_TOKENS
    top_k: Annotated[int, Between(1, MAX_HITS)] = DEFAULT_HITS
    filters: Filter | None = None
    mode: Mode | None = None
    rerank: bool | None = None
    fusion: Fusion | None = Field(None, description="Default: that of the settings.")
    boost: Boosts | None = None
    neighbours: Annotated[int, Between(0, MAX_NEIGHBOURS)] = 1
    sections: Share | None = 0.5
    parents: bool = False
    per_document: Annotated[int, Between(1, MAX_HITS)] | None = None
    near_duplicates: Share | None = 0.9
    diversity: float | None = Field(None, ge=0, le=1)
    order: Literal["score", "document"] = "score"
    route: Route | None = None


class AnswerBody(Body):
    """A question to be answered."""

    question: Question
    tokens: Annotated[int, Between(1, MAX_TOKENS)] = DEFAULT_TOKENS
    top_k: Annotated[int, Between(1, MAX_HITS)] = DEFAULT_HITS
    filters: Filter | None = None
    mode: Mode | None = None
    rerank: bool | None = None
    min_coverage: float = Field(MIN_COVERAGE, ge=0, le=1)
    min_similarity: float = Field(MIN_SIMILARITY, ge=0, le=1)
    route: Route | None = None
    stream: bool = Field(default=False, description="Whether sentences come one by one, as server-sent events.")


class WhyBody(Listing):
    """Why a document is in an answer, or not."""

    document: DocumentName
    question: Question
    route: Route | None = None


class FacetsBody(Body):
    """Values of fields."""

    fields: list[FieldName] = Field(min_length=1, max_length=MAX_FIELDS)
    filters: Filter | None = None
    query: Question | None = None
    mode: Mode | None = None
    limit: Annotated[int, Between(1, MAX_VALUES)] = 20


class GivenDocument(BaseModel):
    """A document to be stored."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    content: Content
    id: Id | None = None
    metadata: dict[str, Any] = Field(default_factory=dict, description="An object of JSON, at most 1 MiB.")
    parent_id: Id | None = None
    child_ids: list[Id] = Field(default_factory=list, max_length=MAX_IDS)
    created_at: Time | None = None
    updated_at: Time | None = None
    language: Language | None = None
    timestamp_start: Position | None = None
    timestamp_end: Position | None = None


class DocumentsBody(Body):
    """Documents to be stored as they are."""

    documents: list[GivenDocument] = Field(min_length=1, max_length=MAX_DOCUMENTS)
    on_duplicate: Literal["update", "skip", "fail"] = "update"
    create: bool = Field(default=False, description="Whether the collection is made where there is none.")


class DeleteBody(Body):
    """What is to be deleted; what is given must all hold."""

    ids: list[Id] | None = Field(None, max_length=MAX_IDS)
    document: DocumentName | None = None
    source: Word | None = None
    filters: Filter | None = None
    vanished: bool = False
    dry_run: bool = False


class IndexBody(Body):
    """Files and folders to be indexed, by a job."""

    paths: list[Path] = Field(min_length=1, max_length=MAX_PATHS)
    source: Word | None = None
    include: list[Word] | None = Field(None, max_length=MAX_PATHS)
    exclude: list[Word] | None = Field(None, max_length=MAX_PATHS)
    recursive: bool = True
    create: bool = Field(default=False, description="Whether the collection is made where there is none.")


class JobBody(Body):
    """A job."""

    kind: Literal["index", "sync", "add", "optimize", "rechunk", "embed", "reembed"]
    arguments: dict[str, Any] = Field(default_factory=dict)
    priority: Annotated[int, Between(-MAX_PRIORITY, MAX_PRIORITY)] = 0
    unique_key: Word | None = None
    not_before: Time | None = None
    max_attempts: Annotated[int, Between(1, MAX_ATTEMPTS)] = DEFAULT_ATTEMPTS
    create: bool = Field(default=False, description="Whether the collection is made where there is none.")


CollectionQuery = Annotated[Name | None, Field(description="Name of the collection; default: that of the settings.")]
