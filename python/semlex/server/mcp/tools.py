"""The tools of assistants. Each returns the library's objects as structure and their content as a few lines of text."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias
from urllib.parse import quote

from mcp.server.mcpserver import Context
from mcp.types import CallToolResult
from pydantic import BeforeValidator, Field

from semlex.chat import one_line, visible
from semlex.diagnostics.status import CollectionStatus, CountedCollection
from semlex.errors import ConfigurationError
from semlex.ingest.files.safe_open import only_below
from semlex.ingest.progress import IndexReport
from semlex.options.declare import declared
from semlex.options.search import SearchArguments
from semlex.server.answers import OF_THE_OPERATOR, Shape, attributes, chosen
from semlex.server.mcp.presentation import (
    MAX_RESULT,
    NOTICE,
    Budget,
    Quotes,
    place,
    placed,
    progress_line,
    progress_to,
    quoted,
    quoted_warnings,
    shown_metadata,
    titles,
    tool_result,
)
from semlex.store.keyword.base import Rebuilt
from semlex.types.answers import Answer, ContextSource
from semlex.types.confidence import SUPPORT_TEXT
from semlex.types.documents import LINE, Heading, Outline, StoredChunk, WholeDocument, json_value
from semlex.types.explanations import Explanation
from semlex.types.fields import FieldSummaries
from semlex.types.jobs import JobInfo
from semlex.types.queries import MAX_QUERY_BYTES, MAX_TERMS_BYTES, TERMS_TO_WRITE, terms_errors, words_of_terms
from semlex.types.results import SearchMode, SearchResult, SearchResults

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from semlex.retriever.collection import Collection as OpenedCollection
    from semlex.server.mcp.access import CollectionAccess

# Lower than the library's 1,000, because an assistant pays for each hit.
MAX_TOP_K = 50
# Deadline of a search, which then returns what has been found.
SEARCH_SECONDS = 30.0
MAX_HEADINGS = 500
MAX_IDS = 200
MAX_COLLECTIONS = 300
MAX_FIELDS = 200
MAX_VALUES = 10
MAX_VALUE = 100
MAX_JOBS = 20
# Newest jobs, among which those of accessible collections are looked for.
LISTED_JOBS = 1_000
MAX_PROBLEMS = 20
NOT_IN_HERE = "the answer is probably not in here. Search again with other words that the documents may use."
# `list_collections` has the description, in a quote.
LEFT_OUT = (*OF_THE_OPERATOR, "description")

# --- arguments

OPTIONS = declared(SearchArguments)

Collection: TypeAlias = Annotated[
    str | None,
    Field(description="Name of a collection, from list_collections. Default: the server's, or the only one."),
]
Question: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=MAX_QUERY_BYTES, description="The user's question.")
]
Terms: TypeAlias = Annotated[
    str | None,
    BeforeValidator(lambda given: words_of_terms(given) if given and not terms_errors(given) else given),
    Field(max_length=MAX_TERMS_BYTES, description=TERMS_TO_WRITE),
]
TopK: TypeAlias = Annotated[int, Field(ge=1, le=MAX_TOP_K, description="Number of hits.")]
Filters: TypeAlias = Annotated[
    str | None, Field(max_length=4096, description="A filter such as lang == 'de' and year >= 2020; see list_fields.")
]
Mode: TypeAlias = Annotated[
    SearchMode | None, Field(description="vector: by meaning; keyword: by words; default: both.")
]
Excluded: TypeAlias = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=512)]] | None,
    Field(max_length=64, description=OPTIONS["exclude"].option.text),
]
Document: TypeAlias = Annotated[
    str,
    Field(min_length=1, max_length=4096, description="Name or path as search shows it; a line may follow (keys.md:9)."),
]
ChunkId: TypeAlias = Annotated[str, Field(min_length=1, max_length=512, description="The id of a hit.")]
Start: TypeAlias = Annotated[int, Field(ge=0, description="next_start of the previous call.")]
Folder: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=4096, description="A folder or file: absolute, or below an allowed folder.")
]
NewCollection: TypeAlias = Annotated[
    str | None, Field(description="Name of a collection; a new one is made if none has this name.")
]
Patterns: TypeAlias = Annotated[
    list[Annotated[str, Field(max_length=1_000)]], Field(max_length=100, description="Glob patterns such as *.md.")
]
Included: TypeAlias = Annotated[Patterns | None, Field(description="Only files that fit one of them.")]
Recursive: TypeAlias = Annotated[bool, Field(description="Whether to enter subfolders.")]
Background: TypeAlias = Annotated[
    bool, Field(description="Whether a worker indexes it later; the result has a job id for job_status.")
]
Values: TypeAlias = Annotated[bool, Field(description="Whether to show the most frequent values, too.")]
JobId: TypeAlias = Annotated[
    str | None, Field(description="Id of a job, from index_folder. Default: the newest jobs.", max_length=100)
]

# --- results: keys of the library's objects, and what a tool adds

CHUNK = ("id", "content", "metadata", "heading_path", "page", "place")
HIT = (*CHUNK, *("rank", "vector_score", "keyword_score", "fused_score", "rerank_score", "coverage", "confidence"))
SEARCHED = ("mode", "best_similarity", "coverage", "support")
INDEXED = (
    *("added", "changed", "unchanged", "failed", "chunks", "embedded", "seconds"),
    *("problems", "without_text", "warnings"),
)
QUOTED: dict[str, Shape] = {"notice": Annotated[str, "How to treat everything that is quoted."], "collection": str}
CUT = Annotated[bool, "Whether there is more than is shown."]
PATH = Annotated[str | None, "Absolute path and line of the file, to open or to cite; null: not from a file."]
START: dict[str, Shape] = {
    "start": int,
    "next_start": Annotated[int | None, "Where to continue reading; null: this is the end."],
}
PLACE: dict[str, Shape] = {
    "uri": Annotated[str, "The chunk as a resource."],
    "path": PATH,
    "document": Annotated[str, "Name of the document in the collection, for get_document and outline."],
    "cut": Annotated[bool, "Whether the text is cut; get_chunk has all of it."],
}


def _without(kind: type, *names: str) -> dict[str, Shape]:
    return {name: shape for name, shape in attributes(kind).items() if name not in names}


def result_shapes() -> dict[str, Shape]:
    """Return tool -> shape of its result, from which its JSON schema is made."""
    sources = [{"number": int, "place": str, "headings": str, "chunk_ids": list[str], "path": PATH, "document": str}]
    return {
        "search": QUOTED
        | chosen(SearchResults, *SEARCHED, "warnings")
        | {"hits": [chosen(SearchResult, *HIT) | PLACE]},
        "get_chunk": QUOTED | START | {"chunk": chosen(SearchResult, *CHUNK) | PLACE},
        "get_document": QUOTED
        | START
        | chosen(WholeDocument, "name", "text", "notes")
        | {"uri": str, "path": PATH, "characters": Annotated[int, "Length of the whole text."], "chunk_ids": list[str]},
        "outline": QUOTED | chosen(Outline, "name", "notes") | {"headings": [Heading], "path": PATH, "cut": CUT},
        "answer_research_question": QUOTED | _without(Answer, "sources") | {"sources": sources},
        "why": QUOTED | attributes(Explanation),
        "list_collections": {
            "notice": QUOTED["notice"],
            "collections": [CountedCollection],
            "complete": Annotated[bool, "Whether the list is complete; other names work as well."],
            "writes": Annotated[bool, "Whether documents can be added and indexes changed here."],
            "folders": Annotated[list[str], "Folders that index_folder may read."],
        },
        "collection_stats": _without(CollectionStatus, *LEFT_OUT),
        "list_fields": QUOTED
        | attributes(FieldSummaries)
        | {"complete": Annotated[bool, "Whether the list has all fields."]},
        "job_status": {"jobs": [_without(JobInfo, "arguments")]},
        "index_folder": chosen(IndexReport, *INDEXED)
        | {
            "collection": str,
            "folder": str,
            "job_id": Annotated[str | None, "Id of a background job, for job_status. With one, the counts are 0."],
        },
        "optimize_search": {"collection": str, "merged": Annotated[int, "Segments of the keyword index."]},
        "reindex_collection": {"collection": str} | attributes(Rebuilt),
    }


class Tools:
    """The tools of assistants, over the collections that they have access to."""

    def __init__(self, access: CollectionAccess) -> None:
        self._access = access

    async def search(
        self,
        query: Question,
        terms: Terms = None,
        collection: Collection = None,
        *,
        top_k: TopK = 5,
        filters: Filters = None,
        mode: Mode = None,
        exclude: Excluded = None,
    ) -> CallToolResult:
        """Return the hits of a search, best first."""
        searched = await self._access.collection(collection)
        found = await searched.search(
            query, top_k, filters, mode=mode, exclude=exclude, terms=terms, deadline=SEARCH_SECONDS
        )
        name = searched.names.collection
        warnings, is_missing = self._worded(found.warnings), found.support == "unlikely"
        hits = [] if is_missing else shown_hits(name, found, Budget())
        if not is_missing and len(hits) < len(found):
            warnings.append(f"{len(found) - len(hits)} more hits do not fit into one result: give a lower top_k")
        figures = {key: getattr(found, key) for key in SEARCHED}
        result = _quoted(name) | figures | {"warnings": warnings, "hits": hits}
        if not hits:
            lines = [f"Nothing was found in {name!r}: {NOT_IN_HERE}"]
        else:
            quotes = Quotes()
            number = f"{len(hits)} hit" + ("" if len(hits) == 1 else "s")
            verdict = SUPPORT_TEXT[found.support]
            lines = [f"{number} in {name!r} ({found.mode}), best first; {verdict}. {quotes.head()}"]
            lines += [
                quotes.quote(_source(hit), hit["content"], label=f"[{hit['rank']}]", is_cut=hit["cut"]) for hit in hits
            ]
        return tool_result(result, "\n\n".join([*lines, *quoted_warnings(warnings)]))

    async def get_chunk(self, chunk_id: ChunkId, collection: Collection = None, start: Start = 0) -> CallToolResult:
        """Return one chunk with its whole text."""
        opened = await self._access.collection(collection)
        name = opened.names.collection
        passage, after = shown_passage(name, await read_chunk(opened, chunk_id), start=start)
        result = _quoted(name) | {"chunk": passage, "start": start, "next_start": after}
        more = "" if after is None else f"\nMore text: get_chunk with start={after}."
        return tool_result(result, quoted(_source(passage), passage["content"], is_cut=passage["cut"]) + more)

    async def get_document(self, document: Document, collection: Collection = None, start: Start = 0) -> CallToolResult:
        """Return the text of a document."""
        result = await self.read_document(await self._access.collection(collection), document, start)
        after = result["next_start"]
        more = "" if after is None else f"\nMore text: get_document with start={after}."
        size, source = f"{result['characters']:,} characters", result["path"] or one_line(result["name"])
        return tool_result(result, quoted(source, result["text"], label=size, is_cut=bool(more)) + more)

    async def read_document(self, opened: OpenedCollection, document: str, start: int) -> dict[str, Any]:
        """Return a document, or as much of it as fits into a result."""
        found, budget = await opened.documents.get(document), Budget()
        whole, uri = visible(found.text), f"document://{opened.names.collection}/{quote(found.name)}"
        path = place(found.chunks[0]) if found.chunks else None
        ids = list(takewhile(Budget(MAX_RESULT // 4).take, [chunk.id for chunk in found.chunks[:MAX_IDS]]))
        budget.take(found.name, uri, path, *ids)
        text, is_cut = budget.cut(whole[start:], MAX_RESULT)
        return _quoted(opened.names.collection) | {
            "name": found.name,
            "uri": uri,
            "path": path,
            "text": text,
            "start": start,
            "next_start": start + len(text) if is_cut else None,
            "characters": len(whole),
            "chunk_ids": ids,
            "notes": self._worded(found.notes),
        }

    async def outline(self, document: Document, collection: Collection = None) -> CallToolResult:
        """Return the headings of a document."""
        opened, budget = await self._access.collection(collection), Budget()
        found = await opened.documents.outline(document)
        first = next((one.chunk_ids[0] for one in found.headings if one.chunk_ids), None)
        chunks = [] if first is None else await opened.get([first])
        path = (place(chunks[0]) or "").rpartition(":")[0] if chunks else ""
        headings = json_value(found.headings[:MAX_HEADINGS])
        for one in headings:
            one["chunk_ids"] = one["chunk_ids"][:MAX_IDS]
        headings = list(takewhile(lambda one: budget.take(one["title"], *one["chunk_ids"]), headings))
        result = _quoted(opened.names.collection) | {
            "name": found.name,
            "path": path or None,
            "headings": headings,
            "cut": len(headings) < len(found.headings),
            "notes": self._worded(found.notes),
        }
        lines = [
            f"{'  ' * (one['level'] - 1)}{one_line(one['title'])}" + (f"  (line {one['line']})" if one["line"] else "")
            for one in headings
        ]
        source = f"Headings of {path or one_line(found.name)}"
        return tool_result(result, quoted(source, "\n".join(lines), is_cut=result["cut"]))

    async def answer_research_question(
        self,
        question: Question,
        terms: Terms = None,
        collection: Collection = None,
        top_k: TopK = 20,
        filters: Filters = None,
    ) -> CallToolResult:
        """Return an answer with citations."""
        opened = await self._access.collection(collection)
        found = await opened.answer(question, top_k=top_k, filters=filters, terms=terms)
        result = _quoted(opened.names.collection) | found.to_dict() | {"warnings": self._worded(found.warnings)}
        passages = {source.number: source for source in found.context.sources}
        for one in result["sources"]:
            source = passages[one["number"]]
            del one["text"]
            one["path"] = _path(source, source.line)
            one["document"] = document_name(source.hits[0]) if source.hits else source.document
        for one in (cited for sentence in result["sentences"] for cited in sentence["citations"]):
            cited_source = passages.get(one["source"])
            one["path"] = None if cited_source is None else _path(cited_source, one["line"])
        return tool_result(result, _answer_text(found, result))

    async def why(
        self,
        document: Document,
        question: Question,
        terms: Terms = None,
        *,
        collection: Collection = None,
        top_k: TopK = 5,
        filters: Filters = None,
        mode: Mode = None,
    ) -> CallToolResult:
        """Return why a document has its rank in the results, or why it is missing."""
        opened = await self._access.collection(collection)
        found = await opened.why(document, question, top_k, filters, mode=mode, terms=terms, deadline=SEARCH_SECONDS)
        result = _quoted(opened.names.collection) | found.to_dict() | {"notes": self._worded(found.notes)}
        for reason in result["reasons"]:
            reason["remedy"] = self._access.for_assistant(reason["remedy"])
        lines = [
            f"{one['text']} [{one['code']}]" + (f"\n  remedy: {one['remedy']}" if one["remedy"] else "")
            for one in result["reasons"]
        ]
        lines += self._worded(map(str, (*found.legs, *found.terms, *found.notes)))
        title = f"{one_line(found.name or found.document)}: {'found' if found.found else 'not found'}"
        return tool_result(result, quoted(title, "\n".join(lines)))

    async def list_collections(self) -> CallToolResult:
        """Return the collections that the caller may see."""
        access = self._access.access
        counted = [one for one in await self._access.client.count_collections() if access.sees(one.name)]
        shown = counted[:MAX_COLLECTIONS]
        values, budget = json_value(shown), Budget()
        for one in values:
            about = one_line(one["description"])
            one["description"] = about if budget.take(about) else ""
        result = {
            "notice": NOTICE,
            "collections": values,
            "complete": len(shown) == len(counted),
            "writes": access.may("write"),
            "folders": [str(folder) for folder in access.folders],
        }
        lines = [f"{one.name}: {_count(one.documents)} documents, {_count(one.chunks)} chunks" for one in shown]
        if described := [f"{one['name']}: {one['description']}" for one in values if one["description"]]:
            lines += ["", quoted("", "\n".join(described), label="What is in them:")]
        lines += [f"... and {len(counted) - len(shown):,} more"] if len(shown) < len(counted) else []
        return tool_result(result, "\n".join(lines) or "No collections exist yet.")

    async def collection_stats(self, collection: Collection = None) -> CallToolResult:
        """Return the figures of a collection."""
        opened = await self._access.collection(collection)
        found = (await opened.status()).to_dict()
        result = {name: value for name, value in found.items() if name not in LEFT_OUT}
        if result["index_problem"] is not None:
            result["index_problem"] = self._access.for_assistant(result["index_problem"])
        lines = [f"{name}: {value}" for name, value in result.items() if isinstance(value, (str, int, float))]
        return tool_result(result, "\n".join(lines))

    async def list_fields(self, collection: Collection = None, values: Values = False) -> CallToolResult:
        """Return the fields that filters can name."""
        opened = await self._access.collection(collection)
        found, budget, name = await opened.fields.list(values=values), Budget(), opened.names.collection
        result = _quoted(name) | found.to_dict()
        for one in result["fields"]:
            one["values"] = [
                value[:MAX_VALUE] if isinstance(value, str) else value for value in one["values"][:MAX_VALUES]
            ]
        fields = result["fields"] = list(
            takewhile(lambda one: budget.take(one["name"], *map(str, one["values"])), result["fields"][:MAX_FIELDS])
        )
        result["complete"] = found.are_all and not found.left_out and len(found) == len(fields)
        lines = [
            f"{one_line(one['name'])}: {', '.join(one['types'])}"
            + (f"; for example {', '.join(map(str, one['values']))}" if one["values"] else "")
            for one in fields
        ]
        text = quoted(f"Fields of {name!r}", "\n".join(lines), is_cut=not result["complete"])
        return tool_result(result, text)

    async def job_status(self, job_id: JobId = None) -> CallToolResult:
        """Return one job, or the newest ones."""
        access = self._access.access
        if job_id is None:
            listed = await self._access.client.jobs(limit=LISTED_JOBS)
            jobs = [job for job in listed if access.sees(job.collection)][:MAX_JOBS]
        else:
            job = await self._access.client.job(job_id)
            if not access.sees(job.collection):
                raise ConfigurationError(f"job {job_id!a} does not exist")
            jobs = [job]
        shown = [{name: value for name, value in job.to_dict().items() if name != "arguments"} for job in jobs]
        lines, errors = [], []
        for one in shown:
            progress = one["progress"]
            how_far = f" ({progress_line(**progress)})" if progress else ""
            lines.append(f"{one['id']}: {one['kind']} of {one['collection']!r}: {one['state']}{how_far}")
            if one["error"] is not None:
                errors.append(f"{one['id']}: {one['error']['code']}: {one['error']['message']}")
            if problems := (one["result"] or {}).get("problems"):
                one["result"] = one["result"] | {"problems": problems[:MAX_PROBLEMS]}
                errors += [
                    f"{one['id']}: {one_line(bad['source_document'])}: {bad['code']}" for bad in problems[:MAX_PROBLEMS]
                ]
        if errors:  # they name files
            lines += ["", quoted("", "\n".join(errors), label="Errors:")]
        return tool_result({"jobs": shown}, "\n".join(lines) or "No jobs.")

    async def index_folder(
        self,
        folder: Folder,
        *,
        context: Context[Any, Any],
        collection: NewCollection = None,
        include: Included = None,
        exclude: Patterns = [],  # noqa: B006 - copied by pydantic
        recursive: Recursive = True,
        background: Background = False,
    ) -> CallToolResult:
        """Read files into a collection."""
        path = self._access.access.folder(folder)
        opened = await self._access.collection(collection, create=True)
        options: dict[str, Any] = {"include": include, "exclude": exclude, "recursive": recursive}
        report, job_id, name = IndexReport(), None, opened.names.collection
        if background:
            job_id = (await opened.jobs.submit("index", {"paths": [str(path)], **options})).id
        else:
            async with progress_to(context) as progress:
                with only_below(self._access.access.folders):
                    report = await opened.index(path, **options, progress=progress)
        result = {key: json_value(getattr(report, key)) for key in INDEXED} | {
            "collection": name,
            "folder": str(path),
            "job_id": job_id,
            "warnings": self._worded(report.warnings),
        }
        for problems in ("problems", "without_text"):
            result[problems] = result[problems][:MAX_PROBLEMS]
        if background:
            return tool_result(
                result, f"Submitted as job {job_id}; a worker runs it. job_status tells how far it has come."
            )
        counts = (
            f"{report.added} documents added, {report.changed} changed, {report.unchanged} unchanged, {report.failed} "
            f"failed; {report.chunks} chunks written to {name!r}."
        )
        lines = [
            *(
                f"{one['code']}: {one_line(one['source_document'])}: {one_line(one['message'])}"
                for one in [*result["problems"], *result["without_text"]]
            ),
            *(f"Warning: {one_line(warning)}" for warning in result["warnings"]),
        ]
        if not lines:
            return tool_result(result, counts)
        # Names of files, and what a loader says of them.
        return tool_result(result, f"{counts} {quoted('', chr(10).join(lines))}")

    async def optimize_search(self, context: Context[Any, Any], collection: Collection = None) -> CallToolResult:
        """Merge the keyword index."""
        opened = await self._access.collection(collection)
        async with progress_to(context) as progress:
            merged = await opened.indexes.optimize(progress)
        result = {"collection": opened.names.collection, "merged": merged}
        return tool_result(result, f"{merged} segments of the keyword index of {result['collection']!r} were merged.")

    async def reindex_collection(self, context: Context[Any, Any], collection: Collection = None) -> CallToolResult:
        """Rebuild the keyword index."""
        opened = await self._access.collection(collection)
        async with progress_to(context) as progress:
            rebuilt = await opened.indexes.rebuild_keyword(progress)
        name = opened.names.collection
        result = {"collection": name} | json_value(rebuilt)
        return tool_result(result, f"The keyword index of {name!r} was rebuilt from {rebuilt.chunks} chunks.")

    def _worded(self, messages: Iterable[str]) -> list[str]:
        return [self._access.for_assistant(message) for message in messages]


def _quoted(collection: str) -> dict[str, Any]:
    return {"notice": NOTICE, "collection": collection}


async def read_chunk(opened: OpenedCollection, chunk_id: str) -> StoredChunk:
    """Return a chunk by its id."""
    found = await opened.get([chunk_id])
    if not found:
        raise ConfigurationError(
            f"chunk {chunk_id!a} is not in {opened.names.collection!r}: use the id of a hit; when a file "
            "changes, its chunks get new ids"
        )
    return found[0]


def document_name(chunk: StoredChunk) -> str:
    """Return the name of a chunk's document, in the form that tools accept."""
    if not chunk.source_document:
        return chunk.id
    return f"{chunk.source}: {chunk.source_document}" if chunk.source else chunk.source_document


