"""The interface of a loader, which turns a file into text with structure, and of a function that extracts metadata."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, runtime_checkable

from semlex import _core
from semlex.errors import ConfigurationError, FieldError
from semlex.json_values import json_tree
from semlex.options.indexing import OnBadText
from semlex.types.documents import MAX_METADATA_BYTES, MAX_METADATA_DEPTH, NOWHERE, Document, StoredPlace
from semlex.validation import callable_errors, check_parameters, is_one_of, refuse, wrong_type

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from datetime import datetime

# What a loader says of a text that cannot be decoded, or cannot be stored.
BAD_TEXT_CODES = frozenset({"bad_text", "binary", "not_utf8", "not_utf16"})


class LoadError(Exception):
    """A file that cannot be turned into text; it becomes one line of the run's report.

    Args:
        code: A short name of the problem, such as ``encrypted``.
        message: What is wrong and what helps; it must not quote the text.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How files are read; the same for all files of a run.

    Attributes:
        text_fields: Fields of tables and JSON Lines that are text, joined by blank lines; empty: all fields with text.
        id_field: Field of tables and JSON Lines that names a record, or None.
        detect_encoding: Whether text that is not UTF-8 is read in its most probable encoding.
        on_bad_text: For undecodable bytes and characters that cannot be stored (NUL, lone surrogates): ``error``
            reports the file, ``repair`` replaces each by U+FFFD, ``skip`` leaves the file out.

    Raises:
        ConfigurationError: `on_bad_text` is unknown.
    """

    text_fields: Sequence[str] = ()
    id_field: str | None = None
    detect_encoding: bool = False
    on_bad_text: OnBadText = "error"

    def __post_init__(self) -> None:
        if not is_one_of(self.on_bad_text, get_args(OnBadText)):
            raise ConfigurationError(f"on_bad_text must be error, repair or skip; got {self.on_bad_text!r:.80}")


def is_left_out(options: LoadOptions, error: LoadError) -> bool:
    """Return whether a file with this error is left out instead of failing."""
    return options.on_bad_text == "skip" and error.code in BAD_TEXT_CODES


@dataclass(frozen=True, slots=True)
class FileBytes:
    """The content of a file.

    Attributes:
        uri: Path below the root of its source, with ``/``.
        content_hash: SHA-256, 32 bytes.
        modified_at: In UTC.
    """

    uri: str
    data: bytes
    content_hash: bytes
    modified_at: datetime

    @property
    def suffix(self) -> str:
        """The suffix of the name in lower case, without the dot; a name without a dot is its own suffix."""
        return suffix_of(self.uri)


def suffix_of(uri: str) -> str:
    """Return the suffix of a name in lower case, without the dot; a name without a dot is its own suffix."""
    return uri.rpartition("/")[2].lower().rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Record:
    """A part of a text that is split separately: a table row, a notebook cell, a finished chunk.

    Attributes:
        start: First character in the text.
        end: Last character, exclusive.
        structure: As in `LoadedDocument`; None: the structure of the whole text.
        metadata: JSON values that its chunks get in addition to the document's.
        titles: Titles above it, outermost first, instead of headings.
        is_chunk: Whether it stays whole.
        line: Line of the file where it begins, from 1, or None; used if the text does not have the lines of the file.
        place: Its row, cell or sheet; if it has several rows, also the characters where the later ones begin.
    """

    start: int
    end: int
    structure: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    titles: Sequence[str] = ()
    summary: str = ""
    is_chunk: bool = False
    line: int | None = None
    place: StoredPlace = NOWHERE


@dataclass(frozen=True, slots=True)
class LoadedDocument:
    """The text of a file.

    Attributes:
        structure: ``plain``, ``markdown``, ``restructuredtext``, or ``code:`` with a suffix (``code:py``).
        title: None to use its first heading of level 1.
        metadata: JSON values that every chunk gets.
        pages: First character of each page, ascending; empty without pages.
        records: Parts to split separately, ascending; text outside of them is left out. Empty: split the whole text.
        encoding: The detected encoding, or None.
        format: Name of the format, if it is not the loader's.
        repaired: Number of replaced characters.
        has_lines: Whether the lines of the text are those of the file. If not, its chunks have no line.
    """

    text: str
    structure: str = "plain"
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    pages: Sequence[int] = ()
    records: Sequence[Record] = ()
    encoding: str | None = None
    format: str | None = None
    repaired: int = 0
    has_lines: bool = True


@runtime_checkable
class Loader(Protocol):
    """Turns files of one format into text.

    If it uses `LoadOptions.text_fields` and `id_field`, it has an attribute `reads_fields` that is True: files are
    then read again when these options change.
    """

    @property
    def name(self) -> str:
        """Name of the format, in lower case; stored with every document."""
        ...

    @property
    def suffixes(self) -> Sequence[str]:
        """Suffixes in lower case, without the dot; a name without a dot (``makefile``) is its own suffix."""
        ...

    @property
    def version(self) -> int:
        """Number that changes when the loader's output changes; documents of older versions can be split again."""
        ...

    def load(self, file: FileBytes, options: LoadOptions) -> LoadedDocument:
        """Turn a file into text; any thread may call this.

        Raises:
            LoadError: It cannot be read.
        """
        ...


