"""What tools return, as schemas tell it to programs. Words of documents are cleaned before they get here."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

MAX_PROBLEMS = 20
PROBLEMS: Any = Field(
    default=[], description=f"Files that failed, and files without text (no_text); at most {MAX_PROBLEMS}."
)


class Quoted(BaseModel):
    """A result that holds words of documents."""

    notice: str = Field(description="What is to be kept in mind of everything that is quoted.")
    collection: str


class Passage(BaseModel):
    """A chunk of a document."""

    chunk_id: str
    uri: str = Field(description="The chunk as a resource.")
    path: str | None = Field(description="Absolute path and line of the file, to open or to cite; null: from no file.")
    document: str = Field(description="Name of the document in the collection, for get_document and outline.")
    headings: list[str] = Field(description="Titles above the text, outermost first.")
    page: int | None = None
    text: str
    cut: bool = Field(description="Whether the text goes on; get_chunk has all of it.")
    metadata: dict[str, Any] = Field(description="Empty where it is too long to be shown.")


class Hit(Passage):
    """A chunk that was found."""

    rank: int
    similarity: float | None = Field(description="Cosine of question and text, -1 to 1.")
    keyword_score: float | None = Field(description="Score of shared words, comparable within one search.")
    score: float | None = Field(description="Both together; orders the hits of one search, and means nothing else.")
    rerank_score: float | None
    confidence: float | None = Field(description="Probability that it is relevant, where that was calibrated.")


class SearchFound(Quoted):
    """Hits, best first."""

    mode: str = Field(description="What answered: vector, keyword or hybrid.")
    hits: list[Hit]
    best_similarity: float | None
    coverage: float | None = Field(description="Share of the question's words in the best hit, by weight, 0 to 1.")
    warnings: list[str]


class ChunkText(Quoted):
    """One chunk with its text."""

    chunk: Passage
    start: int
    next_start: int | None = Field(description="Where to go on reading; null: this is the end.")


class DocumentText(Quoted):
    """The text of a document, or a part of it."""

    document: str
    uri: str
    path: str | None
    text: str
    start: int
    next_start: int | None = Field(description="Where to go on reading; null: this is the end.")
    characters: int = Field(description="Of the whole text.")
    chunk_ids: list[str] = Field(description="Its chunks in order, at most 200.")
    notes: list[str]


class HeadingFound(BaseModel):
    """A heading of a document."""

    level: int
    title: str
    line: int | None
    chunk_ids: list[str]


class OutlineFound(Quoted):
    """The headings of a document in order."""

    document: str
    path: str | None
    headings: list[HeadingFound]
    cut: bool = Field(description="Whether there are more headings.")
    notes: list[str]


class WhyReason(BaseModel):
    """One reason for where a document is."""

    code: str
    text: str
    remedy: str


class WhyFound(Quoted):
    """Why a document is where it is in the answer to a question, or missing."""

    document: str
    found: bool
    rank: int | None
    reasons: list[WhyReason] = Field(description="The first one decides.")
    figures: list[str]


class CitationFound(BaseModel):
    """A quote of an answer, looked up in its document."""

    source: int
    path: str | None
    document: str
    quote: str
    verdict: str = Field(description="exact and normalised: these words stand there; anything else: they do not.")


class AnswerSource(BaseModel):
    """A passage that the answer was made from."""

    number: int
    path: str | None
    document: str
    headings: str
    chunk_ids: list[str]


class AnswerFound(Quoted):
    """An answer with its evidence, or why there is none."""

    answer: str = Field(description="Empty where there is none.")
    refused: str | None = Field(description="Why there is no answer.")
    confidence: float = Field(description="0 to 1: how well it is documented, not whether it is true.")
    model: str | None = Field(description="What wrote it; null: sentences of the documents as they stand there.")
    unsupported: list[str] = Field(description="Sentences whose quotes were not found in the documents.")
    citations: list[CitationFound]
    sources: list[AnswerSource]
    warnings: list[str]


class CollectionFound(BaseModel):
    """A collection of documents."""

    name: str
    documents: int | None
    chunks: int | None
    estimated: bool
    embedding_model: str | None
    language: str


class CollectionsFound(BaseModel):
    """The collections that there are."""

    collections: list[CollectionFound]
    complete: bool = Field(description="Whether these are all; others can be named all the same.")
    writes: bool = Field(description="Whether documents can be added and indexes changed here.")
    folders: list[str] = Field(description="Folders that index_folder may read.")


class CollectionStats(BaseModel):
    """Figures of a collection."""

    collection: str
    documents: int
    chunks: int
    tokens: int | None
    sources: int
    estimated: bool
    embedding_model: str | None
    embedded: int = Field(description="Chunks with a vector.")
    keyword: str = Field(description="Keyword engine.")
    language: str
    keyword_segments: int | None = Field(description="Parts of the keyword index; optimize_search merges them.")
    keyword_problem: str | None = Field(description="What is damaged; reindex_collection makes it anew.")
    last_run: datetime | None = Field(description="When files were read last.")


class FieldFound(BaseModel):
    """A field of the documents' metadata."""

    name: str
    types: dict[str, int] = Field(description="Type -> how many of the chunks have it.")
    indexed: list[str]
    values: list[Any] = Field(description="The most frequent ones, where they were asked for.")


class FieldsFound(Quoted):
    """What filters can name."""

    fields: list[FieldFound]
    chunks: int = Field(description="How many were looked at.")
    complete: bool = Field(description="Whether these are all fields.")


class FileFailed(BaseModel):
    """A file that could not be read, or has no text."""

    path: str
    code: str
    message: str = ""


class IndexFound(BaseModel):
    """What indexing did, or the job that does it."""

    collection: str
    folder: str
    job_id: str | None = Field(
        default=None, description="Of a job in the background; job_status follows it. The counts are 0 then."
    )
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    failed: int = 0
    chunks: int = 0
    problems: list[FileFailed] = PROBLEMS
    warnings: list[str] = []


class JobFound(BaseModel):
    """Work in the background."""

    id: str
    kind: str
    collection: str
    state: str = Field(description="queued, running, done, failed or cancelled.")
    attempts: int
    progress: str | None
    error: str | None
    result: dict[str, int] | None
    problems: list[FileFailed] = PROBLEMS
    submitted_at: datetime
    finished_at: datetime | None


class JobsFound(BaseModel):
    """Jobs, the newest first."""

    jobs: list[JobFound]


class WorkDone(BaseModel):
    """What was done to a collection."""

    collection: str
    done: str
    number: int
