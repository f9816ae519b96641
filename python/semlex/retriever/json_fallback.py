"""A knowledge base in JSON files: the fallback of a search, or a retriever that needs no server and no model."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from semlex import _core
from semlex.errors import ConfigurationError, ReadOnlyError
from semlex.filters.evaluate import holds
from semlex.filters.forms import Filters, filter_tree
from semlex.options.collection import DEFAULT_BM25
from semlex.retriever.base import DocumentRetriever, Openable
from semlex.store.keyword.base import MAX_TERMS, Exclusions, folded, without_operators
from semlex.types.documents import Document, StoredChunk
from semlex.types.queries import DEFAULT_TOP_K, MAX_TOP_K, SearchQuery
from semlex.types.results import SearchResult, SearchResults

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from semlex.filters.tree import FilterTree
    from semlex.ingest.files.discovery import FileProblem

TITLES = ("title", "name")


@dataclass(frozen=True, slots=True)
class _Entry:
    """An object of a JSON file that directly holds strings.

    Attributes:
        chunk: The entry as a hit.
        counts: How often each term occurs in its texts and titles.
        length: Number of terms.
        text: Its texts and titles.
    """

    chunk: StoredChunk
    counts: Counter[str]
    length: int
    text: str


class JSONKBRetriever(Openable, DocumentRetriever):
    """Searches the ``*.json`` files of a folder by words, in memory.

    A file holds an object or a list of objects. Every object, at any depth, that has strings or lists of strings is an
    entry. The entry's text has one line for each of these fields; its heading path is the names of the fields above
    the object; its id is the field ``id``, else the file and the path inside; its title is ``title`` or ``name``;
    numbers and truth values are its metadata. Scores are BM25 (`Bm25Options`), as in a collection.

    Give it as ``fallback=`` of a search, or search it alone. The files are read once, at the first search.

    Args:
        folder: The folder, or a file.
        language: Language of the texts: a name or an ISO 639-1 code.
        top_k: Default number of results, 1 to 1,000.

    Attributes:
        problems: Files that could not be read, and why; known after the first search.

    Raises:
        ConfigurationError: The folder does not exist, or the language is unknown.
        ValidationError: `top_k` is out of range.
    """

    problems: list[FileProblem]

    def __init__(self, folder: str | Path, *, language: str = "english", top_k: int = DEFAULT_TOP_K) -> None:
        from semlex.ingest.files.discovery import checked_paths

        SearchQuery("any", None, top_k)  # has the rule of top_k
        self._top_k = top_k
        [self._folder] = checked_paths([folder])
        try:
            self._analyzer = _core.Analyzer(language)
        except (ValueError, TypeError) as error:
            raise ConfigurationError(str(error)) from None
        self.problems = []
        self._entries: list[_Entry] | None = None
        self._reading = asyncio.Lock()

    @property
    def identity(self) -> str:
        """The name of this retriever in `SearchResults.fallback`."""
        return f"json:{self._folder.name}"

    async def initialize(self) -> None:
        """Read the files now instead of at the first search."""
        async with self._reading:
            if self._entries is None:
                self._entries = await asyncio.to_thread(lambda: list(self._read()))

    async def close(self) -> None:
        """Forget the entries; the next search reads the files again."""
        self._entries = None

    async def search(self, query: str, top_k: int | None = None, filters: Filters | None = None) -> SearchResults:
        """Return the entries that fit a query best, best first.

        Args:
            query: A question or words, 1 character to 4 KiB after trimming.
            top_k: Number of results, 1 to 1,000; None: that of the constructor.
            filters: As for a collection, over the entries' metadata, ``@source_document`` (the file) and ``@heading``.

        Raises:
            ValidationError: The query, top_k or a filter is refused.
        """
        started = time.perf_counter()
        top_k = self._top_k if top_k is None else top_k
        checked, tree = SearchQuery(query, None, top_k), filter_tree(filters)
        await self.initialize()
        entries = self._entries or []
        hits = await asyncio.to_thread(self._hits, entries, (checked.query_text or "").strip(), top_k, tree)
        warnings = [f"{problem.source_document} was not read: {problem.message}" for problem in self.problems]
        total = (time.perf_counter() - started) * 1000
        return SearchResults(
            hits, mode="keyword", requested_mode="keyword", timings={"total": total}, warnings=warnings,
            fallback=self.identity,
        )  # fmt: skip

    async def add_documents(self, documents: Iterable[Document]) -> list[str]:
        """Raise an error: this retriever only reads the files.

        Raises:
            ReadOnlyError: Always.
        """
        del documents
        raise ReadOnlyError("a JSONKBRetriever only reads: add the object to one of its files")

    def _hits(self, entries: list[_Entry], query: str, top_k: int, tree: FilterTree | None) -> list[SearchResult]:
        asked = self._analyzer.query(without_operators(query) or query, MAX_TERMS)
        kept = self._analyzer.matches([one.text for one in entries], [], asked.excluded).tolist()
        passing = [
            without and (tree is None or holds(tree, one.chunk.metadata, _own(one.chunk)))
            for without, one in zip(kept, entries, strict=True)
        ]
        wanted = folded(term for _, term in asked.wanted)
        average = sum(one.length for one in entries) / len(entries) if entries else 0.0
        k1, b = DEFAULT_BM25.k1, DEFAULT_BM25.b
        scores = [0.0] * len(entries)
        for term in sorted(set(wanted)):
            found = [number for number, one in enumerate(entries) if term in one.counts]
            # Robertson and Zaragoza (2009), with the inverse document frequency of Lucene.
            idf = math.log(1 + (len(entries) - len(found) + 0.5) / (len(found) + 0.5))
            for number in found:
                frequency, length = entries[number].counts[term], entries[number].length
                scores[number] += idf * frequency * (k1 + 1) / (frequency + k1 * (1 - b + b * length / average))
        fitting = [number for number, score in enumerate(scores) if score and passing[number]]
        best = sorted(fitting, key=lambda number: (-scores[number], number))[:top_k]
        excerpts = _core.excerpts([entries[number].chunk.content for number in best])
        return [
            SearchResult(
                **{one.name: getattr(entries[number].chunk, one.name) for one in fields(StoredChunk)},
                rank=rank,
                keyword_rank=rank,
                keyword_score=scores[number],
                excerpt=excerpt,
            )
            for rank, (number, (excerpt, _)) in enumerate(zip(best, excerpts, strict=True), 1)
        ]

    def _read(self) -> Iterator[_Entry]:
        from semlex.ingest.files.discovery import FileProblem, find_files, read_file
        from semlex.ingest.files.selection import Selection
        from semlex.ingest.loaders.base import LoadError, LoadOptions
        from semlex.ingest.loaders.decoding import decode
        from semlex.ingest.loaders.records import parse_json

        self.problems.clear()
        for found in find_files(self._folder, Selection(None, (), ("json",))):
            file = found if isinstance(found, FileProblem) else read_file(found)
            if isinstance(file, FileProblem):
                self.problems.append(file)
                continue
            try:
                value = parse_json(decode(file.data, LoadOptions()).text)
                if not isinstance(value, dict) and not (
                    isinstance(value, list) and all(isinstance(one, dict) for one in value)
                ):
                    raise LoadError("bad_json", "it holds neither an object nor a list of objects")  # noqa: TRY301
            except LoadError as error:
                self.problems.append(FileProblem(file.uri, error.code, str(error)))
                continue
            for pointer, names, given in _objects(value, "", ()):
                yield self._entry(file.uri, pointer, names, given)

    def _entry(self, uri: str, pointer: str, names: tuple[str, ...], given: Mapping[str, Any]) -> _Entry:
        title = next((str(given[name]) for name in TITLES if isinstance(given.get(name), str)), "")
        own = given.get("id")
        is_id = isinstance(own, (str, int)) and not isinstance(own, bool) and own != ""
        texts = {name: text for name, value in given.items() if name != "id" and (text := _text(value))}
        content = "\n".join(f"{name}: {text}" for name, text in texts.items())
        chunk = StoredChunk(
            content,
            {name: value for name, value in given.items() if isinstance(value, (bool, int, float))},
            id=str(own) if is_id else f"{uri}#{pointer}",
            source=self._folder.name,
            source_document=uri,
            heading_path=(*names, title) if title else names,
        )
        text = "\n".join([*names, *texts.values()])
        counts = Counter(folded(self._analyzer.terms(text)))
        return _Entry(chunk, counts, sum(counts.values()), text)


async def fallen_back(
    found: SearchResults, fallback: DocumentRetriever, query: SearchQuery, exclusions: Exclusions | None
) -> SearchResults:
    """Search the fallback for a query that found nothing in a collection; leave out hits that the query excludes."""
    name = getattr(fallback, "identity", type(fallback).__name__)
    text, top_k = query.query_text or "", query.top_k
    wanted = top_k
    while True:
        instead = await fallback.search(text, wanted, query.filters)
        hits = list(map(hit_of, instead))
        if exclusions is None:
            break
        held = exclusions.held([(hit.language, "\n".join(hit.heading_path), hit.content) for hit in hits])
        hits = [hit for hit, is_held in zip(hits, held.tolist(), strict=True) if not is_held][:top_k]
        if len(hits) == top_k or len(instead) < wanted or wanted == MAX_TOP_K:
            break
        wanted = min(2 * wanted, MAX_TOP_K)
    for rank, hit in enumerate(hits, 1):
        hit.rank = rank
    outcome = "answered instead" if hits else "found nothing either"
    told = f"the collection has no hit; the fallback {name} {outcome}"
    return SearchResults(
        hits,
        mode=instead.mode if isinstance(instead, SearchResults) else "keyword",
        requested_mode=found.requested_mode,
        timings=found.timings,
        warnings=[*found.warnings, told, *(instead.warnings if isinstance(instead, SearchResults) else [])],
        fallback=name,
        route=found.route,
    )


def hit_of(document: Document) -> SearchResult:
    """Return a document as a hit."""
    if isinstance(document, SearchResult):
        return document
    return SearchResult(document.content, document.metadata, str(document.id))


def _own(chunk: StoredChunk) -> dict[str, Any]:
    """Return the values of an entry's fields that filters name with a leading ``@``, such as ``@source``."""
    return {
        "id": chunk.id,
        "source": chunk.source,
        "source_document": chunk.source_document,
        "heading": list(chunk.heading_path),
    }


def _objects(value: Any, pointer: str, names: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...], dict[str, Any]]]:
    """Yield the objects that directly hold strings, each with its JSON pointer and the names of the fields above it."""
    if isinstance(value, dict):
        if any(_text(one) for name, one in value.items() if name != "id"):
            yield pointer, names, value
        for name, one in value.items():
            yield from _objects(one, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}", (*names, name))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _objects(one, f"{pointer}/{number}", names)


def _text(value: Any) -> str:
    """Return a string, or a list of strings joined by commas; "" for anything else."""
    texts = [value] if isinstance(value, str) else value
    are_texts = isinstance(texts, list) and all(isinstance(one, str) for one in texts)
    return ", ".join(filter(None, map(str.strip, texts))) if are_texts else ""
