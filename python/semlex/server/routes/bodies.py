"""Request bodies with their limits: a body that the schema accepts is not refused by later checks of single values."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    create_model,
)
from pydantic_core import CoreSchema, core_schema

from semlex.options.declare import Declared, Operation, arguments_of, declared, unpacked
from semlex.options.indexing import FindOptions
from semlex.options.search import MAX_FIELDS
from semlex.retriever.collection import Collection
from semlex.retriever.fields import Fields
from semlex.retriever.jobs import Jobs
from semlex.store.query.selection import MAX_BOOSTS
from semlex.store.query.statistics import MAX_DESCRIPTION_BYTES
from semlex.types.documents import MAX_CHUNK_BYTES, MAX_ID_BYTES, StoredChunk
from semlex.types.queries import MAX_QUERY_BYTES, MAX_TERMS_BYTES
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
    """Return a number without a fractional part as a whole number: JSON does not distinguish 5.0 from 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _iso_text(value: Any) -> Any:
    """Refuse numbers and texts of digits: they would be read as seconds since 1970."""
    if not isinstance(value, str) or not DATE.match(value):
        raise ValueError("must be a time as text in ISO 8601, such as 2026-01-31T12:00:00Z")
    return value


@dataclass(frozen=True, slots=True)
class Between:
    """A schema for whole numbers with bounds."""

    least: int | None
    most: int | None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source, handler
        bounded = core_schema.int_schema(ge=self.least, le=self.most, strict=True)
        return core_schema.no_info_before_validator_function(_whole, bounded)


Name = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,47}$", description="Name of a collection.")]


@dataclass(frozen=True, slots=True)
class Text:
    """A schema for texts whose rules JSON Schema cannot express: `format` names them, the description explains them."""

    most: int
    format: str
    description: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source, handler
        return core_schema.str_schema(min_length=1, max_length=self.most)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
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
Cursor = Annotated[str, Text(MAX_CURSOR, "cursor", "`next_cursor` of the previous page.")]
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
        description="Fields of each hit to return; default: all. Leave content and metadata out for long lists.",
    ),
]
ChunkFieldNames = Annotated[
    str,
    Field(
        pattern=f"^({_CHUNK_FIELDS})(,({_CHUNK_FIELDS}))*$",
        description="Fields of each chunk to return, separated by commas; default: all.",
    ),
]
# In an address, where every byte may take three.
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
    Field(max_length=MAX_BOOSTS, description="Filter as text -> factor on the scores of the chunks that pass it."),
]
TermsText = Annotated[
    str, Text(MAX_TERMS_BYTES, "terms", "Words with blanks between them: at most 1,024 bytes of UTF-8, without NUL.")
]
# Together they may not be longer than one text.
Terms = TermsText | Annotated[list[TermsText], Field(max_length=MAX_MANY)]
Time = Annotated[datetime, BeforeValidator(_iso_text), Field(strict=False)]


STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Weights(BaseModel):
    """Weight of each search."""

    model_config = STRICT

    vector: float = Field(ge=0, le=1)
    keyword: float = Field(ge=0, le=1)


class Body(BaseModel):
    """A request body: values are not converted between JSON types, and unknown names are refused."""

    model_config = STRICT
    groups: ClassVar[dict[str, str]] = {}  # argument -> the group of options that it is one of

    collection: Name | None = Field(None, description="Name of the collection; default: the one in the settings.")

    def given(self) -> dict[str, Any]:
        """Return the given values by the names of the method's arguments."""
        found: dict[str, Any] = {}
        for name in self.model_fields_set - {"collection"}:
            value = getattr(self, name)
            place = found.setdefault(self.groups[name], {}) if name in self.groups else found
            place[name] = value.model_dump() if isinstance(value, BaseModel) else value
        return found


B = TypeVar("B", bound=Body)
# What texts and objects hold.
TEXTS: dict[str, Any] = {
    "query": Question,
    "question": Question,
    "queries": Annotated[list[Question], Field(min_length=1, max_length=MAX_MANY)],
    "document": DocumentName,
    "cursor": Cursor,
    "fields": Annotated[list[FieldName], Field(min_length=1, max_length=MAX_FIELDS)],
}
OBJECTS: dict[str, Any] = {
    "filter": Filter,
    "boosts": Boosts,
    "vector": Annotated[list[float], Field(min_length=1, max_length=MAX_DIMENSIONS)],
    "object": Weights,
    "flag": bool,
    "text": Word,
    "texts": Annotated[list[Word], Field(max_length=MAX_PATHS)],
    "time": Time,
    "words": Terms,
}
# Options that requests may give and the command line does not offer.
ALSO = ("rerank", "weights", "vector")


