"""Preview files: show their chunks, or why they cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semlex.ingest.chunk_rows import chunk_context
from semlex.ingest.document_chunks import Chunk, Chunker, Reading, cut_file
from semlex.ingest.files.discovery import FileProblem, checked_paths, find_files, read_file
from semlex.ingest.files.selection import Selection
from semlex.ingest.loaders.base import LoadError, LoadOptions, is_left_out
from semlex.ingest.loaders.registry import loader_named, loaders
from semlex.models.tokenizer import TokenCounter, WordCounter
from semlex.options.collection import DEFAULT_LIMITS, CollectionOptions, FileLimits, WantedOptions
from semlex.types.documents import StoredPlace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class PreviewedChunk:
    """A chunk that would be stored.

    Attributes:
        place: Where it begins in the file, such as ``line 9``, ``p. 36`` or ``row 4``; "" if the format has no places.
        chunk_type: ``text`` or ``code``.
        heading_path: Titles above it, outermost first.
        context: Analysed and embedded with the text: title, headings, and the introduction of its list, table or code.
    """

    text: str
    place: str
    tokens: int
    chunk_type: str
    heading_path: tuple[str, ...]
    context: str
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PreviewedFile:
    """The preview of a file.

    Attributes:
        source_document: Path below the named folder.
        problem: Why it cannot be read, or None.
        is_skipped: Whether it would be left out because of this problem (`LoadOptions.on_bad_text`).
        repaired: Number of replaced characters.
    """

    source_document: str
    format: str
    title: str
    chunks: list[PreviewedChunk]
    problem: FileProblem | None = None
    is_skipped: bool = False
    repaired: int = 0


def preview_chunks(
    *paths: str | Path,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    recursive: bool = True,
    chunk_tokens: int | None = None,
    overlap_tokens: int | None = None,
    min_tokens: int | None = None,
    counter: TokenCounter | None = None,
    options: LoadOptions | None = None,
    limits: FileLimits = DEFAULT_LIMITS,
) -> Iterator[PreviewedFile]:
    """Read and split files as `index` does, without writing or connecting to a server.

    Args:
        paths: Files and folders.
        include: Glob patterns of files to read; default: all with a loader.
        exclude: Glob patterns of files and folders to leave out.
        recursive: Whether to enter subfolders.
        chunk_tokens: Maximum tokens of a chunk. Default: 500.
        overlap_tokens: Maximum overlap of neighbours. Default: 50, less for short chunks.
        min_tokens: Shorter sections are joined with the next if both fit. Default: 32, or `chunk_tokens` / 4 if less.
        counter: Token counter, such as an embedder. Default: Unicode words.
        options: How files are read.
        limits: Size limits of files.

    Yields:
        One file after another, in the order of `index`.

    Raises:
        ConfigurationError: A path does not exist, or a number is out of bounds.
    """
    wanted = CollectionOptions(chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens, min_tokens=min_tokens)
    chunker = Chunker(counter or WordCounter(), WantedOptions.of(wanted, None).chunk_settings())
    known = loaders()
    options = options or LoadOptions()
    reading = Reading(chunker, known, options)
    selection = Selection(include, exclude, known.keys(), recursive, limits)
    for found in find_files(checked_paths(paths), selection):
        file = found if isinstance(found, FileProblem) else read_file(found)
        if isinstance(file, FileProblem):
            yield PreviewedFile(file.source_document, "", "", [], file)
            continue
        try:
            cut = cut_file(file, reading)
        except LoadError as error:
            problem = FileProblem(file.uri, error.code, error.message)
            name = loader_named(file.uri, known).name
            yield PreviewedFile(file.uri, name, "", [], problem, is_skipped=is_left_out(options, error))
            continue
        chunks = [_previewed(cut.title, one) for one in cut.chunks]
        yield PreviewedFile(file.uri, cut.format, cut.title, chunks, repaired=cut.loaded.repaired)


def _previewed(title: str, chunk: Chunk) -> PreviewedChunk:
    return PreviewedChunk(
        chunk.text,
        StoredPlace.of(chunk.place).for_people(chunk.line, chunk.page),
        chunk.token_count,
        chunk.chunk_type,
        tuple(chunk.heading_path),
        chunk_context(title, chunk),
        dict(chunk.metadata),
    )