def shown_passage(collection: str, chunk: StoredChunk, *, start: int = 0) -> tuple[dict[str, Any], int | None]:
    """Return a chunk with its text from `start` on, and the character at which that text is cut (None: nowhere)."""
    budget, passage = Budget(), _passage(collection, chunk, CHUNK)
    budget.take(*_names(passage))
    # What describes the whole is in every part.
    passage["metadata"] = shown_metadata(chunk.metadata, budget)
    passage["content"], passage["cut"] = budget.cut(visible(chunk.content)[start:], MAX_RESULT)
    return passage, start + len(passage["content"]) if passage["cut"] else None


def shown_hits(collection: str, found: Sequence[SearchResult], budget: Budget) -> list[dict[str, Any]]:
    """Return as many hits as fit; the first ones with their texts, the others by name only."""
    hits = list(takewhile(lambda hit: budget.take(*_names(hit)), [_passage(collection, hit, HIT) for hit in found]))
    for hit, chunk in zip(hits, found, strict=False):
        hit["content"], hit["cut"] = budget.cut(chunk.content)
        hit["metadata"] = shown_metadata(chunk.metadata, budget)
    return hits


def _passage(collection: str, chunk: StoredChunk, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the named keys of a chunk's `to_dict`, and its place; the caller adds text and metadata."""
    return {name: getattr(chunk, name) for name in names} | {
        "content": "",
        "metadata": {},
        "heading_path": titles(chunk),
        "uri": f"chunk://{collection}/{quote(chunk.id, safe='')}",
        "path": place(chunk, getattr(chunk, "match_line", None)),
        "document": document_name(chunk),
        "cut": False,
    }


def _names(passage: dict[str, Any]) -> tuple[str | None, ...]:
    return passage["id"], passage["uri"], passage["path"], passage["document"], *passage["heading_path"]


def _source(passage: dict[str, Any]) -> str:
    """Return a line with a passage's source; it must be quoted, too, because its words come from the document."""
    above = [_where(passage["path"], passage["document"], passage["place"]), " > ".join(passage["heading_path"])]
    return f"{' — '.join(filter(None, above))} (chunk_id {' '.join(passage['id'].split())})"


def _where(path: str | None, document: str, place: str) -> str:
    # A line is in the path, which opens the file there.
    shown = "" if place.startswith(LINE) else one_line(place)
    return " — ".join(filter(None, (path or one_line(document), shown)))


def _path(source: ContextSource, line: int | None) -> str | None:
    root = next((hit.root for hit in source.hits if hit.root), "")
    return placed(f"{root}/{source.document}", line) if root else None


def _answer_text(found: Answer, result: dict[str, Any]) -> str:
    if not found.text:
        lines = [f"No answer: {found.refused}"]
    else:
        quotes = Quotes()
        label = "Passages of the documents"
        if found.documented is not None:
            label = f"Answer (written by {found.model}; documented by quotes: {found.documented:.0%})"
        lines = [f"{quotes.head()}\n\n{quotes.quote('', found.text, label=label)}"]
        cited = {one.source for one in found.citations}
        places = [
            f"[{one['number']}] {_where(one['path'], one['document'], one['place'])}"
            for one in result["sources"]
            if one["number"] in cited
        ]
        if places:
            lines.append(quotes.quote("", "\n".join(places), label="Sources:"))
    if found.unsupported:
        lines.append(f"{len(found.unsupported)} sentences are not supported by a quote that exists in the documents.")
    return "\n\n".join([*lines, *quoted_warnings(result["warnings"])])


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"