def takes(method: Callable[..., Any], declaration: type | None = None) -> Callable[[type[B]], type[B]]:
    """Return a decorator that adds a method's declared options, or those of one declaration, to a body as fields."""

    def made(body: type[B]) -> type[B]:
        fields: dict[str, Any] = {}
        known = _options(method)
        for one in known.values() if declaration is None else [known[name] for name in declared(declaration)]:
            parts = {name: part for name, part in one.parts.items() if part.option.offered}
            fields |= {name: _field(part) for name, part in (parts or {one.name: one}).items()}
            body.groups = body.groups | dict.fromkeys(parts, one.name)
        return create_model(body.__name__, __base__=body, __doc__=body.__doc__, __module__=body.__module__, **fields)

    return made


def _options(method: Callable[..., Any]) -> dict[str, Declared]:
    marked: Operation = method.__operation__  # type: ignore[attr-defined]
    known = {name: one for options in marked.declarations for name, one in declared(options).items()}
    rest = unpacked(method)
    taken = {*inspect.signature(method).parameters, *(declared(rest) if rest is not None else ())}
    found = {name: one for name, one in arguments_of(method).items() if one.option.offered}
    return found | {name: known[name] for name in ALSO if name in known and name in taken}


def _field(one: Declared) -> tuple[Any, Any]:
    """Return an option's type and field in a body; the method's default applies if a request leaves it out."""
    option, kind = one.option, TEXTS.get(one.name) or OBJECTS.get(one.form)
    if one.form == "choice":
        kind = Literal[one.choices]
    elif one.form == "integer":
        kind = Annotated[
            int, Between(*(None if bound is None else int(bound) for bound in (option.minimum, option.maximum)))
        ]
    elif one.form == "texts" and option.maximum is not None:
        kind = Annotated[list[Word], Field(max_length=int(option.maximum))]
    elif one.form == "number":
        kind = Annotated[float, Field(ge=option.minimum, gt=option.above, le=option.maximum)]
    if one.name in TEXTS and not one.optional:
        return kind, Field(description=option.text)
    assert kind is not None, one.name  # noqa: S101 - every form has a type
    # Not a default of the schema: the settings of the server may hold another.
    return (kind | None if one.optional else kind), Field(default_factory=lambda: None, description=option.text)


class HitsBody(Body):
    """A request for hits."""

    fields: HitFields | None = None


@takes(Collection.search)
class SearchBody(HitsBody):
    """A search."""


@takes(Collection.candidates)
class CandidatesBody(HitsBody):
    """A request for every candidate of both searches, to be ordered by the client."""


@takes(Collection.search_page)
class PageBody(HitsBody):
    """A request for the next page of a list."""


@takes(Collection.search_many)
class ManyBody(HitsBody):
    """The body of a request with several searches."""


@takes(Collection.context)
class ContextBody(Body):
    """A request for passages for a prompt."""


@takes(Collection.answer)
class AnswerBody(Body):
    """A question to be answered."""

    stream: bool = Field(default=False, description="Whether sentences come one by one, as server-sent events.")


@takes(Collection.why)
class WhyBody(Body):
    """A request to explain why a document is in the results, or missing."""


@takes(Fields.facets)
class FacetsBody(Body):
    """A request for the values of fields."""


class GivenDocument(BaseModel):
    """A document to be stored."""

    model_config = STRICT

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
    """Documents to be stored, each as one chunk."""

    documents: list[GivenDocument] = Field(min_length=1, max_length=MAX_DOCUMENTS)
    on_duplicate: Literal["update", "skip", "fail"] = "update"
    create: bool = Field(default=False, description="Whether to create the collection if it does not exist.")


class DescriptionBody(BaseModel):
    """A description of a collection's content."""

    model_config = STRICT

    text: (
        Annotated[str, Text(MAX_DESCRIPTION_BYTES, "word", "At most 1,000 bytes of UTF-8, not blank, without NUL.")]
        | None
    ) = Field(description="What the collection contains; null: describe it by the titles of its documents again.")


class DeleteBody(Body):
    """Conditions of the chunks to delete; all given ones must be met."""

    ids: list[Id] | None = Field(None, max_length=MAX_IDS)
    document: DocumentName | None = None
    source: Word | None = None
    filters: Filter | None = None
    vanished: bool = False
    dry_run: bool = False


@takes(Collection.index, FindOptions)
class IndexBody(Body):
    """Files and folders to be indexed, by a job."""

    paths: list[Path] = Field(min_length=1, max_length=MAX_PATHS)
    create: bool = Field(default=False, description="Whether to create the collection if it does not exist.")


@takes(Jobs.submit)
class JobBody(Body):
    """A job to be stored."""

    kind: Literal["index", "sync", "add", "optimize", "rechunk", "embed", "reembed"]
    arguments: dict[str, Any] = Field(default_factory=dict)
    create: bool = Field(default=False, description="Whether to create the collection if it does not exist.")


CollectionQuery = Annotated[Name | None, Field(description="Name of the collection; default: the one in the settings.")]