Extract = Callable[[Document], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
"""Reads metadata out of a text; sync or async."""


@dataclass(frozen=True, slots=True)
class MetadataExtraction:
    """A function that extracts metadata from texts.

    Given metadata (front matter, table fields, `Document.metadata`) takes precedence.

    Attributes:
        extract: Receives a `Document` (text, metadata so far, path or id); returns a mapping or an awaitable. A
            function without ``async`` is called in another thread than the event loop's.
        per: ``document`` or ``chunk``: what each call gets. An added document is one chunk.
    """

    extract: Extract
    per: Literal["document", "chunk"] = "document"

    def __post_init__(self) -> None:
        check_parameters(
            wrong_type("extract_metadata", "function", None) if self.extract is None else [],
            callable_errors("extract_metadata", self.extract),
            [] if self.per in ("document", "chunk") else refuse("per", "not_usable", "'document' or 'chunk'"),
        )


def extracted_metadata(
    extraction: MetadataExtraction, document: Document, loop: AbstractEventLoop | None
) -> dict[str, Any]:
    """Return a document's metadata together with the metadata that the user's function extracts.

    This blocks. An asynchronous function runs on `loop`, so the caller must be in another thread.
    """
    own = dict(document.metadata)
    try:
        found = extraction.extract(document)
        if inspect.isawaitable(found):
            found = _awaited(found, loop)
    except Exception as error:
        raise _failed(f"extract_metadata raised {type(error).__name__}") from error
    if not isinstance(found, Mapping):
        raise _failed(f"extract_metadata returned {type(found).__name__} instead of a mapping")
    metadata: dict[str, Any] = json_tree({**found, **own})
    limits = {"max_bytes": MAX_METADATA_BYTES, "max_depth": MAX_METADATA_DEPTH}
    if errors := _core.validate_rows([("metadata", "jsonb", [metadata], limits)], None):
        raise _failed(f"the result of extract_metadata cannot be stored: {FieldError(-1, *errors[0][1:])}")
    return metadata


def checked_extraction(value: MetadataExtraction | Extract | None) -> MetadataExtraction | None:
    """Return the option `extract_metadata` as a `MetadataExtraction`, or None."""
    return value if value is None or isinstance(value, MetadataExtraction) else MetadataExtraction(value)


def _awaited(found: Awaitable[Mapping[str, Any]], loop: AbstractEventLoop | None) -> Mapping[str, Any]:
    async def wait() -> Mapping[str, Any]:
        return await found

    return asyncio.run(wait()) if loop is None else asyncio.run_coroutine_threadsafe(wait(), loop).result()


def _failed(message: str) -> LoadError:
    return LoadError("extraction_failed", f"{message}: correct the function")
